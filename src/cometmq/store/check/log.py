"""The walk over the log: record after record as their sizes lead, through all files.

Where the chain breaks, what happens next depends. After a kill the log simply ends at the first
place that is no sound record, as it will for who opens it. In a store that was closed this must
not happen: it is an error when any queue has an entry for that place or a later one, and the walk
goes on at the next record that a queue knows. Otherwise it is a leftover: Apache's brokers do not
clear what they cut off after a crash.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec import record
from cometmq.codec.record import BLANK_BYTES_MIN, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Blank, Record
from cometmq.errors import RemoteProtocolError
from cometmq.store.check.reading import map_file
from cometmq.store.check.report import Kind, Severity
from cometmq.store.directory import file_offset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.store.check.context import Context
    from cometmq.store.check.queues import QueueCheck

BREAKS_MAX: Final = 1000
"""After so many breaks the rest of a file is given up each time."""

_PROPERTY_CRC_MARK = b"__CRC32#\x01"
_PROPERTY_CRC_BYTES = 20
_READABLE = (Kind.WRONG_CRC, Kind.WRONG_POSITION)
_UNWRITTEN = (0, 0)


class _Unsound(Exception):
    """A place that is no sound record, and why."""

    def __init__(self, kind: Kind, text: str, *, is_unwritten: bool = False) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.is_unwritten = is_unwritten


class LogWalk:
    """Yields the records of a log, each with the position it lies at, and reports what is wrong."""

    def __init__(self, context: Context, queues: QueueCheck) -> None:
        self._context = context
        self._log = context.log
        self._queues = queues
        # The position behind the last record or filler; final when the walk is over.
        self.end = context.log.begin
        self._is_over = False
        self._breaks = 0

    def records(self) -> Iterator[Record]:
        for number, path in enumerate(self._log.paths):
            if self._is_over:
                break
            with map_file(self._context.files, path) as data:
                data.madvise(mmap.MADV_SEQUENTIAL)
                yield from self._records_of(path, data, self._log.paths[number + 1 :])

    def _records_of(self, path: Path, data: mmap.mmap, later: list[Path]) -> Iterator[Record]:
        begin = position = file_offset(path)
        while True:
            found: Record | Blank
            try:
                found = _read(data, position - begin, position)
            except _Unsound as unsound:
                if (
                    unsound.kind in _READABLE
                    and self._context.severity_at(position) is Severity.ERROR
                ):
                    self._add(unsound, Severity.ERROR, path, position)
                    found = _read_unchecked(data, position - begin, position)
                else:
                    target = self._after_break(unsound, path, position, later)
                    if target is None:
                        return
                    position = target
                    continue
            position += found.size
            self.end = position
            if isinstance(found, Blank):
                return
            yield found

    def _after_break(
        self, unsound: _Unsound, path: Path, position: int, later: list[Path]
    ) -> int | None:
        """Report a break; return where to go on in the same file, None for not at all."""
        severity = self._context.severity_at(position)
        target = None
        if self._breaks < BREAKS_MAX:
            target = self._queues.next_record(position, file_offset(path) + self._log.file_bytes)
        has_more = target is not None or self._has_data(later)
        if unsound.is_unwritten and not has_more:
            self._is_over = True  # the ordinary end of a log
            return None
        if severity is Severity.ERROR and not (has_more or self._queues.has_entry_from(position)):
            severity = Severity.NOTE
            unsound.text += "; left behind the end of the log by a crash?"
        self._add(unsound, severity, path, position)
        self._breaks += 1
        self._is_over = severity is not Severity.ERROR
        return None if self._is_over else target

    def _has_data(self, later: list[Path]) -> bool:
        return any(record.peek(self._log.mapping(path), 0) != _UNWRITTEN for path in later)

    def _add(self, unsound: _Unsound, severity: Severity, path: Path, position: int) -> None:
        self._context.report.add(unsound.kind, severity, path, position, unsound.text)
        if unsound.kind is not Kind.WRONG_CRC:
            self._context.add_broken(position)


def _read(data: mmap.mmap, at: int, position: int) -> Record | Blank:
    """The record or filler at byte ``at`` of a file; raises _Unsound when there is none."""
    left = len(data) - at
    if left < BLANK_BYTES_MIN:
        raise _Unsound(Kind.BROKEN_CHAIN, "file ends without the filler that belongs there")
    size, magic = record.peek(data, at)
    if (size, magic) == _UNWRITTEN:
        raise _Unsound(Kind.BROKEN_CHAIN, "nothing is written here", is_unwritten=True)
    if magic == MAGIC_BLANK and size == left:
        return Blank(size)
    if magic == MAGIC_BLANK:
        raise _Unsound(Kind.BROKEN_CHAIN, f"filler of {size} bytes, the file has {left} left")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _Unsound(Kind.WRONG_MAGIC, f"magic is {magic & 0xFFFFFFFF:#010x}, size {size}")
    found = _parse(data, at)
    if found.physical_offset != position:
        text = f"message says it lies at {found.physical_offset}"
        raise _Unsound(Kind.WRONG_POSITION, text)
    if found.properties[-_PROPERTY_CRC_BYTES:].startswith(
        _PROPERTY_CRC_MARK
    ) and not record.verify_property_crc(data, at):
        raise _Unsound(Kind.WRONG_CRC, "message does not have the checksum in its properties")
    return found


def _parse(data: mmap.mmap, at: int) -> Record:
    try:
        found = record.parse(data, at, check_crc=True, with_body=False)
    except RemoteProtocolError as error:
        try:
            record.parse(data, at, with_body=False)
        except RemoteProtocolError:
            raise _Unsound(Kind.BROKEN_CHAIN, f"no message: {error.fact}") from error
        raise _Unsound(Kind.WRONG_CRC, error.fact) from error
    assert isinstance(found, Record)
    return found


def _read_unchecked(data: mmap.mmap, at: int, position: int) -> Record:
    found = record.parse(data, at, with_body=False)
    assert isinstance(found, Record)
    return msgspec.structs.replace(found, physical_offset=position)
