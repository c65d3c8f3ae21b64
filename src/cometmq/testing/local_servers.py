"""The servers of a ``LocalCluster`` on the loop they run on; what takes time is awaited."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from cometmq.broker.app import Broker
from cometmq.broker.broker_config import BrokerConfig
from cometmq.clock import Clock
from cometmq.codec import bodies
from cometmq.codec.bodies.nameserver import ClusterInfo
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.topics import UpdateAndCreateTopic
from cometmq.errors import BrokerError, CometError, SettingsError
from cometmq.model.route import TopicRoute
from cometmq.model.topic import Permission, TopicFilterType
from cometmq.nameserver.app import NameServer
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.channel import Channel
from cometmq.remoting.client import connect
from cometmq.remoting.running import BackgroundTaskDied, Service
from cometmq.settings import Bundle

LOOPBACK = "127.0.0.1"
START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 20
ROUTE_SECONDS_MAX = 10
"""What a registration may take to be visible at the name server."""

REQUEST_MS_MAX = 5_000
COPY_ATTEMPTS_MAX = 5
READ_WRITE = Permission.READ.value | Permission.WRITE.value
_POLL_SECONDS = 0.01

SMALL: Mapping[str, object] = {
    # The largest message there may be by default still fits into a file.
    "mappedFileSizeCommitLog": 8 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 3_000 * 20,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
    # A test must not fail because somebody's disk is nearly full.
    "diskFreeBytesEnough": 0,
    # Its port would be one that was not asked for, and somebody else may have it.
    "isVipEnabled": False,
}
"""What a broker of a local cluster is set to unless the test says otherwise."""

Settings = Mapping[str, object]
"""By the keys of a broker's or name server's file; values as a person would write them."""

B = TypeVar("B", bound=Bundle)
T = TypeVar("T")


class Listening(Service, Protocol):
    """A server program that listens somewhere."""

    @property
    def port(self) -> int: ...


S = TypeVar("S", bound=Listening)


class ClusterError(CometError):
    """A local cluster that cannot do what was asked; ``server`` is the one it is about."""

    def __init__(self, server: str, problem: str, next_step: str = "") -> None:
        super().__init__(server, problem, next_step)
        self.server = server
        self.problem = problem
        self.fact = f"{server}: {problem}"
        self.next_step = next_step


class AioServer(Generic[S]):
    """One server that can be stopped and started again at the same address."""

    def __init__(self, name: str, folder: Path, build: Callable[[int], S]) -> None:
        self.name = name
        self.folder = folder  # where it keeps its files
        self._build = build  # by port; 0 for any
        self._service: S | None = None
        self._death: asyncio.Future[BackgroundTaskDied] | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """Where it listens, or listened when it ran last."""
        return self._port

    @property
    def address(self) -> str:
        """The same as ``host:port``."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def is_running(self) -> bool:
        return self._service is not None

    @property
    def service(self) -> S:
        """The program itself, for what only it knows; belongs to the cluster's loop."""
        if self._service is None:
            raise ClusterError(self.name, "is not running", "call start() first")
        return self._service

    async def start(self) -> None:
        """Serve; raises what the program raises when it cannot."""
        if self._service is not None:
            raise ClusterError(self.name, "is running already", "call restart() instead")
        service = self._build(self._port)
        try:
            await within(START_SECONDS_MAX, service.start(), self.name, "start")
        except BaseException:
            await within(STOP_SECONDS_MAX, service.stop(), self.name, "stop after it had failed")
            raise
        self._service = service
        self._port = service.port
        self._death = asyncio.ensure_future(service.background.wait_for_death())

    async def stop(self) -> None:
        """End as on SIGTERM. Raises BackgroundTaskDied when a part of it died before that."""
        if self._service is None:
            return
        service, self._service = self._service, None
        assert self._death is not None
        await within(STOP_SECONDS_MAX, service.stop(), self.name, "stop")
        if self._death.done():
            raise self._death.result()
        self._death.cancel()

    async def restart(self) -> None:
        """Stop and start again."""
        await self.stop()
        await self.start()


