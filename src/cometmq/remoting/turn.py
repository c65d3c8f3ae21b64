"""Reads of several connections that are handled together.

Theory of operation. Reading and writing a socket leaves little in the processor's caches of what
the interpreter needs, so a read that is handled the moment it comes begins cold, and so does the
next. What one look at the sockets brings is gathered instead: all reads are handled one after the
other, then all answers are written. The order on each connection stays. A connection that is alone
waits for nobody.
"""

import asyncio
from typing import Protocol

from cometmq import logs
from cometmq.remoting.outbox import Outbox

_log = logs.get_logger("cometmq.remoting")

READ_BYTES_MAX = 1024 * 1024
"""More than this is not gathered: it is handled at once."""

ANSWER_BYTES_MAX = 256 * 1024
"""Answers of this size are written before more are made."""


class Reader(Protocol):
    """Whose reads are handled."""

    def handle(self, data: bytes) -> None: ...

    def drop(self, reason: str) -> None: ...


class Turn:
    """What the connections of one server have read in a turn of the loop."""

    def __init__(self) -> None:
        self._reads: list[tuple[Reader, bytes]] = []
        self._read_bytes = 0
        self._last: Reader | None = None  # who has read last
        # The same while nothing is gathered: its next read need not wait for others.
        self.alone: Reader | None = None
        self.is_handling = False
        # Answers that wait until all reads are handled, and of whom.
        self._held: list[tuple[Reader, Outbox]] = []
        self._held_bytes = 0

    def add(self, reader: Reader, data: bytes) -> None:
        """Have a read handled with those of others; whoever is ``alone`` handles it at once."""
        assert reader is not self.alone
        self._last = reader
        self.alone = None
        if not self._reads:
            asyncio.get_running_loop().call_soon(self.finish)
        self._reads.append((reader, data))
        self._read_bytes += len(data)
        if self._read_bytes > READ_BYTES_MAX:
            self.finish()

    def hold(self, reader: Reader, outbox: Outbox) -> None:
        """While reads are handled: write its answers when all of them are."""
        self._held.append((reader, outbox))
        self._held_bytes += outbox.gathered_bytes
        if self._held_bytes > ANSWER_BYTES_MAX:
            self._write()

    def finish(self) -> None:
        """Handle what was gathered; whoever ends or judges a connection wants that first.

        Without effect while it is done already.
        """
        if self.is_handling:
            return
        reads, self._reads, self._read_bytes = self._reads, [], 0
        self.alone = self._last
        self.is_handling = True
        try:
            for reader, data in reads:
                try:
                    reader.handle(data)
                except Exception:
                    _log.exception("a read could not be handled")
                    reader.drop("its last read could not be handled")
        finally:
            self.is_handling = False
            self._write()

    def forget(self, reader: Reader) -> None:
        """A connection has ended."""
        if self._last is reader:
            self._last = self.alone = None

    def _write(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        for reader, outbox in held:
            outbox.is_held = False
            try:
                outbox.flush()
            except Exception:
                _log.exception("answers could not be written")
                reader.drop("its answers could not be written")
