"""The hot functions keep the promises of their plain twins, whichever core is active.

The suite runs in both cores; in the compiled one these tests compare it with the plain code.
"""

import mmap
from collections.abc import Callable

import msgspec
import pytest

from cometmq.codec import command, core, queue_entry, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.frame import prefix
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.clients import UnregisterClient
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.headers.send import SendMessage, SendMessageResponse, SendMessageV2
from cometmq.errors import LocalProtocolError, RemoteProtocolError

FORMS = pytest.mark.parametrize("form", list(Serialization), ids=lambda form: form.name)
HOST = record.pack_host("10.0.0.5", 10911)

SEND = SendMessageV2(
    "pg", "orders", "TBW102", 4, 3, 0, 1794780011177, -7, 'KEYS\x01"k"\\\x02', 0, False, None,
    True, "broker-a",
)  # fmt: skip
HEADERS: list[Header] = [
    SEND,
    SendMessage(*msgspec.structs.astuple(SEND)),
    SendMessageResponse("7F0000010000326F0000000000003BD8", 3, 2**63 - 1, "é\n\t\b\f\r☄"),
    PullMessage("g", "t", 0, 2**62, 32, -(2**31), -1, 15000, None, 7, "TAG", 262144),
    PullMessageResponse(0, 1, 2, 3, 4, 5),
    UnregisterClient("10.0.0.1@1", "", "grp"),
    OffsetResponse(-1),
]


def without_header(commands: list[Command]) -> list[Command]:
    return [msgspec.structs.replace(one, header=None) for one in commands]


def head(form: int, header: Header | None, body: bytes = b"", code: int = 310) -> bytes:
    return core.encode_head(form, code, 42, 0, None, header, len(body)) + body


@FORMS
@pytest.mark.parametrize("header", HEADERS, ids=lambda header: type(header).__name__)
def test_a_typed_header_survives_the_wire(form: Serialization, header: Header) -> None:
    (got,), _ = core.decode_frames(head(form, header, code=1))

    assert core.read(got, type(header)) == core.plain_read(got, type(header))
    assert core.read(got, type(header)) == header


@FORMS
@pytest.mark.parametrize("remark", [None, "", "FOUND", 'a "quoted"\n remark ☄', "half \ud800"])
@pytest.mark.parametrize("header", [None, *HEADERS], ids=lambda header: type(header).__name__)
def test_heads_are_the_same_bytes_in_both_cores(
    form: Serialization, header: Header | None, remark: str | None
) -> None:
    written = core.encode_head(form, 310, -42, 1, remark, header, 1000)

    assert written == core.plain_encode_head(form, 310, -42, 1, remark, header, 1000)


@FORMS
def test_hot_requests_of_one_read_come_with_their_headers(form: Serialization) -> None:
    pull = PullMessage("g", "t", 0, 5, 32, 3, 0, 15000, None, 1)
    data = head(form, SEND, b"body") + head(form, pull, code=11) + head(form, None, code=34)

    commands, end = core.decode_frames(data)

    assert end == len(data)
    assert [one.code for one in commands] == [310, 11, 34]
    assert core.read(commands[0], SendMessageV2) == SEND
    assert core.read(commands[1], PullMessage) == pull
    assert commands[0].body == b"body"


@FORMS
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_frames_are_decoded_from_any_buffer_without_keeping_it(
    form: Serialization, kind: Callable[[bytes], bytearray]
) -> None:
    data = head(form, SEND, b"body") * 3
    buffer = kind(b"skipped" + data + b"\x00\x00")

    commands, end = core.decode_frames(buffer, 7)

    assert end == 7 + len(data)
    assert [one.body for one in commands] == [b"body"] * 3
    if isinstance(buffer, bytearray):
        buffer.clear()  # raises BufferError while somebody holds a view


@FORMS
def test_what_was_good_before_a_broken_frame_is_still_delivered(form: Serialization) -> None:
    good = head(form, SEND)
    data = good + good + b"\xff\xff\xff\xff" + bytes(4)

    commands, end = core.decode_frames(data)

    assert len(commands) == 2
    assert end == 2 * len(good)
    with pytest.raises(RemoteProtocolError, match="frame length -1"):
        core.decode_frames(data, end)


@FORMS
def test_frames_that_arrive_byte_by_byte_are_found_once(form: Serialization) -> None:
    data = head(form, SEND, b"one") + head(form, SEND, b"two")
    bodies, begin = [], 0

    for end in range(len(data) + 1):
        commands, begin = core.decode_frames(data, begin, end)
        bodies += [one.body for one in commands]

    assert bodies == [b"one", b"two"]


def test_many_unusual_frames_in_one_read_are_decoded_too() -> None:
    """The compiled scanner steps aside for each of them; that must not nest."""
    header = b'{"code":1,"extFields":{"x":1.5},"language":77}'
    data = (prefix(0, len(header), 0) + header) * 5000

    commands, end = core.decode_frames(data)

    assert len(commands) == 5000
    assert end == len(data)


