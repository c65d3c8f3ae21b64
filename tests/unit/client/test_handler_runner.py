"""Calling handlers on tasks and on threads."""

import asyncio
import functools
import threading
from typing import Any

from cometmq.client.handler_runner import Left, TaskRunner, ThreadRunner, is_async
from cometmq.clock import SystemClock
from tests.unit.client.consumer_kit import until


class Ends:
    """What was said of handlers that ended."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.errors: list[BaseException | None] = []
        self.threads: set[int] = set()

    def __call__(
        self, context: str, item: Any, error: BaseException | None, seconds: float
    ) -> None:
        assert context == "context"
        assert seconds >= 0
        self.items.append(item)
        self.errors.append(error)
        self.threads.add(threading.get_ident())


def test_coroutine_functions_are_told_from_others() -> None:
    async def handle(item: object) -> None: ...

    class Callable:
        async def __call__(self, item: object) -> None: ...

    assert is_async(handle)
    assert is_async(functools.partial(handle))
    assert is_async(Callable())
    assert not is_async(print)
    assert not is_async(lambda item: handle(item))


async def test_tasks_handle_everything_and_say_how_it_ended() -> None:
    ends = Ends()

    async def handle(item: int) -> None:
        if item == 1:
            raise ValueError(item)

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=2, on_done=ends, clock=SystemClock())
    runner.submit("context", range(3))
    await until(lambda: len(ends.items) == 3)
    await runner.stop()

    assert ends.items == [0, 1, 2]
    assert [type(error) for error in ends.errors] == [type(None), ValueError, type(None)]


async def test_no_more_handlers_run_than_allowed_and_all_of_them_do() -> None:
    running = most = 0
    ends = Ends()

    async def handle(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=3, on_done=ends, clock=SystemClock())
    runner.submit("context", range(30))
    await until(lambda: len(ends.items) == 30)
    await runner.stop()

    assert most == 3


async def test_a_handler_that_is_cancelled_by_itself_does_not_end_its_task() -> None:
    ends = Ends()

    async def handle(item: int) -> None:
        if item == 0:
            raise asyncio.CancelledError

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=1, on_done=ends, clock=SystemClock())
    runner.submit("context", range(2))
    await until(lambda: len(ends.items) == 2)
    await runner.stop()

    assert isinstance(ends.errors[0], asyncio.CancelledError)


class Panic(BaseException):
    """What some native libraries raise: no ``Exception``, and no wish to end the program."""


async def test_whatever_a_handler_raises_its_task_goes_on() -> None:
    ends = Ends()

    async def handle(item: int) -> None:
        if item < 3:
            raise Panic(item)

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=2, on_done=ends, clock=SystemClock())
    runner.submit("context", range(5))
    await until(lambda: len(ends.items) == 5)
    await runner.stop()

    assert [type(error) for error in ends.errors].count(Panic) == 3


async def test_whatever_a_handler_raises_its_call_returns_it() -> None:
    async def handle(item: int) -> None:
        raise Panic(item)

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=1, on_done=Ends(), clock=SystemClock())

    assert isinstance(await runner.call(0), Panic)
    await runner.stop()


async def test_draining_waits_for_what_runs_and_begins_nothing() -> None:
    ends = Ends()
    go = asyncio.Event()

    async def handle(item: int) -> None:
        await go.wait()

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=1, on_done=ends, clock=SystemClock())
    runner.submit("context", range(3))
    await until(lambda: bool(runner.running()))
    draining = asyncio.create_task(runner.drain(10))
    await asyncio.sleep(0)
    go.set()
    await draining
    await runner.stop()

    assert ends.items == [0]


async def test_stopping_cancels_what_still_runs() -> None:
    ends = Ends()
    ended: list[str] = []

    async def handle(item: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=1, on_done=ends, clock=SystemClock())
    runner.submit("context", [0])
    await until(lambda: bool(runner.running()))
    await runner.drain(0.001)
    await runner.stop()

    assert ended == ["cancelled"]
    assert ends.items == [0]
    assert isinstance(ends.errors[0], asyncio.CancelledError)


async def test_what_waits_of_a_context_can_be_forgotten() -> None:
    ends = Ends()
    go = asyncio.Event()

    async def handle(item: int) -> None:
        await go.wait()

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=1, on_done=ends, clock=SystemClock())
    runner.submit("context", [0])
    runner.submit("other", [1, 2])
    await until(lambda: bool(runner.running()))
    runner.discard("other")
    go.set()
    await until(lambda: ends.items == [0])
    await runner.stop()


async def test_a_loop_with_busy_handlers_still_gets_its_turn() -> None:
    ends = Ends()
    turns = 0

    async def handle(item: int) -> None:
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - began < 0.001:
            pass

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    runner: TaskRunner[str] = TaskRunner(handle, concurrency=2, on_done=ends, clock=SystemClock())
    counting = asyncio.create_task(count())
    runner.submit("context", range(20))
    await until(lambda: len(ends.items) == 20)
    counting.cancel()
    await runner.stop()

    assert turns >= 3


async def test_threads_handle_everything_and_the_loop_hears_of_it() -> None:
    ends = Ends()
    threads: set[int] = set()

    def handle(item: int) -> None:
        threads.add(threading.get_ident())
        if item == 5:
            raise SystemExit

    runner: ThreadRunner[str] = ThreadRunner(
        handle, concurrency=3, on_done=ends, clock=SystemClock()
    )
    runner.submit("context", range(100))
    await until(lambda: len(ends.items) == 100)
    await runner.stop()

    assert sorted(ends.items) == list(range(100))
    assert ends.threads == {threading.get_ident()}
    assert threading.get_ident() not in threads
    assert [type(error) for error in ends.errors if error] == [SystemExit]


async def test_threads_work_side_by_side_when_handlers_wait() -> None:
    ends = Ends()
    together = threading.Barrier(4)

    def handle(item: int) -> None:
        together.wait(timeout=5)

    runner: ThreadRunner[str] = ThreadRunner(
        handle, concurrency=4, on_done=ends, clock=SystemClock()
    )
    runner.submit("context", range(4))
    await until(lambda: len(ends.items) == 4)
    await runner.stop()

    assert ends.errors == [None] * 4


async def test_a_thread_can_be_called_and_waited_for() -> None:
    def handle(item: int) -> None:
        if item:
            raise ValueError(item)

    runner: ThreadRunner[str] = ThreadRunner(
        handle, concurrency=1, on_done=Ends(), clock=SystemClock()
    )

    assert await runner.call(0) is None
    assert isinstance(await runner.call(1), ValueError)
    await runner.stop()


async def test_a_plain_function_that_returns_a_coroutine_is_told_so() -> None:
    async def handle(item: int) -> None: ...

    runner: ThreadRunner[str] = ThreadRunner(
        lambda item: handle(item), concurrency=1, on_done=Ends(), clock=SystemClock()
    )

    error = await runner.call(0)
    await runner.stop()

    assert "async def" in str(error)


async def test_threads_end_when_they_are_stopped_and_callers_are_not_left_waiting() -> None:
    go = threading.Event()

    def handle(item: int) -> None:
        go.wait(5)

    runner: ThreadRunner[str] = ThreadRunner(
        handle, concurrency=1, on_done=Ends(), clock=SystemClock()
    )
    first = asyncio.create_task(runner.call(0))
    await asyncio.sleep(0.005)
    second = asyncio.create_task(runner.call(1))
    await asyncio.sleep(0)
    await runner.drain(0.001)
    await runner.stop()
    go.set()

    assert isinstance(await second, Left)
    assert await first is None
    for thread in runner._threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in runner._threads)


# --- what handlers and closing do to each other


async def test_a_handler_that_cancels_its_own_task_does_not_end_the_work() -> None:
    ends = Ends()

    async def handle(item: int) -> None:
        if item == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # as old time-out libraries do, which never take it back
            await asyncio.sleep(0)

    runner: Any = TaskRunner(handle, concurrency=1, on_done=ends, clock=SystemClock())
    runner.submit("context", [1, 2])
    await until(lambda: ends.items == [1, 2])

    assert [type(error) for error in ends.errors] == [asyncio.CancelledError, type(None)]
    await runner.stop()


async def test_no_task_is_left_when_a_handler_does_not_let_itself_be_cancelled() -> None:
    ends = Ends()
    before = len(asyncio.all_tasks())

    async def handle(item: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    runner: Any = TaskRunner(handle, concurrency=2, on_done=ends, clock=SystemClock())
    runner.submit("context", [1])
    await until(lambda: bool(runner.running()))

    await runner.drain(0)
    await runner.stop()

    assert len(asyncio.all_tasks()) == before


async def test_nothing_begins_after_draining_has_begun() -> None:
    ends = Ends()

    async def handle(item: int) -> None: ...

    tasks: Any = TaskRunner(handle, concurrency=1, on_done=ends, clock=SystemClock())
    threads: Any = ThreadRunner(print, concurrency=1, on_done=ends, clock=SystemClock())
    for runner in (tasks, threads):
        await runner.drain(1)
        runner.submit("context", [1])
        assert isinstance(await runner.call(2), Left)
        await runner.stop()

    assert ends.items == []


async def test_what_a_thread_has_ended_counts_before_its_context_is_forgotten() -> None:
    ends = Ends()
    ended = threading.Event()
    runner: Any = ThreadRunner(lambda _: None, concurrency=1, on_done=ends, clock=SystemClock())
    runner.submit("context", [1])
    while runner.running() or not runner._ended:  # the loop has no chance to hear of it
        ended.wait(0.001)

    runner.discard("context")

    assert ends.items == [1]
    await runner.stop()


async def test_one_end_that_cannot_be_processed_does_not_hide_the_others() -> None:
    got: list[int] = []

    def on_done(context: str, item: int, error: BaseException | None, seconds: float) -> None:
        if item == 1:
            raise RuntimeError("a bug")
        got.append(item)

    runner: Any = ThreadRunner(lambda _: None, concurrency=1, on_done=on_done, clock=SystemClock())
    runner.submit("context", [1, 2])

    await until(lambda: got == [2])
    await runner.stop()


async def test_a_call_on_a_thread_does_not_wait_for_what_was_submitted_before() -> None:
    """A tool asks for it, and waits for seconds only."""
    order: list[str] = []
    go = threading.Event()

    def handle(item: str) -> None:
        go.wait()
        order.append(item)

    runner: ThreadRunner[str] = ThreadRunner(
        handle, concurrency=1, on_done=Ends(), clock=SystemClock()
    )
    runner.submit("context", ["running", "waiting", "waiting"])
    await until(lambda: bool(runner.running()))
    calling = asyncio.create_task(runner.call("called"))
    await asyncio.sleep(0)
    go.set()
    await calling
    await runner.drain(10)
    await runner.stop()

    assert order[:2] == ["running", "called"]
