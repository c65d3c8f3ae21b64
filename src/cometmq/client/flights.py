"""How many sends are under way: a limit that costs nothing while it is not reached."""

import asyncio

from cometmq.errors import TooManyRequests


class Flights:
    """Sends of one producer. Whoever has entered leaves, whatever happens::

    if flights.count < flights.limit:
        flights.count += 1
    else:
        timeout_ms = await flights.turn(timeout_ms)
    try:
        ...
    finally:
        flights.leave()
    """

    __slots__ = ("_landed", "_waiting", "count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        # Whose turn comes, in this order.
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._landed: asyncio.Future[None] | None = None  # done when none is under way

    async def turn(self, timeout_ms: int) -> int:
        """Enter when there is room; what is left of the time. Raises TooManyRequests."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = None
        try:
            async with asyncio.timeout_at(deadline):
                await future
        except BaseException as error:
            self._waiting.pop(future, None)
            if future.done() and not future.cancelled():
                self.leave()  # the turn came at the moment in which we gave up
            if isinstance(error, TimeoutError):
                raise TooManyRequests("this producer", self.limit) from error
            raise
        return max(1, round((deadline - loop.time()) * 1000))

    def leave(self) -> None:
        """A send has ended, well or not."""
        self.count -= 1
        if self._waiting and self.count < self.limit:
            self._next()
        if self._landed is not None and not self.count and not self._landed.done():
            self._landed.set_result(None)

    async def landed(self, timeout_ms: int) -> bool:
        """Wait until no send is under way, for some time; says whether that is so.

        One that ends may be followed by another at once, as the frames of a batch are.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while self.count and loop.time() < deadline:
            self._landed = loop.create_future()
            await asyncio.wait((self._landed,), timeout=deadline - loop.time())
        return not self.count

    def _next(self) -> None:
        while self._waiting:
            future = next(iter(self._waiting))
            del self._waiting[future]
            if not future.done():
                self.count += 1  # kept for it until it runs
                future.set_result(None)
                return
