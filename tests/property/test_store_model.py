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
from cometmq.model.topic import RETRY_PREFIX
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
from cometmq.testing import CrashingDisk, DiskEvent, FakeClock, PowerCut
from cometmq.testing.clock import EPOCH_MS
from tests.property.store_model import (
    COMMIT,
    PREPARED,
    ROLLBACK,
    Draft,
    Queue,
    StoreModel,
    batch_message,
    claim_consistent,
    claim_same,
    raw,
    read_queue,
)

LOG_FILE_BYTES = 2 * 4096
QUEUE_FILE_ENTRIES = 5
INDEX_FILE_ENTRIES = 9
"""Two pages, five entries and eight keys: a few dozen messages roll everything often."""
ROLLS_MIN = 3
"""How often at least each kind of file is rolled in every run."""
QUARTER_BODY_BYTES = LOG_FILE_BYTES // 4 - 200
"""So that four records fill a file."""

TOPICS = ("T", "orders", "%RETRY%group")
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in (0, 1)]
TAGS = ("a", "b")
KEYS = ("k", "l", "m")
HELD_MAX = 4


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
    sector_bytes: int | None

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
            deletion_hours=tuple(f"{hour:02d}" for hour in range(24)),
            clean_files_max=self.clean_files_max,
        )


queues = st.sampled_from(QUEUES)
tags = st.sampled_from((None, *TAGS))
keys = st.lists(st.sampled_from(KEYS), max_size=3, unique=True).map(tuple)
drafts = st.builds(
    Draft,
    queues,
    st.sampled_from((0, 10, 100, 700)) | st.integers(0, LOG_FILE_BYTES),
    tags,
    keys,
    sys_flag=st.sampled_from((0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK)),
)
batches = st.tuples(queues, st.lists(st.tuples(st.integers(0, 900), tags, keys), max_size=9))
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
events = st.integers(1, 12) | st.integers(1, 60)
dooms = st.lists(st.builds(Doom, events, st.none() | seeds), min_size=1, max_size=3)
shapes = st.builds(
    Shape,
    has_pool=st.sampled_from((False, False, True)),
    has_crc=st.booleans(),
    is_sync=st.booleans(),
    is_cold=st.booleans(),
    slots=st.sampled_from((1, 4)),
    mappings_max=st.sampled_from((0, 1, 3)),
    clean_files_max=st.sampled_from((2, 10)),
    sector_bytes=st.sampled_from((None, 512)),
)


