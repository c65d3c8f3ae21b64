"""Files of the 5.x timer: wheel, log and check page.

::

    wheel slot (32)   i64 due time / precision, i64 first position, i64 last position (in the log,
                      -1 = none), i32 count, i32 magic (unused)
    log unit (52)     i32 size = 52, i64 previous position of the same slot, i32 magic,
                      i64 enqueue time, i32 due - enqueue time, i64 physical offset,
                      i32 message size, i32 Java hash of the real topic, i64 reserved
    log blank (16)    i32 bytes to the end of the file, i64 0, i32 magic of a blank
    check page        7 i64: read time, log flush position, queue offset, master's queue offset,
                      data version (state version, timestamp, counter); 4096 bytes in all

The wheel covers two times seven days of slots. A slot belongs to a due time only if it names it;
otherwise it is a leftover of an earlier turn of the wheel.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec.record import MAGIC_BLANK
from cometmq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SLOT_BYTES: Final = 32
WHEEL_SLOTS: Final = 7 * 24 * 3600 * 2
WHEEL_BYTES: Final = WHEEL_SLOTS * SLOT_BYTES
UNIT_BYTES: Final = 52
BLANK_BYTES: Final = 16
"""A unit is only written where this much stays free behind it."""
CHECK_PAGE_BYTES: Final = 4096

NO_POSITION: Final = -1

_SLOT = struct.Struct(">qqqii")
_UNIT = struct.Struct(">iqiqiqiiq")
_BLANK = struct.Struct(">iqi")
_CHECK = struct.Struct(">7q")
_OURS = struct.Struct(">2q")
_MAGIC_BITS = 0xF


class TimerMagic(enum.IntFlag):
    """What a log unit asks for; bits can be combined."""

    DEFAULT = 1
    ROLL = 2
    DELETE = 4


class WheelSlot(msgspec.Struct, frozen=True, gc=False):
    """One slot; ``time`` is the due time divided by the precision."""

    time: int
    first_position: int
    last_position: int
    count: int
    magic: int = 0


class TimerUnit(msgspec.Struct, frozen=True, gc=False):
    """One waiting message; ``previous`` leads to the one enqueued before it in the same slot."""

    previous: int
    magic: int
    enqueue_timestamp: int
    delay_ms: int
    physical_offset: int
    message_size: int
    topic_hash: int
    reserved: int = 0


class TimerBlank(msgspec.Struct, frozen=True, gc=False):
    """The end of a log file; ``size`` reaches to the end of the file."""

    size: int


class TimerCheck(msgspec.Struct, frozen=True, gc=False):
    """How far the timer has come."""

    read_timestamp: int = 0
    log_flush_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0
    reached_timestamp: int = 0
    """The furthest it ever was, also before a clock was set back. Ours: Apache leaves it alone."""
    precision_ms: int = 0
    """That of the slots; 0 where nobody wrote it down. Ours, too."""


def slot_position(due_timestamp: int, precision_ms: int) -> int:
    """Return where the slot of a due time lies in the wheel."""
    return due_timestamp // precision_ms % WHEEL_SLOTS * SLOT_BYTES


def pack_slot(slot: WheelSlot) -> bytes:
    return _pack(_SLOT, *msgspec.structs.astuple(slot))


def unpack_slot(data: ReadableBuffer, position: int) -> WheelSlot:
    return WheelSlot(*_unpack(_SLOT, data, position))


def encode_unit(unit: TimerUnit) -> bytes:
    return _pack(_UNIT, UNIT_BYTES, *msgspec.structs.astuple(unit))


def encode_blank(size: int) -> bytes:
    """Return the 16 bytes that close a log file with ``size`` bytes left."""
    if size < BLANK_BYTES:
        raise LocalProtocolError(f"a blank in the timer log needs {BLANK_BYTES} bytes, not {size}")
    return _pack(_BLANK, size, 0, MAGIC_BLANK)


def parse_log(data: ReadableBuffer, position: int = 0) -> TimerUnit | TimerBlank:
    """Return the unit or the blank at ``position`` of a timer log file.

    Raises RemoteProtocolError for anything else, the zeros after the last unit included.
    """
    size, _, magic = _unpack(_BLANK, data, position)
    if magic == MAGIC_BLANK and size >= BLANK_BYTES:
        return TimerBlank(size)
    if size != UNIT_BYTES or not is_valid_magic(magic):
        raise RemoteProtocolError(f"no timer log unit at {position}: size {size}, magic {magic:#x}")
    return TimerUnit(*_unpack(_UNIT, data, position)[1:])


def is_valid_magic(magic: int) -> bool:
    """Tell whether only bits are set that a log unit may have."""
    return magic | _MAGIC_BITS == _MAGIC_BITS


def pack_check(check: TimerCheck) -> bytes:
    """Return the whole page."""
    *values, reached, precision = msgspec.structs.astuple(check)
    page = _pack(_CHECK, *values) + _pack(_OURS, reached, precision)
    return page.ljust(CHECK_PAGE_BYTES, b"\0")


def unpack_check(data: ReadableBuffer) -> TimerCheck:
    """Return the fields of a page; the rest of it is not looked at. Brokers send less than it."""
    values = _unpack(_CHECK, data, 0)
    with memoryview(data) as view:
        is_whole = view.nbytes >= _CHECK.size + _OURS.size
    return TimerCheck(*values, *(_unpack(_OURS, data, _CHECK.size) if is_whole else ()))


def _pack(layout: struct.Struct, *values: int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise LocalProtocolError(f"a timer value does not fit into its field: {error}") from error


def _unpack(layout: struct.Struct, data: ReadableBuffer, position: int) -> tuple[int, ...]:
    assert position >= 0, position
    try:
        return layout.unpack_from(data, position)
    except struct.error as error:
        raise RemoteProtocolError(f"timer file ends before {position + layout.size}") from error
