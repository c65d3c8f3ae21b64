"""Archives of the log, and how far each has got: retention keeps what they still need.

Kept in ``config/cometArchives.json``::

    {"format":"cometmq archives","version":1,"archives":{"lake":{"offset":1073741824,"savedMs":1}}}
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError, RemoteProtocolError
from cometmq.logs import get_logger
from cometmq.saved_file import SavedFile, Source
from cometmq.store.documents import FOLDER
from cometmq.store.retention import Hold

if TYPE_CHECKING:
    from pathlib import Path

    from cometmq.clock import Clock
    from cometmq.saved_file import Files
    from cometmq.store import MessageStore

FILE_NAME: Final = "cometArchives.json"
FORMAT: Final = "cometmq archives"
VERSION: Final = 1

ARCHIVES_MAX: Final = 16
NAME_CHARACTERS_MAX: Final = 64
_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}")

_log = get_logger(__name__)


class Watermark(msgspec.Struct, frozen=True, rename="camel"):
    """Everything before ``offset`` is in the archive, as was said at ``saved_ms``."""

    offset: int
    saved_ms: int


class ArchiveTable(msgspec.Struct, frozen=True):
    """The watermarks by the names of their archives."""

    archives: dict[str, Watermark] = {}
    format: str = FORMAT
    version: int = VERSION


class ArchivesFile:
    """The file with its backup. Both methods block for the disk; calls must not overlap."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self._path = root / FOLDER / FILE_NAME
        self._file = SavedFile(self._path, _decode, files)

    def load(self) -> ArchiveTable:
        """What was saved; RemoteProtocolError when it cannot be read."""
        loaded = self._file.load()
        if loaded.source is Source.BACKUP:
            _log.warning("document=%s read from its backup: %s", self._path, loaded.problem)
        return loaded.value or ArchiveTable()

    def save(self, table: ArchiveTable) -> None:
        self._file.save(msgspec.json.format(msgspec.json.encode(table), indent=1))


class Archives:
    """The watermarks of one log. ``on_change`` is called when there is something to save."""

    def __init__(self, file: ArchivesFile, store: MessageStore, clock: Clock) -> None:
        """Load what was saved; blocks for the disk."""
        self._store = store
        self._clock = clock
        saved = file.load()
        self._by_name = dict(saved.archives)
        for name, mark in saved.archives.items():
            # Of another log, or of one that was cut: nothing behind its end was ever archived.
            if mark.offset > store.log_end:
                _log.warning(
                    "archive=%s has got to %d, the log ends at %d: taken to be there",
                    name,
                    mark.offset,
                    store.log_end,
                )
                self._by_name[name] = msgspec.structs.replace(mark, offset=store.log_end)
        if self._by_name != saved.archives:
            # At once: the log grows past the old position, and then it would count again.
            file.save(self.table())
        self.on_change = _nothing

    @property
    def count(self) -> int:
        return len(self._by_name)

    def hold(self) -> Hold | None:
        """Who needs most of the log, and from where on; None when nobody needs any."""
        if not self._by_name:
            return None
        name, mark = min(self._by_name.items(), key=lambda item: item[1].offset)
        return Hold(name, mark.offset)

    @property
    def behind_bytes(self) -> int:
        """How much of the log is not archived yet; 0 without archives."""
        hold = self.hold()
        return 0 if hold is None else max(self._store.log_end - hold.offset, 0)

    def table(self) -> ArchiveTable:
        """What is to be saved."""
        return ArchiveTable(dict(self._by_name))

    def commit(self, name: str, offset: int) -> int:
        """Note how far an archive has got, making it if need be; where its watermark is now.

        A watermark never moves back: remove it first. Raises BrokerError when it cannot be so.
        """
        if _NAME.fullmatch(name) is None:
            raise _refused(
                f"an archive's name has 1 to {NAME_CHARACTERS_MAX} letters, digits or ._- (this one"
                f" has {len(name)} characters)"
            )
        confirmed = self._store.watermarks.flushed
        if not 0 <= offset <= confirmed:
            raise _refused(f"offset {offset} is not archived: the log is confirmed to {confirmed}")
        known = self._by_name.get(name)
        if known is not None and offset <= known.offset:
            return known.offset
        if known is None and len(self._by_name) >= ARCHIVES_MAX:
            raise _refused(f"there are {ARCHIVES_MAX} archives, more are not possible: remove one")
        if known is None:
            _log.info("archive=%s begins at %d: the log is kept for it", name, offset)
        self._by_name[name] = Watermark(offset, self._clock.now_ms())
        self.on_change()
        return offset

    def remove(self, name: str) -> bool:
        """Keep nothing for an archive any more; whether it was known."""
        known = self._by_name.pop(name, None)
        if known is None:
            return False
        _log.info("archive=%s removed at %d: the log is not kept for it", name, known.offset)
        self.on_change()
        return True


def _nothing() -> None:
    """Nobody saves the table."""


def _decode(content: bytes) -> ArchiveTable:
    try:
        table = msgspec.json.decode(content, type=ArchiveTable)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"no table of archives: {error}") from error
    if (table.format, table.version) != (FORMAT, VERSION):
        raise RemoteProtocolError(
            f"'{table.format}' of version {table.version}, this release reads '{FORMAT}' of"
            f" version {VERSION}"
        )
    return table


def _refused(remark: str) -> BrokerError:
    return BrokerError(ResponseCode.INVALID_PARAMETER, remark)
