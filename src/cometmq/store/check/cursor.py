"""A queue that is read entry by entry, a little at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec import queue_entry
from cometmq.codec.queue_entry import ENTRY_BYTES, QueueEntry
from cometmq.store.directory import file_offset

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.store.check.reading import Segments


class QueueCursor:
    """Goes through the entries of one queue; ``entry`` is the one at ``number``, None at the end.

    The queue ends at the first entry that was never written, as it does for who opens it.
    """

    __slots__ = (
        "_at",
        "_chunk",
        "_chunk_bytes",
        "_file",
        "_segments",
        "early",
        "entry",
        "first",
        "has_matched",
        "number",
        "right",
        "shift",
    )

    def __init__(self, segments: Segments, chunk_entries: int) -> None:
        self._segments = segments
        self._chunk_bytes = chunk_entries * ENTRY_BYTES
        self._chunk = b""
        self._at = 0
        self._file = 0
        self.first = segments.begin // ENTRY_BYTES
        self.number = self.first
        self.entry: QueueEntry | None = None
        # Whether an entry has met its record.
        self.has_matched = False
        # By how much the messages' own numbers exceed those of their entries.
        self.shift = 0
        # Number of an entry that was found right although its record is still to come.
        self.right = -1
        # Records that lie before those the queue begins with.
        self.early = 0
        self._load()

    @property
    def path(self) -> Path:
        """The file of the current entry, or else the last one."""
        paths = self._segments.paths
        return paths[min(self._file, len(paths) - 1)]

    def advance(self) -> None:
        assert self.entry is not None
        self.number += 1
        self._at += ENTRY_BYTES
        if self._at < len(self._chunk):
            self._take()
        else:
            self._load()

    def following(self) -> QueueEntry | None:
        """The entry after the current one, without going there."""
        position = (self.number + 1) * ENTRY_BYTES
        path = self._segments.path_at(position)
        if path is None:
            return None
        data = self._segments.mapping(path)
        found = queue_entry.unpack(data, position - file_offset(path))
        return found if queue_entry.is_valid(found) else None

    def later_entry(self) -> QueueEntry | None:
        """The first entry that a file behind the end of the queue begins with."""
        for path in self._segments.paths[self._file + 1 :]:
            found = queue_entry.unpack(self._segments.mapping(path))
            if queue_entry.is_valid(found):
                return found
        return None

    def _load(self) -> None:
        paths = self._segments.paths
        while self._file < len(paths):
            begin = self.number * ENTRY_BYTES - file_offset(paths[self._file])
            if begin < self._segments.file_bytes:
                # A file that is missing was reported; the queue goes on behind it.
                begin = max(0, begin)
                self.number = (file_offset(paths[self._file]) + begin) // ENTRY_BYTES
                mapping = self._segments.mapping(paths[self._file])
                self._chunk = mapping[begin : begin + self._chunk_bytes]
                self._at = 0
                self._take()
                return
            self._file += 1
        self.entry = None

    def _take(self) -> None:
        entry = queue_entry.unpack(self._chunk, self._at)
        self.entry = entry if queue_entry.is_valid(entry) else None
