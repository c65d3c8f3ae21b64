"""Any sequence of puts, reads, crashes and cleanings leaves a store equal to its model."""

import collections
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cometmq.codec import index_entry
from cometmq.codec.java import string_hash
from cometmq.store import (
    Boundary,
    FlushMode,
    GetLimits,
    GetResult,
    GetStatus,
    KeyKind,
    MessageStore,
    PutResult,
    PutStatus,
    StoreSettings,
)
from cometmq.store.check import check
from cometmq.testing import CrashingDisk, DiskEvent, FakeClock, PowerCut
from tests.property.store_model import (
    COMMIT,
    PREPARED,
    ROLLBACK,
    Draft,
    Queue,
    StoreModel,
    batch_message,
)

LOG_FILE_BYTES = 2 * 4096
QUEUE_FILE_ENTRIES = 5
INDEX_FILE_ENTRIES = 9
"""Two pages, five entries and eight keys: a few dozen messages roll everything often."""
ROLLS_MIN = 3

TOPICS = ("T", "orders", "%RETRY%group")
TAGS = ("a", "b")
KEYS = ("k", "l", "m")
ALL_HOURS = tuple(f"{hour:02d}" for hour in range(24))
RECORD_BYTES_LEFT = 200
"""More than a message of these tests needs besides its body."""


class Doom(NamedTuple):
    """The process (or, with a seed, the machine) ends at its ``event_count``-th change of disk."""

    event_count: int
    seed: int | None


class Shape(NamedTuple):
    """In what the stores differ."""

    has_pool: bool
    has_crc: bool
    is_sync: bool
    is_cold: bool
    slots: int
    mappings_max: int
    clean_files_max: int

    def settings(self) -> StoreSettings:
        return StoreSettings(
            log_file_bytes=LOG_FILE_BYTES,
            queue_file_bytes=QUEUE_FILE_ENTRIES * 20,
            index_slots=self.slots,
            index_entries=INDEX_FILE_ENTRIES,
            mapped_queue_files_max=self.mappings_max,
            is_record_crc_appended=self.has_crc,
            flush_mode=FlushMode.SYNC_FLUSH if self.is_sync else FlushMode.ASYNC_FLUSH,
            has_transient_pool=self.has_pool,
            transient_pool_size=2,
            memory_percent=0 if self.is_cold else 40,
            deletion_hours=ALL_HOURS,
            clean_files_max=self.clean_files_max,
        )


queues = st.tuples(st.sampled_from(TOPICS), st.integers(0, 1))
body_sizes = st.sampled_from((0, 10, 100, 700)) | st.integers(0, LOG_FILE_BYTES)
drafts = st.builds(
    Draft,
    topic=st.sampled_from(TOPICS),
    queue_id=st.integers(0, 1),
    body_bytes=body_sizes,
    tag=st.sampled_from((None, *TAGS)),
    keys=st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple),
    sys_flag=st.sampled_from((0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK)),
)
small_drafts = st.builds(
    Draft,
    topic=st.just(""),
    queue_id=st.just(0),
    body_bytes=st.integers(0, 900),
    tag=st.sampled_from((None, *TAGS)),
    keys=st.lists(st.sampled_from(KEYS), max_size=3, unique=True).map(tuple),
)
limits = st.builds(
    GetLimits,
    count=st.integers(1, 4) | st.just(32),
    bytes_max=st.sampled_from((1, 500, 4000, 1 << 20)),
    count_cold=st.integers(1, 3),
    bytes_cold_max=st.sampled_from((1, 3000, 1 << 20)),
    entries_max=st.sampled_from((1, 3, 800)),
)
pauses = st.sampled_from((0.0, 0.0, 0.001, 0.4, 1.0, 4.0))
seeds = st.integers(0, 2**16)
dooms = st.lists(st.builds(Doom, st.integers(1, 12), st.none() | seeds), min_size=1, max_size=3)
shapes = st.builds(
    Shape,
    has_pool=st.sampled_from((False, False, True)),
    has_crc=st.booleans(),
    is_sync=st.booleans(),
    is_cold=st.booleans(),
    slots=st.sampled_from((1, 4)),
    mappings_max=st.sampled_from((0, 1, 3)),
    clean_files_max=st.sampled_from((2, 10)),
)


