"""Questions that are not put to a server that has just kept silent.

A program that asks many questions in a row, as a command line does, would else wait for the whole
timeout with each of them, once for every server that hangs.
"""

from cometmq.admin.servers import Asking
from cometmq.clock import Clock
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.errors import RequestTimeout


class Sparing:
    """Asks through ``connections``; who did not answer is not asked again for ``silence_ms``.

    A server from which anything was heard in the meantime is not silent: it may take its time for
    one question and not for another.
    """

    def __init__(self, connections: Asking, *, silence_ms: int, clock: Clock) -> None:
        self._connections = connections
        self._silence_seconds = silence_ms / 1000
        self._clock = clock
        self._heard: dict[str, float] = {}  # when each server answered last
        self._silent: dict[str, tuple[float, RequestTimeout]] = {}  # until when, and why

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Command:
        """Raises RequestTimeout at once where another question has just waited in vain."""
        began = self._clock.monotonic()
        until, why = self._silent.get(address, (began, None))
        if why is not None and began < until:
            raise RequestTimeout(why.address, why.timeout_ms)
        try:
            answer = await self._connections.ask(
                address, code, header, body, timeout_ms=timeout_ms, is_repeatable=is_repeatable
            )
        except RequestTimeout as error:
            if self._heard.get(address, began) <= began:
                self._silent[address] = (self._clock.monotonic() + self._silence_seconds, error)
            raise
        self._heard[address] = self._clock.monotonic()
        self._silent.pop(address, None)
        return answer
