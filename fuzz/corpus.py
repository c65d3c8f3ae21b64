"""Where fuzzing starts: seeds from the recordings and vectors in ``tests/data``, and a dictionary.

Each target has its own seeds, in the form it takes (some have a byte or two in front). They are
few and short: what matters is one of each kind, not all of them.
"""

import base64
import itertools
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cometmq.codec import bodies, compression, sysflag
from cometmq.codec.record import Record, parse
from cometmq.errors import RemoteProtocolError
from fuzz.documents import BODY_TYPES, DOCUMENT_NAMES, IS_INFLATED, VERSIONS
from tests.golden import store_data, wire_frames
from tests.golden.wire_frames import RecordedFrame

SEEDS_MAX = 250
SEED_BYTES_MAX = 4_096

_VECTORS = Path(store_data.__file__).parent.parent / "data" / "vectors"
_STORES = ("4.9.7-clean", "5.5.0-killed")
_QUEUE_CONTROL = b"\0\0\xff\0"
_INDEX_SLOTS = 100
_CONFIG_REQUESTS = (26, 319)
_HOT_REQUESTS = (10, 11, 310)
_BATCH_SEND = 320
_REGISTER_BROKER = 103


@cache
def seeds(target: str) -> tuple[bytes, ...]:
    """The seeds of a target, the same ones in every run."""
    distinct = dict.fromkeys(seed for seed in _SOURCES[target]() if len(seed) <= SEED_BYTES_MAX)
    step = max(1, -(-len(distinct) // SEEDS_MAX))
    return tuple(distinct)[::step]


def _frames() -> Iterator[bytes]:
    kinds = [frame.raw for frame in _one_of_each_kind()]
    yield from kinds
    yield from (
        b"".join(three) for three in zip(kinds[::9], kinds[3::9], kinds[6::9], strict=False)
    )
    yield from (base64.b64decode(vector["frame"]) for vector in _vectors("commands"))


def _headers() -> Iterator[bytes]:
    for frame in _one_of_each_kind():
        yield bytes([frame.serialization]) + frame.header
        if frame.serialization == 0 and frame.code in _HOT_REQUESTS:
            yield b"\0" + json.dumps(json.loads(frame.header), indent=1).encode()
    for vector in _vectors("commands"):
        raw = base64.b64decode(vector["frame"])
        yield raw[4:5] + raw[8 : 8 + int.from_bytes(raw[5:8], "big")]


def _signed_headers() -> Iterator[bytes]:
    return (header for header in _headers() if b"Signature" in header)


def _batches() -> Iterator[bytes]:
    yield from (base64.b64decode(vector["encoded"]) for vector in _vectors("batches"))
    requests = (frame for frame in wire_frames.frames() if frame.kind == "request")
    yield from (frame.body for frame in requests if frame.code == _BATCH_SEND)


def _compressed() -> Iterator[bytes]:
    texts = (b"", b"body", b"comet" * 50, bytes(range(256)))
    for kind, text in itertools.product(compression.CompressionType, texts):
        yield bytes([kind >> 8]) + compression.compress(text, kind)
    for record in _stored_records():
        if record.sys_flag & sysflag.COMPRESSED:
            yield bytes([record.sys_flag >> 8 & 7]) + record.body


def _records() -> Iterator[bytes]:
    yield from (base64.b64decode(vector["record"]) for vector in _vectors("records"))
    answers = (frame for frame in wire_frames.frames() if frame.request_code == 11)
    yield from (frame.body for frame in answers if frame.body)
    for log in _files("commitlog/"):
        yield from (log[begin:end] for begin, end in list(_record_bounds(log))[::7])


def _queue_entries() -> Iterator[bytes]:
    for queue in _files("consumequeue/"):
        yield _QUEUE_CONTROL + queue.rstrip(b"\0")[:800] + bytes(8)


def _queue_extensions() -> Iterator[bytes]:
    for vector in _vectors("queue-extension"):
        if "file" in vector:
            yield base64.b64decode(vector["file"])
        elif "unit" in vector:
            bitmap = base64.b64decode(vector["unit"]["bitmap"] or "")
            size = (20 + len(bitmap)).to_bytes(2, "big")
            yield size + bytes(16) + len(bitmap).to_bytes(2, "big") + bitmap


def _indexes() -> Iterator[bytes]:
    for index in _files("index/"):
        yield bytes([_INDEX_SLOTS - 1]) + index[: 40 + 4 * _INDEX_SLOTS + 20 * 20]
        yield bytes([0]) + index[:40] + b"\0\0\0\1" + index[-40:]


def _pages() -> Iterator[bytes]:
    yield from (page[:128] for page in _files("checkpoint"))
    yield from (page[:128] for page in _files("config/timercheck"))
    yield from (log.rstrip(b"\0")[:520] for log in _files("timerlog/"))


def _properties() -> Iterator[bytes]:
    for vector in _vectors("properties"):
        text = vector["text"] if "text" in vector else vector["written"]
        yield text.encode("utf-8", "replace")
    yield from (record.properties for record in _stored_records())


def _ids() -> Iterator[bytes]:
    yield from (vector["id"].encode() for vector in _vectors("message-ids"))
    for frame in wire_frames.frames():
        if b'"recallHandle":"' in frame.header:
            yield frame.header.split(b'"recallHandle":"')[1].split(b'"')[0]
    yield base64.urlsafe_b64encode(
        b"v1 Topic broker-a 1700000000000 7F00000100002A139A5D0AE4D1A30000"
    )


def _json_texts() -> Iterator[bytes]:
    for vector, form in itertools.product(_vectors("json"), ("encoded", "pretty")):
        if vector.get(form):
            yield base64.b64decode(vector[form])
    yield from (body[1:] for body in itertools.chain(_bodies(), _config_files()))
    yield b'{"a":{"b":[1]},"c":{"$ref":"$.a.b[0]"},"d":{{"topic":"t","queueId":0}:1,2:\'x\'}}'
    yield b'[{"a":1},{"$ref":"$[0]"},{"b":{"$ref":".."}},{"$ref":"@"}]'


def _bodies() -> Iterator[bytes]:
    for frame in wire_frames.frames():
        types = bodies.RESPONSE_BODIES if frame.kind == "response" else bodies.REQUEST_BODIES
        kind = types.get(frame.code if frame.request_code is None else frame.request_code)
        if kind is not None and frame.body[:1] in (b"{", b"["):
            yield bytes([BODY_TYPES.index(kind)]) + frame.body


def _config_files() -> Iterator[bytes]:
    for name, index in zip(DOCUMENT_NAMES, itertools.count()):
        yield from (bytes([index]) + content for content in _files(f"config/{name}"))
        yield bytes([index]) + b'{"dataVersion":{"counter":1,"timestamp":2}}'


def _registrations() -> Iterator[bytes]:
    for version, frame in itertools.product(range(len(VERSIONS)), wire_frames.frames()):
        if frame.kind != "response" and frame.code == _REGISTER_BROKER:
            yield bytes([version]) + frame.body
            if frame.body[:1] == b"\x78":
                yield bytes([version | IS_INFLATED]) + zlib.decompress(frame.body)


def _properties_files() -> Iterator[bytes]:
    answers = (frame for frame in wire_frames.frames() if frame.request_code in _CONFIG_REQUESTS)
    yield from (frame.body[:2000] for frame in answers if frame.body)
    yield b"# comment\n! more\n\nkey = value\nlong\\\n  line : \\u00e9\\ud83d\\ude00\na\\ b\\:c d"


def _one_of_each_kind() -> Iterable[RecordedFrame]:
    found = {
        (frame.client, frame.kind, frame.code, frame.request_code, frame.serialization): frame
        for frame in wire_frames.frames()
        if len(frame.raw) <= SEED_BYTES_MAX
    }
    return found.values()


def _stored_records() -> Iterator[Record]:
    for log in _files("commitlog/"):
        for begin, end in _record_bounds(log):
            record = parse(log[begin:end])
            if isinstance(record, Record):
                yield record


def _record_bounds(log: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of what is written in a commit log file; the blank at its end too."""
    position = 0
    while position < len(log):
        try:
            size = parse(log, position).size
        except RemoteProtocolError:
            return
        yield position, position + size
        position += size


def _files(folder: str) -> Iterator[bytes]:
    """Files of the recorded stores, those of which nothing was written left out."""
    for name in _STORES:
        files = store_data.load(name).below(folder)
        yield from (content for content in files.values() if content.strip(b"\0"))


def _vectors(name: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((_VECTORS / f"{name}.json").read_bytes())
    return vectors


_SOURCES: Mapping[str, Callable[[], Iterator[bytes]]] = MappingProxyType(
    {
        "frames": _frames,
        "header": _headers,
        "signature": _signed_headers,
        "batch": _batches,
        "compression": _compressed,
        "record": _records,
        "queue-entry": _queue_entries,
        "queue-extension": _queue_extensions,
        "index": _indexes,
        "page": _pages,
        "properties": _properties,
        "id": _ids,
        "json": _json_texts,
        "body": _bodies,
        "config": _config_files,
        "registration": _registrations,
        "java-properties": _properties_files,
    }
)
