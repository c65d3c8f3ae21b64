"""Sends that go on while their caller does something else, and whom they tell when they end."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator

import pytest

from cometmq.blocking import callbacks
from cometmq.blocking.callbacks import CallbackThreads
from cometmq.blocking.futures import SendFuture
from cometmq.blocking.loop_thread import THREAD_NAME, LoopThread
from cometmq.client.core.results import SendResult, SendStatus
from cometmq.client.life import Life, State
from cometmq.errors import NotFound, NotRunning
from cometmq.model.offsets import MessageQueue

RESULT = SendResult(SendStatus.OK, "ID-1", "OFFSET-1", MessageQueue("orders", "broker-0", 0), 7)


class Sender:
    """A loop thread with sends whose ends a test decides."""

    def __init__(self) -> None:
        life = Life("this client")
        life.state = State.RUNNING
        self.loop = LoopThread(life)
        self.loop.start()
        self.threads = CallbackThreads()
        self.places = 0  # given back
        self.gate = asyncio.Event()

    def begin(self, error: Exception | None = None) -> SendFuture:
        """A send that ends when ``finish`` is called."""

        async def send() -> SendResult:
            await self.gate.wait()
            if error is not None:
                raise error
            return RESULT

        future = SendFuture(send(), "orders", self.threads, self._give_back)
        self.loop.begin(future)
        return future

    def finish(self) -> None:
        async def open_gate() -> None:
            self.gate.set()

        self.loop.call(open_gate())

    def close(self) -> None:
        self.loop.stop()
        self.threads.close(5_000)

    def _give_back(self) -> None:
        self.places += 1


@pytest.fixture
def sender() -> Iterator[Sender]:
    sender = Sender()
    yield sender
    sender.close()


def test_the_result_comes_when_the_send_ends(sender: Sender) -> None:
    future = sender.begin()
    was_done = future.done()

    sender.finish()

    assert not was_done
    assert future.result(5) is RESULT
    assert sender.places == 1


def test_what_the_send_raises_is_raised(sender: Sender) -> None:
    future = sender.begin(NotFound("topic", "orders"))

    sender.finish()

    with pytest.raises(NotFound):
        future.result(5)


def test_callbacks_run_on_their_own_threads(sender: Sender) -> None:
    future = sender.begin()
    told: list[tuple[str, str]] = []

    def tell(done: concurrent.futures.Future[SendResult]) -> None:
        told.append((threading.current_thread().name, done.result().message_id))

    future.add_done_callback(tell)
    sender.finish()
    future.result(5)
    future.add_done_callback(tell)  # it is over already
    sender.close()

    assert [message_id for _, message_id in told] == ["ID-1", "ID-1"]
    assert all(name.startswith(callbacks.THREAD_NAME) for name, _ in told)
    assert THREAD_NAME not in [name for name, _ in told]


def test_a_callback_that_raises_is_logged_with_the_message_id(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    future = sender.begin()

    def broken(done: concurrent.futures.Future[SendResult]) -> None:
        raise ValueError("broken on purpose")

    future.add_done_callback(broken)
    sender.finish()
    sender.close()

    assert "topic=orders message=ID-1 a callback failed" in caplog.text
    assert "broken on purpose" in caplog.text


def test_the_place_of_a_send_is_free_when_its_callback_begins(sender: Sender) -> None:
    future = sender.begin()
    places: list[int] = []

    future.add_done_callback(lambda _: places.append(sender.places))
    future.add_done_callback(lambda _: places.append(sender.places))
    sender.finish()
    sender.close()

    assert places == [1, 1]


def test_a_callback_that_comes_late_runs_in_place_when_too_many_wait(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = sender.begin()
    sender.finish()
    future.result(5)
    monkeypatch.setattr(callbacks, "BACKLOG_MAX", 0)
    names: list[str] = []

    future.add_done_callback(lambda _: names.append(threading.current_thread().name))

    assert names == [threading.current_thread().name]


def test_a_send_that_has_begun_cannot_be_cancelled(sender: Sender) -> None:
    future = sender.begin()
    sender.loop.call(asyncio.sleep(0))

    was_cancelled = future.cancel()
    sender.finish()

    assert not was_cancelled
    assert future.result(5) is RESULT


def test_a_send_that_is_cut_short_says_that_it_may_be_stored(sender: Sender) -> None:
    future = sender.begin()
    sender.loop.call(asyncio.sleep(0))

    sender.close()

    with pytest.raises(NotRunning, match="it may be stored all the same"):
        future.result(5)


def test_futures_can_be_waited_for_together(sender: Sender) -> None:
    futures = [sender.begin() for _ in range(10)]

    sender.finish()
    done, pending = concurrent.futures.wait(futures, timeout=5)

    assert len(done) == 10
    assert pending == set()
