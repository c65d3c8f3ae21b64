"""Stores and messages for tests: small, with defaults, so that only what matters is to be seen.

Nothing of a store made here runs in the background, and its time is a fake clock's.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.clock import Clock
from cometmq.codec import batch, properties, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.properties import Property
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.codec.record import Record
from cometmq.store import (
    GetLimits,
    GetResult,
    GetStatus,
    MessageStore,
    NewMessage,
    PutResult,
    PutStatus,
    StoreSettings,
)
from cometmq.store.files import Files
from cometmq.store.retention import MayDelete
from cometmq.testing import CrashingDisk, DiskEvent, FakeClock

TOPIC = "orders"
HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::5", 10911)
LOG_FILE_BYTES = 4096
QUEUE_ENTRIES = 20
INDEX_SLOTS, INDEX_ENTRIES = 10, 40
FAR_FUTURE_MS = 4_000_000_000_000
"""By then every file on this machine has expired."""


def property_text(**named: str) -> bytes:
    """A property string; what has no value is left out."""
    return properties.encode({name: value or None for name, value in named.items()}).encode()


def message(
    body: bytes = b"hello",
    topic: str = TOPIC,
    queue_id: int = 0,
    *,
    keys: str = "",
    tags: str = "",
    **fields: Any,
) -> NewMessage:
    """A message; ``fields`` are those of ``NewMessage``."""
    text = fields.pop("properties", None)
    if text is None:
        text = property_text(KEYS=keys, TAGS=tags)
    return NewMessage(topic, queue_id, body, text, **{"store_host": HOST, **fields})


def batch_of(*bodies: bytes, topic: str = TOPIC, queue_id: int = 0, **fields: Any) -> NewMessage:
    """A wire batch of messages without properties."""
    items = [BatchItem(0, body, b"") for body in bodies]
    return NewMessage(topic, queue_id, batch.encode(items), **{"store_host": HOST, **fields})


def delayed(level: int | str, body: bytes = b"later", **fields: Any) -> NewMessage:
    """A message as the broker puts it aside until its delivery."""
    named = {Property.DELAY: str(level), Property.REAL_TOPIC: TOPIC, Property.TAGS: "T"}
    return message(body, "SCHEDULE_TOPIC_XXXX", properties=property_text(**named), **fields)


def record_size(body: bytes = b"", topic: str = TOPIC, text: bytes = b"") -> int:
    """Bytes of an ordinary record with IPv4 hosts."""
    return 91 + len(body) + len(topic.encode()) + len(text)


def body_for(size: int, topic: str = TOPIC) -> bytes:
    """A body with which a record without properties has ``size`` bytes."""
    return b"b" * (size - record_size(topic=topic))


def raw_record(
    physical_offset: int,
    queue_offset: int,
    body: bytes = b"hello",
    topic: str = TOPIC,
    queue_id: int = 0,
    *,
    store_timestamp: int = 1_700_000_000_000,
    text: bytes = b"",
    sys_flag: int = 0,
) -> bytes:
    """A record as another store wrote it."""
    target = bytearray(record_size(body, topic, text))
    facts = (queue_id, queue_offset, physical_offset, store_timestamp, 0, HOST, HOST)
    record.encode_into(target, 0, topic.encode(), body, text, *facts, 0, sys_flag, 0, 0)
    return bytes(target)


def settings(root: Path, **changes: Any) -> StoreSettings:
    """Small files, and a disk whose fill level does not matter."""
    small = {
        "log_file_bytes": LOG_FILE_BYTES,
        "queue_file_bytes": QUEUE_ENTRIES * ENTRY_BYTES,
        "index_slots": INDEX_SLOTS,
        "index_entries": INDEX_ENTRIES,
    }
    return StoreSettings(**{"root": root, **small, **changes})


def open_store(
    root: Path,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    loop: "FakeLoop | None" = None,
    threads: bool = False,
    is_slave: bool = False,
    may_delete: MayDelete | None = None,
    **sizes: Any,
) -> MessageStore:
    """Open a store; ``sizes`` are settings."""
    return MessageStore.open(
        root,
        settings(root, **sizes),
        clock=clock or FakeClock(),
        files=files,
        loop=loop,
        threads=threads,
        is_slave=is_slave,
        may_delete=may_delete,
    )


def put(store: MessageStore, new: NewMessage) -> PutResult:
    """Put a message that is surely taken."""
    result = store.put(new)
    assert result.status is PutStatus.PUT_OK, result
    return result


def put_all(store: MessageStore, *bodies: bytes, **fields: Any) -> list[PutResult]:
    return [put(store, message(body, **fields)) for body in bodies]


def numbered(count: int) -> list[bytes]:
    """Bodies that differ: ``b"0"``, ``b"1"`` and so on."""
    return [b"%d" % number for number in range(count)]


class Read(NamedTuple):
    """What a read answered."""

    status: GetStatus
    bodies: list[bytes]
    next_offset: int


def read(
    store: MessageStore,
    offset: int = 0,
    topic: str = TOPIC,
    queue_id: int = 0,
    *,
    tags: frozenset[int] | None = None,
    accept: Callable[[memoryview], bool] | None = None,
    **limits: int,
) -> Read:
    """One read; ``limits`` are those of ``GetLimits``."""
    found = store.get(topic, queue_id, offset, GetLimits(**limits), tags=tags, accept=accept)
    with found as result:
        return Read(result.status, [one.body for one in records(result)], result.next_offset)


def records(result: GetResult) -> list[Record]:
    """The messages of a read, which is not released."""
    return [found for piece in result.slices for found in record.parse_all(piece)]


def all_records(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> Iterator[Record]:
    """All messages of a queue, as a consumer gets them."""
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        with store.get(topic, queue_id, offset) as result:
            yield from records(result)
            assert result.next_offset > offset, (result.status, offset)
            offset = result.next_offset


def bodies(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [found.body for found in all_records(store, topic, queue_id)]


def record_of(store: MessageStore, result: PutResult) -> Record:
    """What was stored of a message."""
    view = store.record_at(result.physical_offset)
    assert view is not None, result
    with view:
        found = record.parse(view, check_crc=True)
    assert isinstance(found, Record)
    return found


def killed_copy(root: Path, to: Path) -> Path:
    """The directory as it would be if the process that has it open were killed now.

    The lock file is left out: whoever closes one loses the process's lock on it.
    """
    shutil.copytree(root, to, ignore=shutil.ignore_patterns("lock"))
    return to


def log_bytes(root: Path) -> bytes:
    """The whole commit log."""
    return b"".join(path.read_bytes() for path in log_files(root))


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def queue_files(root: Path, topic: str = TOPIC, queue_id: int = 0) -> list[Path]:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())


def patch(path: Path, position: int, data: bytes) -> None:
    """Change bytes of a file behind everybody's back."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    patch(path, position, bytes([path.read_bytes()[position] ^ mask]))


