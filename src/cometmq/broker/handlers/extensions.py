"""Requests of our own: how far the log is, and how far archives of it have got (ADR 17)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cometmq.broker.topics import shown
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.extensions import (
    ArchiveCommit,
    ArchiveCommitResponse,
    ArchiveRemove,
    LogStatusResponse,
)
from cometmq.errors import BrokerError
from cometmq.logs import get_logger
from cometmq.remoting.routes import Answer
from cometmq.store.log_sample import sample_digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cometmq.broker.archives import Archives
    from cometmq.broker.config import BrokerSettings
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore

_log = get_logger(__name__)


class ExtensionHandlers:
    """Requests 30001 to 30003.

    ``settle`` is awaited before a change is answered: it is saved, or why not is what it returns.
    """

    def __init__(
        self,
        store: MessageStore,
        archives: Archives,
        settings: BrokerSettings,
        settle: Callable[[], Awaitable[str]],
    ) -> None:
        self._store = store
        self._archives = archives
        self._settings = settings
        self._settle = settle

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.COMET_LOG_STATUS, self.log_status)
        routes.add(RequestCode.COMET_ARCHIVE_COMMIT, self.commit)
        routes.add(RequestCode.COMET_ARCHIVE_REMOVE, self.remove)

    async def log_status(self, channel: Channel, command: Command) -> Answer:
        """How far the log may be read from its files.

        Confirmed is what is on disk: what is only appended may be gone after a power cut, and other
        messages in its place.
        """
        store = self._store
        # The end is taken before the files are: the newest is that of a confirmed record, or later.
        confirmed, end = store.watermarks.flushed, store.log_end
        files = store.log_files
        newest = files[-1] if files else None
        sampled = next((file for file in files if file.begin < confirmed <= file.end), None)
        inode, digest = 0, ""
        try:
            if newest is not None:
                inode = (await asyncio.to_thread(newest.path.stat)).st_ino
            if sampled is not None:
                count = confirmed - sampled.begin
                digest = await asyncio.to_thread(sample_digest, sampled.path, count)
        except OSError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        header = LogStatusResponse(
            confirmed_offset=confirmed,
            begin_offset=store.log_begin,
            end_offset=end,
            file_bytes=0 if newest is None else newest.end - newest.begin,
            store_root=str(store.root.absolute()),
            newest_file="" if newest is None else str(newest.path.absolute()),
            newest_file_inode=inode,
            pull_count_max=self._settings.large_pull_count_max,
            pull_bytes_max=self._settings.large_pull_bytes_max,
            sample_begin=confirmed if sampled is None else sampled.begin,
            sample_digest=digest,
        )
        return Answer(header=header)

    async def commit(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, ArchiveCommit)
        offset = self._archives.commit(said.name, said.offset)
        await self._save()
        return Answer(header=ArchiveCommitResponse(offset))

    async def remove(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, ArchiveRemove)
        is_removed = self._archives.remove(said.name)
        # Also if not: one that was removed, and could not be saved, would come back with a restart.
        await self._save()
        if not is_removed:
            remark = f"there is no archive '{shown(said.name)}'"
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, remark)
        return Answer()

    async def _save(self) -> None:
        if problem := await self._settle():
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"not saved: {problem}")
