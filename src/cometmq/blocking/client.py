"""``Client``: where producers and consumers come from, each call of which waits for its result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from cometmq import aio
from cometmq.blocking.loop_thread import GRACE_MS, LoopThread
from cometmq.blocking.member import ClosedOnExit, Threads
from cometmq.client.core.settings import (
    ClientOptions,
    ConsumerOptions,
    LiteOptions,
    ProducerOptions,
    ProducerSettings,
    PullOptions,
    PullSettings,
    settings_from,
)

# The rest is imported when it is needed: to make a client must cost next to nothing.
if TYPE_CHECKING:
    from cometmq.blocking.admin import Admin
    from cometmq.blocking.consumer import Consumer
    from cometmq.blocking.lite_consumer import LiteConsumer
    from cometmq.blocking.producer import Producer
    from cometmq.blocking.pull_consumer import PullConsumer
    from cometmq.blocking.streams import Stream
    from cometmq.blocking.transactions import Check, TransactionProducer
    from cometmq.client.browsing import Since, Until
    from cometmq.client.core.message import Message
    from cometmq.client.core.value_codecs import ValueCodec
    from cometmq.client.hooks import ConsumeHook, FilterHook, SendGuard, SendHook, TransactionHook
    from cometmq.client.transactions import Outcome
    from cometmq.clock import Clock
    from cometmq.remoting.config import TlsClientSettings

T = TypeVar("T")

CLOSING_THREAD = "cometmq-closing"


class Client(ClosedOnExit):
    """Producers and consumers of one cluster, ours or Apache's::

        with Client("host:9876;host2:9876") as mq:
            producer = mq.producer()
            producer.send("orders", {"id": 1}, tag="paid")

    Everything made from it shares its connections and is closed with it. ``namesrv`` is read from
    the environment (``NAMESRV_ADDR``) when it is not given. Nothing is started and nobody is asked
    before it is entered. All of it may be used from many threads at the same time.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        access_key: str | None = None,
        secret_key: str | None = None,
        security_token: str | None = None,
        namespace: str | None = None,
        tls: TlsClientSettings | bool | None = None,
        clock: Clock | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._inner = aio.Client(
            namesrv,
            access_key=access_key,
            secret_key=secret_key,
            security_token=security_token,
            namespace=namespace,
            tls=tls,
            clock=clock,
            **options,
        )
        self._life = self._inner._life
        inner = self._inner  # and not self, which would never be collected
        self._thread = LoopThread(self._life, close=inner.close, hang_up=lambda: _hang_up(inner))
        self._threads = Threads(self._thread, self._inner._settings.drain_timeout_ms)
        # Of one thread more than once: the handler of a signal may come in the middle of it.
        self._closing = threading.RLock()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.call(self._inner.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def close(self) -> None:
        """Close everything that was made from it, then the connections; may be called again.

        Handlers and sends that run get ``drain_timeout_ms`` to finish. Who is interrupted (Ctrl-C)
        while waiting for that waits no longer. Hooks, which run on the client's loop, cannot do it.
        Called by a handler or a scheduled pull it only begins all that.
        """
        if self._life.is_foreign:
            return
        if self._thread.is_current:
            self._thread.require()
        if self._threads.is_handler:  # it would wait for itself
            threading.Thread(target=self.close, name=CLOSING_THREAD, daemon=True).start()
            return
        with self._closing:
            if not self._thread.is_running:
                self._life.end()
                return
            try:
                if not self._thread.is_hurried:
                    self._threads.close(None, self._inner.close)
            except KeyboardInterrupt:
                self._thread.is_hurried = True
                raise
            finally:
                self._thread.stop()
                self._life.end()
                self._life.ended()
                self._threads.finish()

    def __del__(self) -> None:
        thread = getattr(self, "_thread", None)  # there is none when a bad argument was refused
        if thread is None or thread.is_foreign or not thread.is_running:
            return
        try:
            self._life.warn_if_leaked(self)
        finally:
            thread.stop_soon(self._threads.drain_timeout_ms / 1000 + GRACE_MS / 1000)

    def producer(
        self,
        group: str | None = None,
        *,
        codec: Any = None,
        hooks: Sequence[SendHook] = (),
        guards: Sequence[SendGuard] = (),
        **options: Unpack[ProducerOptions],
    ) -> Producer:
        """A producer of ``group``; a client has one for each group, ``comet_producer`` by default.

        ``codec`` (a type, or an object with ``encode`` and ``decode``) turns values into bodies;
        without one it depends on the value. ``hooks`` see each send, ``guards`` may refuse it: both
        run on the client's loop. ``options`` are the fields of ``ProducerSettings``. Raises
        AlreadyExists, SettingsError, InvalidArgument.
        """
        from cometmq.blocking.producer import Producer

        settings = settings_from(ProducerSettings, options)
        inner = self._threads.do(
            lambda: self._inner.producer(group, codec=codec, hooks=hooks, guards=guards, **options)
        )
        return Producer(self, self._threads, inner, settings)

    def transaction_producer(
        self,
        group: str,
        check: Check,
        *,
        codec: Any = None,
        topics: Sequence[str] = (),
        hooks: Sequence[SendHook | TransactionHook] = (),
        guards: Sequence[SendGuard] = (),
        **options: Unpack[ProducerOptions],
    ) -> TransactionProducer:
        """A producer whose messages appear only when a local transaction has succeeded.

        ``check`` is asked about messages whose end a broker has not heard of, also those of other
        processes with the same ``group``: it finds out from the message how its transaction ended.
        Their brokers ask those they know: of all ``topics`` given here, and of what was sent to. It
        runs on a thread of the client, one at a time. The rest is as for ``producer``.
        """
        from cometmq.blocking.transactions import TransactionProducer

        settings = settings_from(ProducerSettings, options)

        async def on_thread(message: Message[Any]) -> Outcome:
            return await self._threads.callbacks.call(check, message)

        inner = self._threads.do(
            lambda: self._inner.transaction_producer(
                group,
                on_thread,
                codec=codec,
                topics=topics,
                hooks=hooks,
                guards=guards,
                **options,
            )
        )
        return TransactionProducer(self, self._threads, inner, settings)

    @overload
    def consumer(
        self,
        group: str,
        *,
        codec: None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[bytes]: ...
    @overload
    def consumer(
        self,
        group: str,
        *,
        codec: type[T] | ValueCodec[T],
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[T]: ...
    def consumer(
        self,
        group: str,
        *,
        codec: Any = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[ConsumerOptions],
    ) -> Consumer[Any]:
        """A consumer that fetches by itself and gives messages to a handler, or is iterated over.

        ``codec`` is the type of the values. ``hooks`` see each call of the handler, ``filters`` may
        leave messages out: both run on the client's loop. ``options`` are the fields of
        ``ConsumerSettings``.
        """
        from cometmq.blocking.consumer import Consumer

        inner = self._threads.do(
            lambda: self._inner.consumer(
                group, codec=codec, hooks=hooks, filters=filters, **options
            )
        )
        return Consumer(self, self._threads, inner)

    @overload
    def lite_consumer(
        self,
        group: str,
        *,
        codec: None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[LiteOptions],
    ) -> LiteConsumer[bytes]: ...
    @overload
    def lite_consumer(
        self,
        group: str,
        *,
        codec: type[T] | ValueCodec[T],
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[LiteOptions],
    ) -> LiteConsumer[T]: ...
    def lite_consumer(
        self,
        group: str,
        *,
        codec: Any = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[LiteOptions],
    ) -> LiteConsumer[Any]:
        """A consumer that fetches ahead and is polled.

        ``codec`` is the type of the values. ``hooks`` see what is handed out, ``filters`` may leave
        messages out: both run on the client's loop. ``options`` are the fields of
        ``LiteSettings``.
        """
        from cometmq.blocking.lite_consumer import LiteConsumer

        inner = self._threads.do(
            lambda: self._inner.lite_consumer(
                group, codec=codec, hooks=hooks, filters=filters, **options
            )
        )
        return LiteConsumer(self, self._threads, inner)

    @overload
    def pull_consumer(
        self,
        group: str,
        *,
        codec: None = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[PullOptions],
    ) -> PullConsumer[bytes]: ...
    @overload
    def pull_consumer(
        self,
        group: str,
        *,
        codec: type[T] | ValueCodec[T],
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[PullOptions],
    ) -> PullConsumer[T]: ...
    def pull_consumer(
        self,
        group: str,
        *,
        codec: Any = None,
        hooks: Sequence[ConsumeHook] = (),
        filters: Sequence[FilterHook] = (),
        **options: Unpack[PullOptions],
    ) -> PullConsumer[Any]:
        """A consumer that pulls when it is told to.

        ``codec`` is the type of the values. ``hooks`` see what each pull brings, ``filters`` may
        leave messages out: both run on the client's loop. ``options`` are the fields of
        ``PullSettings``.
        """
        from cometmq.blocking.pull_consumer import PullConsumer

        settings = settings_from(PullSettings, options)
        inner = self._threads.do(
            lambda: self._inner.pull_consumer(
                group, codec=codec, hooks=hooks, filters=filters, **options
            )
        )
        return PullConsumer(self, self._threads, inner, settings)

    @overload
    def browse(
        self,
        topic: str,
        *,
        since: Since | None = None,
        until: Until | None = None,
        tags: str | Sequence[str] | None = None,
        codec: None = None,
        follow: bool = False,
    ) -> Stream[Message[bytes]]: ...
    @overload
    def browse(
        self,
        topic: str,
        *,
        since: Since | None = None,
        until: Until | None = None,
        tags: str | Sequence[str] | None = None,
        codec: type[T] | ValueCodec[T],
        follow: bool = False,
    ) -> Stream[Message[T]]: ...
    def browse(
        self,
        topic: str,
        *,
        since: Since | None = None,
        until: Until | None = None,
        tags: str | Sequence[str] | None = None,
        codec: Any = None,
        follow: bool = False,
    ) -> Stream[Message[Any]]:
        """The messages of a topic in the order they were stored, without a group::

            for message in mq.browse("orders", since=one_hour_ago):
                ...

        ``since`` is ``"first"`` (as without it), ``"last"``, a time (ms since 1970, or a datetime
        with a zone) or the offset of each queue; queues without one begin at the first message. It
        ends before ``until``, a time or the offset of each queue, and where the queues end now.
        With ``follow`` it does not end: what comes later is waited for, over outages of brokers.
        Nothing is stored anywhere. Raises NoRoute, and without ``follow`` what asking brokers
        raises.
        """
        from cometmq.blocking.streams import Stream

        source = self._threads.do(
            lambda: self._inner.browse(
                topic, since=since, until=until, tags=tags, codec=codec, follow=follow
            )
        )
        return Stream(self, self._threads, source)

    def admin(self) -> Admin:
        """Questions and commands to the same cluster, on the connections of this client.

        Names are those that servers know: with the client's namespace, if it has one.
        """
        from cometmq.blocking.admin import Admin

        return Admin(self, self._threads, self._threads.do(self._inner.admin))

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return self._threads.do(lambda: self._inner.client_id)


def _hang_up(inner: aio.Client) -> None:
    if inner._shared is not None:
        inner._shared.hang_up()
