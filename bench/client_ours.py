"""Our own client as ``bench.client`` drives it, with asyncio or with calls that wait.

python -m bench.client_ours asyncio
python -m bench.client_ours blocking
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench.client_driver import (
    GROUP,
    SEND_TIMEOUT_MS,
    TAG,
    Answer,
    Commands,
    Options,
    Pacing,
    Progress,
    Waits,
    pace_one_by_one,
    send_from_threads,
    serve,
    slept,
    window,
)


def main() -> None:
    serve({"asyncio": WITH_ASYNCIO, "blocking": BLOCKING}[sys.argv[1]])


# asyncio


async def send(options: Options) -> Answer:
    """As many tasks as there are sends under way, each with one after the other."""
    from cometmq.aio import Client

    progress = Progress()
    topic, body = options.text("topic"), options.body
    is_over = False
    async with Client(options.text("namesrv")) as mq:
        producer = mq.producer(GROUP, send_timeout_ms=SEND_TIMEOUT_MS)

        async def work() -> None:
            while not is_over:
                await producer.send(topic, body, tag=TAG)
                progress.count += 1

        tasks = [asyncio.create_task(work()) for _ in range(options.number("in_flight"))]
        for task in tasks:
            task.add_done_callback(lambda task: note_failure(task, progress))
        try:
            return await awaited(window(progress, options))
        finally:
            is_over = True
            await asyncio.gather(*tasks, return_exceptions=True)


async def pace(options: Options) -> Answer:
    from cometmq.aio import Client

    topic, body = options.text("topic"), options.body
    async with Client(options.text("namesrv")) as mq:
        producer = mq.producer(GROUP, send_timeout_ms=SEND_TIMEOUT_MS)
        await producer.send(topic, body, tag=TAG)
        pacing = Pacing(options)

        async def send_one(since_ns: int) -> None:
            await producer.send(topic, body, tag=TAG)
            pacing.done(since_ns)

        async with asyncio.TaskGroup() as sends:
            for due_ns in pacing.dues_ns:
                since_ns = due_ns
                if (early_ns := due_ns - time.perf_counter_ns()) > 0:
                    await asyncio.sleep(early_ns / 1e9)
                    since_ns = time.perf_counter_ns()
                sends.create_task(send_one(since_ns))
        return pacing.answer()


async def consume(options: Options) -> Answer:
    from cometmq.aio import Client

    progress = Progress()

    async def count(_: object) -> None:
        progress.count += 1

    async with Client(options.text("namesrv")) as mq:
        consumer = mq.consumer(options.text("group"), start="first")
        consumer.subscribe(options.text("topic"))
        await consumer.start(count)
        return await awaited(window(progress, options, count_max=options.number("backlog")))


async def awaited(waits: Waits) -> Answer:
    """Sleep as often and as long as asked, while tasks go on."""
    while True:
        try:
            pause_s = next(waits)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        await asyncio.sleep(pause_s)


def note_failure(task: "asyncio.Task[None]", progress: Progress) -> None:
    if not task.cancelled() and task.exception() is not None:
        progress.failure = task.exception()


def in_a_loop(
    command: Callable[[Options], Coroutine[Any, Any, Answer]],
) -> Callable[[Options], Answer]:
    """Each command has a loop and a client of its own, so that nothing goes on between them."""
    return lambda options: asyncio.run(command(options))


WITH_ASYNCIO: Commands = {
    "send": in_a_loop(send),
    "pace": in_a_loop(pace),
    "consume": in_a_loop(consume),
}


# Calls that wait


def send_waiting(options: Options) -> Answer:
    from cometmq import Client

    topic, body = options.text("topic"), options.body
    with Client(options.text("namesrv")) as mq:
        producer = mq.producer(GROUP, send_timeout_ms=SEND_TIMEOUT_MS)
        measure = pace_one_by_one if options.command == "pace" else send_from_threads
        return measure(lambda: producer.send(topic, body, tag=TAG), options)


def consume_waiting(options: Options) -> Answer:
    from cometmq import Client

    progress, lock = Progress(), threading.Lock()

    def count(_: object) -> None:
        with lock:  # it is called from several threads
            progress.count += 1

    with Client(options.text("namesrv")) as mq:
        consumer = mq.consumer(options.text("group"), start="first")
        consumer.subscribe(options.text("topic"))
        consumer.start(count)
        return slept(window(progress, options, count_max=options.number("backlog")))


BLOCKING: Commands = {"send": send_waiting, "pace": send_waiting, "consume": consume_waiting}


if __name__ == "__main__":
    main()
