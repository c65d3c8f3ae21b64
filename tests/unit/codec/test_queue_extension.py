import pytest

from cometmq.codec import queue_extension
from cometmq.codec.queue_extension import ExtensionUnit
from cometmq.errors import LocalProtocolError, RemoteProtocolError

UNIT = ExtensionUnit(tags_code=2598919, store_timestamp=1700000000123, bitmap=b"\x05\xa0")
UNIT_BYTES = bytes.fromhex("0016 000000000027a807 0000018bcfe5687b 0002 05a0")


def test_a_unit_is_written_and_read() -> None:
    assert queue_extension.encode(UNIT) == UNIT_BYTES
    assert queue_extension.parse(b"--" + UNIT_BYTES + b"rest", 2) == UNIT
    assert UNIT.size == 22


def test_a_unit_without_bitmap_is_the_smallest() -> None:
    unit = ExtensionUnit(tags_code=-1, store_timestamp=1)

    assert len(queue_extension.encode(unit)) == queue_extension.UNIT_BYTES_MIN
    assert queue_extension.parse(queue_extension.encode(unit)) == unit


def test_a_file_ends_with_its_marker() -> None:
    data = UNIT_BYTES + queue_extension.END_MARKER + bytes(2)

    assert queue_extension.parse(data, len(UNIT_BYTES)) is None


def test_the_largest_unit_fills_its_size_field() -> None:
    room = queue_extension.UNIT_BYTES_MAX - queue_extension.UNIT_BYTES_MIN
    unit = ExtensionUnit(tags_code=0, store_timestamp=0, bitmap=b"b" * room)

    assert queue_extension.parse(queue_extension.encode(unit)) == unit
    with pytest.raises(LocalProtocolError):
        queue_extension.encode(ExtensionUnit(0, 0, b"b" * (room + 1)))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\0",
        bytes(22),
        UNIT_BYTES[:-1],
        b"\x00\x13" + UNIT_BYTES[2:],
        b"\x80\x00" + UNIT_BYTES[2:],
        b"\x00\x15" + UNIT_BYTES[2:],
        UNIT_BYTES[:18] + b"\xff\xfe" + UNIT_BYTES[20:],
    ],
)
def test_what_is_no_unit_is_refused(damaged: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        queue_extension.parse(damaged)


def test_an_address_is_below_every_hash() -> None:
    address = queue_extension.address_to_tags_code(1234)

    assert address == 1234 - 2**63
    assert queue_extension.is_address(address)
    assert queue_extension.tags_code_to_address(address) == 1234
    assert queue_extension.is_address(-(2**31) - 1)
    assert not queue_extension.is_address(-(2**31))


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        queue_extension.tags_code_to_address(-(2**31))
    for offset in (-1, 2**63 - 2**31):
        with pytest.raises(LocalProtocolError):
            queue_extension.address_to_tags_code(offset)
