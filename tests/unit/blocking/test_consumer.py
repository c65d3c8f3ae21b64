"""Consuming without asyncio: handlers on threads, loops over messages, and Ctrl-C."""

import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cometmq import Batch, Client, InvalidArgument, Message, NotRunning
from cometmq.blocking.member import ClosedOnExit
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

SECONDS_MAX = 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster(settings={"messageDelayLevel": "1s 1s 1s 1s"}) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: BlockingCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:100]
    cluster.create_topic(name)
    return str(name)


@pytest.fixture
def client(cluster: BlockingCluster) -> Iterator[Client]:
    with Client(cluster.namesrv) as client:
        yield client


def send(client: Client, topic: str, count: int) -> None:
    producer = client.producer()
    for number in range(count):
        producer.send(topic, f"{number}")


def test_handlers_run_on_threads_until_it_is_closed(client: Client, topic: str) -> None:
    send(client, topic, 20)
    consumer = client.consumer("g-run", start="first", codec=str)
    consumer.subscribe(topic)
    seen: list[str] = []
    threads: set[str] = set()

    def handle(message: Message[str]) -> None:
        seen.append(message.value)
        threads.add(threading.current_thread().name)
        if len(seen) == 20:
            consumer.close()  # by a handler: begins only

    consumer.run(handle)

    assert sorted(map(int, seen)) == list(range(20))
    assert all(name.startswith("cometmq-handler") for name in threads)
    assert not consumer.is_running


def test_a_message_is_acknowledged_when_the_next_is_asked_for(
    client: Client, cluster: BlockingCluster, topic: str
) -> None:
    send(client, topic, 8)
    consumer = client.consumer("g-iterate", start="first", codec=str)
    consumer.subscribe(topic)
    messages = iter(consumer)

    seen = [next(messages).value for _ in range(8)]
    consumer.close()  # in the middle of the loop: the last one is not acknowledged
    with Client(cluster.namesrv) as other:
        again = other.consumer("g-iterate", start="first", codec=str)
        again.subscribe(topic)
        redelivered = next(iter(again))

    assert sorted(map(int, seen)) == list(range(8))
    assert redelivered.value == seen[-1]
    assert redelivered.reconsume_times == 1


def test_closing_inside_of_a_loop_does_not_wait_for_itself(client: Client, topic: str) -> None:
    send(client, topic, 3)
    consumer = client.consumer("g-break", start="first")
    consumer.subscribe(topic)
    began = time.monotonic()

    count = 0
    for _ in consumer:
        count += 1
        if count == 3:
            consumer.close()

    assert count == 3
    assert time.monotonic() - began < 4  # drain_timeout_ms is 5 s


def test_a_handler_may_close_its_client(cluster: BlockingCluster, topic: str) -> None:
    """It only begins that, because closing waits for handlers; who leaves the client waits."""
    began = time.monotonic()
    with Client(cluster.namesrv, drain_timeout_ms=60_000) as client:
        send(client, topic, 1)
        consumer = client.consumer("g-client", start="first")
        consumer.subscribe(topic)
        consumer.run(lambda _: client.close())

    assert not consumer.is_running
    assert time.monotonic() - began < 10
    with Client(cluster.namesrv) as other:
        lag = other.admin().groups.lag("g-client")
        assert sum(queue.lag for queue in lag.queues if queue.topic == topic) == 0


def test_batches_and_progress(client: Client, topic: str) -> None:
    send(client, topic, 12)
    consumer = client.consumer("g-batches", start="first", batch_size=4, codec=str)
    consumer.subscribe(topic)
    seen: list[str] = []
    is_done = threading.Event()

    def handle(batch: Batch[str]) -> None:
        seen.extend(message.value for message in batch)
        if len(seen) >= 12:
            is_done.set()

    consumer.start_batches(handle)
    assert is_done.wait(SECONDS_MAX)

    assert consumer.topics == (topic,)
    assert sum(queue.topic == topic for queue in consumer.queues) == 4
    assert sum(one.queue.topic == topic for one in consumer.progress()) == 4
    assert sorted(map(int, seen)) == list(range(12))


def test_coroutines_are_refused_as_handlers(client: Client, topic: str) -> None:
    consumer = client.consumer("g-async")
    consumer.subscribe(topic)

    async def handle(message: Message[bytes]) -> None: ...

    with pytest.raises(InvalidArgument, match=r"pass a plain function, or use cometmq\.aio"):
        consumer.run(handle)
    with pytest.raises(InvalidArgument, match="cannot be called"):
        consumer.run(None)  # type: ignore[arg-type]


PROGRAM = """
    import sys, threading, time
    from cometmq import Client

    _, namesrv, topic, group, seconds, drain_ms = sys.argv

    def handle(message):
        print("begun", flush=True)
        try:
            time.sleep(float(seconds))
        finally:
            print("ended", flush=True)

    with Client(namesrv, drain_timeout_ms=int(drain_ms)) as client:
        consumer = client.consumer(group, start="first")
        consumer.subscribe(topic)
        try:
            consumer.run(handle)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def interrupted(*arguments: str, times: int) -> tuple[float, list[str]]:
    """How long a program lives after Ctrl-C in a handler, and what it prints."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        began = time.monotonic()
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(1.0)  # two that come at once are one
        lines += process.stdout.readlines()
        process.wait(SECONDS_MAX)
    return time.monotonic() - began, [line.strip() for line in lines]


class Late(ClosedOnExit):
    """Whose closing takes longer than anybody waits for it."""

    def __enter__(self) -> None: ...

    def close(self) -> None:
        raise NotRunning("this client", "has not finished a call within 1 ms")


def test_ctrl_c_is_seen_although_closing_was_given_up() -> None:
    with pytest.raises(KeyboardInterrupt), Late():
        raise KeyboardInterrupt

    with pytest.raises(NotRunning), Late():
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent in another way there")
def test_an_interrupt_lets_handlers_end(
    client: Client, cluster: BlockingCluster, topic: str
) -> None:
    send(client, topic, 1)

    _, lines = interrupted(cluster.namesrv, topic, "g-once", "1", "10000", times=1)

    assert lines == ["begun", "ended", "interrupted"]


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent in another way there")
def test_a_second_interrupt_stops_waiting(
    client: Client, cluster: BlockingCluster, topic: str
) -> None:
    send(client, topic, 1)

    seconds, lines = interrupted(cluster.namesrv, topic, "g-twice", "60", "50000", times=2)

    assert lines == ["begun", "interrupted"]
    assert seconds < 10


def test_listeners_run_on_a_thread_of_their_own(client: Client, topic: str) -> None:
    lite = client.lite_consumer("g-listener")
    told: list[tuple[str, str, int]] = []
    is_told = threading.Event()

    def listen(name: str, known: Any, mine: Any) -> None:
        told.append((threading.current_thread().name, name, len(mine)))
        is_told.set()

    lite.on_queues_changed(listen)
    lite.subscribe(topic)
    lite.poll(timeout_ms=0)

    assert is_told.wait(SECONDS_MAX)
    assert told == [("cometmq-callbacks-0", topic, 4)]
