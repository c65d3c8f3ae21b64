import base64
import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from cometmq.cli import decoding
from cometmq.cli.app import app
from cometmq.cli.commands.decode import INPUT_BYTES_MAX
from cometmq.codec import record as records
from cometmq.codec.command import Command, encode
from cometmq.codec.compression import compress
from cometmq.codec.sysflag import CompressionType, with_compression
from cometmq.errors import RemoteProtocolError

DATA = Path(__file__).parents[2] / "data"
ROUTE_REQUEST = encode(Command(105, opaque=7, ext={"topic": "orders"}))
ANSWER = encode(Command(17, opaque=7, flag=1, remark="no such topic", body=b"\xff"))


def record(body: bytes = b"hi", *, sys_flag: int = 0, damaged: bool = False) -> bytes:
    buffer = bytearray(1000)
    properties = b"TAGS\x01paid\x02"
    numbers = 3, 17, 4096, 1_772_357_400_250, 1_772_357_400_000
    hosts = records.pack_host("10.0.0.5", 49152), records.pack_host("127.0.0.1", 10911)
    size = records.encode_into(
        buffer, 0, b"orders", body, properties, *numbers, *hosts, 0, sys_flag, 0, 0
    )
    if damaged:
        buffer[buffer.index(body)] ^= 1
    return bytes(buffer[:size])


def decode(*arguments: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["decode", *arguments], input=stdin, prog_name="cometmq")


@pytest.mark.parametrize(
    "text",
    [
        ROUTE_REQUEST.hex(),
        "0x" + ROUTE_REQUEST.hex(" ").upper(),
        ROUTE_REQUEST.hex(":"),
        base64.b64encode(ROUTE_REQUEST).decode(),
    ],
    ids=["hex", "spaced hex", "colons", "base64"],
)
def test_data_may_be_written_as_hex_or_base64(text: str) -> None:
    as_argument = decode("frame", text, "-o", "json")
    as_input = decode("frame", "-o", "json", stdin=text.encode() + b"\n")

    assert json.loads(as_argument.stdout)[0]["ext_fields"] == {"topic": "orders"}
    assert as_input.stdout == as_argument.stdout


def test_bytes_on_standard_input_are_taken_as_they_are() -> None:
    result = decode("frame", "-", "-o", "json", stdin=ROUTE_REQUEST + ANSWER)

    request, answer = json.loads(result.stdout)
    assert (request["kind"], request["name"]) == ("request", "GET_ROUTEINFO_BY_TOPIC")
    assert (answer["kind"], answer["name"]) == ("response", "TOPIC_NOT_EXIST")
    assert (answer["remark"], answer["body"], answer["body_encoding"]) == (
        "no such topic",
        "/w==",
        "base64",
    )


def test_a_table_shows_one_field_per_line() -> None:
    lines = decode("frame", ROUTE_REQUEST.hex()).stdout.splitlines()

    assert "name              GET_ROUTEINFO_BY_TOPIC" in lines
    assert "ext_fields.topic  orders" in lines


def test_a_table_shortens_a_long_body_and_json_does_not() -> None:
    data = encode(Command(10, body=b"x" * 1000)).hex()

    assert "x… (600 more characters with -o json)" in decode("frame", data).stdout
    assert json.loads(decode("frame", data, "-o", "json").stdout)[0]["body"] == "x" * 1000


def test_what_was_understood_is_shown_before_the_fault() -> None:
    result = decode("frame", "-o", "json", stdin=ROUTE_REQUEST + b"\x00\x00")

    assert result.exit_code == 1
    assert len(json.loads(result.stdout)) == 1
    fact = json.loads(result.stderr)["error"]["fact"]
    assert fact == f"the 2 bytes from byte {len(ROUTE_REQUEST)} on are not a whole frame"


def test_a_broken_frame_is_named_with_its_place() -> None:
    result = decode("frame", stdin=ROUTE_REQUEST + b"\xff" * 8)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: no frame at byte {len(ROUTE_REQUEST)}: frame length")


def test_a_record_is_shown_with_its_meaning() -> None:
    (shown,) = json.loads(decode("record", record().hex(), "-o", "json").stdout)

    assert shown["topic"] == "orders"
    assert shown["store_time"] == "2026-03-01T09:30:00.250Z"
    assert shown["born_host"] == "10.0.0.5:49152"
    assert shown["offset_id"] == "7F00000100002A9F0000000000001000"
    assert shown["properties"] == {"TAGS": "paid"}
    assert (shown["body_crc"], shown["body"]) == ("right", "hi")


def test_a_damaged_body_is_noticed() -> None:
    (shown,) = json.loads(decode("record", record(damaged=True).hex(), "-o", "json").stdout)

    assert shown["body_crc"] == "wrong"


def test_a_compressed_body_is_shown_as_it_was_sent_or_as_it_is() -> None:
    zlib = with_compression(0, CompressionType.ZLIB)
    good = record(compress(b"squeezed", CompressionType.ZLIB), sys_flag=zlib)
    bad = record(b"no such thing", sys_flag=zlib)

    shown, odd = json.loads(decode("record", (good + bad).hex(), "-o", "json").stdout)

    assert (shown["compression"], shown["body"]) == ("ZLIB", "squeezed")
    assert odd["compression"].startswith("unreadable: ")
    assert odd["body"] == "no such thing"


