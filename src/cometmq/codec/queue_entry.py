"""Entries of a consume queue: where the n-th message of a queue lies in the commit log.

::

    i64 physical offset   of the record
    i32 size              of the whole record
    i64 tags code         Java hash of the tag, 0 without one

In the queue of a delayed message the tags code is the delivery time; with the extension switched
on it is the address of a unit there (``queue_extension``). Entry ``n`` lies at byte ``n * 20``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cometmq.codec.java import INT32_MAX, INT32_MIN, string_hash
from cometmq.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

ENTRY_BYTES: Final = 20

LAYOUT: Final = struct.Struct(">qiq")
_BYTES = struct.Struct(f"{ENTRY_BYTES}s")

_DELAY_UNKNOWN_MS = 1000


class QueueEntry(msgspec.Struct, frozen=True, gc=False):
    """One entry, its fields in the order of the bytes."""

    physical_offset: int
    size: int
    tags_code: int


FILLER: Final = QueueEntry(physical_offset=0, size=INT32_MAX, tags_code=0)
"""Stands for the entries before the first one of a queue that does not begin at offset 0."""


def pack(physical_offset: int, size: int, tags_code: int) -> bytes:
    """Return the 20 bytes. Raises LocalProtocolError when a value does not fit into its field."""
    try:
        return LAYOUT.pack(physical_offset, size, tags_code)
    except struct.error as error:
        raise LocalProtocolError(f"not a queue entry: {error}") from error


def pack_into(
    target: WriteableBuffer, position: int, physical_offset: int, size: int, tags_code: int
) -> None:
    """Write the 20 bytes at ``position``, or raise LocalProtocolError with nothing written."""
    # Not packed in place: a value that does not fit would be found behind those already written.
    entry = pack(physical_offset, size, tags_code)
    if position >= 0:  # a negative one would count from the end
        try:
            _BYTES.pack_into(target, position, entry)
        except struct.error:
            pass
        else:
            return
    room = memoryview(target).nbytes
    raise LocalProtocolError(f"no room for an entry at {position} of {room} bytes")


def unpack(data: ReadableBuffer, position: int = 0) -> QueueEntry:
    """Return the entry at ``position``; ask ``is_valid`` whether it has been written."""
    assert position >= 0, position
    try:
        return QueueEntry(*LAYOUT.unpack_from(data, position))
    except struct.error as error:
        raise RemoteProtocolError(f"no complete queue entry at {position}") from error


def is_valid(entry: QueueEntry) -> bool:
    """Tell whether the entry was written; the zeros of a fresh file were not. A filler was."""
    return entry.physical_offset >= 0 and entry.size > 0


def scan(
    data: ReadableBuffer, begin: int, end: int, tags: frozenset[int] | None, limit: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return the matching entries among the bytes ``[begin, end)`` and how many were examined.

    A match is ``(number, physical_offset, size)``, numbers counted from ``begin``. ``tags`` None
    matches all; an entry with an extension address always matches, the extension decides. The walk
    ends after ``limit`` matches, before the first entry that was never written, and before an
    incomplete one.
    """
    assert 0 <= begin <= end, (begin, end)
    matches: list[tuple[int, int, int]] = []
    examined = 0
    if limit <= 0:
        return matches, examined
    with memoryview(data) as view:
        end = min(end, view.nbytes)
        whole = (end - begin) // ENTRY_BYTES * ENTRY_BYTES
        for physical_offset, size, tags_code in LAYOUT.iter_unpack(view[begin : begin + whole]):
            if physical_offset < 0 or size <= 0:
                break
            if tags is None or tags_code in tags or tags_code < INT32_MIN:
                matches.append((examined, physical_offset, size))
            examined += 1
            if len(matches) == limit:
                break
    return matches, examined


