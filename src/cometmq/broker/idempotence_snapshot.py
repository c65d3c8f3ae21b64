"""The file with what is remembered of idempotent sends: ``config/cometProducers.json``.

JSON, a line each: the first names format and version and the log position up to which the file is
complete, each following one a producer in a topic, the one used longest ago first::

    {"format":"cometmq producers","version":1,"offset":4096,"count":1}
    ["orders","job-1/0",17,1700000000000,[[0,10,2,5,1024,3072,null],[10,8,2,15,3072,4096,null]]]

A producer's numbers are its last sequence, when it sent that, and its runs: first sequence, count,
queue id, queue offset, the log positions where it begins and ends, and for delayed messages topic
and queue id in which they wait. Files of earlier releases do not have that last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.broker.idempotence_table import Entry, Snapshot
from cometmq.errors import RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.saved_file import SavedFile, Source
from cometmq.store.documents import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.saved_file import Files

NAME: Final = "cometProducers.json"
FORMAT: Final = "cometmq producers"
VERSION: Final = 1

_log = get_logger(__name__)


class _Head(msgspec.Struct, frozen=True):
    format: str
    version: int
    offset: int
    count: int


_read_head: Final = msgspec.json.Decoder(_Head).decode
_read_entry: Final = msgspec.json.Decoder(Entry).decode


class SnapshotFile:
    """The file with its backup. Both methods block for the disk; calls must not overlap."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self._path = root / FOLDER / NAME
        self._file = SavedFile(self._path, decode, files)

    def load(self) -> Snapshot | None:
        """What was saved, None if nothing was; RemoteProtocolError when it cannot be read."""
        loaded = self._file.load()
        if loaded.source is Source.BACKUP:
            _log.warning("document=%s read from its backup: %s", self._path, loaded.problem)
        return loaded.value

    def save(self, snapshot: Snapshot) -> None:
        """Replace the file, durably; what it held becomes the backup."""
        self._file.save(encode(snapshot))


def encode(snapshot: Snapshot) -> bytes:
    """Line by line: others may run in between when this is done on a thread."""
    write = msgspec.json.encode
    head = _Head(FORMAT, VERSION, snapshot.offset, len(snapshot.entries))
    return b"\n".join([write(head), *map(write, snapshot.entries), b""])


def decode(content: bytes) -> Snapshot:
    """Raises RemoteProtocolError unless everything is there and of this version."""
    first, *lines = content.splitlines()
    try:
        head = _read_head(first)
        if (head.format, head.version) != (FORMAT, VERSION):
            raise RemoteProtocolError(
                f"'{head.format}' of version {head.version}, this release reads '{FORMAT}' of"
                f" version {VERSION}"
            )
        entries = [_read_entry(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"no snapshot of producers: {error}") from error
    if len(entries) != head.count:
        raise RemoteProtocolError(f"{len(entries)} producers, {head.count} were saved")
    return Snapshot(head.offset, entries)