class StoreMachine(RuleBasedStateMachine):
    """A store on a disk that crashes, beside its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="cometmq-model-"))
        self.root = self.folder / "store"
        self.clock = FakeClock()
        # How many messages there were, refused ones included.
        self.count = 0
        # How and when the process is going to end, and how again while it recovers.
        self.dooms: list[Doom] = []
        # The log ends behind this after any crash.
        self.durable_end = 0
        # Where the log begins, at most, if a cleaning is interrupted.
        self.begin_max = 0
        # The topic whose deletion was interrupted, and whether one was ever deleted.
        self.half_deleted: str | None = None
        self.has_deleted = False
        # Names of all files that were ever made, by folder.
        self.made: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        # What was read and not released yet.
        self.held: list[tuple[GetResult, bytes]] = []
        self.replica: Replica | None = None
        self.is_filled = False

    @initialize(shape=shapes)
    def start(self, shape: Shape) -> None:
        """Roll every kind of file often enough before anything else happens."""
        self.settings = shape.settings()
        self.model = StoreModel(self.settings)
        self.root.mkdir()
        self.disk = CrashingDisk(self.root, sector_bytes=shape.sector_bytes)
        self.disk.fill_after(1 << 50)  # so that it does not matter how full the real one is
        self.store = self.open()
        for number in range(ROLLS_MIN * QUEUE_FILE_ENTRIES + 1):
            self.put_one(Draft(("T", 0), QUARTER_BODY_BYTES, "a", KEYS[: number % 3]))
            if shape.has_pool:
                self.store.flush()
            self.store.dispatch()
        self.is_filled = True

    def teardown(self) -> None:
        self.release()
        if self.replica is not None:
            self.replica.store.close()
        if self.is_filled:
            self.disk.abandon()
            rolls = {folder: len(names) - 1 for folder, names in self.made.items()}
            for folder in ("commitlog", "consumequeue/T/0", "index"):
                assert rolls[folder] >= ROLLS_MIN, rolls
        shutil.rmtree(self.folder)

    # --- writing ---

    @rule(chosen=st.lists(drafts, min_size=1, max_size=6), pause=pauses)
    def put(self, chosen: list[Draft], pause: float) -> None:
        for draft in chosen:
            with self.mortal():
                self.put_one(draft)
        self.clock.advance(pause)

    @rule(batch=batches)
    def put_batch(self, batch: tuple[Queue, list[tuple[int, str | None, tuple[str, ...]]]]) -> None:
        queue, items = batch
        chosen = [self.numbered(Draft(queue, *item)) for item in items]
        with self.mortal():
            end = self.model.end
            is_retry = queue[0].startswith(RETRY_PREFIX)  # retries never come in batches
            expected = [] if is_retry else self.model.put(chosen, self.clock.now_ms())
            result = self.store.put_batch(batch_message(queue, chosen))
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
        with self.mortal():
            self.half_deleted = topic
            self.has_deleted = True
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
    )
    def get(
        self,
        queue: Queue,
        place: float,
        limits: GetLimits,
        tags: set[str] | None,
        parity: int | None,
    ) -> None:
        with self.mortal():
            self.model.readable_end = self.store.watermarks.committed
            offset = round(place * (self.model.max_offset(queue) + 2))
            hashes = None if tags is None else frozenset(map(string_hash, tags))
            expected = self.model.get(
                queue,
                offset,
                limits,
                tags=hashes,
                accept=None if parity is None else lambda data: len(data) % 2 == parity,
                is_cold=self.settings.memory_percent == 0,
            )
            result = self.store.get(
                *queue,
                offset,
                limits,
                tags=hashes,
                accept=None if parity is None else lambda view: view.nbytes % 2 == parity,
            )
            with result:
                status = result.status
                if status is GetStatus.NO_MATCHED_LOGIC_QUEUE:  # a queue nobody put anything into
                    status = GetStatus.NO_MESSAGE_IN_QUEUE
                assert status is expected.status, (queue, offset, expected)
                assert result.next_offset == expected.next_offset
                assert result.count == len(expected.records)
                assert b"".join(result.slices) == b"".join(s.data for s in expected.records)

    @precondition(lambda self: len(self.held) < HELD_MAX)
    @rule(queue=queues, count=st.sampled_from((1, 32)))
    def hold(self, queue: Queue, count: int) -> None:
        """Read the oldest messages and keep them, whatever becomes of their files."""
        with self.mortal():
            offset = self.store.min_offset(*queue)
            result = self.store.get(*queue, offset, GetLimits(count=count))
            self.held.append((result, b"".join(result.slices)))

    @rule()
    def release(self) -> None:
        for result, content in self.held:
            assert b"".join(result.slices) == content
            result.release()
        self.held = []

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
            begin_ms = self.moment(begin)
            end_ms = begin_ms + self.moment(length) - EPOCH_MS
            found = self.store.query(
                topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms, kind=kind
            )
            self.model.readable_end = self.store.watermarks.committed
            known = {s.begin: s for s in self.model.with_key(topic, key, kind)}
            vague = self.index_begins()
            assert found == sorted(known.keys() & set(found))
            assert len(found) <= limit
            for offset in set(found) - vague:
                assert begin_ms <= known[offset].stored_ms <= end_ms + 999
            surely = {
                s.begin
                for s in known.values()
                if begin_ms + 1000 <= s.stored_ms <= end_ms and s.begin >= self.model.begin
            }
            assert len(found) == limit or surely <= set(found) | vague

    @rule(queue=queues, place=st.floats(-0.1, 1.1), boundary=st.sampled_from(Boundary))
    def offset_at_time(self, queue: Queue, place: float, boundary: Boundary) -> None:
        with self.mortal():
            moment = self.moment(place)
            found = self.store.offset_at_time(*queue, moment, boundary)
            self.model.readable_end = self.store.watermarks.committed
            assert found == self.model.offset_at_time(queue, moment, boundary)

    # --- upkeep ---

    @rule()
    def flush(self) -> None:
        with self.mortal():
            self.store.flush()
            marks = self.store.watermarks
            assert marks.flushed == marks.dispatched == marks.appended == self.model.end
            claim_consistent(self.root, self.settings)

    @rule(seconds=st.sampled_from((0.0, 0.3, 0.6, 1.1, 10.0, 60.0)))
    def flush_step(self, seconds: float) -> None:
        self.clock.advance(seconds)
        with self.mortal():
            self.store.flush_step()
            if seconds >= 10:
                assert self.store.watermarks.flushed == self.model.end

    @rule(hours=st.sampled_from((0, 1, 73)), is_flushed=st.booleans())
    def clean(self, hours: int, is_flushed: bool) -> None:
        """What is expired goes, if it was flushed; what was not may stay."""
        self.clock.advance(hours * 3600)
        with self.mortal():
            if is_flushed:
                self.store.flush()
            self.set_file_times()
            marks = self.store.watermarks
            bound = min(marks.flushed, marks.dispatched)
            self.begin_max = self.model.expired_end(self.clock.now_ms(), bound)
            count = self.store.clean()
            begin = self.model.begin + count * LOG_FILE_BYTES
            assert begin == self.begin_max if is_flushed else begin <= self.begin_max
            self.model.begin = begin

    @rule(chunk_bytes=st.sampled_from((100, 5000, 1 << 20)), chunks=st.sampled_from((3, 1000)))
    def replicate(self, chunk_bytes: int, chunks: int) -> None:
        """A second store that is fed with the log's bytes has the same queues."""
        replica = self.current_replica()
        marks = self.store.watermarks
        offset = replica.log_end or self.store.log_begin
        while offset < marks.committed and chunks > 0:
            with self.store.read_raw(offset, chunk_bytes) as data:
                offset = replica.append_raw(offset, data)
            chunks -= 1
        if offset == marks.committed:
            replica.flush()
            self.claim_replica()

    @precondition(lambda self: self.replica is not None)
    @rule(seed=st.none() | seeds)
    def crash_replica(self, seed: int | None) -> None:
        """What it has of an incomplete message is forgotten, and comes again."""
        marks = self.current_replica().watermarks  # a log that was lost is not compared with
        assert self.replica is not None
        durable_end = marks.committed if seed is None else marks.flushed
        self.replica.crash(seed)
        end = self.replica.store.log_end
        missed = [known for known in self.model.ends if end < known <= durable_end]
        assert not missed, (end, durable_end, missed)

    # --- life and death ---

    @rule(is_read=st.booleans())
    def reopen(self, is_read: bool) -> None:
        """Close and open; also while somebody still reads, who keeps deleted files there."""
        if not is_read:
            self.release()
        with self.mortal():
            self.store.close()
            self.durable_end = self.model.end
            claim_consistent(self.root, self.settings)
            begin_min = self.model.begin - self.store.state.files_condemned * LOG_FILE_BYTES
            self.store = self.open()
            self.adopt(begin_min)

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

    @contextlib.contextmanager
    def mortal(self) -> Iterator[None]:
        """Whatever is done here may be the last thing this process does."""
        try:
            yield
        except PowerCut:
            self.die()

    def die(self) -> None:
        """End as the next doom says, and open the store again, however often that is cut short."""
        self.release()
        marks = self.store.watermarks
        self.durable_end = max(self.durable_end, marks.flushed)
        begin_min = self.model.begin - self.store.state.files_condemned * LOG_FILE_BYTES
        surviving = marks.committed
        is_killed, store = True, None
        while store is None:
            doom = self.dooms.pop(0)
            if doom.seed is not None:
                self.disk.crash(doom.seed)
                surviving = self.durable_end
            else:
                self.disk.abandon()
            is_killed = is_killed and doom.seed is None
            # A half-made queue next to messages of a deleted one looks like a lost queue.
            if is_killed and not self.has_deleted:
                claim_consistent(self.root, self.settings)
            if self.dooms:
                self.disk.cut_power_at(self.dooms[0].event_count)
            with contextlib.suppress(PowerCut):
                store = self.open()
        self.store = store
        assert surviving <= self.store.log_end <= self.model.end
        self.adopt(begin_min)

    def open(self) -> MessageStore:
        self.disk.on_event(self.note_created)
        return MessageStore.open(
            self.root, self.settings, clock=self.clock, files=self.disk, threads=False
        )

    def adopt(self, begin_min: int) -> None:
        """After a start: take over what the model cannot know, and claim all the rest."""
        self.model.truncate(self.store.log_end)
        assert begin_min <= self.store.log_begin <= max(self.begin_max, self.model.begin)
        self.model.begin = self.store.log_begin
        with self.mortal():
            if self.half_deleted is not None:
                self.store.delete_topic(self.half_deleted)
                self.model.delete_topic(self.half_deleted)
                self.half_deleted = None
            for queue in QUEUES:
                if self.store.max_offset(*queue):
                    self.model.may_come_back(queue, self.store.min_offset(*queue))
            claim_same(self.store, self.model)
            claim_consistent(self.root, self.settings)

    # --- helpers ---

    def numbered(self, draft: Draft) -> Draft:
        self.count += 1
        return msgspec.structs.replace(draft, number=self.count)

    def put_one(self, draft: Draft) -> None:
        draft = self.numbered(draft)
        end, now_ms = self.model.end, self.clock.now_ms()
        expected = self.model.put([draft], now_ms)
        result = self.store.put(draft.message())
        if self.is_refused(result, end):
            return
        if not expected:
            assert result.status is PutStatus.MESSAGE_ILLEGAL
            return
        (stored,) = expected
        found = result.physical_offset, result.end, result.queue_offset, result.store_timestamp
        assert result.status is PutStatus.PUT_OK, result
        assert found == (stored.begin, stored.end, stored.queue_offset, now_ms), (found, stored)

    def is_refused(self, result: PutResult, end: int) -> bool:
        """Whether there was no buffer in the transient pool; then nothing has happened."""
        if result.status is not PutStatus.TRANSIENT_POOL_EMPTY:
            return False
        assert self.settings.has_transient_pool
        assert self.store.watermarks.committed < end
        self.model.truncate(end)
        return True

    def moment(self, place: float) -> int:
        """A time between the start, which is 0, and now, which is 1."""
        return EPOCH_MS + round(place * (self.clock.now_ms() - EPOCH_MS))

    def note_created(self, event: DiskEvent) -> None:
        if event.kind == "create" and event.is_done:
            self.made[str(event.path.parent.relative_to(self.root))].add(event.path.name)

    def set_file_times(self) -> None:
        """Make the log's files as old as the fake clock says; the disk below has its own."""
        for begin in self.model.log_files():
            moment_ns = self.model.written_ms[begin] * 1_000_000
            os.utime(self.root / f"commitlog/{begin:020d}", ns=(moment_ns, moment_ns))

    def index_begins(self) -> set[int]:
        """Positions of messages that begin an index file."""
        paths = (self.root / "index").iterdir()
        return {index_entry.unpack_header(path.read_bytes()).begin_offset for path in paths}

    def current_replica(self) -> MessageStore:
        """The replica, or a new one when the log has lost what the old one would need or has."""
        if self.replica is not None:
            store = self.replica.store
            begin = max(store.log_begin, self.store.log_begin)
            theirs, ours = raw(store, begin), raw(self.store, begin)
            if self.store.log_begin <= store.log_end and ours.startswith(theirs):
                return store
            self.replica.store.close()
            shutil.rmtree(self.replica.root)
        self.replica = Replica(self.folder / "replica", self.settings, self.clock)
        return self.replica.store

    def claim_replica(self) -> None:
        assert self.replica is not None
        store = self.replica.store
        begin = max(store.log_begin, self.store.log_begin)
        assert raw(store, begin) == raw(self.store, begin)
        self.model.readable_end = store.log_end
        for queue in QUEUES:
            expected = self.model.seen_in_log(queue, store.log_begin)
            if expected:
                assert store.min_offset(*queue) == expected[0].queue_offset, queue
                assert store.max_offset(*queue) == expected[-1].queue_offset + 1, queue
                assert read_queue(store, queue) == b"".join(s.data for s in expected), queue
        claim_consistent(store.root, self.settings)


class Replica:
    """A slave on a disk of its own."""

    def __init__(self, root: Path, settings: StoreSettings, clock: FakeClock) -> None:
        self.root = root
        self._settings = settings
        self._clock = clock
        root.mkdir()
        self._disk = CrashingDisk(root)
        self.store = self._open()

    def crash(self, seed: int | None) -> None:
        if seed is None:
            self._disk.abandon()
        else:
            self._disk.crash(seed)
        self.store = self._open()

    def _open(self) -> MessageStore:
        return MessageStore.open(
            self.root,
            self._settings,
            clock=self._clock,
            files=self._disk,
            threads=False,
            is_slave=True,
        )


# Finding the smallest example of a failure takes up to five minutes.
TestStore = pytest.mark.slow(pytest.mark.timeout(900)(StoreMachine.TestCase))
# A run of these steps takes as long as hundreds of the other properties' examples, and the same
# ones come each time: what is found should be what was changed. COMETMQ_ROUNDS=N draws N others.
_WANTED = os.environ.get("COMETMQ_ROUNDS", "").replace("full", "300")
TestStore.settings = settings(
    max_examples=int(_WANTED) if _WANTED.isdecimal() else 40,
    derandomize=not _WANTED.isdecimal(),
    stateful_step_count=30,
)