UNUSUAL = [
    b'{"code":310,"extFields":{"a":"g","b":"t"}}',
    b'{"code":11,"extFields":null,"language":"GO"}',
    b' { "code" : 11 , "extFields" : { "topic" : "t" , "queueId" : 3 } , "opaque" : 7 } \n',
    b'{"extFields":{"a":"g"},"code":310}',
    b'{"code":310,"extFields":{"b":"\\ud83d\\ude00\\u00e9\\/\\b"},"remark":"a\\u0001"}',
    b'{"code":310,"extFields":{"b":"\xe2\x98\x84"},"remark":null,"flag":1}',
    b'{"code":310,"extFields":{"b":"\xff"}}',
    b'{"code":310,"extFields":{"b":1e3,"c":true,"d":null}}',
    b'{"code":"310","opaque":"7","language":3,"version":1}',
    b'{"code":310,"extFields":{"\\u0062":"t"}}',
    b'{"code":310,"extFields":{},"extFields":{"b":"t"}}',
    b'{"co\\u0064e":310,"\\u0065xtFields":{"b":"t"}}',
    b'{"code":11,"extFields":{"consumerGroup":"g","topic":"t"},"flag":1}',
    b'{"code":310,"language":"go"}',
    b'{"code":310,"extFields": {"b":"t"} }',
    b'{"code":310,"extFields":{"b":"\\ud83d\\ude00"},"remark":"\\ud83d\\ude00"}',
    b'{"code":310,"language":null,"remark":"7"}',
    b'{"code":0,"flag":1,"extFields":{"offset":"9","offset":"8"}}',
]


@pytest.mark.parametrize("header", UNUSUAL)
def test_unusual_headers_mean_the_same_in_both_cores(header: bytes) -> None:
    data = prefix(0, len(header), 0) + header

    commands, end = core.decode_frames(data)
    expected, _ = command.decode_frames(data)

    assert end == len(data)
    assert [one.ext_fields for one in commands] == [one.ext_fields for one in expected]
    assert without_header(commands) == expected


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1,"language":true,"language":"GO"}',
        b'{"code":1,"language":"GO","remark":1,"remark":""}',
        b'{"code":1,"language":"GO","code":"x"}',
    ],
)
def test_a_member_that_is_wrong_before_it_is_right_is_refused_by_both_cores(header: bytes) -> None:
    data = prefix(0, len(header), 0) + header

    for decode in (core.decode_frames, command.decode_frames):
        with pytest.raises(RemoteProtocolError, match="JSON header cannot be read"):
            decode(data)


BAD_FIELDS = [
    {},
    {"b": "orders"},
    {**SEND.to_ext(), "e": "x"},
    {**SEND.to_ext(), "e": "2147483648"},
    {**SEND.to_ext(), "g": "9223372036854775808"},
    {**SEND.to_ext(), "e": "1.0"},
    {**SEND.to_ext(), "e": ""},
]
ODD_FIELDS = [
    {**SEND.to_ext(), "e": "+3", "j": ""},
    {**SEND.to_ext(), "k": "TRUE", "m": "1"},
    {**SEND.to_ext(), "k": "1", "m": "yes"},
    {**SEND.to_ext(), "k": "null", "m": "0"},
    {**SEND.to_ext(), "g": "-9223372036854775808", "h": "007"},
    {**SEND.to_ext(), "unknown": "kept for the signature", "i": "\u2028", "a": ""},
]


@FORMS
@pytest.mark.parametrize("ext", BAD_FIELDS)
def test_a_bad_field_is_refused_with_the_same_words_in_both_cores(
    form: Serialization, ext: dict[str, str]
) -> None:
    sent = Command(RequestCode.SEND_MESSAGE_V2, serialization=form, ext=ext)
    (got,), _ = core.decode_frames(command.encode(sent))

    with pytest.raises(RemoteProtocolError, match="SEND_MESSAGE_V2: field") as refused:
        core.read(got, SendMessageV2)
    with pytest.raises(RemoteProtocolError) as expected:
        core.plain_read(got, SendMessageV2)

    assert str(refused.value) == str(expected.value)


@FORMS
@pytest.mark.parametrize("ext", ODD_FIELDS)
def test_odd_fields_mean_the_same_in_both_cores(form: Serialization, ext: dict[str, str]) -> None:
    sent = Command(RequestCode.SEND_MESSAGE_V2, serialization=form, ext=ext)
    (got,), _ = core.decode_frames(command.encode(sent))

    assert core.read(got, SendMessageV2) == SendMessageV2.from_ext(ext)
    assert got.ext_fields == ext


@FORMS
@pytest.mark.parametrize(
    "header",
    [
        OffsetResponse(2**63),
        PullMessageResponse(0, 0, 0, 0, 2**31),
        SendMessageResponse("", None, 0),  # type: ignore[arg-type]
    ],
)
def test_what_a_field_cannot_carry_is_not_written(form: Serialization, header: Header) -> None:
    with pytest.raises(LocalProtocolError):
        core.encode_head(form, 0, 1, 1, None, header, 0)