def watch(disk: CrashingDisk, *kinds: str) -> list[tuple[str, str]]:
    """A list that grows with what happens to the disk: kind and name of the folder or file."""
    events: list[tuple[str, str]] = []

    def note(event: DiskEvent) -> None:
        if event.is_done and event.kind in kinds:
            events.append((event.kind, part_of(event.path)))

    disk.on_event(note)
    return events


def part_of(path: Path) -> str:
    """Which part of a store a file belongs to."""
    for name in ("commitlog", "consumequeue", "index"):
        if name in path.parts:
            return name
    return path.name


class FakeLoop:
    """An event loop that turns when it is told to; timers go off when they are told to."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], object]] = deque()
        self.timers: list[FakeTimer] = []

    def call_soon(self, callback: Callable[[], object]) -> object:
        self._ready.append(callback)
        return callback

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object:
        return self.call_soon(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> "FakeTimer":
        timer = FakeTimer(delay, callback)
        self.timers.append(timer)
        return timer

    @property
    def is_idle(self) -> bool:
        return not self._ready

    def turn(self) -> None:
        """Call what was waiting when the turn began; what it schedules waits for the next one."""
        for _ in range(len(self._ready)):
            self._ready.popleft()()

    def turn_until_idle(self, turns_max: int = 100) -> int:
        """Turn until nothing waits; how many turns it took."""
        for turns in range(turns_max):
            if self.is_idle:
                return turns
            self.turn()
        raise AssertionError(f"still busy after {turns_max} turns")

    def fire_timers(self) -> None:
        """Let all timers go off that were set so far."""
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.callback()


class FakeTimer(asyncio.Handle):
    """What ``FakeLoop.call_later`` returns."""

    def __init__(self, delay: float, callback: Callable[[], object]) -> None:
        self.delay = delay
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
