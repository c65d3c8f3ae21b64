"""Our message store without a broker around it, driven by lines on standard input.

A line is a command and its options as ``name=value``; each is answered by one line of JSON. The
Java program that drives Apache's store (``bench/java``) understands the same lines.

    python -m bench.store_driver
"""

import collections
import itertools
import json
import mmap
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cometmq.codec import batch, core
from cometmq.codec.java import string_hash
from cometmq.codec.record import pack_host
from cometmq.store import MessageStore
from cometmq.store.config import FlushMode, StoreSettings
from cometmq.store.files import MADV_POPULATE_WRITE, DiskFile, DiskFiles
from cometmq.store.results import GetLimits, NewMessage, PutResult, PutStatus

QUEUES_PER_TOPIC = 100
READ_COUNT = 32
TAGS = ("TagA", "TagB")
PROPERTIES = (
    "UNIQ_KEY\x010A00000510F330946E094CD1%08X\x02WAIT\x01true\x02TAGS\x01%s\x02"
    "CLUSTER\x01DefaultCluster\x02"
)
BORN_HOST = pack_host("10.0.0.5", 40123)
STORE_HOST = pack_host("10.0.0.6", 10911)

TURN = 64
"""Messages between two dispatches: about what one turn of a busy broker's loop brings."""

FLOOR_BYTES = 256 << 20

Answer = dict[str, int]


class Options:
    """A command with its options."""

    def __init__(self, line: str) -> None:
        self.command, *words = line.split()
        self._values = dict(word.split("=", 1) for word in words)

    def text(self, name: str) -> str:
        return self._values[name]

    def number(self, name: str) -> int:
        return int(self._values[name])


class CountedFile(DiskFile):
    """A file that tells how often it was synced; ``counts`` is shared by all."""

    __slots__ = ("counts",)

    def __init__(self, path: Path, counts: collections.Counter[str]) -> None:
        super().__init__(path)
        self.counts = counts

    def sync(self) -> None:
        self.counts[self.path.parent.name] += 1
        super().sync()


class CountedFiles(DiskFiles):
    """The real file system, with syncs counted by folder."""

    def __init__(self) -> None:
        self.syncs: collections.Counter[str] = collections.Counter()

    def open(self, path: Path) -> CountedFile:
        return CountedFile(path, self.syncs)


