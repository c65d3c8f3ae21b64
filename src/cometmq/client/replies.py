"""Requests that wait for the reply of another client, by correlation id."""

import asyncio

from cometmq import logs
from cometmq.codec.record import Record
from cometmq.errors import NotRunning, TooManyRequests

_log = logs.get_logger("cometmq.client")

WAITING_MAX = 65_536


class Replies:
    """Who waits for which reply; entries live as long as their callers wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[Record]] = {}

    def expect(self, correlation_id: str) -> "asyncio.Future[Record]":
        """A future of the reply; the caller forgets it when it stops waiting."""
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyRequests("this client", WAITING_MAX)
        future: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def arrive(self, correlation_id: str, reply: Record) -> bool:
        """A reply has come; says whether somebody waited for it."""
        future = self._waiting.get(correlation_id)
        if future is None or future.done():
            _log.info("correlation_id=%s reply came too late, or twice", correlation_id)
            return False
        future.set_result(reply)
        return True

    def close(self) -> None:
        """Nobody will reply any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NotRunning("this client", "is closed", "make a new one"))
        self._waiting.clear()
