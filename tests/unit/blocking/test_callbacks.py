"""The threads that run callbacks."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import pytest

from cometmq.blocking.callbacks import THREADS_MAX, CallbackThreads

SECONDS_MAX = 5


def test_a_job_runs_on_another_thread() -> None:
    threads = CallbackThreads()
    names: list[str] = []

    threads.submit(lambda: names.append(threading.current_thread().name))
    threads.close(5_000)

    assert names == ["cometmq-callbacks-0"]


def test_there_are_never_more_threads_than_allowed() -> None:
    threads = CallbackThreads()
    go_on = threading.Event()
    names: list[str] = []

    def job() -> None:
        names.append(threading.current_thread().name)
        go_on.wait(5)

    for _ in range(5 * THREADS_MAX):
        threads.submit(job)
    go_on.set()
    threads.close(5_000)

    assert len(names) == 5 * THREADS_MAX
    assert len(set(names)) <= THREADS_MAX


def test_jobs_of_one_thread_run_in_their_order() -> None:
    threads = CallbackThreads(threads_max=1)
    seen: list[int] = []

    for number in range(100):
        threads.submit(lambda number=number: seen.append(number))  # type: ignore[misc]
    threads.close(5_000)

    assert seen == list(range(100))


def test_a_job_that_raises_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = CallbackThreads(threads_max=1)
    seen: list[str] = []

    def broken() -> None:
        raise ValueError("broken on purpose")

    threads.submit(broken)
    threads.submit(lambda: seen.append("next"))
    threads.close(5_000)

    assert seen == ["next"]
    assert "broken on purpose" in caplog.text


def test_closing_waits_no_longer_than_told() -> None:
    threads = CallbackThreads()
    go_on = threading.Event()
    threads.submit(lambda: go_on.wait(5))

    threads.close(1)
    is_hanging = not go_on.is_set()
    go_on.set()

    assert is_hanging


def test_a_job_that_comes_after_the_end_runs_at_once() -> None:
    threads = CallbackThreads()
    threads.close(0)
    names: list[str] = []

    threads.submit(lambda: names.append(threading.current_thread().name))

    assert names == [threading.current_thread().name]


def test_a_job_may_close_the_threads_it_runs_on() -> None:
    threads = CallbackThreads()
    done = threading.Event()

    def job() -> None:
        threads.close(5_000)
        done.set()

    threads.submit(job)

    assert done.wait(5)


def test_a_thread_that_has_just_taken_a_job_does_not_count_as_free() -> None:
    """Or a job would wait behind one that waits for it."""
    threads = CallbackThreads(threads_max=2)
    warmed, second_ran, first_ended = threading.Event(), threading.Event(), threading.Event()
    threads.submit(warmed.set)
    assert warmed.wait(SECONDS_MAX)
    while not threads._free_count:
        time.sleep(0)

    def first() -> None:
        if second_ran.wait(SECONDS_MAX):
            first_ended.set()

    with threads._lock:  # which threads need, too
        threads.submit(first)
        while threads._jobs.qsize():
            time.sleep(0)  # until the thread that is free has taken it
        threads.submit(second_ran.set)

    assert first_ended.wait(SECONDS_MAX)
    threads.close(1_000)


def test_a_job_cannot_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    threads = CallbackThreads(threads_max=1)
    ran = threading.Event()

    threads.submit(lambda: sys.exit(3))
    threads.submit(ran.set)

    assert ran.wait(SECONDS_MAX)
    assert "SystemExit: 3" in caplog.text
    threads.close(1_000)


async def _called(threads: CallbackThreads, function: Callable[[int], object]) -> object:
    return await threads.call(function, 3)


def test_a_function_that_wants_to_end_its_thread_does_not_end_the_loop() -> None:
    """As sys.exit does in a task: asyncio stops the loop for it, and with it the whole client."""
    threads = CallbackThreads(threads_max=1)

    with pytest.raises(RuntimeError, match=r"wanted to end its thread: SystemExit\(3\)"):
        asyncio.run(_called(threads, sys.exit))

    assert asyncio.run(_called(threads, abs)) == 3
    threads.close(1_000)
