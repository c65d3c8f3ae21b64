import pytest

from cometmq.admin.sparing import Sparing
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.errors import RequestTimeout
from cometmq.testing import FakeClock

A, B = "10.0.1.1:10911", "10.0.1.2:10911"
SLOW, QUICK = 1, 2


class Line:
    """Connections on which some questions, by address and code, wait in vain."""

    def __init__(self, clock: FakeClock) -> None:
        self.asked: list[tuple[str, int]] = []
        self.hanging: set[tuple[str, int]] = set()
        self._clock = clock

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
        self.asked.append((address, code))
        if (address, code) in self.hanging:
            self._clock.advance(timeout_ms / 1000)
            raise RequestTimeout(address, timeout_ms)
        return Command(0)


class Desk:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.line = Line(self.clock)
        self.sparing = Sparing(self.line, silence_ms=5_000, clock=self.clock)

    async def ask(self, address: str, code: int) -> bool:
        """Whether an answer came."""
        try:
            await self.sparing.ask(address, code, timeout_ms=3_000)
        except RequestTimeout:
            return False
        return True


async def test_who_kept_silent_is_not_asked_again_for_a_while() -> None:
    desk = Desk()
    desk.line.hanging = {(A, SLOW), (A, QUICK)}

    answers = [await desk.ask(address, code) for code in (SLOW, QUICK) for address in (A, B)]

    with pytest.raises(RequestTimeout, match=f"no answer from {A} within 3000 ms"):
        await desk.sparing.ask(A, QUICK, timeout_ms=1)
    assert answers == [False, True, False, True]
    assert desk.line.asked == [(A, SLOW), (B, SLOW), (B, QUICK)]


async def test_it_is_asked_again_afterwards_and_may_be_back() -> None:
    desk = Desk()
    desk.line.hanging = {(A, SLOW)}
    assert not await desk.ask(A, SLOW)
    desk.line.hanging = set()

    desk.clock.advance(4.999)
    early = await desk.ask(A, SLOW)
    desk.clock.advance(0.001)
    later = await desk.ask(A, SLOW)

    assert (early, later) == (False, True)
    assert await desk.ask(A, QUICK)


async def test_a_server_that_answers_others_is_only_slow() -> None:
    """A broker may wait for a client on our behalf, and answer everybody else meanwhile."""
    desk = Desk()

    class Busy(Line):
        async def ask(self, address: str, code: int, *args: object, **options: object) -> Command:
            if code == SLOW:
                desk.clock.advance(1)
                await desk.sparing.ask(address, QUICK, timeout_ms=3_000)
            return await super().ask(address, code, timeout_ms=3_000)

    busy = Busy(desk.clock)
    busy.hanging = {(A, SLOW)}
    desk.sparing._connections = busy

    with pytest.raises(RequestTimeout):
        await desk.sparing.ask(A, SLOW, timeout_ms=3_000)

    assert await desk.ask(A, QUICK)
