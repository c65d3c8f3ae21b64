"""Every recorded JSON body fits its type, and what Java wrote is written again byte for byte."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from cometmq.codec import bodies, fastjson, java_properties, registration, route_json
from cometmq.codec.bodies.clients import HeartbeatData
from cometmq.model.group import ConsumeFromWhere, ConsumeType, MessageModel
from cometmq.model.route import TopicRoute
from tests.golden.wire_frames import RecordedFrame, frames

FOREIGN = {"cpp-0.4.4", "go-v2", "node-ali-ons"}
"""Clients that are not Java: what they send keeps its meaning, not its bytes."""

NOT_JSON_REQUESTS = {10, 25, 39, 309, 310, 318, 320, 325, 326}
"""Messages, batches and properties."""

NOT_JSON_ANSWERS = {11, 12, 26, 33, 319, 361, 200050}
"""Stored messages and properties."""

DEFAULTS = {
    "classFilterMode": False,
    "codeSet": [],
    "consumerDataSet": [],
    "expressionType": "TAG",
    "producerDataSet": [],
    "tagsSet": [],
    "unitMode": False,
}
"""Members that clients other than Java leave out, and what a broker takes instead."""

ENUMS = {
    "consumeFromWhere": ConsumeFromWhere,
    "consumeType": ConsumeType,
    "messageModel": MessageModel,
}


def json_frames() -> Iterator[tuple[RecordedFrame, Any]]:
    """Frames with a JSON body, and its type."""
    for frame in frames():
        is_answer = frame.kind == "response"
        code = frame.request_code if frame.request_code is not None else frame.code
        raw = NOT_JSON_ANSWERS if is_answer else NOT_JSON_REQUESTS
        if frame.body and code not in raw:
            types = bodies.RESPONSE_BODIES if is_answer else bodies.REQUEST_BODIES
            assert code in types, f"no type for {frame.label}"
            yield frame, types[code]


def is_from_java(frame: RecordedFrame) -> bool:
    return frame.sender == "server" or frame.source not in FOREIGN


def test_bodies_that_java_wrote_are_written_again_byte_for_byte() -> None:
    checked = 0
    for frame, kind in json_frames():
        if is_from_java(frame) and kind is not TopicRoute:
            assert bodies.encode(bodies.decode(kind, frame.body)) == frame.body, frame.label
            checked += 1

    assert checked == 255


def test_bodies_without_dialect_are_standard_json() -> None:
    checked = 0
    for frame, kind in json_frames():
        if bodies.FORMS.get(kind, bodies.Form.STANDARD) is bodies.Form.STANDARD:
            msgspec.json.decode(frame.body)
            checked += 1

    assert checked == 227


def test_bodies_of_other_clients_lose_nothing() -> None:
    checked = 0
    for frame, kind in json_frames():
        if not is_from_java(frame):
            again = fastjson.loads(bodies.encode(bodies.decode(kind, frame.body)))
            assert differences(fastjson.loads(frame.body), again) == [], frame.label
            checked += 1

    assert checked == 30


def test_the_numbers_of_a_cpp_heartbeat_are_understood() -> None:
    sent = [f.body for f in frames("cpp-0.4.4") if f.code == 34 and b'"consumeType":1' in f.body]

    consumer = bodies.decode(HeartbeatData, sent[0]).consumer_data_set[0]

    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert {type(s.sub_version) for s in consumer.subscription_data_set} == {int}


def test_routes_are_written_again_for_the_version_that_asked() -> None:
    """On purpose not as recorded: older clients get no ``enableActingMaster`` (trap 36)."""
    asked = {(f.source, f.conn, f.opaque): f for f in frames() if f.code == 105}
    seen = set()
    for frame, kind in json_frames():
        if kind is TopicRoute:
            version = request_version(asked[frame.source, frame.conn, frame.opaque])
            expected = frame.body
            if version < route_json.STANDARD_VERSION_MIN:
                expected = expected.replace(b',"enableActingMaster":false', b"")
            route = bodies.decode(TopicRoute, frame.body)
            assert route_json.encode(route, version) == expected, frame.label
            seen.add(version)

    assert seen == {63, 121, 317, 407, 513}


def test_registrations_survive_compression() -> None:
    """What the compressed form does not carry (order, flags, mapping version) is not recorded."""
    for frame, kind in json_frames():
        if frame.code == 103 and frame.kind != "response":
            version = 407 if frame.client_version == "4.9.7" else 513
            body = registration.decode(frame.body, version)
            table = body.topic_config_serialize_wrapper
            packed = registration.encode(body, version, compressed=True)

            again = registration.decode(packed, version)

            kept = again.topic_config_serialize_wrapper
            assert bodies.decode(kind, frame.body) == body, frame.label
            assert kept.topic_config_table == table.topic_config_table, frame.label
            assert kept.data_version == table.data_version, frame.label


def test_properties_are_written_again_byte_for_byte() -> None:
    asked = [f for f in frames() if f.kind == "request" and f.code in (25, 318)]
    answered = [f for f in frames() if f.request_code in (26, 319)]
    recorded = [frame for frame in asked + answered if frame.body]

    for frame in recorded:
        assert java_properties.dumps(java_properties.loads(frame.body)) == frame.body, frame.label
    assert len(recorded) == 12


def request_version(frame: RecordedFrame) -> int:
    if frame.serialization == 0:
        return int(json.loads(frame.header)["version"])
    return int(struct.unpack_from(">h", frame.header, 3)[0])


def differences(recorded: Any, kept: Any, name: str = "$") -> list[str]:
    """What was recorded and is not kept, and what is kept without having been recorded."""
    if isinstance(recorded, dict):
        added = {key: kept[key] for key in kept.keys() - recorded.keys()}
        found = [f"{name}.{key} added" for key in added if DEFAULTS.get(key) != added[key]]
        found += [f"{name}.{key} lost" for key in recorded.keys() - kept.keys()]
        shared = recorded.keys() & kept.keys()
        return found + [d for key in shared for d in differences(recorded[key], kept[key], key)]
    if isinstance(recorded, list):
        if len(recorded) != len(kept):
            return [f"{name} has {len(kept)} items"]
        pairs = zip(recorded, kept, strict=True)
        return [d for old, new in pairs for d in differences(old, new, name)]
    if name in ENUMS and isinstance(recorded, int):
        recorded = list(ENUMS[name])[recorded].name
    return [] if str(recorded) == str(kept) else [f"{name} is {kept}"]
