"""``Consumer``: messages are fetched by themselves and given to a handler, or iterated over."""

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

from cometmq import logs
from cometmq.blocking.loop_thread import Call
from cometmq.blocking.member import Entered, Threads, listed
from cometmq.blocking.streams import Stream
from cometmq.client import push_consumer
from cometmq.client.core.message import Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.metrics import QueueProgress
from cometmq.errors import InvalidArgument, NotRunning
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

Handler = Callable[[Message[T]], Any]
"""Gets one message, on a thread of the consumer.

Returning acknowledges the message, raising has it delivered again.
"""
BatchHandler = Callable[[Batch[T]], Any]


class Consumer(Entered[push_consumer.Consumer[T]], Generic[T]):
    """A member of a consumer group; made by ``Client.consumer`` and closed with it::

        consumer = mq.consumer("billing")
        consumer.subscribe("orders", tags="paid || refunded")
        consumer.run(handle)

    Instead of ``run`` it may be iterated over: ``for message in consumer``. It can be started once.
    """

    def __init__(self, owner: object, threads: Threads, inner: push_consumer.Consumer[T]) -> None:
        super().__init__(owner, threads, inner)

    # --- what to read

    def subscribe(
        self,
        topic: str,
        tags: str | Iterable[str] | None = None,
        *,
        sql: str | None = None,
        filter_class: str | None = None,
        filter_source: str | None = None,
    ) -> None:
        """Read a topic: all of it, messages with certain tags, or those that meet a condition.

        A ``filter_class`` is the full name of a Java class and ``filter_source`` the text of its
        file: filter servers beside the brokers run it, which RocketMQ had until release 4.2.

        All members of a group must subscribe alike. While the consumer runs this takes effect with
        the next rebalance, soon. Raises InvalidArgument and SettingsError for what cannot be.
        """
        chosen = listed(tags)
        self._do(
            lambda: self._inner.subscribe(
                topic, chosen, sql=sql, filter_class=filter_class, filter_source=filter_source
            )
        )

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no longer; its queues go with the next rebalance, soon."""
        self._do(lambda: self._inner.unsubscribe(topic))

    # --- life

    def run(self, handler: Handler[T]) -> None:
        """Start, and wait until somebody closes it.

        Ctrl-C closes it and is then raised: handlers get ``drain_timeout_ms`` of the client, unless
        it comes once more.
        """
        self._run(self._inner.run(self._marked(handler)))

    def run_batches(self, handler: BatchHandler[T]) -> None:
        """``run`` with a handler that gets up to ``batch_size`` messages at once."""
        self._run(self._inner.run_batches(self._marked(handler)))

    def start(self, handler: Handler[T]) -> None:
        """Join the group and begin to give messages to ``handler``, until it is closed.

        Raises Refused when a broker does not understand a subscription, Unreachable when nobody
        can be asked, AlreadyExists for a second broadcasting consumer of the group. Either all of
        it is started or nothing.
        """
        self._call(self._inner.start(self._marked(handler)))

    def start_batches(self, handler: BatchHandler[T]) -> None:
        """``start`` with a handler that gets up to ``batch_size`` messages at once."""
        self._call(self._inner.start_batches(self._marked(handler)))

    def __iter__(self) -> Stream[Message[T]]:
        """Messages, each acknowledged when the next is asked for. Several may iterate at a time."""
        return Stream(self, self._threads, aiter(self._inner))

    def pause(self) -> None:
        """Fetch nothing more; what is in memory is still handled, and the queues stay."""
        self._do(self._inner.pause)

    def resume(self) -> None:
        """Fetch again."""
        self._do(self._inner.resume)

    def close(self) -> None:
        """Stop fetching, let handlers end, save offsets and leave the group; may be called again.

        Handlers get ``drain_timeout_ms`` of the client; what is not done then is delivered again.
        Called by a handler it only begins all that.
        """
        if self._threads.handling.get(threading.get_ident()) is self:
            self._threads.loop.begin(Call(self._inner.close()))
        else:
            self._threads.close(self, self._inner.close)

    # --- what can be seen of it

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def client_id(self) -> str:
        """By which brokers know this member."""
        return self._do(lambda: self._inner.client_id)

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    @property
    def topics(self) -> tuple[str, ...]:
        """What it subscribes, without the group's own retry topic."""
        return self._do(lambda: self._inner.topics)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member reads now, the group's retry topic included."""
        return self._do(lambda: self._inner.queues)

    def progress(self) -> list[QueueProgress]:
        """How it stands with each queue, as of the last pull."""
        return self._do(self._inner.progress)

    # --- the inside

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        loop = self._threads.loop
        call = Call(work)
        try:
            loop.begin(call)
            loop.wait(call)
        except KeyboardInterrupt:
            self._drain()
            raise
        except BaseException:
            loop.cancel(call)
            raise

    def _drain(self) -> None:
        try:
            self.close()
        except KeyboardInterrupt:
            self._threads.loop.is_hurried = True
        except NotRunning as late:  # and Ctrl-C is what the caller must see
            _log.warning("group=%s not closed to the end: %s", self.group, late)

    def _marked(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same handler, of which is known on which threads it runs."""
        if not callable(handler):
            fact = f"{handler!r} cannot be called"
            raise InvalidArgument("handler", fact, "pass a function that takes a message")
        call = getattr(handler, "__call__", None)  # noqa: B004  # its own method is wanted
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
            fact = f"{handler!r} makes coroutines, and no loop of yours runs here"
            raise InvalidArgument("handler", fact, "pass a plain function, or use cometmq.aio")
        handling = self._threads.handling

        def handle(item: Any) -> None:
            thread = threading.get_ident()
            handling[thread] = self
            try:
                result = handler(item)
                if result is not None and inspect.isawaitable(result):
                    fact = f"{handler!r} returns something to be awaited"
                    raise InvalidArgument("handler", fact, "pass a plain function")
            finally:
                del handling[thread]

        return handle
