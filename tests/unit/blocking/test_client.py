"""A client without asyncio: its life, its thread, and what others must not do with it."""

import gc
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from cometmq import Client
from cometmq.blocking.loop_thread import THREAD_NAME
from cometmq.client.hooks import SendContext
from cometmq.errors import AlreadyExists, NotRunning, SettingsError
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        yield cluster


def client_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(THREAD_NAME)]


def test_nothing_runs_before_it_is_entered() -> None:
    client = Client(NOBODY)

    assert client_threads() == []
    with pytest.raises(NotRunning, match=r"was not entered yet; use it inside of"):
        client.producer()


def test_it_has_one_thread_while_it_is_open() -> None:
    with Client(NOBODY, client_ip="127.0.0.1") as client:
        during = client_threads()
        identity = client.client_id

    assert during == [THREAD_NAME]
    assert client_threads() == []
    assert identity.startswith("127.0.0.1@")


def test_it_may_be_closed_again_and_not_be_used_any_more() -> None:
    with Client(NOBODY, client_ip="127.0.0.1") as client:
        producer = client.producer()
    client.close()

    with pytest.raises(NotRunning, match="is closed; make a new one"):
        client.producer()
    with pytest.raises(NotRunning, match="is closed; make a new one"):
        producer.send("orders", b"one")
    with pytest.raises(NotRunning, match="is closed; make a new one"):
        producer.send_async("orders", b"one")


def test_it_cannot_be_entered_twice() -> None:
    with Client(NOBODY, client_ip="127.0.0.1") as client:
        with pytest.raises(NotRunning, match="is running and cannot be started"):
            client.__enter__()

        assert client.client_id
    with pytest.raises(NotRunning, match="is closed and cannot be started"):
        client.__enter__()


def test_closing_what_was_never_entered_ends_it() -> None:
    client = Client(NOBODY)

    client.close()

    with pytest.raises(NotRunning, match="is closed"):
        client.producer()


def test_a_bad_argument_is_refused_and_leaves_nothing() -> None:
    with pytest.raises(SettingsError, match="drain_timeout_ms"):
        Client(NOBODY, drain_timeout_ms=-5)

    assert client_threads() == []


def test_what_a_factory_raises_is_raised_here() -> None:
    with Client(NOBODY, client_ip="127.0.0.1") as client:
        client.producer("billing")

        with pytest.raises(AlreadyExists, match="billing"):
            client.producer("billing")


def test_a_client_that_nobody_closed_warns_with_its_place_and_ends() -> None:
    client = Client(NOBODY, client_ip="127.0.0.1").__enter__()
    (thread,) = (t for t in threading.enumerate() if t.name == THREAD_NAME)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    thread.join(5)

    texts = [str(warning.message) for warning in caught]
    assert [warning.category for warning in caught] == [ResourceWarning], texts
    assert __file__ in texts[0]
    assert not thread.is_alive()


def test_a_client_lives_as_long_as_what_was_made_from_it() -> None:
    producer = Client(NOBODY, client_ip="127.0.0.1").__enter__().producer()
    gc.collect()

    assert client_threads() == [THREAD_NAME]
    producer._owner.close()  # type: ignore[attr-defined]  # nobody else has it


@pytest.mark.slow
def test_a_blocking_call_on_the_loop_is_refused_instead_of_hanging(
    cluster: BlockingCluster,
) -> None:
    refusals: list[NotRunning] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            try:
                producer.send("orders", b"inner")
            except NotRunning as error:
                refusals.append(error)

        def after_send(self, context: SendContext) -> None: ...

    with Client(cluster.namesrv) as client:
        producer = client.producer(hooks=[Hook()])
        result = producer.send("orders", b"outer")

    assert result.is_ok
    assert ["wait for itself" in error.problem for error in refusals] == [True]


@pytest.mark.slow
def test_a_client_that_a_hook_wants_to_close_stays_open(cluster: BlockingCluster) -> None:
    refusals: list[NotRunning] = []

    class Hook:
        def before_send(self, context: SendContext) -> None: ...

        def after_send(self, context: SendContext) -> None:
            try:
                client.close()
            except NotRunning as error:
                refusals.append(error)

    with Client(cluster.namesrv) as client:
        producer = client.producer(hooks=[Hook()])
        results = [producer.send("orders", b"one"), producer.send("orders", b"two")]

    assert [result.is_ok for result in results] == [True, True]
    assert len(refusals) == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no alarm")
def test_a_signal_that_closes_what_is_being_closed_does_not_hang(
    cluster: BlockingCluster,
) -> None:
    client = Client(cluster.namesrv, drain_timeout_ms=20_000).__enter__()
    consumer = client.consumer("g-signal", start="first")
    consumer.subscribe("orders")
    begun, end = threading.Event(), threading.Event()

    def handle(_message: object) -> None:
        begun.set()
        end.wait(20)

    consumer.start(handle)
    client.producer().send("orders", b"one")
    begun.wait(10)
    former = signal.signal(signal.SIGALRM, lambda *_: client.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        client.close()
    except NotRunning:
        pass  # it was ended by the second one
    finally:
        signal.signal(signal.SIGALRM, former)
        end.set()

    assert client_threads() == []


@pytest.mark.slow
def test_many_threads_may_use_one_client(cluster: BlockingCluster) -> None:
    ids: list[str] = []

    def send(number: int) -> None:
        ids.extend(producer.send("orders", f"{number}-{n}").message_id for n in range(20))

    with Client(cluster.namesrv) as client:
        producer = client.producer()
        senders = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    assert len(set(ids)) == 160


@pytest.mark.slow
def test_closing_lets_callbacks_run_that_wait(cluster: BlockingCluster) -> None:
    told: list[Any] = []

    with Client(cluster.namesrv) as client:
        producer = client.producer()
        for number in range(50):
            producer.send_async("orders", f"{number}").add_done_callback(told.append)

    assert len(told) == 50
    assert all(future.result().is_ok for future in told)
