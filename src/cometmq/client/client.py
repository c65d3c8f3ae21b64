"""``Client``: where producers and consumers come from, and what they share."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from cometmq.client.core.settings import (
    ClientOptions,
    ClientSettings,
    ConsumerOptions,
    ConsumerSettings,
    LiteOptions,
    LiteSettings,
    ProducerOptions,
    ProducerSettings,
    PullOptions,
    PullSettings,
    settings_from,
)
from cometmq.client.core.value_codecs import BYTES, ValueCodec, codec_for
from cometmq.client.life import ClosedOnExit, Life
from cometmq.clock import Clock, SystemClock
from cometmq.errors import NotRunning, SettingsError
from cometmq.remoting.addresses import name_servers_in

# The rest is imported when it is needed: to make a client must cost next to nothing.
if TYPE_CHECKING:
    from cometmq.client.browsing import Since, Until
    from cometmq.client.core.message import Message
    from cometmq.client.hooks import ConsumeHook, FilterHook, SendGuard, SendHook, TransactionHook
    from cometmq.client.lite_consumer import LiteConsumer
    from cometmq.client.producer import Producer
    from cometmq.client.pull_consumer import PullConsumer
    from cometmq.client.push_consumer import Consumer
    from cometmq.client.shared import Shared
    from cometmq.client.trace import Tracer
    from cometmq.client.transactions import Check, TransactionProducer
    from cometmq.remoting.config import TlsClientSettings
    from cometmq.remoting.signing import Credentials

T = TypeVar("T")

NAMESRV_VARIABLE = "NAMESRV_ADDR"


class Client(ClosedOnExit):
    """Producers and consumers of one cluster, ours or Apache's::

        async with Client("host:9876;host2:9876") as mq:
            producer = mq.producer()
            await producer.send("orders", {"id": 1}, tag="paid")

    Everything made from it shares its connections and is closed with it. ``namesrv`` is read from
    the environment (``NAMESRV_ADDR``) when it is not given. Nothing is started and nobody is asked
    before it is entered.
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
        self._life = Life("this client")
        self._name_servers = _addresses(namesrv)
        self._settings: ClientSettings = settings_from(ClientSettings, options)
        self._credentials = _credentials(access_key, secret_key, security_token)
        self._namespace = _text("namespace", namespace)
        self._tls = _tls_settings(tls)
        self._clock = clock or SystemClock()
        self._shared: Shared | None = None
        self._closing: asyncio.Task[None] | None = None  # begun by a handler
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._life.begin()
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self) -> None:
        from cometmq.client.core.identity import make_unique_ids
        from cometmq.client.machine import own_ip
        from cometmq.client.shared import Shared

        ip = self._settings.client_ip
        if ip is None:
            ip = await asyncio.to_thread(own_ip)
            self._life.require()  # it may have been closed meanwhile
        self._shared = Shared(
            self._life,
            self._name_servers,
            self._settings,
            ip=ip,
            clock=self._clock,
            unique_ids=make_unique_ids(ip, os.getpid(), random.getrandbits(32)),
            namespace=self._namespace,
            tls=self._tls,
            credentials=self._credentials,
        )
        self._shared.start()

    async def close(self) -> None:
        """Close everything that was made from it, then the connections; may be called again.

        Handlers and sends that run get ``drain_timeout_ms`` to finish. Called by a handler it only
        begins all that; whoever calls it then waits until it is done.
        """
        is_handler = self._shared is not None and self._shared.is_handler()
        if not self._life.end_here():
            if self._life.is_closing_here and not is_handler:
                await self._closed.wait()
        elif is_handler:
            self._closing = asyncio.get_running_loop().create_task(self._stop(), name="closing")
        else:
            await self._stop()

    async def _stop(self) -> None:
        try:
            if self._shared is not None:
                await self._shared.stop()
        finally:
            self._life.ended()
            self._closed.set()

    def __del__(self) -> None:
        life = getattr(self, "_life", None)  # there is none when a bad argument was refused
        if life is not None:
            life.warn_if_leaked(self)

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
        without one it depends on the value. ``hooks`` see each send, ``guards`` may refuse it.
        ``options`` are the fields of ``ProducerSettings``. Raises AlreadyExists, SettingsError,
        InvalidArgument.
        """
        from cometmq.client.hooks import SEND_STEPS, check_hooks
        from cometmq.client.producer import Producer

        check_hooks("hooks", hooks, SEND_STEPS)
        check_hooks("guards", guards, ("check",))
        settings: ProducerSettings = settings_from(ProducerSettings, options)
        shared = self._require()
        if settings.is_traced:
            hooks = (*hooks, _tracer(shared, settings.trace_topic))
        return Producer(shared, group, settings, codec=codec, hooks=hooks, guards=guards)

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
        Their brokers ask those they know: of all ``topics`` given here, and of what was sent to. A
        plain function runs on a thread, one at a time. The rest is as for ``producer``.
        """
        from cometmq.client.hooks import SEND_STEPS, check_hooks
        from cometmq.client.transactions import TransactionProducer

        check_hooks("hooks", hooks, SEND_STEPS, ("after_end",))
        check_hooks("guards", guards, ("check",))
        settings: ProducerSettings = settings_from(ProducerSettings, options)
        shared = self._require()
        if settings.is_traced:
            hooks = (*hooks, _tracer(shared, settings.trace_topic))
        return TransactionProducer(
            shared, group, check, settings, codec=codec, topics=topics, hooks=hooks, guards=guards
        )

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
        leave messages out. ``options`` are the fields of ``ConsumerSettings``.
        """
        from cometmq.client.hooks import CONSUME_STEPS, check_hooks
        from cometmq.client.push_consumer import Consumer

        check_hooks("hooks", hooks, CONSUME_STEPS)
        check_hooks("filters", filters, ("wanted",))
        settings: ConsumerSettings = settings_from(ConsumerSettings, options)
        shared = self._require()
        if settings.is_traced:
            hooks = (*hooks, _tracer(shared, settings.trace_topic))
        return Consumer(shared, group, settings, codec=_codec(codec), hooks=hooks, filters=filters)

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
        messages out. ``options`` are the fields of ``LiteSettings``.
        """
        from cometmq.client.hooks import CONSUME_STEPS, check_hooks
        from cometmq.client.lite_consumer import LiteConsumer

        check_hooks("hooks", hooks, CONSUME_STEPS)
        check_hooks("filters", filters, ("wanted",))
        settings: LiteSettings = settings_from(LiteSettings, options)
        return LiteConsumer(
            self._require(), group, settings, codec=_codec(codec), hooks=hooks, filters=filters
        )

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

        ``codec`` is the type of the values. ``hooks`` see each result, ``filters`` may leave
        messages out. ``options`` are the fields of ``PullSettings``.
        """
        from cometmq.client.hooks import CONSUME_STEPS, check_hooks
        from cometmq.client.pull_consumer import PullConsumer

        check_hooks("hooks", hooks, CONSUME_STEPS)
        check_hooks("filters", filters, ("wanted",))
        settings: PullSettings = settings_from(PullSettings, options)
        return PullConsumer(
            self._require(), group, settings, codec=_codec(codec), hooks=hooks, filters=filters
        )

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
    ) -> AsyncGenerator[Message[bytes], None]: ...
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
    ) -> AsyncGenerator[Message[T], None]: ...
    def browse(
        self,
        topic: str,
        *,
        since: Since | None = None,
        until: Until | None = None,
        tags: str | Sequence[str] | None = None,
        codec: Any = None,
        follow: bool = False,
    ) -> AsyncGenerator[Message[Any], None]:
        """The messages of a topic in the order they were stored, without a group::

            async for message in mq.browse("orders", since=one_hour_ago):
                ...

        ``since`` is ``"first"`` (as without it), ``"last"``, a time (ms since 1970, or a datetime
        with a zone) or the offset of each queue; queues without one begin at the first message. It
        ends before ``until``, a time or the offset of each queue, and where the queues end now.
        With ``follow`` it does not end: what comes later is waited for, over outages of brokers.
        Nothing is stored anywhere. Raises NoRoute, and without ``follow`` what asking brokers
        raises.
        """
        from cometmq.client.browsing import browse

        return browse(
            self._require(),
            topic,
            since=since,
            until=until,
            tags=tags,
            codec=_codec(codec),
            follow=follow,
        )

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return self._require().main.client_id

    def _require(self) -> Shared:
        self._life.require()
        if self._shared is None:
            raise NotRunning("this client", "was not entered yet")
        return self._shared


def _codec(codec: Any) -> ValueCodec[Any]:
    return BYTES if codec is None else codec_for(codec)


def _tracer(shared: Shared, topic: str) -> Tracer:
    from cometmq.client.trace import tracer

    return tracer(shared, topic)


def _credentials(access: str | None, secret: str | None, token: str | None) -> Credentials | None:
    if access is None and secret is None:
        return None
    from cometmq.remoting.signing import Credentials

    keys = _text("access_key", access), _text("secret_key", secret)
    return Credentials.of(*keys, _text("security_token", token))


def _tls_settings(tls: TlsClientSettings | bool | None) -> TlsClientSettings | None:
    if tls is None or tls is False:
        return None
    from cometmq.remoting.config import TlsClientSettings

    if tls is True:
        return TlsClientSettings(is_enabled=True)
    if not isinstance(tls, TlsClientSettings):
        advice = "it must be True, False or a TlsClientSettings"
        raise SettingsError("tls", f"{tls!r} is of the wrong type", advice)
    return tls


def _text(name: str, value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        # A secret must not appear in an error.
        raise SettingsError(name, f"it is {type(value).__name__}", "it must be text")
    return value


def _addresses(namesrv: str | Sequence[str] | None) -> tuple[str, ...]:
    """The name servers in random order, so that many clients spread over them."""
    given = os.environ.get(NAMESRV_VARIABLE, "") if namesrv is None else namesrv
    advice = f"write host:port;host2:port, or set {NAMESRV_VARIABLE}"
    texts: object = (given,) if isinstance(given, str) else given
    if not isinstance(texts, Collection) or not all(isinstance(text, str) for text in texts):
        raise SettingsError("namesrv", f"{given!r} is no address and no list of them", advice)
    addresses = name_servers_in(given, advice)
    random.shuffle(addresses)
    return tuple(addresses)
