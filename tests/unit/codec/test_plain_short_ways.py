"""The short ways of the plain core lead where its long ways lead."""

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from cometmq.codec import command as commands
from cometmq.codec import core, digest, java, json_header, record
from cometmq.codec.command import Command
from cometmq.codec.headers.base import FieldKind, Header, exact_texts, fields, text_form
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.errors import LocalProtocolError, RemoteProtocolError

HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::1", 10911)
SEND = SendMessageV2("pg", "orders", "TBW102", 4, 3, 0, 1794780011177, -7, "KEYS\x01k\x02", 0)
SAMPLES = {
    FieldKind.TEXT: "text",
    FieldKind.INT32: "8",
    FieldKind.INT64: "1794780011177",
    FieldKind.BOOL: "true",
    FieldKind.LOOSE_BOOL: "false",
}


def header_types(parent: type[Header] = Header) -> Iterator[type[Header]]:
    for header_type in parent.__subclasses__():
        if header_type.__module__.startswith("cometmq."):
            yield header_type
            yield from header_types(header_type)


def sample(header_type: type[Header]) -> dict[str, str]:
    return {
        field.wire_name: SAMPLES[field.kind]
        for field in fields(header_type)
        if field.kind in SAMPLES
    }


@pytest.mark.parametrize(
    "header_type", sorted(set(header_types()), key=str), ids=lambda kind: kind.__name__
)
def test_every_header_has_a_text_form_that_reads_and_writes_the_same(
    header_type: type[Header],
) -> None:
    ext = sample(header_type)
    header = header_type.from_ext(ext)

    form = text_form(header_type)

    assert form.read_json(msgspec.json.encode(ext)) == header
    assert msgspec.to_builtins(form.write(header)) == header.to_ext()


@pytest.mark.parametrize(
    "value",
    [
        b"4",
        b'"4.0"',
        b'"1e2"',
        b'""',
        b"null",
        b'" 4"',
        b'"1_0"',
        b"[]",
        b'"2147483648"',
        b'"\xff"',
    ],
)
def test_unusual_numbers_are_left_to_the_long_way(value: bytes) -> None:
    ext = msgspec.json.encode(SEND.to_ext()).replace(b'"d":"4"', b'"d":' + value)

    assert text_form(SendMessageV2).read_json(ext) is None


def test_a_missing_text_is_named_as_on_the_long_way() -> None:
    ext = msgspec.json.encode({name: text for name, text in SEND.to_ext().items() if name != "b"})

    with pytest.raises(RemoteProtocolError, match=r"field 'b' \(topic\) is missing"):
        core.plain_read(Command(310, ext=ext), SendMessageV2)


def test_a_field_that_must_be_there_is_not_written_as_null() -> None:
    answer = SendMessageResponse("id", 3, 5)
    answer.msg_id = None  # type: ignore[assignment]  # a bug of a caller

    with pytest.raises(LocalProtocolError, match="'msgId' is missing"):
        text_form(SendMessageResponse).write(answer)


def test_half_a_surrogate_pair_in_a_text_form_is_written_as_a_question_mark() -> None:
    texts = text_form(SendMessageResponse).write(SendMessageResponse("\ud800", 3, 5))

    written = json_header.encode(0, "PYTHON", 1, 2, 1, None, texts)

    assert b'"extFields":{"msgId":"?","queueId":"3","queueOffset":"5"}' in written


FRAME = commands.encode(Command(310, ext=SEND.to_ext(), opaque=7, body=b"body"))


def test_a_usual_request_is_read_straight_into_its_texts() -> None:
    ((command,), _) = commands.decode_frames(FRAME)

    assert type(command.ext) is exact_texts(SendMessageV2)
    assert core.plain_read(command, SendMessageV2) == SEND
    assert command.ext_fields == SEND.to_ext()


