"""Index folders for tests: opened with good defaults, and read without the store."""

from pathlib import Path
from typing import Any

from cometmq.codec import index_entry
from cometmq.codec.index_entry import IndexHeader
from cometmq.store.config import StoreSettings
from cometmq.store.key_index import KeyIndex
from cometmq.testing import CrashingDisk, FakeClock

SLOTS, ENTRIES = 8, 11
"""Ten entries to a file."""
SETTINGS = StoreSettings(index_slots=SLOTS, index_entries=ENTRIES)
LOG_END = 1 << 40


def opened(disk: CrashingDisk, folder: Path, **changes: Any) -> KeyIndex:
    """The index after a clean stop, whose files all count as synced."""
    facts: dict[str, Any] = {
        "settings": SETTINGS,
        "clock": FakeClock(),
        "is_clean": True,
        "log_begin": 0,
        "log_end": LOG_END,
        "index_timestamp": LOG_END,
    }
    return KeyIndex.open(folder, files=disk, **(facts | changes))


def paths(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def headers(folder: Path) -> list[IndexHeader]:
    return [index_entry.unpack_header(path.read_bytes()) for path in paths(folder)]


def offsets(folder: Path, *, slots: int = SLOTS) -> list[int]:
    """The physical offsets of all entries of all files, in order."""
    return [offset for _, offset in all_entries(folder, slots=slots)]


def all_entries(folder: Path, *, slots: int = SLOTS) -> list[tuple[int, int]]:
    """Hash and physical offset of all entries of all files, in order."""
    found = []
    for path in paths(folder):
        data = path.read_bytes()
        for number in range(1, index_entry.unpack_header(data).index_count):
            entry = index_entry.unpack_entry(data, index_entry.entry_position(number, slots))
            found.append((entry.key_hash, entry.physical_offset))
    return found


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in paths(folder)]
