"""What a disk has of one file: the arithmetic behind ``CrashingDisk``.

A file is pages of 4 KiB. Each is on disk as it was when it was last synced; what the program
changed since then is in memory and reaches the disk, page by page, in an order nobody promised.
"""

from random import Random
from typing import Final

PAGE_BYTES: Final = 4096

_KEEP_CHANCES: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How likely a page survives, drawn once for each file of a crash: with one half for all of them
a file of many pages would never be written completely, and never not at all."""

_TEAR_CHANCE: Final = 1 / 3


class DurableImage:
    """One file's content at its last sync, and which of its pages have blocks on the disk."""

    __slots__ = ("_blocks", "_blocks_durable", "_refused", "content")

    def __init__(self, content: bytes, *, has_blocks: bool) -> None:
        # What a crash cannot take away.
        self.content = content
        # Numbers of the pages the file system has room for; those of the last sync survive.
        self._blocks = set(range(_page_count(len(content)))) if has_blocks else set[int]()
        self._blocks_durable = set(self._blocks)
        # Pages of a failed sync as they were: the kernel takes them for written and does not try
        # again, however often it is asked to, unless they change once more.
        self._refused: dict[int, bytes] = {}

    @property
    def block_count(self) -> int:
        return len(self._blocks)

    def missing_blocks(self, begin: int, end: int) -> int:
        """How many pages of ``[begin, end)`` would need a new block."""
        return len(_pages(begin, end) - self._blocks)

    def allocate(self, begin: int, end: int) -> None:
        self._blocks |= _pages(begin, end)

    def sync(self, current: bytes) -> None:
        """Make ``current`` durable, all but the pages that an earlier failed sync gave up."""
        if self._refused:
            current = b"".join(
                self._page(number, len(page)) if self._refused.get(number) == page else page
                for number, page in enumerate(_split(current))
            )
        self.content = current
        self._blocks_durable = set(self._blocks)

    def fail_sync(self, current: bytes) -> None:
        """Nothing becomes durable, and what was to be written now never will be."""
        for number in self._changed(current):
            self._refused[number] = _page_of(current, number)

    def unallocated(self, current: bytes) -> list[int]:
        """Positions of pages that were written without having a block: SIGBUS on a full disk."""
        return [PAGE_BYTES * n for n in self._changed(current) if n not in self._blocks]

    def crash(self, current: bytes, chance: Random, sector_bytes: int | None) -> bytes:
        """What is found after a crash that happened when ``current`` was in memory."""
        keep_chance = chance.choice(_KEEP_CHANCES)
        size = chance.choice((len(self.content), len(current)))
        found = bytearray(self.content[:size].ljust(size, b"\0"))
        for number in self._changed(current):
            new = _page_of(current, number)
            old = self._page(number, len(new))
            page = new if chance.random() < keep_chance else old
            if sector_bytes is not None and chance.random() < _TEAR_CHANCE:
                page = _torn(old, new, chance, sector_bytes)
            found[number * PAGE_BYTES : number * PAGE_BYTES + len(page)] = page
        self.content = bytes(found[:size])
        written = {number for number, page in enumerate(_split(self.content)) if any(page)}
        self._blocks = self._blocks_durable | written
        self._blocks_durable = set(self._blocks)
        self._refused.clear()
        return self.content

    def _changed(self, current: bytes) -> list[int]:
        if current == self.content:
            return []
        return [n for n, page in enumerate(_split(current)) if page != self._page(n, len(page))]

    def _page(self, number: int, size: int) -> bytes:
        return _page_of(self.content, number)[:size].ljust(size, b"\0")


def _torn(old: bytes, new: bytes, chance: Random, sector_bytes: int) -> bytes:
    return b"".join(
        chance.choice((old, new))[begin : begin + sector_bytes]
        for begin in range(0, len(new), sector_bytes)
    )


def _split(content: bytes) -> list[bytes]:
    return [_page_of(content, number) for number in range(_page_count(len(content)))]


def _page_of(content: bytes, number: int) -> bytes:
    return content[number * PAGE_BYTES : (number + 1) * PAGE_BYTES]


def _pages(begin: int, end: int) -> set[int]:
    return set(range(begin // PAGE_BYTES, _page_count(end))) if begin < end else set()


def _page_count(size: int) -> int:
    return -(-size // PAGE_BYTES)
