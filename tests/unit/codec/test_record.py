import mmap
import zlib
from typing import Any

import msgspec
import pytest

from cometmq.codec import record, sysflag
from cometmq.codec.record import Blank, Record
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from tests import oracle

BORN_HOST = record.pack_host("127.0.0.1", 50000)
STORE_HOST = record.pack_host("127.0.0.1", 10911)
STORE_HOST_V6 = record.pack_host("2001:db8::1", 10911)

MESSAGE: dict[str, Any] = {
    "topic": b"TopicTest",
    "body": b"Hello",
    "properties": b"TAGS\x01TagA\x02",
    "queue_id": 3,
    "queue_offset": 7,
    "physical_offset": 1024,
    "store_timestamp": 1700000000123,
    "born_timestamp": 1700000000000,
    "born_host": BORN_HOST,
    "store_host": STORE_HOST,
    "flag": 0,
    "sys_flag": 0,
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
}

VECTOR = bytes.fromhex(
    "00000073 daa320a7 77d18982 00000003 00000000 0000000000000007 0000000000000400"
    "00000000 0000018bcfe56800 7f0000010000c350 0000018bcfe5687b 7f00000100002a9f"
    "00000000 0000000000000000 00000005 48656c6c6f 09 546f70696354657374 000a 54414753015461674102"
)

BLANK = bytes.fromhex("00000008 cbd43194")


def encoded(**changes: object) -> bytes:
    values = MESSAGE | changes
    target = bytearray(1 << 17)
    size = record.encode_into(target, 0, *values.values())
    assert not any(target[size:])
    return bytes(target[:size])


def parsed(data: bytes) -> Record:
    found = record.parse(data, check_crc=True)
    assert isinstance(found, Record)
    return found


def test_the_vector_is_written() -> None:
    assert encoded() == VECTOR
    assert len(VECTOR) == 115 == record.record_bytes(5, 9, 10, 0)


def test_the_vector_is_read() -> None:
    found = parsed(VECTOR)

    assert (found.size, found.magic, found.body_crc) == (115, record.MAGIC_V1, 2010220930)
    assert (found.queue_id, found.flag, found.queue_offset) == (3, 0, 7)
    assert (found.physical_offset, found.sys_flag) == (1024, 0)
    assert (found.born_timestamp, found.store_timestamp) == (1700000000000, 1700000000123)
    assert record.unpack_host(found.born_host) == ("127.0.0.1", 50000)
    assert record.unpack_host(found.store_host) == ("127.0.0.1", 10911)
    assert (found.reconsume_times, found.prepared_transaction_offset) == (0, 0)
    assert (found.body, found.topic) == (b"Hello", "TopicTest")
    assert found.properties == b"TAGS\x01TagA\x02"
    assert record.encode(found) == VECTOR


def test_a_record_is_read_and_written_in_the_middle_of_any_buffer() -> None:
    with mmap.mmap(-1, 4096) as file:
        for target in (bytearray(200), memoryview(bytearray(200)), file):
            size = record.encode_into(target, 17, *MESSAGE.values())
            found = record.parse(target, 17)

            assert bytes(target[17 : 17 + size]) == VECTOR
            assert found == parsed(VECTOR)
            assert not any(target[:17])


def test_a_body_may_be_any_bytes() -> None:
    for body in (bytearray(b"Hello"), memoryview(b"--Hello")[2:]):
        assert encoded(body=body) == VECTOR


@pytest.mark.parametrize("born_v6", [False, True])
@pytest.mark.parametrize("store_v6", [False, True])
def test_each_host_has_8_or_20_bytes(born_v6: bool, store_v6: bool) -> None:
    data = encoded(
        sys_flag=born_v6 * sysflag.BORN_HOST_V6 | store_v6 * sysflag.STORE_HOST_V6,
        born_host=record.pack_host("2001:db8::2", 1) if born_v6 else BORN_HOST,
        store_host=STORE_HOST_V6 if store_v6 else STORE_HOST,
    )
    found = parsed(data)

    assert len(data) == 115 + 12 * born_v6 + 12 * store_v6
    assert record.unpack_host(found.born_host)[0] == ("2001:db8::2" if born_v6 else "127.0.0.1")
    assert record.unpack_host(found.store_host)[0] == ("2001:db8::1" if store_v6 else "127.0.0.1")
    assert found.body == b"Hello"
    assert oracle.read_record(data)["store_host"] == found.store_host
    assert record.encode(found) == data


def test_a_topic_of_more_than_127_bytes_makes_a_v2_record() -> None:
    short, long = encoded(topic=b"t" * 127), encoded(topic=b"t" * 128)

    assert parsed(short).magic == record.MAGIC_V1
    assert parsed(long).magic == record.MAGIC_V2
    assert parsed(long).topic == "t" * 128
    assert len(long) == len(short) + 2 == record.record_bytes(5, 128, 10, 0, record.MAGIC_V2)
    assert record.encode(parsed(long)) == long


