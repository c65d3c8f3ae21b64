import asyncio
import io

from cometmq.cli.live_view import LiveView, frame_of


class Screen:
    """A view of a counter, on a terminal whose size a test may change."""

    def __init__(self, *, interval: float = 3600.0) -> None:
        self.refreshed = 0
        self.size = (20, 5)
        self.output = io.StringIO()
        self.view = LiveView(
            self.refresh,
            lambda columns: [f"{self.refreshed} of {columns}"],
            interval=interval,
            output=self.output,
            size=lambda: self.size,
        )

    async def refresh(self) -> None:
        self.refreshed += 1

    @property
    def drawn(self) -> list[str]:
        texts = self.output.getvalue().split("\x1b[H")[1:]
        return [text.removesuffix("\x1b[K\x1b[J") for text in texts]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_q_ends_it() -> None:
    async def scenario() -> Screen:
        screen = Screen()
        work = asyncio.ensure_future(screen.view.run())
        await turns()
        screen.view.press("x")
        screen.view.press("q")
        await asyncio.wait_for(work, 5)
        return screen

    screen = asyncio.run(scenario())

    assert (screen.refreshed, screen.drawn) == (0, ["0 of 20"])


def test_the_space_bar_looks_at_once() -> None:
    async def scenario() -> Screen:
        screen = Screen()
        work = asyncio.ensure_future(screen.view.run())
        await turns()
        screen.view.press(" ")
        await turns(10)
        screen.view.press("q")
        await asyncio.wait_for(work, 5)
        return screen

    screen = asyncio.run(scenario())

    assert screen.refreshed == 1
    assert screen.drawn[-1] == "1 of 20"


def test_another_size_of_the_terminal_is_drawn_without_looking_again() -> None:
    async def scenario() -> Screen:
        screen = Screen()
        work = asyncio.ensure_future(screen.view.run())
        await turns()
        screen.size = (40, 5)
        screen.view.resize()
        await turns(10)
        screen.view.press("q")
        await asyncio.wait_for(work, 5)
        return screen

    screen = asyncio.run(scenario())

    assert screen.refreshed == 0
    assert screen.drawn == ["0 of 20", "0 of 40"]


def test_it_looks_again_after_a_while() -> None:
    async def scenario() -> Screen:
        screen = Screen(interval=0.001)
        work = asyncio.ensure_future(screen.view.run())
        async with asyncio.timeout(5):
            while screen.refreshed < 3:
                await asyncio.sleep(0)
        screen.view.press("q")
        await asyncio.wait_for(work, 5)
        return screen

    screen = asyncio.run(scenario())

    assert screen.drawn[:3] == ["0 of 20", "1 of 20", "2 of 20"]


def test_a_frame_clears_what_was_there_before() -> None:
    assert frame_of(["one", "two"], (80, 24)) == "\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J"


def test_a_low_terminal_says_how_much_is_missing() -> None:
    frame = frame_of([f"line {number}" for number in range(10)], (80, 4))

    assert [line.removesuffix("\x1b[K") for line in frame.split("\r\n")][1:] == [
        *("line 1", "line 2", "… 7 more lines\x1b[K\x1b[J")
    ]
