"""Commands: the value, and what both header forms make of it."""

import json
import struct

import pytest

from cometmq.codec import command
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.codec.command import Command, Serialization, decode_frames, encode
from cometmq.codec.frame import prefix
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.codec.headers.query import ViewMessageById
from cometmq.errors import LocalProtocolError, RemoteProtocolError

BOTH = pytest.mark.parametrize("serialization", list(Serialization), ids=lambda form: form.name)


def json_frame(text: str | bytes, body: bytes = b"") -> bytes:
    header = text.encode() if isinstance(text, str) else text
    return prefix(0, len(header), len(body)) + header + body


def binary_frame(header: bytes) -> bytes:
    return prefix(1, len(header), 0) + header


def only(data: bytes) -> Command:
    (decoded,), end = decode_frames(data)
    assert end == len(data)
    return decoded


@BOTH
def test_a_command_survives_the_wire(serialization: Serialization) -> None:
    sent = Command(
        RequestCode.HEART_BEAT,
        LanguageCode.GO,
        version=317,
        opaque=-5,
        flag=2,
        remark="naïve \x01 ☄",
        serialization=serialization,
        ext={"topic": "a\x01b", "ключ": "значение", "n": "1"},
        body=b"\x00body",
    )

    got = only(encode(sent))

    assert got.ext_fields == sent.ext
    assert (got.code, got.language, got.version, got.opaque) == (34, 9, 317, -5)
    assert (got.flag, got.remark, got.body) == (2, sent.remark, b"\x00body")
    assert got.serialization == serialization


@BOTH
def test_the_answer_speaks_the_serialization_of_the_request(serialization: Serialization) -> None:
    request = command.request(
        RequestCode.GET_MAX_OFFSET, opaque=12, serialization=serialization, body=b"x"
    )

    answer = request.answer(ResponseCode.SUCCESS, header=OffsetResponse(99))

    assert answer.serialization == serialization
    assert answer.opaque == 12
    assert answer.is_response
    assert only(encode(answer)).ext_fields == {"offset": "99"}


def test_only_a_request_can_be_oneway() -> None:
    assert command.request(RequestCode.HEART_BEAT, oneway=True).is_oneway
    assert not command.request(RequestCode.HEART_BEAT).is_oneway
    assert not Command(0, flag=3).is_oneway


def test_the_json_header_is_written_as_java_writes_it() -> None:
    """Go discards frames with other types in extFields; C++ wants strict JSON."""
    request = command.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageById(4711), opaque=3)

    header = encode(request)[8:].decode()

    assert header == (
        '{"code":33,"extFields":{"offset":"4711"},"flag":0,"language":"PYTHON","opaque":3,'
        '"serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_fields_of_cpp_and_node_clients_are_read_as_text() -> None:
    """Numbers and booleans as they were written, null as absent, a newline after the header."""
    text = '{"code":310,"extFields":{"d":4,"k":false,"x":1.50,"y":null,"z":[1, 2]},"opaque":1}\n'

    assert only(json_frame(text)).ext_fields == {"d": "4", "k": "false", "x": "1.50", "z": "[1, 2]"}


@pytest.mark.parametrize(
    ("written", "code"),
    [('"GO"', 9), ("9", 9), ('"java"', 0), ('"KLINGON"', 7), ("99", 7), ("null", 7)],
)
def test_a_language_is_read_by_name_or_number_and_never_refused(written: str, code: int) -> None:
    got = only(json_frame(f'{{"code":1,"language":{written}}}'))

    assert got.language == code


@pytest.mark.parametrize("written", ["", ',"extFields":null', ',"extFields":{}'])
def test_absent_ext_fields_are_an_empty_dictionary(written: str) -> None:
    assert only(json_frame(f'{{"code":1{written}}}')).ext_fields == {}


def test_text_of_another_encoding_is_read_with_replacement_characters() -> None:
    """Java reads it that way, so a C++ client that sends GBK works there and must work here."""
    got = only(json_frame(b'{"code":1,"extFields":{"i":"\xd6\xd0"},"remark":"\xff"}'))

    assert got.ext_fields == {"i": "\ufffd\ufffd"}
    assert got.remark == "\ufffd"


def test_unknown_members_of_the_header_are_ignored() -> None:
    got = only(json_frame('{"code":1,"future":{"deep":[1,{}]},"serializeTypeCurrentRPC":"JSON"}'))

    assert got.code == 1


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b'"code"',
        b"{}",
        b'{"code":"x"}',
        b'{"code":2147483648}',
        b'{"code":1,"opaque":1e99}',
        b'{"code":1,"extFields":{"a":}}',
        b'{"code":1} garbage',
    ],
)
def test_a_json_header_that_is_none_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON header cannot be read"):
        decode_frames(json_frame(header))


