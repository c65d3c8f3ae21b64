"""Sending without asyncio: what is waited for, and for how long."""

import asyncio
import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from cometmq import aio
from cometmq.blocking.futures import SendFuture
from cometmq.blocking.loop_thread import LoopThread
from cometmq.blocking.member import Threads
from cometmq.blocking.producer import Producer
from cometmq.client.core.results import SendResult, SendStatus
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.life import Life, State
from cometmq.errors import InvalidArgument, TooManyRequests
from cometmq.model.offsets import MessageQueue

RESULT = SendResult(SendStatus.OK, "ID-1", "OFFSET-1", MessageQueue("orders", "broker-0", 0), 7)


class SlowProducer:
    """An asyncio producer whose sends end when they are let go; notes what it was given."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.given: list[dict[str, Any]] = []

    async def send(self, topic: str, value: Any, **options: Any) -> SendResult:
        self.given.append({"topic": topic, "value": value, **options})
        await self.gate.wait()
        return RESULT

    async def send_many(self, topic: str, values: list[Any], **options: Any) -> list[SendResult]:
        self.given.append({"topic": topic, "values": values, **options})
        return [RESULT]

    async def let_go(self) -> None:
        self.gate.set()


@pytest.fixture
def threads() -> Iterator[Threads]:
    life = Life("this client")
    life.state = State.RUNNING
    threads = Threads(LoopThread(life), drain_timeout_ms=100)
    threads.loop.start()
    yield threads
    threads.loop.stop()
    threads.finish()


def test_a_send_passes_on_what_it_is_given(threads: Threads) -> None:
    inner = SlowProducer()
    producer = made(threads, inner)
    threads.call(inner.let_go())

    result = producer.send("orders", b"one", tag="paid", keys=["k"], timeout_ms=50)

    assert result is RESULT
    (given,) = inner.given
    assert (given["tag"], given["keys"], given["timeout_ms"]) == ("paid", ["k"], 50)
    assert (given["delay_level"], given["wait_store"]) == (None, True)


def test_a_timeout_that_is_no_number_is_refused_before_anything_is_sent(threads: Threads) -> None:
    inner, timeout = SlowProducer(), cast("Any", "5")
    producer = made(threads, inner)

    for send in (
        lambda: producer.send("orders", b"one", timeout_ms=timeout),
        lambda: producer.send_many("orders", [b"one"], timeout_ms=timeout),
    ):
        with pytest.raises(InvalidArgument, match="'5' ms are no time"):
            send()

    assert not inner.given


def test_one_value_is_not_sent_as_many(threads: Threads) -> None:
    inner = SlowProducer()

    with pytest.raises(InvalidArgument, match="pass a list of values"):
        made(threads, inner).send_many("orders", b"abc")

    assert not inner.given


def test_more_sends_than_may_be_under_way_wait_and_then_fail(threads: Threads) -> None:
    inner = SlowProducer()
    producer = made(threads, inner, in_flight_max=2)
    futures = [producer.send_async("orders", b"one") for _ in range(2)]

    with pytest.raises(TooManyRequests, match="2 requests to this producer"):
        producer.send_async("orders", b"three", timeout_ms=1)
    threads.call(inner.let_go())
    results = [future.result(5) for future in futures]

    assert results == [RESULT, RESULT]
    assert producer.send_async("orders", b"three").result(5) is RESULT
    assert len(inner.given) == 3


def test_a_callback_may_send_even_when_no_place_was_free(threads: Threads) -> None:
    inner = SlowProducer()
    producer = made(threads, inner, in_flight_max=1)
    more: list[Any] = []
    first = producer.send_async("orders", b"one")

    first.add_done_callback(lambda _: more.append(producer.send_async("orders", b"two").result(5)))
    threads.call(inner.let_go())
    first.result(5)
    threads.callbacks.close(5_000)

    assert more == [RESULT]


def test_a_callback_never_waits_for_a_place_that_other_callbacks_may_keep(
    threads: Threads,
) -> None:
    inner = SlowProducer()
    producer = made(threads, inner, in_flight_max=1)
    is_taken, more = threading.Event(), queue.SimpleQueue[Any]()

    def go_on(_: object) -> None:
        is_taken.wait(5)
        more.put(producer.send_async("orders", b"three", timeout_ms=60_000))

    first = producer.send_async("orders", b"one")
    first.add_done_callback(go_on)
    threads.call(inner.let_go())
    first.result(5)
    threads.do(inner.gate.clear)
    second = producer.send_async("orders", b"two", timeout_ms=5_000)
    is_taken.set()
    third = more.get(timeout=5)
    threads.call(inner.let_go())

    assert (second.result(5), third.result(5)) == (RESULT, RESULT)


@pytest.mark.parametrize("where", ["made", "begun"])
def test_a_send_that_is_interrupted_before_it_begins_leaves_nothing(
    threads: Threads, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    producer = made(threads, SlowProducer(), in_flight_max=1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if where == "made":
        monkeypatch.setattr(SendFuture, "__init__", interrupt)
    else:
        monkeypatch.setattr(LoopThread, "begin", interrupt)

    for _ in range(2):  # and its place is free again
        with pytest.raises(KeyboardInterrupt):
            producer.send_async("orders", b"one", timeout_ms=1)


def test_values_are_made_on_the_thread_that_sends_them(threads: Threads) -> None:
    inner = SlowProducer()
    producer = made(threads, inner)
    is_on_loop: list[bool] = []

    def values() -> Iterator[bytes]:
        is_on_loop.append(threads.loop.is_current)
        yield b"one"

    producer.send_many("orders", values())

    assert is_on_loop == [False]
    assert inner.given[0]["values"] == [b"one"]


def made(threads: Threads, inner: SlowProducer, in_flight_max: int = 10) -> Producer:
    settings = ProducerSettings(in_flight_max=in_flight_max)
    return Producer(None, threads, cast("aio.Producer", inner), settings)