def test_a_v2_record_may_have_a_short_topic() -> None:
    found = msgspec.structs.replace(parsed(VECTOR), magic=record.MAGIC_V2, size=116)

    assert parsed(record.encode(found)) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": b"t" * 32_768},
        {"properties": b"p" * 32_768},
        {"sys_flag": sysflag.BORN_HOST_V6},
        {"sys_flag": sysflag.STORE_HOST_V6},
        {"born_host": b"1234567"},
        {"store_host": STORE_HOST_V6},
        {"queue_id": 1 << 31},
        {"physical_offset": 1 << 63},
        {"body": b"x" * (1 << 17)},
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(changes: dict[str, object]) -> None:
    target = bytearray(1 << 17)
    values = MESSAGE | changes

    with pytest.raises(LocalProtocolError):
        record.encode_into(target, 0, *values.values())

    assert not any(target)


def test_a_record_needs_room_to_the_last_byte() -> None:
    record.encode_into(bytearray(120), 5, *MESSAGE.values())
    for position in (6, -1):
        with pytest.raises(LocalProtocolError, match="do not fit"):
            record.encode_into(bytearray(120), position, *MESSAGE.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": record.MAGIC_BLANK},
        {"size": 116},
        {"body": b"Hell"},
        {"topic": "\ud800TopicTes"},
        {"topic": "t" * 128, "size": 115 + 119},
        {"sys_flag": 0x10, "size": 127},
        {"flag": 1 << 31},
    ],
)
def test_a_record_that_contradicts_itself_is_not_encoded(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        record.encode(msgspec.structs.replace(parsed(VECTOR), **changes))


def test_the_checksum_is_only_compared_when_asked_for() -> None:
    damaged = VECTOR.replace(b"Hello", b"Hallo")

    assert isinstance(record.parse(damaged), Record)
    for with_body in (True, False):
        with pytest.raises(RemoteProtocolError, match="checksum"):
            record.parse(damaged, check_crc=True, with_body=with_body)


def test_a_record_without_body_has_everything_else() -> None:
    found = record.parse(VECTOR, with_body=False, check_crc=True)

    assert found == msgspec.structs.replace(parsed(VECTOR), body=b"")


@pytest.mark.parametrize("length", range(len(VECTOR)))
def test_a_cut_off_record_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match="too short"):
        record.parse(VECTOR[:length])