LOG_PATHS = "storePathCommitLog"
_OF_THE_CLUSTER = ("brokerName", "namesrvAddr", "storePathRootDir")
"""Settings by which it finds its brokers and their files again; each broker has its own."""


class AioBroker(AioServer[Broker]):
    """A broker; ``folder`` is its store, ``settings`` what it is set to beyond the usual."""

    def __init__(self, name: str, folder: Path, settings: Settings, clock: Clock | None) -> None:
        super().__init__(name, folder, self._on_port)
        self.settings = dict(settings)
        self.namesrv = ""
        self._clock = clock
        self._config(0)  # impossible settings are known before anything runs

    @property
    def permission(self) -> int:
        """What it allows its topics at most; clients are told what both allow."""
        return self._config(self.port).broker.broker_permission

    async def restart(self, settings: Settings | None = None) -> None:
        """Stop and start again, with ``settings`` changed."""
        await self.stop()
        self.settings |= settings or {}
        await self.start()

    async def kill(self) -> None:
        """End as on SIGKILL: connections break now, and the store is left as it is now.

        What the broker does while it is then taken down never reaches the files that the next start
        finds; that one recovers from what a killed process leaves behind. Only its own folder can
        be left so: not with ``storePathCommitLog``.
        """
        if LOG_PATHS in self.settings:
            advice = f"leave {LOG_PATHS} out, or stop the broker"
            raise ClusterError(self.name, "it cannot be killed: its log lies elsewhere", advice)
        self.service.refuse_connections()  # or whoever dials again is served while it is taken down
        for channel in self.service.channels:
            channel.drop("the broker is killed")
        image = self.folder.with_name(self.folder.name + ".killed")
        _copy_live(self.folder, image)
        try:
            await self.stop()
        finally:
            shutil.rmtree(self.folder)
            image.rename(self.folder)

    def _on_port(self, port: int) -> Broker:
        return Broker(self._config(port), clock=self._clock)

    def _config(self, port: int) -> BrokerConfig:
        own = {"brokerName": self.name, "storePathRootDir": self.folder, "listenPort": port}
        if self.namesrv:
            own["namesrvAddr"] = self.namesrv
        for key in _OF_THE_CLUSTER:
            if key in self.settings:
                raise ClusterError(self.name, f"{key} is the cluster's own", "leave it out")
        given = {**SMALL, "bindAddress": LOOPBACK, **own, **self.settings}
        return loaded(BrokerConfig, given)


class AioNameServer(AioServer[NameServer]):
    """A name server; what it keeps lies in ``folder``."""

    def __init__(self, folder: Path, settings: Settings, clock: Clock | None) -> None:
        super().__init__("name server", folder, self._on_port)
        self.settings = dict(settings)
        self._clock = clock
        self._config(0)

    def _on_port(self, port: int) -> NameServer:
        return NameServer(self._config(port), clock=self._clock)

    def _config(self, port: int) -> NameServerConfig:
        own = {
            "kvConfigPath": self.folder / "kvConfig.json",
            "configStorePath": self.folder / "namesrv.properties",
            "listenPort": port,
        }
        return loaded(NameServerConfig, {"bindAddress": LOOPBACK, **own, **self.settings})


