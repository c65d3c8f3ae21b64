"""Transactions without asyncio: the local part runs on the thread that sends."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from cometmq import aio
from cometmq.blocking.loop_thread import LoopThread
from cometmq.blocking.member import Threads
from cometmq.blocking.transactions import TransactionProducer
from cometmq.client.core.results import LocalState, SendResult, SendStatus, TransactionResult
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.life import Life, State
from cometmq.errors import InvalidArgument, NotFound
from cometmq.model.offsets import MessageQueue

SENT = SendResult(SendStatus.OK, "ID-1", "OFFSET-1", MessageQueue("orders", "broker-0", 0), 7)


class FakeTransactions:
    """An asyncio producer that asks for the local part, or does not."""

    group = "billing"

    def __init__(self, error: Exception | None = None, *, is_stored: bool = True) -> None:
        self._error = error
        self._is_stored = is_stored
        self.raised: Exception | None = None

    async def send(self, topic: str, value: Any, *, local: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        state = LocalState.ROLLBACK
        if self._is_stored:
            try:
                state = await local(SENT) or LocalState.UNKNOWN
            except ValueError as error:
                self.raised, state = error, LocalState.UNKNOWN
        return TransactionResult(SENT, state)


@pytest.fixture
def threads() -> Iterator[Threads]:
    life = Life("this client")
    life.state = State.RUNNING
    threads = Threads(LoopThread(life), drain_timeout_ms=100)
    threads.loop.start()
    yield threads
    threads.loop.stop()
    threads.finish()


def test_the_local_part_runs_on_the_thread_that_sends(threads: Threads) -> None:
    seen: list[tuple[int, SendResult]] = []

    def local(sent: SendResult) -> LocalState:
        seen.append((threading.get_ident(), sent))
        return LocalState.COMMIT

    result = made(threads, FakeTransactions()).send("orders", b"half", local=local)

    assert result == TransactionResult(SENT, LocalState.COMMIT)
    assert seen == [(threading.get_ident(), SENT)]


def test_what_the_local_part_raises_is_left_to_the_producer(threads: Threads) -> None:
    inner = FakeTransactions()

    def local(sent: SendResult) -> LocalState:
        raise ValueError("on purpose")

    result = made(threads, inner).send("orders", b"half", local=local)

    assert result.state is LocalState.UNKNOWN
    assert str(inner.raised) == "on purpose"


def test_the_local_part_does_not_run_when_nobody_asks_for_it(threads: Threads) -> None:
    seen: list[SendResult] = []
    inner = FakeTransactions(is_stored=False)

    result = made(threads, inner).send("orders", b"half", local=seen.append)

    assert result.state is LocalState.ROLLBACK
    assert seen == []


def test_a_send_that_fails_raises_and_nothing_has_run(threads: Threads) -> None:
    seen: list[SendResult] = []

    with pytest.raises(NotFound):
        made(threads, FakeTransactions(NotFound("topic", "orders"))).send(
            "orders", b"half", local=seen.append
        )

    assert seen == []


def test_an_interrupt_in_the_local_part_is_raised_and_ends_the_send(threads: Threads) -> None:
    def local(sent: SendResult) -> LocalState:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(threads, FakeTransactions()).send("orders", b"half", local=local)

    assert threads.call(task_count()) <= 2  # the thread's own, and the question


async def task_count() -> int:
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


def test_a_local_part_that_is_no_function_is_refused(threads: Threads) -> None:
    with pytest.raises(InvalidArgument, match="local must be a function, not str"):
        made(threads, FakeTransactions()).send("orders", b"half", local="commit")  # type: ignore[arg-type]


def made(threads: Threads, inner: FakeTransactions) -> TransactionProducer:
    found = cast("aio.TransactionProducer", inner)
    return TransactionProducer(None, threads, found, ProducerSettings())
