"""Store directories written byte by byte, without the store: sound ones, to be damaged by tests.

A ``RawStore`` is kept in memory, where tests may change anything: ``log`` is the bytes from log
position 0 on, ``queues`` has the entries of each queue by number, ``indexes`` the index files.
``write()`` then makes the directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.codec import checkpoint, properties, queue_entry, record
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.queue_entry import ENTRY_BYTES, FILLER, QueueEntry
from cometmq.store.config import StoreSettings
from tests.oracle import IndexFile

FIRST_TIMESTAMP = 1_700_000_000_000
STEP_MS = 1000
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a message was put."""

    position: int
    size: int
    queue_offset: int

    @property
    def end(self) -> int:
        return self.position + self.size


@dataclass
class RawStore:
    """A store of small files; messages are a second apart."""

    root: Path
    log_file_bytes: int = 4096
    queue_entries: int = 20
    index_slots: int = 10
    index_entries: int = 40
    log: bytearray = field(default_factory=bytearray)
    queues: dict[tuple[str, int], list[QueueEntry]] = field(default_factory=dict)
    """Entry ``n`` of the list is number ``n`` of the queue."""
    indexes: list[IndexFile] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    """None: what a clean stop would write."""
    is_killed: bool = False
    timestamp: int = FIRST_TIMESTAMP
    end: int = 0
    """The log position of the next message."""

    @property
    def settings(self) -> StoreSettings:
        return StoreSettings(
            root=self.root,
            log_file_bytes=self.log_file_bytes,
            queue_file_bytes=self.queue_entries * ENTRY_BYTES,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
        )

    def put(
        self,
        topic: str = "T",
        queue_id: int = 0,
        body: bytes = b"hello",
        *,
        number: int | None = None,
        sys_flag: int = 0,
        tags_code: int | None = None,
        is_dispatched: bool = True,
        named: Mapping[str, str] | None = None,
        **more: str,
    ) -> Stored:
        """Append a message; ``number`` is its number in the queue, ``named`` and ``more`` are its
        properties.

        Not dispatched, it is in the log only. ``tags_code`` is what its entry has instead of the
        hash of ``TAGS``.
        """
        named = {**(named or {}), **more}
        queue = self.queues.setdefault((topic, queue_id), []) if is_dispatched else []
        if number is None:
            number = len(self.queues.get((topic, queue_id), []))
        text = properties.encode(named).encode()
        size = record.record_bytes(len(body), len(topic.encode()), len(text), sys_flag)
        position = self._make_room(size)
        record.encode_into(
            self.log,
            position,
            topic.encode(),
            body,
            text,
            queue_id,
            number,
            position,
            self.timestamp,
            self.timestamp,
            HOST,
            HOST,
            0,
            sys_flag,
            0,
            0,
        )
        if is_dispatched:
            code = queue_entry.tags_code(named.get("TAGS")) if tags_code is None else tags_code
            queue.append(QueueEntry(position, size, code))
            self._index(topic, position, named)
        self.end = position + size
        self.timestamp += STEP_MS
        return Stored(position, size, number)

    def fill(self, topic: str, queue_id: int, count: int) -> None:
        """Let a queue begin with ``count`` fillers."""
        self.queues.setdefault((topic, queue_id), []).extend([FILLER] * count)

    def write(self, *, log_from: int = 0, queues_from: int = 0) -> Path:
        """Make the directory; files that end at or before the given positions are left out.

        ``queues_from`` is a number of entries.
        """
        self._write_files(self.root / "commitlog", self.log, self.log_file_bytes, log_from)
        size = self.queue_entries * ENTRY_BYTES
        for (topic, queue_id), entries in self.queues.items():
            data = b"".join(map(_packed, entries))
            folder = self.root / "consumequeue" / topic / str(queue_id)
            self._write_files(folder, data or bytes(1), size, queues_from * ENTRY_BYTES)
        for number, index in enumerate(self.indexes):
            path = self.root / "index" / f"{20231114221320000 + number}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(index.data)
        newest = self.timestamp - STEP_MS
        page = self.checkpoint or Checkpoint(newest, newest, 0)
        (self.root / "checkpoint").write_bytes(checkpoint.pack(page))
        (self.root / "lock").write_bytes(b"lock")
        if self.is_killed:
            (self.root / "abort").write_bytes(b"")
        return self.root

    def _make_room(self, size: int) -> int:
        """Where a record of ``size`` goes; a file it does not fit into is filled up."""
        if self.end + size + record.BLANK_BYTES_MIN > len(self.log):
            if left := len(self.log) - self.end:
                record.encode_blank_into(self.log, self.end, left)
            self.end = len(self.log)
            self.log.extend(bytes(self.log_file_bytes))
        return self.end

    def _index(self, topic: str, position: int, named: Mapping[str, str]) -> None:
        keys = [named.get("UNIQ_KEY", ""), *named.get("KEYS", "").split(" ")]
        texts = [f"{topic}#{key}" for key in keys if key]
        if "TAGS" in named:
            texts.append(f"{topic}#T#{named['TAGS']}")
        for text in texts:
            if not self.indexes or self.indexes[-1].is_full:
                seed = self.indexes[-1] if self.indexes else None
                self.indexes.append(IndexFile(self.index_slots, self.index_entries, seed=seed))
            self.indexes[-1].put(text, position, self.timestamp)

    def _write_files(self, folder: Path, data: bytes | bytearray, size: int, begin: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for offset in range(0, len(data), size):
            if offset + size > begin:
                path = folder / f"{offset:020d}"
                path.write_bytes(bytes(data[offset : offset + size]).ljust(size, b"\0"))


def _packed(entry: QueueEntry) -> bytes:
    return queue_entry.pack(entry.physical_offset, entry.size, entry.tags_code)


def index_file(slots: int, entries: int, count: int) -> IndexFile:
    """An index file with ``count`` keys, each of a message of its own."""
    index = IndexFile(slots, entries)
    for number in range(count):
        index.put(f"T#{number}", number * 100, FIRST_TIMESTAMP)
    return index
