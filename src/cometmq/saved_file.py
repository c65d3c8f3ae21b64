"""Small files that are written whole and must survive a crash: the file, and its ``.bak``.

Whoever keeps a table in such a file brings the two functions that turn it into bytes and back;
what is here decides which bytes count.
"""

import contextlib
import enum
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from cometmq.errors import RemoteProtocolError

T = TypeVar("T")


class Files(Protocol):
    """What saving needs of a file system."""

    def read(self, path: Path) -> bytes | None:
        """The whole content; None when there is no such file."""
        ...

    def replace(self, path: Path, content: bytes) -> None:
        """Make ``content`` the file's: after a crash there is the old or the new one, whole."""
        ...


class DiskFiles:
    """The real file system; ``OSError`` as it comes."""

    def read(self, path: Path) -> bytes | None:
        return read_file(path)

    def replace(self, path: Path, content: bytes) -> None:
        replace_file(path, content)


class Source(enum.Enum):
    """Where something was found."""

    FILE = "file"
    BACKUP = "backup"
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """What was found and where; ``problem`` says why it was not the file itself.

    ``value`` is None exactly when nothing was found.
    """

    value: T | None
    source: Source
    problem: str = ""


class SavedFile(Generic[T]):
    """One file and its backup. Both methods block; calls must not overlap.

    ``parse`` makes the value of a file's content and raises ``RemoteProtocolError`` if it cannot.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], files: Files | None = None) -> None:
        self._path = path
        self._backup = path.with_name(path.name + ".bak")
        self._parse = parse
        self._files = files or DiskFiles()
        # What we know to be a whole document, and so worth keeping as the backup.
        self._sound: bytes | None = None

    def load(self) -> Loaded[T]:
        """Read the file or, if it is missing, empty or broken, its backup.

        When one of them is broken and the other no help, ``RemoteProtocolError`` is raised: going
        on without it would overwrite it with the next save.
        """
        content = self._content(self._path)
        problem, cause = "there is no such file or it is empty", None
        if content:
            try:
                return self._found(content, Source.FILE)
            except RemoteProtocolError as error:
                problem, cause = str(error), error
        content = self._content(self._backup)
        if content:
            try:
                return self._found(content, Source.BACKUP, problem)
            except RemoteProtocolError as error:
                raise self._loss(f"{problem}; backup: {error}") from error
        if cause is not None:
            raise self._loss(problem) from cause
        return Loaded(None, Source.NOWHERE)

    def save(self, content: bytes) -> None:
        """Replace the file by ``content``; what was loaded or saved before becomes the backup."""
        if self._sound is not None:
            self._files.replace(self._backup, self._sound)
        self._files.replace(self._path, content)
        self._sound = content

    def _content(self, path: Path) -> bytes:
        """Empty also when there are only blanks: a crash may leave such a file."""
        content = self._files.read(path) or b""
        return content if content.strip() else b""

    def _found(self, content: bytes, source: Source, problem: str = "") -> Loaded[T]:
        value = self._parse(content)
        self._sound = content
        return Loaded(value, source, problem)

    def _loss(self, problem: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"cannot read {self._path}: {problem}; repair the file, or remove it and "
            f"{self._backup.name} to start without what they held"
        )


def read_file(path: Path) -> bytes | None:
    """The whole content; None when there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def replace_file(path: Path, content: bytes) -> None:
    """Make ``content`` the file's, durably, with its folder if need be.

    After a crash in between there is the old content or the new one, whole.
    """
    make_folder(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        with contextlib.suppress(FileNotFoundError):
            # What only some may read stays so.
            temporary.chmod(path.stat().st_mode & 0o777)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    # The new name is on disk only when the folder is.
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, each name durable before the next."""
    missing = [place for place in (folder, *folder.parents) if not place.is_dir()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True)
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on disk; on Windows nobody can wait for that."""
    if sys.platform == "win32":
        return
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
