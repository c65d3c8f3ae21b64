"""Async iterators as plain ones."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Self

import pytest

from cometmq.blocking.loop_thread import Call, LoopThread
from cometmq.blocking.member import Member, Threads
from cometmq.blocking.streams import Stream
from cometmq.client.life import Life, State
from cometmq.errors import InvalidArgument, NotFound, NotRunning

Event = threading.Event | asyncio.Event


@pytest.fixture
def threads() -> Iterator[Threads]:
    life = Life("this client")
    life.state = State.RUNNING
    threads = Threads(LoopThread(life), drain_timeout_ms=100)
    threads.loop.start()
    yield threads
    threads.loop.stop()
    threads.finish()


class Numbers:
    """Counts to an end, notes how far it was asked, and how it ended."""

    def __init__(self, end: int) -> None:
        self._end = end
        self.asked = 0
        self.is_closed = False

    async def count(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self._end):
                self.asked += 1
                yield number
            raise NotFound("number", str(self._end))
        finally:
            self.is_closed = True


def test_one_thing_comes_after_the_other_and_nothing_ahead(threads: Threads) -> None:
    numbers = Numbers(3)
    stream = Stream(None, threads, numbers.count())

    first = next(stream)

    assert (first, numbers.asked) == (0, 1)
    assert next(stream) == 1


def test_what_ends_the_source_ends_the_stream(threads: Threads) -> None:
    async def two() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    assert list(Stream(None, threads, two())) == [1, 2]


def test_what_the_source_raises_is_raised(threads: Threads) -> None:
    stream = Stream(None, threads, Numbers(0).count())

    with pytest.raises(NotFound):
        next(stream)


def test_closing_it_closes_the_source(threads: Threads) -> None:
    numbers = Numbers(3)
    stream = Stream(None, threads, numbers.count())
    next(stream)

    stream.close()

    assert numbers.is_closed
    assert list(stream) == []


def test_closing_a_member_leaves_its_streams_of_the_same_thread(threads: Threads) -> None:
    mine, other, of_others = Numbers(3), Numbers(3), Numbers(3)
    member = Member("client", threads)
    kept = Stream(member, threads, mine.count())
    elsewhere = Stream(member, threads, other.count())
    next(kept)
    next(of_another := Stream(Member("client", threads), threads, of_others.count()))
    thread = threading.Thread(target=lambda: next(elsewhere))
    thread.start()
    thread.join()

    threads.close(member, lambda: asyncio.sleep(0))

    assert mine.is_closed
    assert not other.is_closed
    assert not of_others.is_closed
    assert next(of_another) == 1


def test_closing_the_client_leaves_all_streams_of_the_same_thread(threads: Threads) -> None:
    of_member, of_client = Numbers(3), Numbers(3)
    streams = [
        Stream(Member("client", threads), threads, of_member.count()),
        Stream("client", threads, of_client.count()),
    ]
    for stream in streams:
        next(stream)

    threads.close(None, lambda: asyncio.sleep(0))

    assert of_member.is_closed
    assert of_client.is_closed


def test_two_threads_cannot_wait_for_the_same_thing(threads: Threads) -> None:
    gate = asyncio.Event()

    async def slow() -> AsyncGenerator[int, None]:
        is_asked.set()
        await gate.wait()
        yield 1

    is_asked = threading.Event()
    stream, found = Stream(None, threads, slow()), list[int]()
    thread = threading.Thread(target=lambda: found.append(next(stream)))
    thread.start()
    is_asked.wait(5)

    with pytest.raises(InvalidArgument, match="let each thread"):
        next(stream)

    threads.do(gate.set)
    thread.join(5)
    assert found == [1]
    assert list(stream) == []


def test_a_stream_of_a_closed_client_says_so(threads: Threads) -> None:
    stream = Stream(None, threads, Numbers(3).count())
    next(stream)
    threads.loop.stop()

    with pytest.raises(NotRunning):
        next(stream)
    stream.close()


async def waiting(is_asked: Event, ends: list[str]) -> AsyncGenerator[int, None]:
    """Waits for ever, takes a moment to end, and notes that it did."""
    try:
        is_asked.set()
        await asyncio.Event().wait()
        yield 1
    finally:
        await asyncio.sleep(0)
        ends.append("source")


async def closing(ends: list[str]) -> None:
    ends.append("client")


def test_one_that_was_interrupted_while_it_waited_can_be_closed(threads: Threads) -> None:
    """The question that was cancelled is still under way then."""
    is_asked, ends = threading.Event(), list[str]()
    stream = Stream("client", threads, waiting(is_asked, ends))
    asking = Call(stream._next())
    threads.loop.begin(asking)
    is_asked.wait(5)
    stream.used_by = threading.get_ident()

    threads.loop.cancel(asking)
    threads.close(None, lambda: closing(ends))

    assert ends == ["source", "client"]


class OneAtATime:
    """The first question waits for ever and takes a moment to end; the others are answered."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()  # for the first time
        self._is_busy = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        assert not self._is_busy
        self._is_busy = True
        try:
            if not self.is_asked.is_set():
                self.is_asked.set()
                await asyncio.Event().wait()
            return 1
        finally:
            await asyncio.sleep(0)
            self._is_busy = False