@FORMS
def test_an_answer_above_the_frame_limit_is_not_written(form: Serialization) -> None:
    with pytest.raises(LocalProtocolError, match="above the limit"):
        core.encode_head(form, 0, 1, 1, None, None, 16 * 1024 * 1024)


def test_a_long_value_does_not_disturb_the_next_head() -> None:
    long = SendMessageResponse("x" * 100_000, 0, 0)

    first = core.encode_head(0, 0, 1, 1, None, long, 0)
    second = core.encode_head(0, 0, 1, 1, None, OffsetResponse(5), 0)

    assert first == core.plain_encode_head(0, 0, 1, 1, None, long, 0)
    assert second == core.plain_encode_head(0, 0, 1, 1, None, OffsetResponse(5), 0)


def encode_with(encode: Callable[..., int], target: bytearray, position: int, **odd: object) -> int:
    arguments = {
        "topic": b"orders",
        "body": b"hello",
        "properties": b"TAGS\x01a\x02",
        "queue_id": 3,
        "queue_offset": 9,
        "physical_offset": 2**40,
        "store_timestamp": 2,
        "born_timestamp": 1,
        "born_host": HOST,
        "store_host": HOST,
        "flag": -1,
        "sys_flag": 0,
        "reconsume_times": 1,
        "prepared_transaction_offset": 5,
    }
    return encode(target, position, *{**arguments, **odd}.values())


HOST_V6 = record.pack_host("2001:db8::1", 10911)


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"body": b""},
        {"body": memoryview(b"view")},
        {"topic": b"%RETRY%" + b"t" * 150},
        {"born_host": HOST_V6, "sys_flag": 0x10},
        {"born_host": HOST_V6, "store_host": HOST_V6, "sys_flag": 0x30},
        {"properties": b""},
        {"queue_id": -1, "queue_offset": -(2**63), "flag": 2**31 - 1},
    ],
)
def test_records_are_the_same_bytes_in_both_cores(odd: dict[str, object]) -> None:
    written, expected = bytearray(600), bytearray(600)

    size = encode_with(core.encode_record_into, written, 11, **odd)

    assert size == encode_with(record.encode_into, expected, 11, **odd)
    assert written == expected
    assert isinstance(record.parse(written, 11, check_crc=True), record.Record)


@pytest.mark.parametrize(
    ("position", "odd"),
    [
        (500, {}),
        (-1, {}),
        (0, {"born_host": HOST_V6}),
        (0, {"store_host": HOST, "sys_flag": 0x20}),
        (0, {"properties": bytes(32_768)}),
        (0, {"topic": bytes(32_768)}),
    ],
)
def test_a_record_that_does_not_fit_leaves_the_target_as_it_was(
    position: int, odd: dict[str, object]
) -> None:
    target = bytearray(b"\xaa" * 520)

    with pytest.raises(LocalProtocolError):
        encode_with(core.encode_record_into, target, position, **odd)

    assert target == b"\xaa" * 520


def test_a_record_goes_straight_into_mapped_memory() -> None:
    with mmap.mmap(-1, 4096) as room:
        size = encode_with(core.encode_record_into, room, 100)  # type: ignore[arg-type]
        got = record.parse(room, 100, check_crc=True)

    assert isinstance(got, record.Record)
    assert (got.size, got.body, got.topic) == (size, b"hello", "orders")


ENTRIES = b"".join(
    queue_entry.pack(offset, 100, tags)
    for offset, tags in enumerate([5, -7, 0, -7, -(2**63) + 4, 2**31 - 1])
)


@pytest.mark.parametrize(
    "tags", [None, frozenset(), frozenset({-7}), frozenset({0, 5}), frozenset(range(-50, 50))]
)
@pytest.mark.parametrize("limit", [0, 1, 3, 100])
@pytest.mark.parametrize(("begin", "end"), [(0, 120), (20, 100), (0, 119), (60, 60)])
def test_scans_find_the_same_entries_in_both_cores(
    tags: frozenset[int] | None, limit: int, begin: int, end: int
) -> None:
    found = core.scan_entries(ENTRIES, begin, end, tags, limit)

    assert found == queue_entry.scan(ENTRIES, begin, end, tags, limit)


def test_a_scan_stops_where_nothing_is_written_yet() -> None:
    hits, examined = core.scan_entries(ENTRIES + bytes(40), 0, 160, None, 100)

    assert examined == len(hits) == 6


def test_an_entry_is_packed_in_place() -> None:
    target = bytearray(60)

    core.pack_entry_into(target, 20, 2**40, 123, -5)

    assert target == bytes(20) + queue_entry.pack(2**40, 123, -5) + bytes(20)
    with pytest.raises(LocalProtocolError):
        core.pack_entry_into(target, 41, 0, 1, 0)