class StoreMachine(RuleBasedStateMachine):
    """A store on a disk that crashes, beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="cometmq-model-"))
        self.root = self.folder / "store"
        self.root.mkdir()
        self.clock = FakeClock()
        self.disk = CrashingDisk(self.root)
        self.disk.fill_after(1 << 50)  # so that the disk below does not matter
        self.number = 0
        # How and when the process is going to end, and how again while it recovers.
        self.dooms: list[Doom] = []
        # What is surely there after any crash.
        self.durable_end = 0
        # Where the log begins, at most, when a cleaning was interrupted.
        self.begin_max = 0
        # Topic whose deletion was interrupted.
        self.half_deleted: str | None = None
        # Names of all files that were ever made, by folder.
        self.made: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        self.held: list[tuple[GetResult, bytes]] = []
        self.replica: MessageStore | None = None
        self.is_filled = False

    @initialize(shape=shapes)
    def start(self, shape: Shape) -> None:
        """Roll every kind of file often enough before anything else happens."""
        self.settings = shape.settings()
        self.model = StoreModel(self.settings)
        self.store = self.open()
        for number in range(ROLLS_MIN * QUEUE_FILE_ENTRIES + 1):
            draft = Draft("T", 0, LOG_FILE_BYTES // 4 - RECORD_BYTES_LEFT, "a", KEYS[: number % 3])
            self.put_one(draft)
            self.store.dispatch()
            if shape.has_pool:
                self.store.flush()
        self.store.dispatch()
        self.is_filled = True

    def teardown(self) -> None:
        self.let_go()
        self.disk.abandon()
        if self.replica is not None:
            self.replica.close()
        shutil.rmtree(self.folder)
        if self.is_filled:
            self.claim_rolls()

    # --- writing ---

    @rule(chosen=st.lists(drafts, min_size=1, max_size=6), pause=pauses)
    def put(self, chosen: list[Draft], pause: float) -> None:
        for draft in chosen:
            with self.mortal():
                self.put_one(draft)
        self.clock.advance(pause)

    @rule(queue=queues, chosen=st.lists(small_drafts, min_size=1, max_size=9))
    def put_batch(self, queue: Queue, chosen: list[Draft]) -> None:
        items = [
            msgspec.structs.replace(
                draft, topic=queue[0], queue_id=queue[1], number=self.numbered()
            )
            for draft in chosen
        ]
        with self.mortal():
            end = self.model.end
            expected = self.model.put(items, self.clock.now_ms())
            result = self.store.put_batch(batch_message(items))
            if self.is_refused(result, end):
                return
            assert result.status.is_stored == bool(expected), result
            if expected:
                assert result.offsets == tuple(stored.begin for stored in expected)
                assert result.queue_offset == expected[0].queue_offset
                assert result.end == expected[-1].end

    @rule(limit=st.integers(1, 3))
    def dispatch(self, limit: int) -> None:
        with self.mortal():
            self.store.dispatch(limit)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.let_go()
        with self.mortal():
            self.half_deleted = topic
            self.store.delete_topic(topic)
            self.half_deleted = None
            self.model.delete_topic(topic)

    # --- reading ---

    @rule(
        queue=queues,
        place=st.floats(0, 1),
        limits=limits,
        tags=st.none() | st.sets(st.sampled_from((*TAGS, "c"))),
        parity=st.sampled_from((None, 0, 1)),
        is_kept=st.booleans(),
    )
    def get(
        self,
        queue: Queue,
        place: float,
        limits: GetLimits,
        tags: set[str] | None,
        parity: int | None,
        is_kept: bool,
    ) -> None:
        with self.mortal():
            self.refresh()
            offset = round(place * (self.model.max_offset(queue) + 2))
            wanted = None if tags is None else frozenset(map(string_hash, tags))
            expected = self.model.get(
                queue,
                offset,
                limits,
                tags=wanted,
                accept=None if parity is None else lambda data: len(data) % 2 == parity,
                is_cold=self.settings.memory_percent == 0,
            )
            result = self.store.get(
                *queue,
                offset,
                limits,
                tags=wanted,
                accept=None if parity is None else lambda view: view.nbytes % 2 == parity,
            )
            content = b"".join(stored.data for stored in expected.records)
            status = result.status
            if status is GetStatus.NO_MATCHED_LOGIC_QUEUE:  # nobody ever put anything there
                status = GetStatus.NO_MESSAGE_IN_QUEUE
            assert status is expected.status, (queue, offset, expected)
            assert result.next_offset == expected.next_offset
            assert result.count == len(expected.records)
            assert b"".join(result.slices) == content
            self.held.append((result, content))
            if not is_kept:
                self.let_go()

    @rule(
        topic=st.sampled_from(TOPICS),
        key=st.sampled_from((*KEYS, *TAGS)),
        kind=st.sampled_from((KeyKind.KEY, KeyKind.TAG)),
        limit=st.sampled_from((1, 3, 64)),
        begin=st.floats(0, 1.1),
        length=st.floats(0, 1),
    )
    def query_in_time(
        self, topic: str, key: str, kind: KeyKind, limit: int, begin: float, length: float
    ) -> None:
        """Times are known to the second, and of the first message of a file hardly that."""
        with self.mortal():
            self.refresh()
            start_ms, now_ms = self.model.records[0].stored_ms, self.clock.now_ms()
            begin_ms = start_ms + round(begin * (now_ms - start_ms))
            end_ms = begin_ms + round(length * (now_ms - start_ms))
            found = self.store.query(
                topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms, kind=kind
            )
            known = {s.begin: s for s in self.model.with_key(topic, key, kind)}
            vague = self.index_begins()
            assert found == sorted(known.keys() & set(found))
            assert len(found) <= limit
            for offset in set(found) - vague:
                assert begin_ms <= known[offset].stored_ms <= end_ms + 999
            surely = [
                s.begin
                for s in known.values()
                if begin_ms + 1000 <= s.stored_ms <= end_ms and s.begin >= self.model.begin
            ]
            assert len(found) == limit or set(surely) <= set(found) | vague

    @rule(queue=queues, place=st.floats(-0.1, 1.1), boundary=st.sampled_from(Boundary))
    def offset_at_time(self, queue: Queue, place: float, boundary: Boundary) -> None:
        with self.mortal():
            self.refresh()
            start_ms, now_ms = self.model.records[0].stored_ms, self.clock.now_ms()
            moment = start_ms + round(place * (now_ms - start_ms))
            expected = self.model.offset_at_time(queue, moment, boundary)
            assert self.store.offset_at_time(*queue, moment, boundary) == expected

    # --- upkeep ---

    @rule()
    def flush(self) -> None:
        with self.mortal():
            self.store.flush()
            marks = self.store.watermarks
            assert marks.flushed == marks.dispatched == marks.appended == self.model.end
            self.claim_consistent()

    @rule(seconds=st.sampled_from((0.0, 0.3, 0.6, 1.1, 10.0, 60.0)))
    def flush_step(self, seconds: float) -> None:
        self.clock.advance(seconds)
        with self.mortal():
            self.store.flush_step()
            if seconds >= 10:
                assert self.store.watermarks.flushed == self.model.end

    @rule(hours=st.sampled_from((0, 1, 73)))
    def clean(self, hours: int) -> None:
        self.clock.advance(hours * 3600)
        now_ms = self.clock.now_ms()
        for begin in self.model.log_files():
            moment_ns = self.model.written_ms[begin] * 1_000_000
            os.utime(self.root / f"commitlog/{begin:020d}", ns=(moment_ns, moment_ns))
        with self.mortal():
            marks = self.store.watermarks
            bound = min(marks.flushed, marks.dispatched)
            self.begin_max = self.model.expired_end(now_ms, bound)
            count = (self.begin_max - self.model.begin) // LOG_FILE_BYTES
            assert self.store.clean() == count
            self.model.begin = self.begin_max

    @rule()
    def reopen(self) -> None:
        with self.mortal():
            self.let_go()
            self.store.close()
            self.durable_end = self.model.end
            self.claim_consistent()
            self.store = self.open()
            self.adopt()

    @rule()
    def kill(self) -> None:
        self.dooms = [Doom(0, None)]
        self.die()

    @rule(seed=seeds)
    def cut_power(self, seed: int) -> None:
        self.dooms = [Doom(0, seed)]
        self.die()

    @precondition(lambda self: not self.dooms)
    @rule(dooms=dooms)
    def doom(self, dooms: list[Doom]) -> None:
        """The end will come in one of the next steps, and perhaps again while it opens."""
        self.dooms = list(dooms)
        self.disk.cut_power_at(dooms[0].event_count)

    @rule(chunk_bytes=st.sampled_from((100, 5000, 1 << 20)))
    def replicate(self, chunk_bytes: int) -> None:
        """A second store that is fed with the log's bytes has the same queues."""
        replica = self.current_replica()
        marks = self.store.watermarks
        offset = replica.log_end or self.store.log_begin
        while offset < marks.committed:
            with self.store.read_raw(offset, chunk_bytes) as data:
                offset = replica.append_raw(offset, data)
        replica.flush()
        self.refresh()
        begin = max(replica.log_begin, self.store.log_begin)
        assert raw(replica, begin) == raw(self.store, begin)
        for queue in self.model.queues():
            expected = [
                s
                for s in self.model.seen_in_log(queue, replica.log_begin)
                if s.end <= marks.committed
            ]
            if expected:
                assert replica.min_offset(*queue) == expected[0].queue_offset, queue
                assert replica.max_offset(*queue) == expected[-1].queue_offset + 1, queue
                content = b"".join(s.data for s in expected)
                assert read_queue(replica, queue) == content, queue
        report = check(replica.root, self.settings)
        assert report.is_consistent, report

    # --- what always holds ---

    @invariant()
    def positions_are_those_of_the_model(self) -> None:
        if not self.is_filled:
            return
        marks = self.store.watermarks
        assert self.store.log_end == self.model.end
        assert self.store.log_begin == self.model.begin
        assert marks.flushed <= marks.committed <= marks.appended
        assert marks.dispatched <= marks.committed
        assert self.store.state.is_writable, self.store.state

    # --- life and death ---

    def open(self) -> MessageStore:
        store = MessageStore.open(
            self.root, self.settings, clock=self.clock, files=self.disk, threads=False
        )
        self.disk.on_event(self.note_created)
        return store

    @contextlib.contextmanager
    def mortal(self) -> Iterator[None]:
        """Whatever is done here may be the last thing this process does."""
        try:
            yield
        except PowerCut:
            self.die()

    def die(self) -> None:
        """End as the next doom says, and open the store again, however often that is cut short."""
        self.let_go()
        marks = self.store.watermarks
        self.durable_end = max(self.durable_end, marks.flushed)
        surviving = marks.committed
        while True:
            doom = self.dooms.pop(0)
            if doom.seed is None:
                self.disk.abandon()
            else:
                self.disk.crash(doom.seed)
                surviving = self.durable_end
            if self.dooms:
                self.disk.cut_power_at(self.dooms[0].event_count)
            try:
                self.store = self.open()
                break
            except PowerCut:
                continue
        assert surviving <= self.store.log_end <= self.model.end
        self.model.truncate(self.store.log_end)
        assert self.model.begin <= self.store.log_begin <= max(self.begin_max, self.model.begin)
        self.model.begin = self.store.log_begin
        self.adopt()

    def adopt(self) -> None:
        """After a start: take over what the model cannot know, and claim all the rest."""
        with self.mortal():
            if self.half_deleted is not None:
                self.store.delete_topic(self.half_deleted)
                self.model.delete_topic(self.half_deleted)
                self.half_deleted = None
            for topic in TOPICS:
                for queue_id in (0, 1):
                    queue = topic, queue_id
                    if self.model.is_deleted(queue) and self.store.max_offset(*queue):
                        self.model.come_back(queue, self.store.min_offset(*queue))
            self.claim_everything()
            self.claim_consistent()

    # --- helpers ---

    def numbered(self) -> int:
        self.number += 1
        return self.number

    def put_one(self, draft: Draft) -> None:
        draft = msgspec.structs.replace(draft, number=self.numbered())
        end, now_ms = self.model.end, self.clock.now_ms()
        expected = self.model.put([draft], now_ms)
        result = self.store.put(draft.message())
        if self.is_refused(result, end):
            return
        if not expected:
            assert result.status is PutStatus.MESSAGE_ILLEGAL
            return
        (stored,) = expected
        assert result == PutResult(
            PutStatus.PUT_OK, stored.begin, stored.end, stored.queue_offset, now_ms
        )

    def is_refused(self, result: PutResult, end: int) -> bool:
        """Whether there was no buffer; then nothing has happened."""
        if result.status is not PutStatus.TRANSIENT_POOL_EMPTY:
            return False
        assert self.settings.has_transient_pool
        assert self.store.watermarks.committed < end
        self.model.truncate(end)
        return True

    def refresh(self) -> None:
        """Tell the model how far the log can be read."""
        self.model.readable_end = self.store.watermarks.committed

    def let_go(self) -> None:
        """Release what was read; it has not changed, whatever became of its file."""
        for result, content in self.held:
            assert b"".join(result.slices) == content
            result.release()
        self.held = []

    def note_created(self, event: DiskEvent) -> None:
        if event.kind == "create" and event.is_done:
            self.made[str(event.path.parent.relative_to(self.root))].add(event.path.name)

    def index_begins(self) -> set[int]:
        """Positions of messages that begin an index file."""
        paths = (self.root / "index").iterdir()
        return {index_entry.unpack_header(path.read_bytes()).begin_offset for path in paths}

    def current_replica(self) -> MessageStore:
        """The replica, or a new one when the log has lost what the old one would need or has."""
        root = self.folder / "replica"
        old = self.replica
        if old is not None and self.store.log_begin <= old.log_end <= self.store.log_end:
            begin = max(old.log_begin, self.store.log_begin)
            if raw(old, begin) == raw(self.store, begin)[: old.log_end - begin]:
                return old
        if old is not None:
            old.close()
            shutil.rmtree(root)
        root.mkdir()
        self.replica = MessageStore.open(
            root,
            self.settings,
            clock=self.clock,
            files=CrashingDisk(root),
            threads=False,
            is_slave=True,
        )
        return self.replica

    # --- claims ---

    def claim_everything(self) -> None:
        self.refresh()
        difference = self.model.log_difference(raw(self.store, self.model.begin))
        assert not difference, difference
        queues = self.model.queues()
        assert set(queues) <= set(self.store.queues())
        for queue in self.store.queues():
            low, high = self.model.min_offset(queue), self.model.max_offset(queue)
            found = self.store.min_offset(*queue), self.store.max_offset(*queue)
            assert found == (low, high), (queue, found, low, high)
            limits = GetLimits(count=1000, bytes_max=1 << 30)
            expected = b""
            offset = low
            while offset < high:
                reading = self.model.get(queue, offset, limits)
                expected += b"".join(stored.data for stored in reading.records)
                offset = reading.next_offset
            assert read_queue(self.store, queue) == expected, queue
        self.claim_keys()

    def claim_keys(self) -> None:
        recent = [s.draft.unique_key for s in self.model.records[-10:]]
        asked = [(key, KeyKind.KEY) for key in KEYS] + [(tag, KeyKind.TAG) for tag in TAGS]
        asked += [(key, KeyKind.UNIQUE) for key in recent]
        for topic in TOPICS:
            for key, kind in asked:
                known = [s.begin for s in self.model.with_key(topic, key, kind)]
                found = self.store.query(topic, key, limit=64, kind=kind)
                assert found == sorted(set(found) & set(known)), (topic, key, kind)
                live = [offset for offset in known if offset >= self.model.begin]
                found = [offset for offset in found if offset >= self.model.begin]
                assert found == live[-64:], (topic, key, kind)

    def claim_consistent(self) -> None:
        report = check(self.root, self.settings)
        assert report.is_consistent, report

    def claim_rolls(self) -> None:
        counts = {folder: len(names) - 1 for folder, names in self.made.items()}
        assert counts["commitlog"] >= ROLLS_MIN, counts
        assert counts["index"] >= ROLLS_MIN, counts
        assert counts["consumequeue/T/0"] >= ROLLS_MIN, counts


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


TestStore = pytest.mark.slow(StoreMachine.TestCase)
TestStore.settings = settings(stateful_step_count=30)
