"""Index files against the log: does each entry lead to a message that has the key?

The chains of a file follow from its entries: an entry leads to the one before it in its slot, the
slot to the newest. A message that is not in the index is no finding: Apache's brokers do not index
again what they lost of it in a crash. Neither is one that is there twice.
"""

from __future__ import annotations

import array
import struct
import sys
from typing import TYPE_CHECKING, Final

from cometmq.codec import index_entry, properties
from cometmq.codec.index_entry import HEADER_BYTES, SLOT_BYTES
from cometmq.codec.java import index_hash
from cometmq.store.check.reading import map_file
from cometmq.store.check.report import Kind, Severity

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cometmq.codec.record import Record
    from cometmq.store.check.context import Context

_ENTRY = struct.Struct(">iqii")
_CHUNK_ENTRIES: Final = 4096


class IndexCheck:
    """The index files of a store; the log has been walked already."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._report = context.report
        self._slots = context.layout.index_slots
        self._entries = context.layout.index_entries
        self._log = context.log
        # The keys of the last message that was looked at: its entries follow each other.
        self._offset = -1
        self._hashes: frozenset[int] | None = None

    def file(
        self,
        path: Path,
        *,
        safe_until_ms: int | None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Check one file; ``progress`` is told now and then how many of its bytes are done.

        Opening the store mends files that are not full or that cover times after
        ``safe_until_ms``; None when it will mend nothing.
        """
        with map_file(self._context.files, path) as data:
            header = index_entry.unpack_header(data)
            count = header.index_count
            is_mended = safe_until_ms is not None and (
                header.end_timestamp > safe_until_ms or count < self._entries
            )
            severity = Severity.RECOVERABLE if is_mended else Severity.ERROR
            if count > self._entries:
                text = f"header counts {count - 1} entries, the file has room for {self._entries}"
                self._report.add(Kind.INDEX_CHAIN, severity, path, None, text)
                count = self._entries
            newest = self._walk(path, data, count, severity, progress)
            self._slots_lead_to(newest, path, data, header.slot_count, severity)
        self._report.index_files += 1
        self._report.index_entries += count - 1

    def _walk(
        self,
        path: Path,
        data: mmap.mmap,
        count: int,
        severity: Severity,
        progress: Callable[[int], None],
    ) -> array.array[int]:
        """Go through the entries; return the newest of each slot."""
        newest = array.array("i", bytes(SLOT_BYTES * self._slots))
        behind = 0
        for number, (key_hash, offset, _, previous) in self._numbered(data, count, progress):
            if key_hash < 0:
                text = f"{key_hash} is not the hash of a key"
                self._report.add(Kind.INDEX_KEY, severity, path, number, text)
                continue
            slot = key_hash % self._slots
            if previous != newest[slot]:
                text = f"entry leads to entry {previous}, the one before it is {newest[slot]}"
                self._report.add(Kind.INDEX_CHAIN, severity, path, number, text)
            newest[slot] = number
            if offset >= self._report.log_end:
                behind += 1
            elif offset >= self._log.begin:
                self._message(path, number, key_hash, offset, severity)
        if behind:
            # Not an error even after a clean stop: Apache leaves them when it truncates the log.
            severity = Severity.NOTE if severity is Severity.ERROR else severity
            text = f"{behind} entries point behind the end of the log, {self._report.log_end}"
            self._report.add(Kind.INDEX_NOWHERE, severity, path, None, text)
        return newest

    def _numbered(
        self, data: mmap.mmap, count: int, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        for first in range(1, count, _CHUNK_ENTRIES):
            begin = index_entry.entry_position(first, self._slots)
            end = index_entry.entry_position(min(first + _CHUNK_ENTRIES, count), self._slots)
            yield from enumerate(_ENTRY.iter_unpack(data[begin:end]), first)
            progress(end)

    def _message(
        self, path: Path, number: int, key_hash: int, offset: int, severity: Severity
    ) -> None:
        if offset != self._offset:
            record = self._log.record_at(offset)
            self._offset = offset
            self._hashes = None if record is None else hashes(record)
        if offset in self._context.broken:
            return
        if self._hashes is None:
            text = f"entry points to {offset}, where no message begins"
            self._report.add(Kind.INDEX_NOWHERE, severity, path, number, text)
        elif key_hash not in self._hashes:
            text = f"the message at {offset} has no key with the hash {key_hash}"
            self._report.add(Kind.INDEX_KEY, severity, path, number, text)

    def _slots_lead_to(
        self,
        newest: array.array[int],
        path: Path,
        data: mmap.mmap,
        slot_count: int,
        severity: Severity,
    ) -> None:
        used = self._slots - newest.count(0)
        if used != slot_count:
            text = f"header counts {slot_count} slots in use, {used} are"
            self._report.add(Kind.INDEX_CHAIN, severity, path, None, text)
        found = array.array("i", data[HEADER_BYTES : HEADER_BYTES + SLOT_BYTES * self._slots])
        if sys.byteorder == "little":
            found.byteswap()
        if found == newest:
            return
        for slot, (leads_to, entry) in enumerate(zip(found, newest, strict=True)):
            if leads_to != entry:
                text = f"slot {slot} leads to entry {leads_to}, its newest is {entry}"
                self._report.add(Kind.INDEX_CHAIN, severity, path, entry, text)


def hashes(record: Record) -> frozenset[int]:
    """What a message may be found by: its unique key, its keys and its tag."""
    found = properties.decode(record.properties)
    keys = [found.get("UNIQ_KEY", ""), *found.get("KEYS", "").split(" ")]
    texts = [index_entry.key_text(record.topic, key) for key in keys if key]
    if "TAGS" in found:
        texts.append(index_entry.tag_text(record.topic, found["TAGS"]))
    return frozenset(map(index_hash, texts))
