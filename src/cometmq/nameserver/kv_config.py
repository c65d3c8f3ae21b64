"""Settings by namespace and key that a name server keeps for everybody, and the file they live in.

The file is Apache's ``kvConfig.json``; what it held before the last save is beside it as ``.bak``.
"""

import enum
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cometmq.codec import fastjson
from cometmq.codec.bodies import documents
from cometmq.errors import RemoteProtocolError

ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Namespace of the queues that ordered topics write to, by topic (``broker-a:4;broker-b:4``)."""

_DOCUMENT = "kvConfig.json"


class KvConfig:
    """Text by namespace and key; only memory, so whoever changes it also saves it."""

    def __init__(self, content: bytes = b"") -> None:
        """Start from the content of a file; ``RemoteProtocolError`` if it is no such file."""
        self._document: Any = fastjson.loads(content) if content.strip() else None
        known = fastjson.convert(self._document or {}, documents.KVConfigTable)
        self._table = {namespace: dict(keys) for namespace, keys in known.config_table.items()}

    def get(self, namespace: str, key: str) -> str | None:
        keys = self._table.get(namespace)
        return None if keys is None else keys.get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """A copy of all values of a namespace by key; None when there never was one."""
        keys = self._table.get(namespace)
        return None if keys is None else dict(keys)

    def put(self, namespace: str, key: str, value: str) -> str | None:
        """Set a value; what it was before."""
        keys = self._table.setdefault(namespace, {})
        before = keys.get(key)
        keys[key] = value
        return before

    def delete(self, namespace: str, key: str) -> str | None:
        """Forget a value; what it was, if anything. The namespace stays, even when empty."""
        return self._table.get(namespace, {}).pop(key, None)

    def __len__(self) -> int:
        return sum(map(len, self._table.values()))

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """Namespace, key and value of everything."""
        for namespace, keys in self._table.items():
            for key, value in keys.items():
                yield namespace, key, value

    def encoded(self) -> bytes:
        """The content of the file, with what we do not know of it as we found it."""
        return documents.encode(
            documents.KVConfigTable(self._table),
            name=_DOCUMENT,
            style=fastjson.PrettyStyle.FASTJSON_1,
            previous=self._document,
        )


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
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        # The new name is on disk only when the directory is.
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class KvSource(enum.Enum):
    """Where settings were found."""

    FILE = "file"
    BACKUP = "backup"
    NOWHERE = "nowhere"


class LoadedKvConfig(msgspec.Struct, frozen=True):
    """The settings and where they came from; ``problem`` says why it was not the file itself."""

    config: KvConfig
    source: KvSource
    problem: str = ""


class KvConfigFile:
    """The file and its backup. Both methods block; calls must not overlap."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self._path = path
        self._backup = path.with_name(path.name + ".bak")
        self._files = files or DiskFiles()
        self._sound: bytes | None = None
        """What we know to be a whole document, and so worth keeping as the backup."""

    def load(self) -> LoadedKvConfig:
        """Read the file or, if it is missing, empty or broken, its backup.

        With a broken file and no backup ``RemoteProtocolError`` is raised: going on without it
        would overwrite it with the next change.
        """
        content = self._files.read(self._path) or b""
        broken: RemoteProtocolError | None = None
        try:
            config = KvConfig(content)
        except RemoteProtocolError as error:
            broken = error
        else:
            if content.strip():
                self._sound = content
                return LoadedKvConfig(config, KvSource.FILE)
        return self._load_backup(broken)

    def save(self, content: bytes) -> None:
        """Replace the file by ``content``, which ``KvConfig.encoded`` gave; keep what was."""
        if self._sound is not None:
            self._files.replace(self._backup, self._sound)
        self._files.replace(self._path, content)
        self._sound = content

    def _load_backup(self, broken: RemoteProtocolError | None) -> LoadedKvConfig:
        content = self._files.read(self._backup) or b""
        problem = "there is no such file or it is empty" if broken is None else str(broken)
        try:
            config = KvConfig(content)
        except RemoteProtocolError as error:
            raise self._loss(f"{problem}; backup: {error}") from error
        if content.strip():
            self._sound = content
            return LoadedKvConfig(config, KvSource.BACKUP, problem)
        if broken is not None:
            raise self._loss(problem) from broken
        return LoadedKvConfig(config, KvSource.NOWHERE)

    def _loss(self, problem: str) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"cannot read the settings in {self._path}: {problem}; repair the file, or remove it "
            f"and {self._backup.name} to start without settings"
        )
