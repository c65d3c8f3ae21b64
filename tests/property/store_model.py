"""What a store must answer, from lists: slow, obvious, and never on a disk; and how to compare.

The model knows the rules by which messages get their places, so it says beforehand what a put will
do. Two things it cannot know and is told: how much of the log survived a crash (any prefix that
holds all that was flushed), and whether the queue of a deleted topic came back with a restart,
because its messages are still in the log.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import msgspec

from cometmq.codec import batch, properties, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.java import masked_crc32, string_hash
from cometmq.codec.properties import Property
from cometmq.codec.record import BLANK_BYTES_MIN, MAGIC_BLANK, MAGIC_V1, Record
from cometmq.codec.sysflag import TRANSACTION_MASK
from cometmq.store import (
    Boundary,
    GetLimits,
    GetStatus,
    KeyKind,
    MessageStore,
    NewMessage,
    StoreSettings,
)
from cometmq.store.check import check

PREPARED, COMMIT, ROLLBACK = 0x4, 0x8, 0xC
HOUR_MS = 3_600_000
BORN_MS = 1_600_000_000_000
_BLANK = struct.Struct(">ii")
Queue = tuple[str, int]


class Draft(msgspec.Struct, frozen=True):
    """A message to be put; its body follows from number and size."""

    queue: Queue
    body_bytes: int
    tag: str | None = None
    keys: tuple[str, ...] = ()
    sys_flag: int = 0
    number: int = 0

    @property
    def topic(self) -> str:
        return self.queue[0]

    @property
    def is_queued(self) -> bool:
        return self.sys_flag & TRANSACTION_MASK not in (PREPARED, ROLLBACK)

    @property
    def unique_key(self) -> str:
        return f"U{self.number}"

    @property
    def body(self) -> bytes:
        text = b"%d;" % self.number
        return (text * (self.body_bytes // len(text) + 1))[: self.body_bytes]

    @property
    def properties(self) -> bytes:
        # Every fifth has none at all, and so is in no index.
        if self.number % 5 == 0:
            return b""
        named = {
            Property.UNIQ_KEY: self.unique_key,
            Property.KEYS: " ".join(self.keys) or None,
            Property.TAGS: self.tag,
        }
        return properties.encode(named).encode()

    def message(self) -> NewMessage:
        return NewMessage(
            *self.queue,
            self.body,
            self.properties,
            born_timestamp=BORN_MS,
            flag=self.number,
            sys_flag=self.sys_flag,
        )


def batch_message(queue: Queue, drafts: Sequence[Draft]) -> NewMessage:
    """The drafts, all for the same queue, as one batch."""
    body = batch.encode(BatchItem(draft.number, draft.body, draft.properties) for draft in drafts)
    return NewMessage(*queue, body, born_timestamp=BORN_MS)


class Stored(msgspec.Struct, frozen=True):
    """A message with its place in the log and in its queue, and its bytes there."""

    draft: Draft
    begin: int
    queue_offset: int
    stored_ms: int
    data: bytes

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    @property
    def tags_code(self) -> int:
        return string_hash(self.draft.tag) if self.draft.properties and self.draft.tag else 0

    def has(self, topic: str, key: str, kind: KeyKind) -> bool:
        """Whether the index leads from the key to this message."""
        draft = self.draft
        if (
            draft.topic != topic
            or not draft.properties
            or draft.sys_flag & TRANSACTION_MASK == ROLLBACK
        ):
            return False
        return key == draft.tag if kind is KeyKind.TAG else key in (draft.unique_key, *draft.keys)


class Reading(msgspec.Struct, frozen=True):
    """What a read must return."""

    status: GetStatus
    next_offset: int
    records: tuple[Stored, ...] = ()


class StoreModel:
    """The log as a list of messages, deleted ones included, and the queues as lists of the same."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._file_bytes = settings.log_file_bytes
        self.records: list[Stored] = []
        self.begin = 0
        self.end = 0
        # As far as the log can be read; less than all with the transient pool.
        self.readable_end: int | None = None
        # Where the log may end when a crash took the rest: behind a message, or behind a blank.
        self.ends = [0]
        # Of each queue the messages since its topic was last deleted, and those of before.
        self._lives: dict[Queue, list[list[Stored]]] = {}
        # First offset of queues that came back without their beginning.
        self._floors: dict[Queue, int] = {}
        # When each file of the log was last written to, by its begin.
        self.written_ms: dict[int, int] = {}

    # --- writing ---

    def put(self, drafts: Sequence[Draft], now_ms: int) -> list[Stored]:
        """Store messages, all in one file; none when they cannot be."""
        sizes = [self._size(draft) for draft in drafts]
        room = self._file_bytes - BLANK_BYTES_MIN
        if not sizes or sum(sizes) > room:
            return []
        if self.end % self._file_bytes + sum(sizes) > room:
            self._note_write(now_ms)
            self.end += self._file_bytes - self.end % self._file_bytes
            self.ends.append(self.end)
        return [self._append(draft, now_ms) for draft in drafts]

    def delete_topic(self, topic: str) -> None:
        """Forget the topic's queues; the next message of each has offset 0 again."""
        for queue, lives in self._lives.items():
            if queue[0] == topic and lives[-1]:
                lives.append([])
                self._floors.pop(queue, None)

    def expired_end(self, now_ms: int, bound: int) -> int:
        """Where the log begins after a round of cleaning; ``bound`` is as far as files may go."""
        settings = self._settings
        begins = range(self.begin, self._last_file, self._file_bytes)
        going = takewhile(
            lambda begin: (
                begin + self._file_bytes <= bound
                and self.written_ms[begin] <= now_ms - settings.retention_hours * HOUR_MS
            ),
            begins[: settings.clean_files_max],
        )
        return self.begin + self._file_bytes * len(list(going))

    def truncate(self, end: int) -> None:
        """Forget what lies behind ``end``, which is one of ``ends``."""
        assert end in self.ends, (end, self.ends)
        self.end = end
        self.ends = [known for known in self.ends if known <= end]
        self.records = [stored for stored in self.records if stored.end <= end]
        for queue, lives in self._lives.items():
            kept = [[stored for stored in life if stored.end <= end] for life in lives]
            # An empty one is only worth something as the last: then the queue was deleted.
            self._lives[queue] = [life for life in kept[:-1] if life] + kept[-1:]

    def may_come_back(self, queue: Queue, min_offset: int) -> None:
        """Take note when a deleted queue is there again, or more of it: from ``min_offset`` on.

        It then has the last of its messages, those that a restart found in the log.
        """
        lives = self._lives.get(queue, [[]])
        if not lives[-1] and len(lives) > 1:
            lives.pop()
            self._floors[queue] = min_offset
        elif queue in self._floors:
            self._floors[queue] = min(self._floors[queue], min_offset)

    # --- reading ---

    def queues(self) -> list[Queue]:
        """Those that have messages, or had some that are gone from the log by now."""
        return sorted(queue for queue in self._lives if self.max_offset(queue))

    def seen_in_log(self, queue: Queue, log_begin: int) -> list[Stored]:
        """The queue as somebody knows it who has only the log, from ``log_begin`` on."""
        lives = [
            [s for s in life if s.begin >= log_begin and self._is_readable(s)]
            for life in self._lives.get(queue, [])
        ]
        return next((life for life in reversed(lives) if life), [])

    def live(self, queue: Queue) -> list[Stored]:
        """The queue's messages that can be read."""
        floor, begin = self._floors.get(queue, 0), self.begin
        return [s for s in self._readable(queue) if s.begin >= begin and s.queue_offset >= floor]

    def min_offset(self, queue: Queue) -> int:
        live = self.live(queue)
        return live[0].queue_offset if live else self.max_offset(queue)

    def max_offset(self, queue: Queue) -> int:
        return _next_offset(self._readable(queue))

    def get(
        self,
        queue: Queue,
        offset: int,
        limits: GetLimits,
        *,
        tags: frozenset[int] | None = None,
        accept: Callable[[bytes], bool] | None = None,
        is_cold: bool = False,
    ) -> Reading:
        """What a read returns; the first message always, the others as far as the limits allow."""
        low, high = self.min_offset(queue), self.max_offset(queue)
        if high == 0:
            return Reading(GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        if offset < low:
            return Reading(GetStatus.OFFSET_TOO_SMALL, low)
        if offset == high:
            return Reading(GetStatus.OFFSET_OVERFLOW_ONE, offset)
        if offset > high:
            return Reading(GetStatus.OFFSET_OVERFLOW_BADLY, high)
        count_max = min(limits.count, limits.count_cold) if is_cold else limits.count
        bytes_max = min(limits.bytes_max, limits.bytes_cold_max) if is_cold else limits.bytes_max
        per_file = self._settings.queue_entries_per_file
        stop = min(
            offset + max(limits.entries_max, limits.count), offset - offset % per_file + per_file
        )
        taken: list[Stored] = []
        for stored in self.live(queue)[offset - low : stop - low]:
            if tags is not None and stored.tags_code not in tags:
                continue
            total = sum(len(found.data) for found in taken)
            if taken and (len(taken) >= count_max or total + len(stored.data) > bytes_max):
                return Reading(GetStatus.FOUND, stored.queue_offset, tuple(taken))
            if accept is None or accept(stored.data):
                taken.append(stored)
        status = GetStatus.FOUND if taken else GetStatus.NO_MATCHED_MESSAGE
        return Reading(status, min(stop, high), tuple(taken))

    def offset_at_time(self, queue: Queue, timestamp_ms: int, boundary: Boundary) -> int:
        low, live = self.min_offset(queue), self.live(queue)
        if boundary is Boundary.LOWER:
            return low + sum(stored.stored_ms < timestamp_ms for stored in live)
        return low + max(0, sum(stored.stored_ms <= timestamp_ms for stored in live) - 1)

    def with_key(self, topic: str, key: str, kind: KeyKind) -> list[Stored]:
        """In log order, deleted ones too: the index may lead to them for a while."""
        return [s for s in self.records if self._is_readable(s) and s.has(topic, key, kind)]

    def log_files(self) -> Iterator[int]:
        """Where the files of the log begin."""
        yield from range(self.begin, self._last_file + 1, self._file_bytes)

    # --- helpers ---

    @property
    def _last_file(self) -> int:
        inside = max(self.begin, self.end - 1)
        return inside - inside % self._file_bytes

    def _is_readable(self, stored: Stored) -> bool:
        return self.readable_end is None or stored.end <= self.readable_end

    def _readable(self, queue: Queue) -> list[Stored]:
        return list(filter(self._is_readable, self._lives.get(queue, [[]])[-1]))

    def _size(self, draft: Draft) -> int:
        length = len(self._properties(draft))
        return record.record_bytes(draft.body_bytes, len(draft.topic), length, draft.sys_flag)

    def _properties(self, draft: Draft) -> bytes:
        if self._settings.is_record_crc_appended:
            return record.reserve_property_crc(draft.properties)
        return draft.properties

    def _append(self, draft: Draft, now_ms: int) -> Stored:
        lives = self._lives.setdefault(draft.queue, [[]])
        queue_offset = _next_offset(lives[-1]) if draft.is_queued else 0
        data = self._encode(draft, queue_offset, now_ms)
        stored = Stored(draft, self.end, queue_offset, now_ms, data)
        self.records.append(stored)
        if draft.is_queued:
            lives[-1].append(stored)
        self._note_write(now_ms)
        self.end = stored.end
        self.ends.append(self.end)
        return stored

    def _encode(self, draft: Draft, queue_offset: int, now_ms: int) -> bytes:
        data = record.encode(
            Record(
                size=self._size(draft),
                magic=MAGIC_V1,
                body_crc=masked_crc32(draft.body),
                queue_id=draft.queue[1],
                flag=draft.number,
                queue_offset=queue_offset,
                physical_offset=self.end,
                sys_flag=draft.sys_flag,
                born_timestamp=BORN_MS,
                born_host=bytes(8),
                store_timestamp=now_ms,
                store_host=bytes(8),
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=draft.body,
                topic=draft.topic,
                properties=self._properties(draft),
            )
        )
        if not self._settings.is_record_crc_appended:
            return data
        whole = bytearray(data)
        record.append_property_crc(whole, 0)
        return bytes(whole)

    def _note_write(self, now_ms: int) -> None:
        self.written_ms[self.end - self.end % self._file_bytes] = now_ms


def _next_offset(life: list[Stored]) -> int:
    return life[-1].queue_offset + 1 if life else 0


# --- comparing ---


def claim_same(store: MessageStore, model: StoreModel) -> None:
    """Everything that can be read of the store is as in its model."""
    model.readable_end = store.watermarks.committed
    claim_log(store, model)
    assert set(model.queues()) <= set(store.queues())
    for queue in store.queues():
        low, high = model.min_offset(queue), model.max_offset(queue)
        found = store.min_offset(*queue), store.max_offset(*queue)
        assert found == (low, high), (queue, found, low, high)
        assert read_queue(store, queue) == b"".join(s.data for s in model.live(queue)), queue
    claim_keys(store, model)


def claim_log(store: MessageStore, model: StoreModel) -> None:
    """The log has the bytes of the model's messages, and of blanks the heads."""
    content = raw(store, model.begin)
    position = model.begin
    for stored in model.records:
        if stored.begin < model.begin:
            assert store.record_at(stored.begin) is None
        elif stored.end <= store.watermarks.committed:
            if stored.begin > position:
                _claim_blank(content[position - model.begin :], stored.begin - position)
            position = stored.end
            begin = stored.begin - model.begin
            assert content[begin : position - model.begin] == stored.data, stored
    if position < store.watermarks.committed:
        _claim_blank(content[position - model.begin :], store.watermarks.committed - position)


def _claim_blank(content: bytes, size: int) -> None:
    assert content[:BLANK_BYTES_MIN] == _BLANK.pack(size, MAGIC_BLANK)


def claim_keys(store: MessageStore, model: StoreModel) -> None:
    """The index leads to all messages of a key, and to others at most if they were deleted."""
    asked = {(s.draft.topic, key, KeyKind.KEY) for s in model.records for key in s.draft.keys}
    asked |= {(s.draft.topic, s.draft.tag or "", KeyKind.TAG) for s in model.records}
    asked |= {(s.draft.topic, s.draft.unique_key, KeyKind.UNIQUE) for s in model.records[-10:]}
    for topic, key, kind in asked:
        known = [s.begin for s in model.with_key(topic, key, kind)]
        found = store.query(topic, key, limit=64, kind=kind)
        assert found == sorted(set(found) & set(known)), (topic, key, kind)
        live = [offset for offset in known if offset >= model.begin]
        found = [offset for offset in found if offset >= model.begin]
        assert found == live[-64:], (topic, key, kind)


def claim_consistent(root: Path, settings: StoreSettings) -> None:
    report = check(root, settings)
    assert report.is_consistent, report


def raw(store: MessageStore, begin: int) -> bytes:
    """The bytes of a log that can be read."""
    pieces = []
    while begin < store.watermarks.committed:
        with store.read_raw(begin, 1 << 20) as data:
            pieces.append(bytes(data))
            begin += data.nbytes
    return b"".join(pieces)


def read_queue(store: MessageStore, queue: Queue) -> bytes:
    """All messages of a queue."""
    pieces: list[bytes] = []
    offset = store.min_offset(*queue)
    while offset < store.max_offset(*queue):
        with store.get(*queue, offset) as result:
            assert result.status is GetStatus.FOUND, (queue, offset, result.status)
            pieces += map(bytes, result.slices)
            offset = result.next_offset
    return b"".join(pieces)
