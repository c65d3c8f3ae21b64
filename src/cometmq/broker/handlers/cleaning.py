"""Administrators who want expired files deleted now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from cometmq import logs
from cometmq.codec.codes import RequestCode
from cometmq.remoting.routes import Answer

if TYPE_CHECKING:
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes

ROUNDS_MAX: Final = 20
"""Rounds of cleaning that one request is good for, as with Apache; each deletes some files."""

PAUSE_SECONDS: Final = 0.1
"""Between two rounds: files take their time, and others use the loop."""

_log = logs.get_logger("cometmq.broker")


class Store(Protocol):
    """What cleaning needs of the store."""

    def clean(self, *, at_any_hour: bool = False) -> int: ...


class CleaningHandlers:
    """Requests 27, 329 (log files, at any hour) and 306 (queue files behind the log).

    They are answered at once; ``run`` does the work, and a request that comes meanwhile only makes
    it go on longer.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wake = asyncio.Event()
        # Rounds still to be done, and whether the hours set for deleting matter in them.
        self._rounds = 0
        self._is_any_hour = False

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.TRIGGER_DELETE_FILES, self.delete_log)
        routes.add(RequestCode.DELETE_EXPIRED_COMMITLOG, self.delete_log)
        routes.add(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, self.delete_queues)

    def delete_log(self, channel: Channel, command: Command) -> Answer:
        _log.info("%s asks for expired files of the log to be deleted", channel.peer)
        self._is_any_hour = True
        self._ask_for(ROUNDS_MAX)
        return Answer()

    def delete_queues(self, channel: Channel, command: Command) -> Answer:
        """Queue files go with the log that they lead into: whatever is expired goes in one round.

        A queue that has become empty stays, with its offsets; Apache would begin at 0 again.
        """
        _log.info("%s asks for expired files of queues to be deleted", channel.peer)
        self._ask_for(1)
        return Answer()

    async def run(self) -> None:
        """Do what is asked for until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._rounds > 0:
                self._round()
                await asyncio.sleep(PAUSE_SECONDS)

    def _ask_for(self, rounds: int) -> None:
        self._rounds = max(self._rounds, rounds)
        self._wake.set()

    def _round(self) -> None:
        self._rounds -= 1
        try:
            deleted = self._store.clean(at_any_hour=self._is_any_hour)
        except OSError as error:
            _log.error("cleaning failed, ask for it again: %s", error)
            deleted = self._rounds = 0
        # The flusher may have to catch up before the first file can go, so one miss says nothing.
        if not deleted:
            self._rounds = min(self._rounds, ROUNDS_MAX // 4)
        if not self._rounds:
            self._is_any_hour = False
