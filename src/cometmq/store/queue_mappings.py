"""Which queue files are mapped: as many as the limit on open files allows, idle ones go first.

Python keeps a descriptor per mapping, and a store may have more queues than descriptors.
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mmap import mmap

    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.files import Files

DESCRIPTORS_FOR_OTHERS: Final = 4096
"""Left for connections, log files and the rest of the process."""
MAPPINGS_MIN: Final = 64
MAPPINGS_MAX: Final = 40_000
"""Linux allows a process 65,530 mappings unless told otherwise."""


def mappings_allowed() -> int:
    """How many queue files may be mapped, by the limit on open files; raises the soft one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return MAPPINGS_MAX
    spare = min(DESCRIPTORS_FOR_OTHERS, soft // 2)
    return min(MAPPINGS_MAX, max(MAPPINGS_MIN, soft - spare))


class QueueMappings:
    """Mapped queue files by path. A queue that writes to one owns it and is told when it goes."""

    def __init__(self, files: Files, capacity: int) -> None:
        self._files = files
        self._capacity = capacity
        # Oldest use first; the owner's `is_hot` counts as a use that was not recorded here.
        self._mapped: OrderedDict[str, tuple[mmap, ConsumeQueue | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._mapped)

    def get(self, path: str, owner: ConsumeQueue | None = None) -> mmap:
        """The mapped file; with an owner it belongs to it from now on."""
        found = self._mapped.get(path)
        if found is None:
            self._make_room()
            with closing(self._files.open(Path(path))) as file:
                found = file.map(writable=True), owner
            self._mapped[path] = found
        elif owner is not None:
            found = found[0], owner
            self._mapped[path] = found
        else:
            self._mapped.move_to_end(path)
        return found[0]

    def disown(self, path: str) -> None:
        """The owner writes elsewhere now."""
        found = self._mapped.get(path)
        if found is not None:
            self._mapped[path] = found[0], None

    def forget(self, path: str) -> None:
        """Unmap a file, if it is mapped, without telling its owner."""
        found = self._mapped.pop(path, None)
        if found is not None:
            found[0].close()

    def create(self, path: str, size: int) -> None:
        """Make a file without waiting for the disk; whoever syncs the queue settles its name."""
        self._files.create(Path(path), size, durable=False)

    def remove(self, path: str) -> None:
        self._files.remove(Path(path))

    def allocate(self, path: str, begin: int, end: int) -> None:
        """Give bytes of a file their blocks before they are written through the mapping."""
        with closing(self._files.open(Path(path))) as file:
            file.allocate(begin, end)

    def clear(self, path: str, begin: int) -> None:
        """Make the rest of a file zero, on disk too."""
        size = len(self.get(path))
        with closing(self._files.open(Path(path))) as file:
            if file.clear(begin, size):
                file.sync()

    def find_data(self, path: str, begin: int, end: int) -> int:
        """Where the first byte of ``[begin, end)`` lies that is not zero; ``end`` without one."""
        with closing(self._files.open(Path(path))) as file:
            return file.find_data(begin, end)

    def close(self) -> None:
        for path in tuple(self._mapped):
            self.forget(path)

    def _make_room(self) -> None:
        """Unmap the file that has been idle longest; one in use gets a second chance."""
        while len(self._mapped) >= self._capacity:
            path, (_, owner) = next(iter(self._mapped.items()))
            if owner is not None and owner.is_hot:
                owner.is_hot = False
                self._mapped.move_to_end(path)
                continue
            self.forget(path)
            if owner is not None:
                owner.unmapped()
