"""Calls into the one thread of a blocking client, and what becomes of them."""

import asyncio
import contextvars
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from cometmq.blocking import loop_thread
from cometmq.blocking.loop_thread import THREAD_NAME, Call, LoopThread
from cometmq.client.life import Life, State
from cometmq.errors import NotFound, NotRunning


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    life = Life("this client")
    life.state = State.RUNNING
    thread = LoopThread(life)
    thread.start()
    yield thread
    life.state = State.CLOSED
    thread.stop()


async def thread_name() -> str:
    return threading.current_thread().name


async def failure() -> None:
    raise NotFound("topic", "orders")


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_call_runs_on_the_named_thread_and_returns_what_it_returns(thread: LoopThread) -> None:
    name = thread.call(thread_name())

    assert name == THREAD_NAME


def test_a_call_raises_what_it_raises(thread: LoopThread) -> None:
    with pytest.raises(NotFound, match="orders"):
        thread.call(failure())


def test_calls_of_many_threads_are_all_answered(thread: LoopThread) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    answers: dict[int, int] = {}

    def ask(begin: int) -> None:
        for number in range(begin, begin + 50):
            answers[number] = thread.call(double(number))

    callers = [threading.Thread(target=ask, args=(100 * place,)) for place in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert len(answers) == 400
    assert all(answer == 2 * number for number, answer in answers.items())


def test_calls_that_wake_the_loop_together_each_see_the_context_of_their_caller(
    thread: LoopThread,
) -> None:
    """Such as the span that is current there; the loop was woken by the first of them only."""
    caller = contextvars.ContextVar("caller", default="nobody")

    async def name() -> str:
        return caller.get()

    gate = threading.Event()
    thread._loop.call_soon_threadsafe(gate.wait)
    calls: list[Call[str]] = []
    for one in ("first", "second"):
        context = contextvars.copy_context()
        context.run(caller.set, one)
        call = context.run(lambda: Call(name()))
        context.run(thread.begin, call)
        calls.append(call)
    gate.set()

    assert [thread.wait(call) for call in calls] == ["first", "second"]


def test_a_call_that_takes_too_long_is_ended_and_says_so(thread: LoopThread) -> None:
    ended = threading.Event()

    async def endless() -> None:
        try:
            await for_ever()
        finally:
            ended.set()

    call = Call(endless())
    thread.begin(call)
    thread.call(asyncio.sleep(0))  # it has begun

    with pytest.raises(NotRunning, match="has not finished a call within 1 ms"):
        thread.wait(call, bound_ms=1)
    thread.cancel(call)

    assert ended.wait(5)


class SeenLate(Call[str]):
    """Is over after the first look of who waits for it, and before the second."""

    __slots__ = ("looks",)

    def is_over_within(self, seconds: float) -> bool:
        self.looks = getattr(self, "looks", 0) + 1
        return self.looks > 1 and super().is_over_within(min(seconds, 1))


def test_a_call_that_ends_just_before_its_thread_is_not_lost(thread: LoopThread) -> None:
    """The handler of a signal may close the client in the middle of ``wait``."""
    call = SeenLate(thread_name())
    thread.begin(call)
    thread.call(asyncio.sleep(0))  # it has ended

    thread.stop()

    assert thread.wait(call) == THREAD_NAME


def test_a_call_that_is_cancelled_before_it_begins_is_over_all_the_same(
    thread: LoopThread,
) -> None:
    call = Call(for_ever())

    async def begin_and_cancel() -> None:
        thread._waiting.append(call)
        thread._take()
        assert call.task is not None
        call.task.cancel()

    thread.call(begin_and_cancel())

    with pytest.raises(NotRunning, match="was ended before it began"):
        thread.wait(call, bound_ms=5_000)


def test_a_call_from_the_thread_itself_is_refused_instead_of_hanging(thread: LoopThread) -> None:
    async def inside() -> str:
        with pytest.raises(NotRunning, match="wait for itself"):
            thread.call(thread_name())
        return "not hanging"

    answer = thread.call(inside())

    assert answer == "not hanging"


@pytest.mark.skipif(sys.platform == "win32", reason="a signal for one thread needs POSIX")
def test_a_caller_that_is_interrupted_cancels_its_call(thread: LoopThread) -> None:
    ended = threading.Event()

    async def endless() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await for_ever()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        thread.call(endless())

    assert ended.wait(5)


def test_what_runs_when_the_thread_ends_raises_in_its_caller(thread: LoopThread) -> None:
    begun = threading.Event()
    errors: list[NotRunning] = []

    async def endless() -> None:
        begun.set()
        try:
            await for_ever()
        except asyncio.CancelledError as cancelled:
            cancelled.add_note("it may be stored")
            raise

    def ask() -> None:
        try:
            thread.call(endless(), bound_ms=None)
        except NotRunning as error:
            errors.append(error)

    caller = threading.Thread(target=ask)
    caller.start()
    begun.wait(5)
    thread.stop()
    caller.join(5)

    assert [error.problem for error in errors] == ["was ended, because the client is being closed"]
    assert errors[0].__notes__ == ["it may be stored"]


def test_a_call_after_the_end_says_why_it_is_refused() -> None:
    life = Life("this client")
    life.state = State.RUNNING
    thread = LoopThread(life)
    thread.start()
    thread.stop()
    life.state = State.CLOSED

    with pytest.raises(NotRunning, match="this client is closed; make a new one"):
        thread.call(thread_name())


def test_a_call_before_the_start_says_that_it_was_not_entered() -> None:
    thread = LoopThread(Life("this client"))

    with pytest.raises(NotRunning, match="was not entered yet"):
        thread.call(thread_name())


@pytest.mark.parametrize("seconds", [0.0, 0.01, 5.0])
def test_a_farewell_is_done_before_the_loop_ends_and_connections_end_anyway(
    seconds: float,
) -> None:
    life = Life("this client")
    life.state = State.RUNNING
    done: list[str] = []

    async def close() -> None:
        done.append("begun")
        await asyncio.sleep(0 if seconds >= 1 else 60)
        done.append("closed")

    thread = LoopThread(life, close=close, hang_up=lambda: done.append("hung up"))
    thread.start()

    thread.stop_soon(seconds)
    thread.join(5)

    steps = {0.0: [], 0.01: ["begun"], 5.0: ["begun", "closed"]}
    assert done == [*steps[seconds], "hung up"]


def test_threads_that_nobody_stopped_are_stopped_at_exit(thread: LoopThread) -> None:
    loop_thread._stop_all()

    with pytest.raises(NotRunning):
        thread.call(thread_name())