class AioCluster:
    """A running cluster: its name server and its brokers, the first of which is ``broker``."""

    def __init__(self, nameserver: AioNameServer, brokers: tuple[AioBroker, ...]) -> None:
        self.nameserver = nameserver
        self.brokers = brokers

    @property
    def namesrv(self) -> str:
        """What clients are given: the name server's address."""
        return self.nameserver.address

    @property
    def broker(self) -> AioBroker:
        return self.brokers[0]

    async def start(self) -> None:
        """Start everything; clients find all brokers when it returns."""
        await self.nameserver.start()
        for broker in self.brokers:
            broker.namesrv = self.namesrv
            await broker.start()
        names = {broker.name for broker in self.brokers}
        await self._until(lambda channel: _has_brokers(channel, names), "all brokers registered")

    async def stop(self) -> None:
        """Stop everything, whatever fails; then raise the first failure."""
        failures = []
        servers: list[AioServer[Any]] = [*self.brokers, self.nameserver]
        for server in servers:
            try:
                await server.stop()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def create_topic(
        self, name: str, *, queues: int = 4, perm: int = READ_WRITE, is_ordered: bool = False
    ) -> None:
        """Make or change a topic on all brokers; clients find it when this returns.

        Raises BrokerError when a broker refuses.
        """
        kind = TopicFilterType.SINGLE_TAG.value
        header = UpdateAndCreateTopic(name, "TBW102", queues, queues, perm, kind, 0, is_ordered)
        for broker in self.brokers:
            async with connected(broker) as channel:
                code = RequestCode.UPDATE_AND_CREATE_TOPIC
                answer = await channel.request(code, header, timeout_ms=REQUEST_MS_MAX)
            if answer.code != ResponseCode.SUCCESS:
                raise BrokerError(answer.code, answer.remark or "")
        wanted = {broker.name: (queues, perm & broker.permission) for broker in self.brokers}
        await self._until(lambda channel: _has_route(channel, name, wanted), f"a route of {name}")

    async def _until(self, is_so: Callable[[Channel], Awaitable[bool]], what: str) -> None:
        async def wait() -> None:
            async with connected(self.nameserver) as channel:
                while not await is_so(channel):  # noqa: ASYNC110  # it is told by nobody
                    await asyncio.sleep(_POLL_SECONDS)

        await within(ROUTE_SECONDS_MAX, wait(), self.nameserver.name, f"have {what}")


async def _has_brokers(channel: Channel, names: Iterable[str]) -> bool:
    code = RequestCode.GET_BROKER_CLUSTER_INFO
    answer = await channel.request(code, timeout_ms=REQUEST_MS_MAX)
    table = bodies.decode(ClusterInfo, answer.body).broker_addr_table
    return all(name in table for name in names)


async def _has_route(channel: Channel, topic: str, wanted: Mapping[str, tuple[int, int]]) -> bool:
    code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopic(topic)
    answer = await channel.request(code, header, timeout_ms=REQUEST_MS_MAX)
    if answer.code != ResponseCode.SUCCESS:
        return False
    queues = bodies.decode(TopicRoute, answer.body).queue_datas
    return {q.broker_name: (q.write_queue_nums, q.perm) for q in queues} == wanted


@contextlib.asynccontextmanager
async def connected(server: AioServer[Any]) -> AsyncIterator[Channel]:
    """A connection to a server, for as long as the block lasts."""
    server.service  # noqa: B018  # says so in our words when it is not running
    channel = await connect(server.address)
    try:
        yield channel
    finally:
        channel.close()


async def within(seconds: float, work: Coroutine[Any, Any, T], server: str, what: str) -> T:
    """Await something that must not take for ever. Raises ClusterError when it does."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise ClusterError(server, f"did not {what} within {seconds} s") from error


def loaded(kind: type[B], given: Settings) -> B:
    """Settings by key, values as they are; other than in a file, an unknown key is an error."""
    texts = {key: _text(value) for key, value in given.items()}
    config = kind.load(file=texts, environment={}, flags={})
    for unknown in config.review().unknown:
        hint = f"did you mean '{unknown.suggestion}'?" if unknown.suggestion else ""
        raise SettingsError(unknown.key, "there is no such setting", hint)
    return config


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _copy_live(source: Path, target: Path) -> None:
    """Copy a store that is in use; a file that vanishes meanwhile only had another name."""
    for attempt in range(COPY_ATTEMPTS_MAX):
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock"))
        except shutil.Error:
            shutil.rmtree(target)
            if attempt == COPY_ATTEMPTS_MAX - 1:
                raise
        else:
            return