class Messages:
    """Messages as a broker hands them to its store; each has a unique key of its own."""

    def __init__(self) -> None:
        self._made = 0

    def make(self, options: Options) -> list[NewMessage]:
        """Messages of ``body`` bytes, or batches of ``batch`` of them, round ``queues`` queues."""
        batched, queues = options.number("batch"), options.number("queues")
        topics, body = topics_of(queues), bytes(options.number("body"))
        now_ms = time.time_ns() // 1_000_000
        made = []
        for _ in range(options.number("count") // batched):
            topic, queue_id = divmod(self._made // batched % queues, QUEUES_PER_TOPIC)
            content, properties = self._content(body, batched, queues)
            made.append(
                NewMessage(
                    topics[topic], queue_id, content, properties, now_ms, BORN_HOST, STORE_HOST
                )
            )
        return made

    def _content(self, body: bytes, batched: int, queues: int) -> tuple[bytes, bytes]:
        if batched == 1:
            return body, self._properties(queues)
        items = [batch.BatchItem(0, body, self._properties(queues)) for _ in range(batched)]
        return batch.encode(items), b""

    def _properties(self, queues: int) -> bytes:
        number = self._made
        self._made += 1
        return (PROPERTIES % (number, TAGS[number // queues & 1])).encode()


class Driver:
    """Obeys commands; there is at most one store open at a time."""

    def __init__(self) -> None:
        self._messages = Messages()
        self._prepared: list[NewMessage] = []
        self._files = CountedFiles()
        self._store: MessageStore | None = None
        self._root = Path()

    @property
    def store(self) -> MessageStore:
        assert self._store is not None, "no store is open"
        return self._store

    def open(self, options: Options) -> Answer:
        """Open a store and bring its queues and index up to the end of its log."""
        self._root = Path(options.text("root"))
        settings = StoreSettings(
            log_file_bytes=options.number("log"),
            queue_file_bytes=options.number("queue"),
            index_slots=options.number("slots"),
            index_entries=options.number("entries"),
            has_transient_pool=bool(options.number("pool")),
            flush_mode=FlushMode.SYNC_FLUSH if options.number("sync") else FlushMode.ASYNC_FLUSH,
        )
        began = time.perf_counter_ns()
        self._store = MessageStore.open(self._root, settings, files=self._files)
        self._dispatch()
        return {
            "wall_ns": time.perf_counter_ns() - began,
            "log_end": self.store.log_end,
        }

    def prepare(self, options: Options) -> Answer:
        """Make the messages of the next ``append``."""
        self._prepared = self._messages.make(options)
        return {}

    def append(self, _options: Options) -> Answer:
        """Put what is prepared, dispatching after each turn; ``put_ns`` is CPU of the puts."""
        prepared, self._prepared = self._prepared, []
        put, turn = self._put(prepared), self._turn(prepared)
        dispatch, cpu_ns = self.store.dispatch, time.thread_time_ns
        spent_ns = 0
        began = time.perf_counter_ns()
        for first in range(0, len(prepared), turn):
            cpu_began = cpu_ns()
            results = [put(message) for message in prepared[first : first + turn]]
            spent_ns += cpu_ns() - cpu_began
            dispatch()
            assert results[-1].status is PutStatus.PUT_OK, results[-1]
        self._dispatch()
        wall_ns = time.perf_counter_ns() - began
        return {"wall_ns": wall_ns, "put_ns": spent_ns, "log_end": self.store.log_end}

    def floor(self, options: Options) -> Answer:
        """Assign the bytes that were appended, slice by slice, to a mapping that is in memory."""
        pieces = [encoded(message) for message in self._messages.make(options)]
        assert sum(map(len, pieces)) <= FLOOR_BYTES
        with self._floor_mapping() as mapping:
            position = 0
            cpu_began = time.thread_time_ns()
            for piece in pieces:
                end = position + len(piece)
                mapping[position:end] = piece
                position = end
            spent_ns = time.thread_time_ns() - cpu_began
        return {"put_ns": spent_ns}

    def read(self, options: Options) -> Answer:
        """Reads that go round the queues and, in each, walk from 0 to ``span`` and begin again."""
        queues, step = options.number("queues"), options.number("step")
        span, is_copied = options.number("span"), options.number("copied") == 1
        tags = frozenset({string_hash(TAGS[0])}) if options.number("tag") else None
        topics, limits, get = topics_of(queues), GetLimits(count=READ_COUNT), self.store.get
        found = 0
        began, cpu_began = time.perf_counter_ns(), time.thread_time_ns()
        for number in range(options.number("count")):
            turn, queue = divmod(number, queues)
            topic, queue_id = divmod(queue, QUEUES_PER_TOPIC)
            result = get(topics[topic], queue_id, turn * step % span, limits, tags=tags)
            found += result.count
            if is_copied:
                for view in result.slices:
                    bytes(view)
            result.release()
        spent_ns = time.thread_time_ns() - cpu_began
        return {"wall_ns": time.perf_counter_ns() - began, "read_ns": spent_ns, "found": found}

    def sync(self, options: Options) -> Answer:
        """Senders that each have one message under way and send the next when it is on disk."""
        senders, store = options.number("senders"), self.store
        messages = iter(self._messages.make(options))
        synced_before = self._files.syncs["commitlog"]
        began = time.perf_counter_ns()
        waiting = collections.deque(map(store.put, itertools.islice(messages, senders)))
        while waiting:
            flushed = store.wait_flushed(waiting[0])
            assert flushed.status is PutStatus.PUT_OK, flushed
            done = 0
            while waiting and waiting[0].end <= store.watermarks.flushed:
                waiting.popleft()
                done += 1
            waiting.extend(map(store.put, itertools.islice(messages, done)))
        wall_ns = time.perf_counter_ns() - began
        store.dispatch()
        return {"wall_ns": wall_ns, "syncs": self._files.syncs["commitlog"] - synced_before}

    def close(self, _options: Options) -> Answer:
        self.store.close()
        self._store = None
        return {}

    def destroy(self, options: Options) -> Answer:
        """Close the store and remove its directory."""
        self.close(options)
        shutil.rmtree(self._root)
        return {}

    def _put(self, prepared: list[NewMessage]) -> Callable[[NewMessage], PutResult]:
        return self.store.put if prepared[0].properties else self.store.put_batch

    def _turn(self, prepared: list[NewMessage]) -> int:
        return TURN if prepared[0].properties else TURN // 32

    def _dispatch(self) -> None:
        while self.store.dispatch():
            pass

    def _floor_mapping(self) -> mmap.mmap:
        path = self._root / "floor"
        path.touch()
        file = DiskFile(path)
        path.unlink()
        file.allocate(0, FLOOR_BYTES)
        mapping = file.map(writable=True)
        file.close()
        mapping.madvise(MADV_POPULATE_WRITE)
        return mapping


def topics_of(queues: int) -> list[str]:
    return [f"bench-{number:04}" for number in range(-(-queues // QUEUES_PER_TOPIC))]


def encoded(message: NewMessage) -> bytes:
    """The record or, of a batch, the records that this message becomes."""
    items = [batch.BatchItem(message.flag, bytes(message.body), message.properties)]
    if not message.properties:
        items = batch.decode(message.body)
    room = bytearray(sum(256 + len(item.body) + len(item.properties) for item in items))
    position = 0
    for item in items:
        position += core.encode_record_into(
            room, position, message.topic.encode(), item.body, item.properties, message.queue_id,
            0, position, message.born_timestamp, message.born_timestamp, message.born_host,
            message.store_host, item.flag, message.sys_flag, 0, 0,
        )  # fmt: skip
    return bytes(room[:position])


def main() -> int:
    driver = Driver()
    for line in sys.stdin:
        options = Options(line)
        obey: Callable[[Options], Answer] = getattr(driver, options.command)
        print(json.dumps(obey(options)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
