import pytest

from cometmq.codec import timer
from cometmq.codec.timer import TimerBlank, TimerCheck, TimerMagic, TimerUnit, WheelSlot
from cometmq.errors import LocalProtocolError, RemoteProtocolError

UNIT = TimerUnit(
    previous=-1,
    magic=TimerMagic.DEFAULT | TimerMagic.ROLL,
    enqueue_timestamp=1700000000000,
    delay_ms=5000,
    physical_offset=1024,
    message_size=115,
    topic_hash=80811813,
)
UNIT_BYTES = bytes.fromhex(
    "00000034 ffffffffffffffff 00000003 0000018bcfe56800 00001388 0000000000000400 00000073"
    "04d11725 0000000000000000"
)


def test_a_log_unit_is_written_and_read() -> None:
    assert timer.encode_unit(UNIT) == UNIT_BYTES
    assert timer.parse_log(b"-" + UNIT_BYTES, 1) == UNIT
    assert len(UNIT_BYTES) == timer.UNIT_BYTES


def test_a_log_file_ends_with_a_blank() -> None:
    data = timer.encode_blank(40)

    assert data.hex() == "00000028" + "0000000000000000" + "cbd43194"
    assert timer.parse_log(data) == TimerBlank(40)
    with pytest.raises(LocalProtocolError):
        timer.encode_blank(15)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        bytes(52),
        UNIT_BYTES[:15],
        UNIT_BYTES[:51],
        b"\0\0\0\x33" + UNIT_BYTES[4:],
        UNIT_BYTES[:12] + b"\0\0\0\x10" + UNIT_BYTES[16:],
        UNIT_BYTES[:12] + b"\xff\xff\xff\xff" + UNIT_BYTES[16:],
        bytes.fromhex("0000000f 0000000000000000 cbd43194"),
    ],
)
def test_what_is_no_log_unit_is_refused(damaged: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        timer.parse_log(damaged)


def test_a_wheel_slot_is_written_and_read() -> None:
    slot = WheelSlot(time=1700000000, first_position=52, last_position=104, count=2)

    data = timer.pack_slot(slot)

    assert data == bytes.fromhex(
        "000000006553f100 0000000000000034 0000000000000068 00000002 00000000"
    )
    assert timer.unpack_slot(b"-" + data, 1) == slot
    assert len(data) == timer.SLOT_BYTES


def test_the_wheel_covers_fourteen_days() -> None:
    assert timer.WHEEL_BYTES == 38_707_200
    assert timer.slot_position(0, 1000) == 0
    assert timer.slot_position(1999, 1000) == 32
    assert timer.slot_position(14 * 86_400_000 + 1000, 1000) == 32


def test_the_check_page_is_written_and_read() -> None:
    page = timer.pack_check(TimerCheck(1, 2, 3, 4, 5, 6, 7, 8, 9))

    assert page[:72].hex() == "".join(f"{n:016x}" for n in range(1, 10))
    assert page[72:] == bytes(4024)
    assert timer.unpack_check(page) == TimerCheck(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert timer.unpack_check(page[:56]) == TimerCheck(1, 2, 3, 4, 5, 6, 7)


def test_cut_off_files_are_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        timer.unpack_check(bytes(55))
    with pytest.raises(RemoteProtocolError):
        timer.unpack_slot(bytes(31), 0)


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        timer.pack_slot(WheelSlot(time=0, first_position=1 << 63, last_position=0, count=0))