class Selection(NamedTuple):
    """Which records a read returns: log positions ``[begin, end)``, touching records joined."""

    runs: list[tuple[int, int]]
    records: int
    bytes: int
    examined: int
    """Entries looked at; the next read begins behind them."""
    is_cold: bool
    """The last record lies before the warm part of the log."""
    has_gone: bool
    """A record is no longer in the log."""


def select(
    data: ReadableBuffer,
    begin: int,
    end: int,
    tags: frozenset[int] | None,
    log_begin: int,
    warm_begin: int,
    log_end: int,
    count_max: int,
    bytes_max: int,
    count_cold_max: int,
    bytes_cold_max: int,
) -> Selection:
    """Choose among the entries in bytes ``[begin, end)`` what fits the limits.

    Records before ``warm_begin`` are under the cold limits too. The first record that matches is
    chosen whatever its size. Fillers and records before ``log_begin`` are passed over; a record
    that is not complete before ``log_end`` ends the read, as does an entry never written.
    """
    runs: list[tuple[int, int]] = []
    run_begin = run_end = -1
    chosen = total = examined = 0
    is_cold = has_gone = False
    whole = (end - begin) // ENTRY_BYTES * ENTRY_BYTES
    with memoryview(data) as view, view[begin : begin + whole] as entries:
        for physical_offset, size, code in LAYOUT.iter_unpack(entries):
            physical_end = physical_offset + size
            if size == INT32_MAX and physical_offset == 0:
                examined += 1
                continue
            if physical_offset < 0 or size <= 0 or physical_end > log_end:
                break
            if tags is not None and code not in tags and code >= INT32_MIN:
                examined += 1
                continue
            if physical_offset < log_begin:
                has_gone = True
                examined += 1
                continue
            cold = physical_offset < warm_begin
            if chosen and (
                chosen >= count_max
                or total + size > bytes_max
                or (cold and chosen >= count_cold_max)
                or (cold and total + size > bytes_cold_max)
            ):
                break
            if physical_offset != run_end:
                if chosen:
                    runs.append((run_begin, run_end))
                run_begin = physical_offset
            run_end = physical_end
            is_cold = cold
            chosen += 1
            total += size
            examined += 1
    if chosen:
        runs.append((run_begin, run_end))
    return Selection(runs, chosen, total, examined, is_cold, has_gone)


def slice_runs(
    view: memoryview, base: int, runs: list[tuple[int, int]], begin: int
) -> list[memoryview]:
    """Return the slices of ``view`` for the runs from ``runs[begin]`` on that lie in it.

    ``base`` is the log position of its first byte; the first run must lie in it.
    """
    end = base + view.nbytes
    slices = []
    for run_begin, run_end in runs[begin:]:
        if not base <= run_begin <= run_end <= end:
            break
        slices.append(view[run_begin - base : run_end - base])
    assert slices, (base, runs)
    return slices


def count(data: ReadableBuffer, begin: int, end: int) -> tuple[int, int]:
    """Return how many entries are there from ``begin`` on, and where their last record ends.

    They end before the first entry that was never written, or whose record does not lie behind the
    one before. The second value is -1 when there are only fillers.
    """
    number, physical_end = 0, -1
    with memoryview(data) as view:
        whole = (end - begin) // ENTRY_BYTES * ENTRY_BYTES
        for physical_offset, size, _ in LAYOUT.iter_unpack(view[begin : begin + whole]):
            if size != INT32_MAX or physical_offset != 0:
                if size <= 0 or physical_offset < max(physical_end, 0):
                    break
                physical_end = physical_offset + size
            number += 1
    return number, physical_end


def tags_code(tags: str | None) -> int:
    """Return the code of a message's TAGS property."""
    return string_hash(tags) if tags else 0


def delay_tags_code(store_timestamp: int, delay_ms: int | None) -> int:
    """Return the code of a delayed message: the time of its delivery.

    ``delay_ms`` is None for a level the broker has no delay for; it then waits a second.
    """
    return store_timestamp + (_DELAY_UNKNOWN_MS if delay_ms is None else delay_ms)
