"""Lite and low-level pull consumers without asyncio."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from cometmq import Client, MessageQueue, NotRunning, PullConsumer
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

SECONDS_MAX = 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=2)
        with Client(cluster.namesrv) as client:
            producer = client.producer()
            for number in range(10):
                producer.send("orders", f"{number}")
        yield cluster


@pytest.fixture
def client(cluster: BlockingCluster) -> Iterator[Client]:
    with Client(cluster.namesrv) as client:
        yield client


def test_what_was_polled_is_committed(client: Client) -> None:
    with client.lite_consumer("g-lite", codec=str, start="first") as lite:
        lite.subscribe("orders")
        values: list[str] = []
        while len(values) < 10:
            values += [message.value for message in lite.poll(timeout_ms=5_000)]
        lite.commit()
        committed = {lite.committed(queue) for queue in lite.assignment}
        positions = {lite.position(queue) for queue in lite.assignment}

    assert sorted(map(int, values)) == list(range(10))
    assert (committed, positions) == ({5}, {5})


def test_assigned_queues_can_be_sought_and_paused(client: Client) -> None:
    with client.lite_consumer("g-assign", codec=str) as lite:
        queue, _ = lite.queues("orders")
        lite.assign(one for one in [queue])
        lite.seek_to_begin(queue)
        first = next(iter(lite))
        lite.seek(queue, 4)
        last = lite.poll(timeout_ms=5_000)
        lite.pause(one for one in [queue])
        lite.seek_to_end(queue)
        nothing = lite.poll(timeout_ms=0)
        lite.resume([queue])

        assert first.queue_offset == 0
        assert [message.queue_offset for message in last] == [4]
        assert nothing == []
        assert lite.assignment == {queue}


def test_queues_are_pulled_and_offsets_kept(client: Client) -> None:
    with client.pull_consumer("g-pull") as puller:
        for queue in puller.queues("orders"):
            result = puller.pull(queue, 0, count=3)
            puller.update_offset(queue, result.next_offset)
        puller.persist()
        stored = [puller.stored_offset(queue) for queue in puller.queues("orders")]
        ends = [(puller.min_offset(q), puller.max_offset(q)) for q in puller.queues("orders")]

    assert stored == [3, 3]
    assert ends == [(0, 5), (0, 5)]


def test_scheduled_pulls_run_on_threads_and_may_call_the_client(client: Client) -> None:
    puller = client.pull_consumer("g-scheduled")
    seen: dict[int, tuple[str, int]] = {}
    is_done = threading.Event()

    def pull(queue: MessageQueue) -> int:
        result = puller.pull(queue, 0)
        seen[queue.queue_id] = (threading.current_thread().name, len(result.messages))
        if len(seen) == 2:
            is_done.set()
        return 60_000

    puller.schedule("orders", pull)
    with puller:
        assert is_done.wait(SECONDS_MAX)

    assert [count for _, count in seen.values()] == [5, 5]
    assert all(name.startswith("cometmq-callbacks") for name, _ in seen.values())


@pytest.mark.parametrize("what", ["consumer", "client"])
def test_a_scheduled_pull_may_close_what_it_belongs_to(cluster: BlockingCluster, what: str) -> None:
    began = time.monotonic()
    called = threading.Event()
    with Client(cluster.namesrv, drain_timeout_ms=60_000) as client:
        puller = client.pull_consumer("g-closing")
        closed: Client | PullConsumer[bytes] = puller if what == "consumer" else client

        def close(_queue: MessageQueue) -> None:
            closed.close()
            called.set()

        puller.schedule("orders", close)
        with contextlib.suppress(NotRunning):  # when the calls are faster
            puller.queues("orders")
        assert called.wait(SECONDS_MAX)

    assert time.monotonic() - began < 10


def test_closing_the_client_ends_the_threads_of_scheduled_pulls(cluster: BlockingCluster) -> None:
    before = {thread.ident for thread in threading.enumerate()}
    called = threading.Event()
    with Client(cluster.namesrv) as client:
        puller = client.pull_consumer("g-threads")
        puller.schedule("orders", lambda _queue: called.set())
        puller.queues("orders")
        assert called.wait(SECONDS_MAX)

    left = [thread for thread in threading.enumerate() if thread.ident not in before]
    for thread in left:
        thread.join(1)
    assert [thread.name for thread in left if thread.is_alive()] == []
