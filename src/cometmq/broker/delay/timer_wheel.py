"""The wheel of timed messages: for each step of time, where its messages lie in the timer log.

One file, mapped whole, of the size that 5.5.0 wants. A slot belongs to the time it names; anything
else in it is left from an earlier turn of the wheel. Every slot lies within one sector of the disk,
so a power cut leaves it old or new; which of them, recovery finds out (``timer_index``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from cometmq.codec import timer
from cometmq.codec.timer import NO_POSITION, SLOT_BYTES, WheelSlot
from cometmq.errors import DamagedStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.store.files import Files

_PAGE_BYTES: Final = 4096
_NOTHING: Final = bytes(_PAGE_BYTES)
_SLOT: Final = struct.Struct(">qqqii")


class TimerWheel:
    """The slots, each found by its time in milliseconds. ``slots`` is only for tests not Apache's.

    The file is made when it is missing; ``is_new`` says so, and then its name is not durable yet.
    """

    def __init__(
        self, files: Files, path: Path, precision_ms: int, *, slots: int = timer.WHEEL_SLOTS
    ) -> None:
        self.path = path
        self._precision_ms = precision_ms
        self._slots = slots
        size = slots * SLOT_BYTES
        found = {entry.name: entry.size for entry in files.entries(path.parent)}.get(path.name, 0)
        if found not in (0, size):
            raise DamagedStore(
                str(path),
                f"has {found} bytes, not {size}",
                "remove it to have it made anew from the timer log",
            )
        self.is_new = not found
        if self.is_new:
            files.remove(path)
            files.create(path, size, durable=False)
        self._file = files.open(path)
        # Apache leaves holes; a write into one ends the process when the disk is full.
        self._file.allocate(0, size)
        self._mapping = self._file.map(writable=True)

    def slot(self, time_ms: int) -> WheelSlot | None:
        """The slot of a time; None when nothing was ever put there."""
        time = time_ms // self._precision_ms
        found = timer.unpack_slot(self._mapping, time % self._slots * SLOT_BYTES)
        return found if found.time == time and found.last_position != NO_POSITION else None

    def add(self, time_ms: int, position: int, change: int) -> None:
        """Let the unit at a log position be the last of its slot; its count changes by ``change``.

        Nothing happens when the slot has that unit, or a later one, already.
        """
        old = self.slot(time_ms)
        if old is not None and old.last_position >= position:
            return
        time = time_ms // self._precision_ms
        first, count = (position, 0) if old is None else (old.first_position, old.count)
        magic = 0 if old is None else old.magic
        begin = time % self._slots * SLOT_BYTES
        _SLOT.pack_into(self._mapping, begin, time, first, position, _int32(count + change), magic)

    def used(self, begin_ms: int) -> Iterator[WheelSlot]:
        """Slots from a time on, as far as one turn of the wheel reaches; those in use only."""
        time = begin_ms // self._precision_ms
        end = time + self._slots
        per_page = _PAGE_BYTES // SLOT_BYTES
        while time < end:
            index = time % self._slots
            count = min(per_page - index % per_page, self._slots - index, end - time)
            with memoryview(self._mapping) as whole:
                page = bytes(whole[index * SLOT_BYTES : (index + count) * SLOT_BYTES])
            if page != _NOTHING[: len(page)]:
                for number, values in enumerate(_SLOT.iter_unpack(page)):
                    if values[0] == time + number and values[2] != NO_POSITION:
                        yield WheelSlot(*values)
            time += count

    def clear(self) -> None:
        """Forget all slots."""
        for begin in range(0, len(self._mapping), _PAGE_BYTES):
            end = min(begin + _PAGE_BYTES, len(self._mapping))
            if self._mapping[begin:end] != _NOTHING[: end - begin]:
                self._mapping[begin:end] = _NOTHING[: end - begin]

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._mapping.close()
        self._file.close()


def _int32(count: int) -> int:
    return min(max(count, -(2**31)), 2**31 - 1)