def test_a_header_nested_a_hundred_thousand_deep_is_refused() -> None:
    """It must not exhaust the stack; how deep a header may be is the JSON reader's affair."""
    deep = b'{"code":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    with pytest.raises(RemoteProtocolError, match="JSON header cannot be read"):
        decode_frames(json_frame(deep))


@pytest.mark.parametrize("ext", ['"text"', "[]", "7"])
def test_ext_fields_that_are_not_a_map_are_refused_when_read(ext: str) -> None:
    got = only(json_frame(f'{{"code":1,"extFields":{ext}}}'))

    with pytest.raises(RemoteProtocolError, match="extFields"):
        _ = got.ext_fields


def binary_header(remark_bytes: int = 0, ext_bytes: int = 0, tail: bytes = b"") -> bytes:
    return struct.pack(">hbhiiii", 1, 0, 1, 1, 0, remark_bytes, ext_bytes) + tail


@pytest.mark.parametrize(
    "header",
    [
        b"",
        binary_header()[:-1],
        binary_header(remark_bytes=-1),
        binary_header(remark_bytes=2**31 - 1),
        binary_header(ext_bytes=-1),
        binary_header(ext_bytes=1),
    ],
)
def test_a_binary_header_whose_lengths_do_not_add_up_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="binary header"):
        decode_frames(binary_frame(header))


@pytest.mark.parametrize(
    "entries",
    [b"\x00", b"\x00\x01", b"\x00\x01k\x00\x00", b"\x00\x01k\xff\xff\xff\xff", b"\xff\xff\x00\x00"],
)
def test_binary_ext_fields_that_do_not_fit_are_refused_when_read(entries: bytes) -> None:
    got = only(binary_frame(binary_header(ext_bytes=len(entries), tail=entries)))

    with pytest.raises(RemoteProtocolError, match="binary header"):
        _ = got.ext_fields


def test_an_empty_binary_name_or_value_is_kept() -> None:
    entries = b"\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01x\x00\x01b\x00\x00\x00\x01y"

    got = only(binary_frame(binary_header(ext_bytes=len(entries), tail=entries)))

    assert got.ext_fields == {"a": "", "": "x", "b": "y"}


@BOTH
def test_half_a_surrogate_pair_is_written_as_a_question_mark(serialization: Serialization) -> None:
    """Java does the same; refusing would lose the message for one bad character."""
    sent = Command(1, serialization=serialization, remark="a\ud800", ext={"k": "\udc00b"})

    got = only(encode(sent))

    assert (got.remark, got.ext_fields) == ("a?", {"k": "?b"})


def test_an_unknown_serialization_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown header serialization 2"):
        decode_frames(prefix(2, 0, 0))


def test_a_code_above_a_short_is_not_written_in_binary() -> None:
    """200050 would arrive as 3442."""
    pop = command.request(RequestCode.POP_MESSAGE, serialization=Serialization.ROCKETMQ)

    with pytest.raises(LocalProtocolError, match="200050 does not fit a binary header"):
        encode(pop)


def test_an_unknown_language_code_is_written_as_other_or_as_the_byte_it_is() -> None:
    header = json.loads(encode(Command(1, language=200))[8:])
    binary = only(encode(Command(1, language=200, serialization=1)))

    assert header["language"] == "OTHER"
    assert binary.language == 200


@BOTH
def test_a_field_name_longer_than_a_short_is_only_possible_in_json(
    serialization: Serialization,
) -> None:
    sent = Command(1, serialization=serialization, ext={"k" * 32_768: "v"})

    if serialization == Serialization.JSON:
        assert only(encode(sent)).ext_fields == sent.ext
    else:
        with pytest.raises(LocalProtocolError, match="32768 bytes"):
            encode(sent)
