"""Saying that handlers fail without a line for each message."""

from typing import Any

from cometmq import logs
from cometmq.client.core.message import Message
from cometmq.clock import Clock

_log = logs.get_logger("cometmq.client")

LINE_SECONDS = 10.0
"""Between two lines of one consumer."""


class FailureLog:
    """One consumer's failures: one now and then with its traceback, the others as a count."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._next_line = float("-inf")
        self._unsaid = 0

    def note(self, message: Message[Any], error: BaseException, what_follows: str) -> None:
        now = self._clock.monotonic()
        if now < self._next_line:
            self._unsaid += 1
            return
        self._next_line = now + LINE_SECONDS
        _log.warning(
            "group=%s handler failed for %r, %s (%d more since the last line)",
            self._group,
            message,
            what_follows,
            self._unsaid,
            exc_info=error,
        )
        self._unsaid = 0
