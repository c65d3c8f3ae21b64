"""Every recorded frame against the typed headers and the signature."""

import functools
import json
import struct
from collections.abc import Iterator
from typing import NamedTuple

from cometmq.codec import recall_handle, signature
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers import BASE_FIELDS, REQUEST_HEADERS, RESPONSE_HEADERS, Header
from cometmq.codec.headers.send import SendMessage, SendMessageResponse
from tests.golden.wire_frames import RecordedFrame, frames

FRAMES_RECORDED = 2091

SIGNING_FIELDS = frozenset({"AccessKey", "Signature", "OnsChannel"})
STREAMING_MARK = frozenset({"ReqT"})  # added by Java's lite pull clients, read by nobody
TRACE_SETTINGS = frozenset({"MSG_REGION", "TRACE_ON"})  # on failed sends too, without the ids

SENDS = frozenset(SendMessageResponse.answers)
STORED = {0, 10, 11, 12}
MORE_ANSWERS_WITH_FIELDS = {
    RequestCode.PULL_MESSAGE: {19, 20, 21},
    RequestCode.LITE_PULL_MESSAGE: {19, 20, 21},
    RequestCode.QUERY_MESSAGE: {22},
    RequestCode.POP_MESSAGE: {210},
}

# PyPI's rocketmq 0.4.4 writes these booleans as numbers.
NUMBERS_FOR_BOOLEANS = {"batch": {"0": "false", "1": "true"}, "unitMode": {"0": "false"}}

SECRET_OF_MQADMIN = "12345678"
SECRET_WITHOUT_CREDENTIALS = ""  # C++ signs with an empty key when it has none


class DecodedFrame(NamedTuple):
    frame: RecordedFrame
    version: int
    ext: dict[str, str]


@functools.cache
def decoded_frames() -> tuple[DecodedFrame, ...]:
    return tuple(_decoded(frame) for frame in frames())


def _decoded(frame: RecordedFrame) -> DecodedFrame:
    if frame.serialization == 1:
        version, ext = _binary(frame.header)
        return DecodedFrame(frame, version, ext)
    header = json.loads(frame.header)
    fields = header.get("extFields") or {}
    ext = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
        if value is not None
    }
    return DecodedFrame(frame, header["version"], ext)


def _binary(header: bytes) -> tuple[int, dict[str, str]]:
    (version,) = struct.unpack_from(">h", header, 3)
    (remark_length,) = struct.unpack_from(">i", header, 13)
    position = 17 + remark_length + 4
    ext = {}
    while position < len(header):
        (key_length,) = struct.unpack_from(">h", header, position)
        key_end = position + 2 + key_length
        (value_length,) = struct.unpack_from(">i", header, key_end)
        value_end = key_end + 4 + value_length
        ext[header[position + 2 : key_end].decode()] = header[key_end + 4 : value_end].decode()
        position = value_end
    return version, ext


def header_class(frame: RecordedFrame) -> type[Header] | None:
    if frame.kind != "response":
        return REQUEST_HEADERS.get(RequestCode(frame.code))
    assert frame.request_code is not None
    request = RequestCode(frame.request_code)
    if frame.code in STORED | MORE_ANSWERS_WITH_FIELDS.get(request, set()):
        return RESPONSE_HEADERS.get(request)
    return None


def wire_names(header: type[Header] | None) -> set[str]:
    return set(header.__struct_encode_fields__) if header else set()


def canonical(frame: RecordedFrame, name: str, text: str) -> str:
    if frame.source != "cpp-0.4.4":
        return text
    return NUMBERS_FOR_BOOLEANS.get(name, {}).get(text, text)


def test_every_recorded_header_is_written_as_it_was_read() -> None:
    typed = 0

    for frame, _, ext in decoded_frames():
        cls = header_class(frame)
        if cls is None:
            continue
        written = cls.from_ext(ext).to_ext()

        known = {name: canonical(frame, name, ext[name]) for name in wire_names(cls) & set(ext)}
        assert written == known, frame.label
        typed += 1

    assert len(decoded_frames()) == FRAMES_RECORDED
    assert typed > FRAMES_RECORDED / 2


def extra_fields(frame: RecordedFrame) -> frozenset[str]:
    """Fields that may stand beside those of the header, and why is told where they are named."""
    if frame.kind != "response":
        return BASE_FIELDS | SIGNING_FIELDS | STREAMING_MARK
    is_failed_send = header_class(frame) is None and frame.request_code in SENDS
    return TRACE_SETTINGS if is_failed_send else frozenset()


def test_every_recorded_field_is_known_or_explained() -> None:
    unexplained = {}

    for frame, _, ext in decoded_frames():
        unknown = ext.keys() - wire_names(header_class(frame)) - extra_fields(frame)
        if unknown:
            unexplained[frame.label] = unknown

    assert unexplained == {}


def test_every_recorded_code_has_a_name() -> None:
    for frame, _, _ in decoded_frames():
        code = frame.request_code if frame.kind == "response" else frame.code
        assert RequestCode(code or 0).name, frame.label
        if frame.kind == "response":
            assert ResponseCode(frame.code).name, frame.label


def test_a_batch_of_the_cpp_client_says_so_with_a_one() -> None:
    batches = [
        SendMessage.from_ext(ext).batch
        for frame, _, ext in decoded_frames()
        if frame.source == "cpp-0.4.4" and ext.get("batch") == "1"
    ]

    assert batches
    assert all(batches)


def signed_requests() -> Iterator[tuple[DecodedFrame, str]]:
    for decoded in decoded_frames():
        if "Signature" in decoded.ext:
            has_credentials = decoded.ext["AccessKey"] != ""
            yield decoded, SECRET_OF_MQADMIN if has_credentials else SECRET_WITHOUT_CREDENTIALS


def is_changed_by_the_broker(frame: RecordedFrame) -> bool:
    """A relayed 309 keeps mqadmin's signature, but the broker adds its name and the message."""
    return frame.code == RequestCode.CONSUME_MESSAGE_DIRECTLY and frame.sender == "server"


def test_every_recorded_signature_is_accepted() -> None:
    requests = list(signed_requests())

    refused = [
        decoded.frame
        for decoded, secret in requests
        if not signature.verify(decoded.ext, decoded.frame.body, secret, decoded.version)
    ]

    assert len(requests) == 314
    assert len(refused) == 2
    assert all(is_changed_by_the_broker(frame) for frame in refused)


def test_a_recorded_signature_does_not_fit_anything_else() -> None:
    for (frame, version, ext), secret in signed_requests():
        name = min(ext.keys() - {"Signature"})
        changed_ext = {**ext, name: ext[name] + "x"}
        changed_body = frame.body[:-1] + bytes([frame.body[-1] ^ 1]) if frame.body else b"\0"

        assert not signature.verify(changed_ext, frame.body, secret, version), frame.label
        assert not signature.verify(ext, changed_body, secret, version), frame.label
        assert not signature.verify(ext, frame.body, secret + "x", version), frame.label


def test_every_recorded_recall_handle_is_written_as_it_was_read() -> None:
    handles = [ext["recallHandle"] for _, _, ext in decoded_frames() if "recallHandle" in ext]

    decoded = [recall_handle.decode(text) for text in handles]

    assert len(handles) == 3
    assert {(handle.topic, handle.broker_name) for handle in decoded} == {("Wire", "broker-a")}
    assert [recall_handle.encode(handle) for handle in decoded] == handles
