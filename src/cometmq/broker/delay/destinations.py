"""Where delayed messages go when their time has come: to topics that may not be there any more.

What was sent to a topic before that was deleted is given up, whether there is a topic of that name
again or not: so for each deleted name it is kept where the log ended then, for as long as the log
has anything from before. A topic that nobody deleted and that is not there was lost by a kill, with
its message already in the log: it is made again. Kept in ``config/cometDeletedTopics.json``::

    {"format":"cometmq deleted topics","version":1,"topics":{"orders":1073741824}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.errors import RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.saved_file import SavedFile, Source
from cometmq.store.documents import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.broker.topics import TopicTable
    from cometmq.saved_file import Files
    from cometmq.store import MessageStore
    from cometmq.store.results import NewMessage, PutResult

FILE_NAME: Final = "cometDeletedTopics.json"
FORMAT: Final = "cometmq deleted topics"
VERSION: Final = 1

NAMES_MAX: Final = 10_000
"""Deleted names that are kept; beyond it the one deleted longest ago is forgotten."""

_log = get_logger(__name__)


class DeletedTable(msgspec.Struct, frozen=True):
    """Where the log ended when each name was deleted, the one deleted longest ago first."""

    topics: dict[str, int] = {}
    format: str = FORMAT
    version: int = VERSION


class DeletedFile:
    """The file with its backup. Both methods block for the disk; calls must not overlap."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self._path = root / FOLDER / FILE_NAME
        self._file = SavedFile(self._path, _decode, files)

    def load(self) -> DeletedTable:
        """What was saved; RemoteProtocolError when it cannot be read."""
        loaded = self._file.load()
        if loaded.source is Source.BACKUP:
            _log.warning("document=%s read from its backup: %s", self._path, loaded.problem)
        return loaded.value or DeletedTable()

    def save(self, table: DeletedTable) -> None:
        self._file.save(msgspec.json.format(msgspec.json.encode(table), indent=1))


class Destinations:
    """The topics of delayed messages. ``on_change`` is called when there is something to save."""

    def __init__(
        self,
        file: DeletedFile,
        store: MessageStore,
        topics: TopicTable,
        *,
        names_max: int = NAMES_MAX,
    ) -> None:
        """Load what was saved; blocks for the disk."""
        self._store = store
        self._topics = topics
        self._names_max = names_max
        # The log may have lost its end since: what comes there now is sent to another topic.
        saved = file.load().topics
        self._ends = {name: min(end, store.log_end) for name, end in saved.items()}
        if self._ends != saved:
            # At once: the log grows past the old position, and then it would count again.
            file.save(DeletedTable(dict(self._ends)))
        # Names for which it was told that something is given up.
        self._told: set[str] = set()
        self.on_change = _nothing

    def forget(self, topic: str) -> None:
        """A topic is deleted: what waits for it now is not to be delivered any more."""
        begin = self._store.log_begin
        kept = {name: end for name, end in self._ends.items() if end > begin and name != topic}
        kept[topic] = self._store.log_end
        if len(kept) > self._names_max:
            del kept[next(iter(kept))]
        self._ends = kept
        self._told.discard(topic)
        self.on_change()

    def is_gone(self, topic: str, physical_offset: int) -> bool:
        """Whether the topic was deleted after a message for it was put at that place."""
        end = self._ends.get(topic)
        if end is None or physical_offset >= end:
            return False
        if topic not in self._told:
            self._told.add(topic)
            _log.info("topic=%s was deleted: delayed messages from before are given up", topic)
        return True

    def put(self, message: NewMessage) -> PutResult:
        """Store a message that is due. Its topic is made if need be, when it is stored."""
        result = self._store.put(message)
        if result.status.is_stored and message.topic not in self._topics.by_name:
            self._topics.adopt([(message.topic, message.queue_id)])
        return result

    def table(self) -> DeletedTable:
        """What is to be saved."""
        return DeletedTable(dict(self._ends))


def nothing_is_gone(*_: object) -> bool:
    """No topic was ever deleted."""
    return False


def _nothing() -> None:
    """Nobody saves the table."""


def _decode(content: bytes) -> DeletedTable:
    try:
        table = msgspec.json.decode(content, type=DeletedTable)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"no table of deleted topics: {error}") from error
    if (table.format, table.version) != (FORMAT, VERSION):
        raise RemoteProtocolError(
            f"'{table.format}' of version {table.version}, this release reads '{FORMAT}' of"
            f" version {VERSION}"
        )
    return table
