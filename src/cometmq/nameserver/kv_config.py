"""Settings by namespace and key that a name server keeps for everybody, and the file they live in.

The file is Apache's ``kvConfig.json``; what it held before the last save is beside it as ``.bak``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cometmq.codec import fastjson
from cometmq.codec.bodies import documents
from cometmq.saved_file import DiskFiles, Files, SavedFile
from cometmq.saved_file import Source as KvSource

__all__ = [
    "ORDER_TOPIC_NAMESPACE",
    "DiskFiles",
    "Files",
    "KvConfig",
    "KvConfigFile",
    "KvSource",
    "LoadedKvConfig",
]

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


class LoadedKvConfig(msgspec.Struct, frozen=True):
    """The settings and where they came from; ``problem`` says why it was not the file itself."""

    config: KvConfig
    source: KvSource
    problem: str = ""


class KvConfigFile:
    """The file and its backup. Both methods block; calls must not overlap."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self._file = SavedFile(path, KvConfig, files)

    def load(self) -> LoadedKvConfig:
        """Read the file or, if it is missing, empty or broken, its backup.

        With a broken file and no backup ``RemoteProtocolError`` is raised: going on without it
        would overwrite it with the next change.
        """
        loaded = self._file.load()
        config = KvConfig() if loaded.value is None else loaded.value
        return LoadedKvConfig(config, loaded.source, loaded.problem)

    def save(self, content: bytes) -> None:
        """Replace the file by ``content``, which ``KvConfig.encoded`` gave; keep what was."""
        self._file.save(content)
