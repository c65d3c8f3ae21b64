"""What the tests of ``check`` have in common: a sound store, ways to damage it, short names."""

import struct
from pathlib import Path

import msgspec

from cometmq.store.check import Kind, Report, Severity
from tests.unit.store.raw_store import RawStore


def store_of(root: Path, count: int = 60) -> RawStore:
    """A sound store: two topics of two queues, messages with keys and tags, several files each."""
    store = RawStore(root)
    for number in range(count):
        store.put(
            topic="AB"[number % 2],
            queue_id=number // 2 % 2,
            body=b"x" * (number * 7 % 90),
            TAGS=f"t{number % 3}",
            KEYS=f"k{number} common",
            UNIQ_KEY=f"{number:032X}",
        )
    return store


def found(report: Report) -> list[tuple[Kind, Severity]]:
    return [(finding.kind, finding.severity) for finding in report.findings]


def error(kind: Kind) -> list[tuple[Kind, Severity]]:
    return [(kind, Severity.ERROR)]


def put_bytes(store: RawStore, position: int, layout: str, value: int) -> None:
    struct.pack_into(layout, store.log, position, value)


def replace_entry(store: RawStore, queue: tuple[str, int], number: int, **fields: int) -> None:
    entries = store.queues[queue]
    entries[number] = msgspec.structs.replace(entries[number], **fields)


def write_extension(store: RawStore, queue: tuple[str, int], data: bytes) -> None:
    path = store.root / "consumequeue_ext" / queue[0] / str(queue[1]) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(data.ljust(1024, b"\0"))