async def interrupted(stream: Stream[int], is_asked: asyncio.Event) -> asyncio.Task[int]:
    """A question of somebody who went away, which has not ended yet."""
    asking = asyncio.ensure_future(stream._next())
    await is_asked.wait()
    asking.cancel()
    return asking


def test_one_that_was_interrupted_while_it_waited_can_be_asked_again(threads: Threads) -> None:
    """The question that was cancelled is still under way then."""
    source = OneAtATime()
    stream = Stream(None, threads, source)

    async def ask_twice() -> int:
        await interrupted(stream, source.is_asked)
        return await stream._next()

    assert threads.call(ask_twice()) == 1


def test_a_generator_that_was_interrupted_while_it_waited_has_ended(threads: Threads) -> None:
    """As one that is no stream: an exception that it does not catch is its end."""
    is_asked, ends = asyncio.Event(), list[str]()

    async def ask_twice() -> list[str]:
        await interrupted(stream, is_asked)
        with pytest.raises(StopAsyncIteration):
            await stream._next()
        return list(ends)

    stream = Stream(None, threads, waiting(is_asked, ends))

    assert threads.call(ask_twice()) == ["source"]
    assert list(stream) == []


def test_closing_one_ends_it_for_who_waits_for_an_interrupted_question(threads: Threads) -> None:
    source = OneAtATime()
    stream = Stream(None, threads, source)

    async def ask_twice_and_close() -> None:
        await interrupted(stream, source.is_asked)
        again = asyncio.ensure_future(stream._next())
        await asyncio.sleep(0)  # it waits
        await stream._close()
        with pytest.raises(StopAsyncIteration):
            await again

    threads.call(ask_twice_and_close())


def test_closing_one_ends_it_for_the_thread_that_waits(threads: Threads) -> None:
    is_asked, ends = threading.Event(), list[str]()
    stream, found = Stream(None, threads, waiting(is_asked, ends)), list[list[int]]()
    thread = threading.Thread(target=lambda: found.append(list(stream)))
    thread.start()
    is_asked.wait(5)

    stream.close()

    thread.join(5)
    assert found == [[]]
    assert ends == ["source"]


def test_a_stream_that_cannot_be_closed_keeps_nothing_else_open(
    threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    async def stubborn() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            raise NotFound("number", "2")

    ends: list[str] = []
    stream = Stream("client", threads, stubborn())
    next(stream)

    threads.close(None, lambda: closing(ends))

    assert ends == ["client"]
    assert "an iterator was not closed to the end" in caplog.text


class Interrupted(LoopThread):
    """Whose next call is interrupted when its result is there and its caller does not have it."""

    is_next = False

    def wait(self, call: Call[Any], bound_ms: int | None = None) -> Any:
        result = super().wait(call, bound_ms)
        if self.is_next:
            self.is_next = False
            raise KeyboardInterrupt
        return result


def test_what_came_for_a_caller_that_was_interrupted_is_not_lost() -> None:
    """A consumer would take it for handled when the next one is asked for."""
    life = Life("this client")
    life.state = State.RUNNING
    loop = Interrupted(life)
    threads = Threads(loop, drain_timeout_ms=100)
    loop.start()
    stream = Stream(None, threads, Numbers(3).count())
    next(stream)

    loop.is_next = True
    with pytest.raises(KeyboardInterrupt):
        next(stream)

    assert [next(stream), next(stream)] == [1, 2]
    loop.stop()
    threads.finish()
