"""Targets for text formats: JSON in fastjson's dialect, bodies, configuration, registrations."""

import json as standard_json
import math
import zlib
from typing import Any

import msgspec

from cometmq.codec import bodies, fastjson, java_properties, registration, route_json
from cometmq.codec.bodies import documents
from cometmq.codec.fastjson import ObjectKey, PrettyStyle
from cometmq.model.route import TopicRoute
from fuzz.checks import Refused, attempt, attempt_to_write, require_same

BODY_TYPES: tuple[Any, ...] = tuple(
    dict.fromkeys((*bodies.REQUEST_BODIES.values(), *bodies.RESPONSE_BODIES.values()))
)
"""What the first byte of an input of ``json_bodies`` chooses from."""

DOCUMENT_NAMES = tuple(documents.DOCUMENTS)
"""What the first byte of an input of ``config_files`` chooses from."""

VERSIONS = (0, 36, 401, 413, 513)
"""What the low bits of the first byte of an input of ``registrations`` choose from."""

IS_INFLATED = 0x80
"""In that byte: the rest are the sections themselves, and the target does the compressing."""

_INFLATED_BYTES_MAX = 1024 * 1024
_REFERENCE = b"$ref"


def json_texts(data: bytes) -> None:
    """Any document: both readers agree on it, and what was read can be written and read again."""
    value = attempt(fastjson.loads, data)
    decoded = attempt(fastjson.decode, data, object)
    if isinstance(value, Refused) or _REFERENCE in data:
        return
    require_same(decoded, value, "decoded without a type")
    # The word makes a document one that only our own reader may read.
    slow = attempt(fastjson.loads, b"[" + data + b',"$ref"]')
    if not isinstance(slow, Refused):
        require_same(slow, [value, "$ref"], "read by the slow reader")
    if _has_null_in_a_key(value):
        return
    expected = _without_null(value)
    require_same(fastjson.loads(fastjson.dumps(value)), expected, "compact")
    for style in PrettyStyle:
        pretty = fastjson.dumps_pretty(value, style)
        require_same(fastjson.loads(pretty), expected, f"pretty, {style.name}")
    standard = attempt_to_write(fastjson.dumps_standard, value)
    if not isinstance(standard, Refused):
        standard_json.loads(standard)


def json_bodies(data: bytes) -> None:
    """The body of a request or an answer; the first byte chooses which."""
    kind, content = BODY_TYPES[sum(data[:1]) % len(BODY_TYPES)], data[1:]
    body = attempt(bodies.decode, kind, content)
    if isinstance(body, Refused):
        return
    again = bodies.decode(kind, bodies.encode(body))
    if _is_kept(body):
        require_same(again, body, "body written again")
        if _REFERENCE not in content:
            _require_same_slowly(content, kind, body)
        if isinstance(body, TopicRoute):
            _check_route(body)


def config_files(data: bytes) -> None:
    """A file of a store's ``config`` directory; the first byte chooses which."""
    name, content = DOCUMENT_NAMES[sum(data[:1]) % len(DOCUMENT_NAMES)], data[1:]
    document = attempt(documents.decode, content, name=name)
    if isinstance(document, Refused):
        return
    previous = None if _REFERENCE in content else attempt(fastjson.loads, content)
    if isinstance(previous, Refused):
        return
    for style in PrettyStyle:
        written = documents.encode(document, name=name, style=style, previous=previous)
        again = documents.decode(written, name=name)
        if _is_kept(document):
            require_same(again, document, f"{name} written again, {style.name}")


def registrations(data: bytes) -> None:
    """The body of REGISTER_BROKER from a broker of the release that the first byte chooses."""
    choice, content = sum(data[:1]), data[1:]
    version = VERSIONS[(choice & ~IS_INFLATED) % len(VERSIONS)]
    body = zlib.compress(content, 1) if choice & IS_INFLATED else content
    found = attempt(registration.decode, body, version, inflated_bytes_max=_INFLATED_BYTES_MAX)
    if isinstance(found, Refused):
        return
    if not choice & IS_INFLATED:
        again = registration.decode(registration.encode(found, 513), 513)
        if _is_kept(found):
            require_same(again, found, "registration written again")
        return
    # Once written, mappings that were left out are an empty table.
    written = registration.encode(found, version, compressed=True)
    rewritten = registration.encode(registration.decode(written, version), version, compressed=True)
    assert rewritten == written, (zlib.decompress(rewritten), zlib.decompress(written))


def properties_files(data: bytes) -> None:
    """Java's properties text."""
    found = attempt(java_properties.loads, data)
    if not isinstance(found, Refused):
        again = java_properties.loads(java_properties.dumps(found))
        require_same(again, found, "properties written again")


def _require_same_slowly(content: bytes, kind: Any, body: Any) -> None:
    """The long way round, document then type, leads to the same body or to a refusal.

    It may be refused because the short way does not look at members that nobody wants.
    """
    converted = attempt(lambda: fastjson.convert(fastjson.loads(content), kind))
    if not isinstance(converted, Refused):
        require_same(converted, body, f"{kind} converted")


def _check_route(route: TopicRoute) -> None:
    # What is carried without a type may have integers for keys, which standard JSON has not.
    route = msgspec.structs.replace(route, topic_queue_mapping_by_broker=None)
    standard = route_json.encode(route, 0, standard_only=True)
    require_same(fastjson.decode(standard, TopicRoute), route, "route in standard JSON")
    old = fastjson.decode(route_json.encode(route, 0), TopicRoute)
    brokers = zip(old.broker_datas, route.broker_datas, strict=True)
    for found, expected in brokers:
        bare = msgspec.structs.replace(expected, enable_acting_master=None)
        require_same(found, bare, "broker for an old client")


def _is_kept(value: Any) -> bool:
    """Whether a value is written as it is: null in a table is left out, NaN becomes null."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, msgspec.Struct):
        return all(map(_is_kept, msgspec.structs.astuple(value)))
    if isinstance(value, dict):
        return None not in value.values() and all(map(_is_kept, (*value, *value.values())))
    return not isinstance(value, list | tuple) or all(map(_is_kept, value))


def _has_null_in_a_key(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_null_in_a_key, value))
    if not isinstance(value, dict):
        return False
    keys = (key for key in value if isinstance(key, ObjectKey))
    return any(None in key.values() or _has_null_in_a_key(key) for key in keys) or any(
        map(_has_null_in_a_key, value.values())
    )


def _without_null(value: Any) -> Any:
    """Members that are null are not written; items of a list are."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_null(member) for key, member in value.items() if member is not None}
    return value