def test_the_zeros_after_the_last_record_are_no_fault_but_other_bytes_are() -> None:
    assert decode("record", stdin=record() + bytes(500)).exit_code == 0

    result = decode("record", stdin=record() + b"garbage!")

    assert result.exit_code == 1
    assert f"no record at byte {len(record())}: " in result.stderr


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "7F00000100002A9F0000000000001000",
            {"kind": "offset id", "store_host": "127.0.0.1:10911", "physical_offset": 4096},
        ),
        (
            "0A0000050F2418B4AAC2105FCB5B0001",
            {"kind": "unique id", "ip": "10.0.0.5", "pid": 3876, "loader_hash": "18b4aac2"}
            | {"since_month_began": "3d 04:18:33.435", "counter": 1},
        ),
        (
            "20010DB8" + "0" * 23 + "1" + "00002A9F" + "0" * 16,
            {"kind": "offset id", "store_host": "[2001:db8::1]:10911", "physical_offset": 0},
        ),
    ],
    ids=["offset id", "unique id", "IPv6"],
)
def test_a_message_id_says_where_it_comes_from(text: str, fields: dict[str, object]) -> None:
    assert json.loads(decode("id", text, "-o", "json").stdout) == [{"id": text, **fields}]


def test_ids_may_come_one_per_line() -> None:
    ids = b"7F00000100002A9F0000000000001000\n7F00000100002A9F0000000000002000\n"

    result = decode("id", "-o", "json", stdin=ids)

    assert [shown["physical_offset"] for shown in json.loads(result.stdout)] == [4096, 8192]


def test_a_property_string_is_shown_by_name() -> None:
    assert decode("properties", stdin=b"TAGS\x01paid\x02KEYS\x01a b\x02").stdout == (
        "TAGS  paid\nKEYS  a b\n"
    )


@pytest.mark.parametrize(
    ("arguments", "exit_code", "fact"),
    [
        (("frame", "zz!!"), 2, "DATA is neither hex nor base64: 'zz!!'"),
        (("frame",), 2, "there is nothing to decode"),
        (("id",), 2, "there is nothing to decode"),
        (("id", "12"), 1, "not a message id: '12' does not have 32 or 56 hex digits"),
        (("record", "00"), 2, "there is nothing to decode"),
    ],
)
def test_input_that_makes_no_sense_is_refused(
    arguments: tuple[str, ...], exit_code: int, fact: str
) -> None:
    result = decode(*arguments)

    assert result.exit_code == exit_code
    assert result.stderr.startswith(f"error: {fact}\n")


@pytest.mark.slow
def test_there_is_a_limit_to_what_is_read_from_standard_input() -> None:
    result = decode("frame", stdin=bytes(INPUT_BYTES_MAX + 1))

    assert result.exit_code == 2
    assert f"more than the {INPUT_BYTES_MAX} bytes allowed" in result.stderr


def golden_frames() -> Iterator[tuple[dict[str, object], bytes]]:
    for path in sorted((DATA / "wire").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                entry = json.loads(line)
                yield entry, base64.b64decode(entry["frame_b64"])


@pytest.mark.slow
def test_every_recorded_frame_can_be_shown() -> None:
    for entry, data in golden_frames():
        (shown,), fault = decoding.frames_in(data)

        assert fault == ""
        assert (shown["kind"], shown["code"]) == (entry["kind"], entry["code"])
        assert shown["name"] is not None, entry
        if shown["code"] in (310, 320) and shown["kind"] == "request":
            assert "(unreadable)" not in shown["header"]  # type: ignore[operator]


@pytest.mark.slow
def test_every_record_of_a_recorded_store_can_be_shown() -> None:
    count = 0
    for path in sorted((DATA / "store").glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if "/commitlog/" in member.name and member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None
                    shown, fault = decoding.records_in(file.read())
                    assert fault == ""
                    assert all(entry.get("body_crc", "right") == "right" for entry in shown)
                    count += len(shown)

    assert count > 1000


@pytest.mark.slow
@given(st.binary(max_size=200))
def test_no_bytes_make_it_stumble(data: bytes) -> None:
    decoding.frames_in(data)
    decoding.records_in(data)
    decoding.properties(data)


def test_a_frame_with_unreadable_fields_is_shown_all_the_same() -> None:
    broken = encode(Command(310, serialization=1, ext={"a": "g"}))

    (shown,), fault = decoding.frames_in(broken)

    assert fault == ""
    assert isinstance(shown["header"], dict)
    assert "is missing" in str(shown["header"]["(unreadable)"])


@pytest.mark.slow
@given(st.text("0123456789ABCDEFabcdef", min_size=32, max_size=32) | st.text(max_size=60))
def test_an_id_is_explained_or_refused(text: str) -> None:
    try:
        shown = decoding.message_id(text)
    except RemoteProtocolError:
        shown = {"id": text}

    assert shown["id"] == text