JSON_CHANGES = [
    (b'"d":"4"', b'"d":4'),
    (b'"d":"4"', b'"d":"4.0"'),
    (b'"d":"4"', b'"d":null'),
    (b'"d":"4"', b'"d":"4","o":"x"'),
    (b'"d":"4"', b'"d":"4","d":"5"'),
    (b'"d":"4"', b'"d":"4","ns":"n","AccessKey":"k"'),
    (b'"d":"4"', b'"d":"4","cometProducerId":"p","cometSequence":"1"'),
    (b'"b":"orders",', b""),
    (b'"b":"orders",', b'"z":"1","b":"orders",'),
    (b'"a":"pg","b":"orders"', b'"b":"orders","a":"pg"'),
    (b'"b":"orders"', b'"\\u0062":"orders"'),
    (b'"b":"orders"', b'"b":"\xd0"'),
    (b'"flag":0', b'"flag":"0"'),
    (b'"flag":0', b'"flag":null'),
    (b'"flag":0,', b""),
    (b'"flag":0', b'"flag":0,"extra":[1,{}]'),
    (b'"flag":0', b'"flag":0,"remark":"r"'),
    (b'"flag":0', b'"flag":0,"remark":null'),
    (b'"flag":0', b'"flag":0,"body":"eA==","header":null'),
    (b'"language":"PYTHON"', b'"language":"KLINGON"'),
    (b'"language":"PYTHON"', b'"language":7'),
    (b'"opaque":7', b'"opaque":99999999999'),
    (b'{"code":310,', b'{"code":310 ,'),
    (b'{"code":310,', b'{"code":3100,'),
    (b'{"code":310,', b'{"code":310,"code":11,'),
]


@pytest.mark.parametrize(("old", "new"), JSON_CHANGES, ids=ascii)
def test_a_header_is_read_the_same_on_the_short_and_on_the_long_way(old: bytes, new: bytes) -> None:
    header = FRAME[8 : -len(b"body")]
    assert header.count(old) == 1
    header = header.replace(old, new)

    def told(decode: Callable[[bytes, bytes], Command]) -> list[object]:
        try:
            command = decode(header, b"body")
            header_read = read(command)
            facts = command.code, command.language, command.version, command.opaque, command.flag
            fields = list(command.ext_fields.items())  # in their order
            return [*facts, command.remark, command.body, fields, header_read]
        except RemoteProtocolError as error:
            return [str(error)]

    def read(command: Command) -> object:
        try:
            return core.plain_read(command, SendMessageV2)
        except RemoteProtocolError as error:
            return str(error)

    assert told(commands.decode_json) == told(commands.decode_any_json)


def random_record(chance: random.Random, log: bytearray) -> int:
    sys_flag = chance.choice([0, 0, 0, 4, 8, 12, 0x10, 0x20])
    names = ["UNIQ_KEY", "KEYS", "TAGS", "XTAGS", "a", ""]
    values = ["", "k", "0A0000050CB318B4AAC2123456780000", "a b  c", "ключ", "t" * 70, "TAGS\x01x"]
    items = [f"{chance.choice(names)}\x01{chance.choice(values)}" for _ in range(4)]
    return record.encode_into(
        log, 0, chance.choice([b"T", "тема".encode(), b"T\0", b"\xff", b"L" * 130]),
        chance.randbytes(chance.randrange(40)), "\x02".join(items).encode(), 3, 7, 1 << 33,
        1_700_000_000_000, 5, HOST_V6 if sys_flag & 0x10 else HOST,
        HOST_V6 if sys_flag & 0x20 else HOST, 0, sys_flag, 0, 0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_the_digest_of_a_usual_record_is_the_one_of_the_walk(seed: int) -> None:
    chance = random.Random(seed)
    log = bytearray(2048)
    size = random_record(chance, log)
    if chance.random() < 0.3:
        log[chance.randrange(size)] ^= 1 << chance.randrange(8)

    found = digest.usual_digest(bytes(log[:size]), 0, 1 << 33)

    walk = digest.walk(log, 0, size, 1 << 33, 1, False)
    assert found is None or [found] == walk.digests, seed


def test_a_record_of_the_usual_kind_is_taken_the_short_way() -> None:
    log = bytearray(300)
    size = record.encode_into(
        log, 0, b"T", b"body", b"TAGS\x01x\x02", 1, 2, 0, 9, 5, HOST, HOST, 0, 0, 0, 0
    )

    assert digest.usual_digest(bytes(log[:size]), 0, 0) is not None
    assert digest.usual_digest(bytes(log[: size - 1]), 0, 0) is None
    assert digest.usual_digest(bytes(log[:size]), 0, 1) is None


@pytest.mark.parametrize("length", [0, 1, 6, 7, 63, 64, 65, 192, 193, 500])
def test_a_hash_is_the_same_whatever_of_it_was_known_before(length: int) -> None:
    text = ("T#0A0000050CB318B4AAC2123456780000" * 20)[:length]
    expected = 0
    for character in text:
        expected = (31 * expected + ord(character)) & 0xFFFFFFFF

    found = [java.string_hash(text) & 0xFFFFFFFF for _ in range(2)]

    assert found == [expected, expected]
    assert java.ascii_index_hash(text.encode()) == java.index_hash(text)


def test_the_hash_without_a_positive_twin_is_indexed_as_0() -> None:
    assert java.ascii_index_hash(b"polygenelubricants") == 0
