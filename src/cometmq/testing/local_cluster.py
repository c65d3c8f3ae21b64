"""A name server and brokers for tests, in the test's own process, on real sockets of loopback.

``LocalCluster`` is the plan. Entering it starts everything, on free ports and with a temporary
store of small files; leaving it ends everything. With ``with`` the servers run on a loop of their
own in a thread called ``cometmq-local-cluster``::

    with LocalCluster(settings={"messageDelayLevel": "1s 1s"}) as cluster:
        cluster.create_topic("orders")
        use(cluster.namesrv)
        cluster.broker.restart()

With ``async with`` they run on the test's own loop, and what takes time is awaited; the names are
the same. Starting, stopping and waiting are bounded and end with a ``ClusterError``.
"""

import asyncio
import concurrent.futures
import contextlib
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from cometmq.clock import Clock
from cometmq.remoting.running import loop_factory
from cometmq.testing.local_servers import (
    READ_WRITE,
    AioBroker,
    AioCluster,
    AioNameServer,
    AioServer,
    ClusterError,
    Settings,
)

__all__ = ["ClusterError", "LocalCluster"]

THREAD_NAME = "cometmq-local-cluster"
CALL_SECONDS_MAX = 120
"""For what is bounded by itself; only a test that blocks the loop gets that far."""

A = TypeVar("A", bound=AioServer[Any])
T = TypeVar("T")

_NOTHING: Settings = {}


class LocalCluster:
    """What to start; may be entered again once it was left, and starts afresh then.

    ``settings`` are of all brokers and ``nameserver_settings`` of the name server, by the keys of
    their files. ``folder`` keeps the stores where a test finds them later; by default they are in a
    temporary one that goes with the cluster. Brokers are called ``broker-0``, ``broker-1``, ….
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        settings: Settings = _NOTHING,
        nameserver_settings: Settings = _NOTHING,
        folder: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers: it needs at least one")
        self._broker_count = brokers
        self._settings = settings
        self._nameserver_settings = nameserver_settings
        self._folder = folder
        self._clock = clock
        self._exits = contextlib.ExitStack()
        self._async_exits = contextlib.AsyncExitStack()

    def __enter__(self) -> "BlockingCluster":
        with contextlib.ExitStack() as exits:
            folder = exits.enter_context(self._place())
            inner = self._plan(folder)
            thread = exits.enter_context(LoopThread())
            exits.callback(thread.call, inner.stop)
            thread.call(inner.start)
            self._exits = exits.pop_all()
        return BlockingCluster(inner, thread)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exits.__exit__(kind, error, trace)

    async def __aenter__(self) -> AioCluster:
        async with contextlib.AsyncExitStack() as exits:
            folder = exits.enter_context(self._place())
            cluster = self._plan(folder)
            exits.push_async_callback(cluster.stop)
            await cluster.start()
            self._async_exits = exits.pop_all()
        return cluster

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._async_exits.__aexit__(kind, error, trace)

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        if self._folder is not None:
            yield self._folder
            return
        with tempfile.TemporaryDirectory(prefix="cometmq-", ignore_cleanup_errors=True) as name:
            yield Path(name)

    def _plan(self, folder: Path) -> AioCluster:
        names = [f"broker-{number}" for number in range(self._broker_count)]
        return AioCluster(
            AioNameServer(folder / "namesrv", self._nameserver_settings, self._clock),
            tuple(AioBroker(name, folder / name, self._settings, self._clock) for name in names),
        )


class LoopThread:
    """An event loop in a thread of its own, for as long as the block lasts."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._is_ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop  # once it is ready
        self._is_over: asyncio.Event

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(CALL_SECONDS_MAX)

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine there and wait for what it returns or raises."""
        if threading.current_thread() is self._thread:
            raise ClusterError(THREAD_NAME, "would wait for itself", "await it in 'async with'")
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result(CALL_SECONDS_MAX)
        except concurrent.futures.TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            problem = f"did not finish within {CALL_SECONDS_MAX} s"
            raise ClusterError(THREAD_NAME, problem, "does a test block its loop?") from error

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = asyncio.Event()
        self._is_ready.set()
        await self._is_over.wait()


class BlockingServer(Generic[A]):
    """One server of a cluster that runs in another thread."""

    def __init__(self, inner: A, thread: LoopThread) -> None:
        self._inner = inner
        self._call = thread.call

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def port(self) -> int:
        """Where it listens, or listened when it ran last."""
        return self._inner.port

    @property
    def address(self) -> str:
        """The same as ``host:port``."""
        return self._inner.address

    @property
    def folder(self) -> Path:
        """Where it keeps its files."""
        return self._inner.folder

    @property
    def is_running(self) -> bool:
        return self._inner.is_running

    def start(self) -> None:
        """Serve again, at the same address."""
        self._call(self._inner.start)

    def stop(self) -> None:
        """End as on SIGTERM. Raises BackgroundTaskDied when a part of it died before that."""
        self._call(self._inner.stop)


class BlockingNameServer(BlockingServer[AioNameServer]):
    """The name server."""

    def restart(self) -> None:
        """Stop and start again."""
        self._call(self._inner.restart)


class BlockingBroker(BlockingServer[AioBroker]):
    """A broker."""

    def restart(self, settings: Settings | None = None) -> None:
        """Stop and start again, with ``settings`` changed."""
        self._call(lambda: self._inner.restart(settings))

    def kill(self) -> None:
        """End as on SIGKILL: connections break now, and the store is left as it is now."""
        self._call(self._inner.kill)


class BlockingCluster:
    """A running cluster: its name server and its brokers, the first of which is ``broker``."""

    def __init__(self, inner: AioCluster, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread
        self.nameserver = BlockingNameServer(inner.nameserver, thread)
        self.brokers = tuple(BlockingBroker(broker, thread) for broker in inner.brokers)

    @property
    def namesrv(self) -> str:
        """What clients are given: the name server's address."""
        return self._inner.namesrv

    @property
    def broker(self) -> BlockingBroker:
        return self.brokers[0]

    def create_topic(
        self, name: str, *, queues: int = 4, perm: int = READ_WRITE, is_ordered: bool = False
    ) -> None:
        """Make or change a topic on all brokers; clients find it when this returns.

        Raises BrokerError when a broker refuses.
        """
        self._thread.call(
            lambda: self._inner.create_topic(name, queues=queues, perm=perm, is_ordered=is_ordered)
        )
