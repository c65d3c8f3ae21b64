"""A process that kills itself at a chosen moment: when a file of the store is being changed."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatch
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from cometmq.store.files import DiskFile, DiskFiles, DiskUsage, Entry

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Moment = Literal["before", "within", "after"]


class Aim(msgspec.Struct, frozen=True):
    """When to die: at the ``nth`` matching change, before it, half-way through or after it.

    ``stage`` is what the program does just then (open, run, clean, close); an empty one matches
    all, as the wildcards do for ``kind`` and ``path``.
    """

    kind: str = "*"
    path: str = "*"
    stage: str = ""
    nth: int = 1
    moment: Moment = "before"


class AimedFiles:
    """The real file system, and death at the aimed change; ``stage`` is set by the program."""

    def __init__(self, aim: Aim | None) -> None:
        self.stage = "open"
        self._aim = aim
        self._matches = 0
        self._files = DiskFiles()

    @contextmanager
    def change(self, kind: str, path: Path, half: Callable[[], object]) -> Iterator[None]:
        """One change of the disk; ``half`` is what it would have done half-way through."""
        is_hit = self._is_hit(kind, path)
        if is_hit and self._aim is not None:
            if self._aim.moment == "within":
                half()
            if self._aim.moment != "after":
                die()
        yield
        if is_hit:
            die()

    def _is_hit(self, kind: str, path: Path) -> bool:
        aim = self._aim
        if aim is None or aim.stage not in ("", self.stage):
            return False
        if not fnmatch(kind, aim.kind) or not fnmatch(str(path), aim.path):
            return False
        self._matches += 1
        return self._matches == aim.nth

    def entries(self, folder: Path) -> list[Entry]:
        return self._files.entries(folder)

    def create(self, path: Path, size: int, *, durable: bool = True) -> None:
        def half() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

        with self.change("create", path, half):
            self._files.create(path, size, durable=durable)

    def settle(self, path: Path) -> None:
        with self.change("settle", path, path.exists):
            self._files.settle(path)

    def open(self, path: Path) -> "AimedFile":
        return AimedFile(self, path)

    def read(self, path: Path) -> bytes | None:
        return self._files.read(path)

    def replace(self, path: Path, content: bytes) -> None:
        def half() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(path.name + ".tmp").write_bytes(content[: len(content) // 2])

        with self.change("replace", path, half):
            self._files.replace(path, content)

    def remove(self, path: Path) -> None:
        with self.change("remove", path, path.exists):
            self._files.remove(path)

    def remove_folder(self, folder: Path) -> None:
        def half() -> None:
            for path in sorted(path for path in folder.rglob("*") if path.is_file())[::2]:
                path.unlink()

        with self.change("remove_folder", folder, half):
            self._files.remove_folder(folder)

    def modified_ms(self, path: Path) -> int:
        return self._files.modified_ms(path)

    def usage(self, path: Path) -> DiskUsage:
        return self._files.usage(path)

    def lock(self, path: Path) -> AbstractContextManager[bool]:
        return self._files.lock(path)


class AimedFile:
    """One file of ``AimedFiles``."""

    def __init__(self, files: AimedFiles, path: Path) -> None:
        self.path = path
        self._files = files
        self._file = DiskFile(path)

    def map(self, *, writable: bool) -> mmap:
        return self._file.map(writable=writable)

    def allocate(self, begin: int, end: int) -> None:
        with self._files.change(
            "allocate", self.path, lambda: self._file.allocate(begin, (begin + end + 1) // 2)
        ):
            self._file.allocate(begin, end)

    def write(self, position: int, data: "ReadableBuffer") -> None:
        content = bytes(data)
        half = content[: len(content) // 2]
        with self._files.change("write", self.path, lambda: self._file.write(position, half)):
            self._file.write(position, data)

    def clear(self, begin: int, end: int) -> bool:
        with self._files.change(
            "clear", self.path, lambda: self._file.clear(begin, (begin + end) // 2)
        ):
            return self._file.clear(begin, end)

    def find_data(self, begin: int, end: int) -> int:
        return self._file.find_data(begin, end)

    def sync(self) -> None:
        with self._files.change("sync", self.path, self._file.sync):
            self._file.sync()

    def close(self) -> None:
        self._file.close()


def die() -> None:
    """End like a process that was killed: nothing of ours runs any more."""
    os.kill(os.getpid(), signal.SIGKILL)
