"""The file in which a broadcasting consumer keeps how far it is, shared with Java clients.

``<folder>/<client id>/<group>/offsets.json``, and the state before as ``.bak`` beside it. The
client id is part of the path, so it must be the same after a restart: broadcasting consumers keep
the instance name they were given.
"""

from collections.abc import Mapping
from pathlib import Path

from cometmq.codec.bodies import documents
from cometmq.codec.bodies.documents import LocalOffsetTable
from cometmq.codec.fastjson import PrettyStyle
from cometmq.errors import RemoteProtocolError, SettingsError
from cometmq.model.offsets import MessageQueue
from cometmq.saved_file import Files, SavedFile, Source

FILE_NAME = "offsets.json"


def default_folder() -> Path:
    """Where Java clients keep theirs."""
    return Path.home() / ".rocketmq_offsets"


class LocalOffsets:
    """The offsets of one client in one group. Every method blocks; calls must not overlap."""

    def __init__(
        self, folder: Path, client_id: str, group: str, files: Files | None = None
    ) -> None:
        for what, name in (("client id", client_id), ("group", group)):
            if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
                reason = f"{what} {name!r} cannot be the name of a folder"
                raise SettingsError("instance_name", reason, "choose another instance name")
        self.path = folder / client_id / group / FILE_NAME
        self._file = SavedFile(self.path, _parse, files)
        self._known: dict[MessageQueue, int] = {}
        """What the file had when we last read or wrote it."""

    def load(self) -> dict[MessageQueue, int]:
        """The offsets of every queue in the file, or in the backup if the file is broken or gone.

        Empty when there is neither. Raises RemoteProtocolError when there was something and none
        of it can be read, OSError as it comes.
        """
        self._read()
        return dict(self._known)

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the file by one with these offsets; queues that are not named keep theirs.

        A broker that is gone for a while takes its queues away; when they come back, they go on
        where they were. Nothing is written when nothing changed.
        """
        try:
            source = self._read()
        except RemoteProtocolError:
            # Broken while we were running: what we know is the best there is.
            source = Source.NOWHERE
        merged = self._known | dict(offsets)
        if source is Source.FILE and merged == self._known:
            return
        table = LocalOffsetTable(dict(sorted(merged.items())))
        # Every release reads either layout.
        self._file.save(documents.encode(table, name=FILE_NAME, style=PrettyStyle.FASTJSON_2))
        self._known = merged

    def _read(self) -> Source:
        loaded = self._file.load()
        self._known = {} if loaded.value is None else loaded.value.offset_table
        return loaded.source


def _parse(content: bytes) -> LocalOffsetTable:
    table = documents.decode(content, name=FILE_NAME)
    assert isinstance(table, LocalOffsetTable), table
    return table