@pytest.mark.parametrize(
    ("position", "damage"),
    [
        (0, "0000005a"),  # size below the smallest record
        (0, "00000072"),  # size one too small
        (0, "ffffffff"),
        (0, "00000008"),
        (4, "daa320a8"),  # magic
        (4, "00000000"),
        (39, "30"),  # two IPv6 hosts that are not there
        (84, "ffffffff"),  # body length
        (84, "7fffffff"),
        (84, "00000018"),
        (84, "00000017"),
        (93, "ff"),  # topic length is signed
        (93, "7f"),
        (93, "08"),
        (94, "ff"),  # topic is not UTF-8
        (103, "ffff"),  # properties length is signed
        (103, "000b"),
        (103, "0009"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(position: int, damage: str) -> None:
    patch = bytes.fromhex(damage)
    damaged = VECTOR[:position] + patch + VECTOR[position + len(patch) :]

    with pytest.raises(RemoteProtocolError):
        record.parse(damaged)


@pytest.mark.parametrize(("topic_length", "properties_length"), [(200, 10), (9, 40_000)])
def test_lengths_are_signed(topic_length: int, properties_length: int) -> None:
    """Java reads a topic of 200 bytes as one of -56, so for us it is no V1 record either."""
    tail = bytes([topic_length]) + b"t" * topic_length
    tail += properties_length.to_bytes(2, "big") + b"p" * properties_length
    data = VECTOR[4:93] + tail

    with pytest.raises(RemoteProtocolError, match="do not fit"):
        record.parse((len(data) + 4).to_bytes(4, "big") + data)


def test_an_empty_record_is_the_smallest_one() -> None:
    data = encoded(topic=b"", body=b"", properties=b"")

    assert len(data) == 91
    assert record.encode(parsed(data)) == data


def test_hosts_that_reach_beyond_the_record_are_refused() -> None:
    data = bytearray(encoded(topic=b"", body=b"", properties=b""))
    data[39] = sysflag.BORN_HOST_V6 | sysflag.STORE_HOST_V6

    with pytest.raises(RemoteProtocolError, match="too short"):
        record.parse(data)


def test_a_blank_covers_the_rest_of_the_file() -> None:
    file = bytearray(b"\xee" * 40)

    record.encode_blank_into(file, 10, 30)

    assert file[10:18] == bytes.fromhex("0000001e cbd43194")
    assert file[18:] == b"\xee" * 22
    assert record.peek(file, 10) == (30, record.MAGIC_BLANK)
    assert record.parse(file, 10) == Blank(30)


@pytest.mark.parametrize(("position", "size"), [(0, 7), (0, 41), (33, 8), (-1, 8)])
def test_a_blank_needs_8_bytes_of_room(position: int, size: int) -> None:
    file = bytearray(40)

    with pytest.raises(LocalProtocolError):
        record.encode_blank_into(file, position, size)

    assert not any(file)


@pytest.mark.parametrize("head", ["00000007 cbd43194", "00000029 cbd43194", "ffffffff cbd43194"])
def test_a_blank_of_impossible_size_is_refused(head: str) -> None:
    with pytest.raises(RemoteProtocolError):
        record.parse(bytes.fromhex(head).ljust(40, b"\0"))


def test_peek_needs_8_bytes() -> None:
    assert record.peek(VECTOR, 0) == (115, record.MAGIC_V1)
    with pytest.raises(RemoteProtocolError):
        record.peek(VECTOR, 108)


def test_pulled_records_follow_each_other() -> None:
    second = encoded(body=b"second", queue_offset=8)

    found = list(record.parse_all(memoryview(VECTOR + second)))

    assert [item.body for item in found] == [b"Hello", b"second"]
    assert list(record.parse_all(b"")) == []


@pytest.mark.parametrize("rest", [b"\0", VECTOR[:50], bytes(20), BLANK])
def test_pulled_bytes_after_the_last_record_are_refused(rest: bytes) -> None:
    records = record.parse_all(VECTOR + rest)

    assert next(records) == parsed(VECTOR)
    with pytest.raises(RemoteProtocolError):
        next(records)


@pytest.mark.parametrize("data", [VECTOR.replace(b"TopicTest", b"T\xffpicTest"), bytes(115)])
def test_a_failed_parse_leaves_the_file_free_to_close(data: bytes) -> None:
    file = mmap.mmap(-1, 4096)
    file[: len(data)] = data

    with pytest.raises(RemoteProtocolError) as caught:
        record.parse(file)

    # The traceback is still alive; it must not hold a view of the file.
    assert caught.value.__traceback__ is not None
    file.close()


def test_hosts_are_packed_as_address_and_32_bit_port() -> None:
    assert record.pack_host("127.0.0.1", 10911) == bytes.fromhex("7f000001 00002a9f")
    assert record.pack_host("::1", 1) == bytes(15) + b"\1" + bytes.fromhex("00000001")


def test_ipv4_in_ipv6_clothes_is_ipv4() -> None:
    mapped = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]) + bytes.fromhex("00002a9f")

    assert record.pack_host("::ffff:10.0.0.1", 10911) == record.pack_host("10.0.0.1", 10911)
    assert record.unpack_host(mapped) == ("10.0.0.1", 10911)


@pytest.mark.parametrize(
    ("ip", "port"),
    [("localhost", 1), ("", 1), ("1.2.3", 1), ("::g", 1), ("1.2.3.4", -1), ("1.2.3.4", 65536)],
)
def test_a_host_that_is_no_address_and_port_is_refused(ip: str, port: int) -> None:
    with pytest.raises(LocalProtocolError):
        record.pack_host(ip, port)


def test_a_host_of_another_length_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        record.unpack_host(bytes(9))


@pytest.mark.parametrize("properties", [b"", b"a\x01b\x02", b"a\x01b"])
def test_the_property_checksum_covers_the_record_before_it(properties: bytes) -> None:
    target = bytearray(encoded(properties=record.reserve_property_crc(properties)))

    record.append_property_crc(target, 0)

    separated = properties.rstrip(b"\x02") + b"\x02" if properties else b""
    found = parsed(bytes(target)).properties
    assert found.startswith(separated + b"__CRC32#\x01")
    assert found.endswith(b"\x02")
    assert len(found) == len(separated) + 20
    assert record.verify_property_crc(target)
    assert record.verify_property_crc(b"-" + target, 1)


def test_the_digits_of_a_property_checksum_run_backwards() -> None:
    target = bytearray(encoded(properties=record.reserve_property_crc(b"")))

    record.append_property_crc(target, 0)

    crc = zlib.crc32(target[:-20]) & 0x7FFFFFFF
    for position in range(10):
        assert target[-11 + position] == ord("0") + crc // 10**position % 10


def test_a_missing_or_wrong_property_checksum_is_not_right() -> None:
    target = bytearray(encoded(properties=record.reserve_property_crc(b"a\x01b\x02")))
    record.append_property_crc(target, 0)
    target[16] ^= 1

    assert not record.verify_property_crc(target)
    assert not record.verify_property_crc(VECTOR)
    assert not record.verify_property_crc(BLANK)
    with pytest.raises(RemoteProtocolError):
        record.verify_property_crc(b"")


def test_a_property_checksum_needs_reserved_room() -> None:
    with pytest.raises(LocalProtocolError, match="no room"):
        record.append_property_crc(bytearray(VECTOR), 0)
