"""``Producer``: sends messages, alone or many at a time, and asks others for replies."""

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload

from cometmq.blocking.futures import SendFuture
from cometmq.blocking.loop_thread import GRACE_MS
from cometmq.blocking.member import Entered, Threads
from cometmq.client import producer
from cometmq.client.core.checks import checked_timeout, listed_values
from cometmq.client.core.message import Message
from cometmq.client.core.queue_selection import Selector
from cometmq.client.core.results import SendResult
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.producer import REQUEST_TIMEOUT_MS, SendOptions
from cometmq.errors import TooManyRequests
from cometmq.model.offsets import MessageQueue

T = TypeVar("T")


class Producer(Entered[producer.Producer]):
    """Sends messages in the name of a group; made by ``Client.producer`` and closed with it.

    Values are bytes, text, or anything JSON can hold, unless a codec was given. All methods may be
    called by many threads at once.
    """

    def __init__(
        self,
        owner: object,
        threads: Threads,
        inner: producer.Producer,
        settings: ProducerSettings,
    ) -> None:
        super().__init__(owner, threads, inner)
        self._timeout_ms = settings.send_timeout_ms
        self._in_flight_max = settings.in_flight_max
        # For ``send_async`` only: whoever waits for a result sends no more meanwhile.
        self._places = threading.Semaphore(settings.in_flight_max)

    def close(self) -> None:
        """Take no more sends, let those under way finish, and leave; may be called again.

        They get ``drain_timeout_ms`` of the client; what takes longer ends by itself, or with the
        client's connections.
        """
        self._threads.close(self, self._inner.close)

    # --- sending

    def send(
        self,
        topic: str,
        value: Any,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | int | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        flag: int = 0,
        wait_store: bool = True,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message and wait until it is stored; a failed try is followed by others.

        ``keys`` find it again; a text may hold several, with blanks between them. ``delay`` (in
        seconds, or a timedelta) and ``deliver_at`` (milliseconds since 1970, or an aware datetime)
        need brokers of release 5; ``delay_level`` (1 to 18) is an entry of the broker's table.
        Messages with the same ``ordering_key`` go to the same queue; ``queue`` or ``selector``
        (which runs on the client's loop) choose it otherwise: all three are tried once.
        ``wait_store=False`` does not wait for the disk or a slave where brokers do that.
        ``timeout_ms`` is for all tries together.

        Whoever is interrupted does not know whether it was stored. Raises SendFailed, NoRoute,
        Unreachable, RequestTimeout, InvalidArgument, EncodeError, Unsupported, TooManyRequests.
        """
        bound_ms = self._bound_ms(timeout_ms)
        work = self._inner.send(
            topic,
            value,
            tag=tag,
            keys=keys,
            properties=properties,
            delay=delay,
            delay_level=delay_level,
            deliver_at=deliver_at,
            ordering_key=ordering_key,
            queue=queue,
            selector=selector,
            flag=flag,
            wait_store=wait_store,
            timeout_ms=timeout_ms,
        )
        return self._call(work, bound_ms)

    def send_async(
        self,
        topic: str,
        value: Any,
        *,
        timeout_ms: int | None = None,
        **options: Unpack[SendOptions],
    ) -> SendFuture:
        """Begin to send a message, and let the future know how it ends.

        Takes what ``send`` does; what that raises, the future has, but NotRunning is raised here.
        Its time runs from now on, also while it waits for others to leave: thousands at once may
        need a longer ``timeout_ms``. A SendFailed whose ``may_be_stored`` is False never left.
        While ``in_flight_max`` of them are under way, or their callbacks wait for their turn, this
        waits, except in a callback; TooManyRequests says that it took as long as a send may.
        """
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        loop = self._threads.loop
        loop.require()
        release = self._place(limit_ms)
        work = self._inner.send(topic, value, timeout_ms=timeout_ms, **options)
        future: SendFuture | None = None
        try:
            future = SendFuture(work, topic, self._threads.callbacks, release)
            loop.begin(future)
        except BaseException:  # Ctrl-C comes anywhere, and the loop may have heard of it or not
            loop.wake()
            if future is None:
                release()
            if future is None or future.cancel():
                work.close()
            raise
        return future

    def send_oneway(
        self,
        topic: str,
        value: Any,
        *,
        timeout_ms: int | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message without waiting for an answer: nobody says whether it was stored.

        ``timeout_ms`` is for finding the broker and for being able to write to it. Takes and raises
        what ``send`` does.
        """
        bound_ms = self._bound_ms(timeout_ms)
        work = self._inner.send_oneway(topic, value, timeout_ms=timeout_ms, **options)
        self._call(work, bound_ms)

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        flag: int = 0,
        wait_store: bool = True,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send many messages in few frames; one result per frame, in order.

        A value may be an ``Item``, which has its own keys, and whose tag, properties and flag count
        instead of those given here. All messages of a frame go to one queue. They are not
        compressed, and cannot be delayed. ``timeout_ms`` is for each frame. Raises what ``send``
        does; ``results`` of a SendFailed are those of the frames before it.
        """
        chosen = listed_values(values)  # here: it may be the caller's code that makes them
        bound_ms = self._bound_ms(timeout_ms) * max(1, len(chosen))  # of each frame
        work = self._inner.send_many(
            topic,
            chosen,
            tag=tag,
            properties=properties,
            ordering_key=ordering_key,
            queue=queue,
            selector=selector,
            flag=flag,
            wait_store=wait_store,
            timeout_ms=timeout_ms,
        )
        return self._call(work, bound_ms)

    # --- requests and replies

    @overload
    def request(
        self,
        topic: str,
        value: Any,
        *,
        timeout_ms: int = ...,
        **options: Unpack[SendOptions],
    ) -> Message[bytes]: ...
    @overload
    def request(
        self,
        topic: str,
        value: Any,
        *,
        reply_type: type[T] | ValueCodec[T],
        timeout_ms: int = ...,
        **options: Unpack[SendOptions],
    ) -> Message[T]: ...
    def request(
        self,
        topic: str,
        value: Any,
        *,
        reply_type: Any = bytes,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        **options: Unpack[SendOptions],
    ) -> Message[Any]:
        """Send a message to which a consumer replies, and wait for that reply.

        ``reply_type`` is what the value of the reply is read as. Takes what ``send`` does. Raises
        NoReply when the request was stored but nobody replied in time, and what ``send`` does.
        """
        bound_ms = self._bound_ms(timeout_ms)
        work = self._inner.request(
            topic, value, reply_type=reply_type, timeout_ms=timeout_ms, **options
        )
        return self._call(work, bound_ms)

    def reply(
        self, message: Message[Any], value: Any, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Reply to a message that was sent with ``request``.

        Raises InvalidArgument when it was not, SendFailed when the asker cannot be reached.
        """
        bound_ms = self._bound_ms(timeout_ms)
        work = self._inner.reply(message, value, timeout_ms=timeout_ms)
        return self._call(work, bound_ms)

    def recall(self, topic: str, handle: str, *, timeout_ms: int | None = None) -> str:
        """Take back a message that has not been delivered yet; the id of that message.

        ``handle`` is the ``recall_handle`` of its result. Raises InvalidArgument, NoRoute,
        Unreachable, and Refused when it is too late or the broker is too old (5.3.2).
        """
        bound_ms = self._bound_ms(timeout_ms)
        work = self._inner.recall(topic, handle, timeout_ms=timeout_ms)
        return self._call(work, bound_ms)

    @property
    def group(self) -> str:
        """As servers know it, with the namespace."""
        return self._inner.group

    def _place(self, limit_ms: int) -> Callable[[], object]:
        """Wait for a place among the sends under way; how to give it back.

        A callback does not wait: places may be kept by callbacks that wait for its thread. The
        asyncio producer has a limit of its own, behind which its send waits.
        """
        if self._places.acquire(blocking=False):
            return self._places.release
        if self._threads.callbacks.is_current:
            return lambda: None
        if self._places.acquire(timeout=checked_timeout(limit_ms) / 1000):
            return self._places.release
        raise TooManyRequests("this producer", self._in_flight_max)

    def _bound_ms(self, timeout_ms: int | None) -> int:
        """For calls; before they are made, which must be awaited then."""
        limit_ms = self._timeout_ms if timeout_ms is None else checked_timeout(timeout_ms)
        return limit_ms + GRACE_MS
