"""Servers for the tests of our Python client: ours and both of Apache's, started once for all.

Several modules use the same clusters; they end with the last of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.interop import asking, membership
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.broker import OurBroker
from tests.interop.broker_fixtures import LEVEL_DELAYS_S
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer

OURS, OLD, NEW = "ours", "4.9.7", "5.5.0"
RELEASES = (OURS, OLD, NEW)
QUEUES = 4
FIXTURE = "clusters"

SETTINGS: Mapping[str, str] = {
    "messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVEL_DELAYS_S),
    "recallMessageEnable": "true",
    # A killed broker would forget what was committed since.
    "flushConsumerOffsetInterval": "500",
    # A new group that is to begin at the end of a young queue does so only if its messages are
    # taken to be on disk; then pulls bring fewer unless told otherwise.
    "accessMessageInMemoryMaxRatio": "0",
    "maxTransferCountOnMessageInDisk": "32",
    "maxTransferBytesOnMessageInDisk": str(256 << 10),
}
# The lock of a killed member must run out before another one may have its queue.
LOCK_LIFE_KEY = "rocketmq.broker.rebalance.lockMaxLiveTime"
LOCK_LIFE_MS = 1500


@dataclass(slots=True)
class Cluster:
    """A name server and one broker, ``broker-a``, of ``release``."""

    release: str
    namesrv: str
    broker: OurBroker | ApacheBroker
    start_again: Callable[[], OurBroker | ApacheBroker]

    @property
    def has_timers(self) -> bool:
        return self.release != OLD

    def create_topic(self, topic: str, *, queues: int = QUEUES) -> None:
        """Return once clients can find the topic."""
        asking.create_topic(self.broker.address, topic, queues=queues)
        self.wait_until_known(topic)

    def wait_until_known(self, topic: str) -> None:
        asking.wait_until_known([self.namesrv], topic)

    def introduce_group(self, group: str) -> None:
        """Return once clients can find the group's retry topic."""
        membership.join_and_leave(self.broker.address, group)
        self.wait_until_known(f"%RETRY%{group}")

    def kill_and_restart(self) -> None:
        """End the broker as a power cut of the machine would not: its page cache stays."""
        self.broker.kill()
        self.broker = self.start_again()


class Clusters:
    """A cluster of each release, started when first asked for or as soon as it is wanted."""

    def __init__(self, cache: Cache, folder: Path) -> None:
        self._cache = cache
        self._folder = folder
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(len(RELEASES))
        self._started: dict[str, Future[Cluster]] = {}

    def want(self, releases: Iterable[str]) -> None:
        """Start these in the background: whoever needs the first need not wait for the others."""
        for release in releases:
            if release not in self._started:
                self._started[release] = self._pool.submit(self._start, release)

    def get(self, release: str) -> Cluster:
        self.want([release])
        return self._started[release].result()

    def close(self) -> None:
        """Harmless when they have ended."""
        self._pool.shutdown()
        self._stack.close()

    def _start(self, release: str) -> Cluster:
        started = running(self._cache, release, self._folder / release)
        return self._stack.enter_context(started)


# Those that run, for the modules that use them.
_running: list[Clusters] = []


@contextmanager
def shared(
    request: pytest.FixtureRequest, cache: Cache, folders: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """The clusters of all modules with a fixture called ``clusters``, for one of them."""
    if not _running:
        started = Clusters(cache, folders.mktemp("client-clusters"))
        _running.append(started)
        # Where the last of the modules is never reached.
        request.config.add_cleanup(started.close)
    yield _running[0]
    users = [item for item in request.session.items if FIXTURE in getattr(item, "fixturenames", ())]
    if users[-1].path == request.path:
        _running.pop().close()


def params_of(request: pytest.FixtureRequest, name: str) -> list[Any]:
    """What the tests of a module are going to ask of a fixture, in their order."""
    own = [item for item in request.session.items if item.path == request.path]
    params = [callspec.params for item in own if (callspec := getattr(item, "callspec", None))]
    return list(dict.fromkeys(found[name] for found in params if name in found))


@contextmanager
def running(cache: Cache, release: str, folder: Path) -> Iterator[Cluster]:
    """Servers of one release for as long as the block; nobody opens their stores again."""
    cluster = _our_cluster(folder) if release == OURS else _apaches(cache, release, folder)
    with cluster as started:
        try:
            yield started
        finally:
            started.broker.kill()


@contextmanager
def _our_cluster(folder: Path) -> Iterator[Cluster]:
    settings = {**SETTINGS, LOCK_LIFE_KEY: str(LOCK_LIFE_MS)}
    with OurNameServer(folder / "namesrv") as namesrv:
        broker = OurBroker(folder / "broker", namesrv=namesrv.address, settings=settings)

        def start_again() -> OurBroker:
            broker.start()
            return broker

        yield Cluster(OURS, namesrv.address, broker, start_again)


@contextmanager
def _apaches(cache: Cache, release: str, folder: Path) -> Iterator[Cluster]:
    namesrv = ApacheNameServer(cache, release, folder / "namesrv")

    def start(settings: Mapping[str, str]) -> ApacheBroker:
        return ApacheBroker(
            cache,
            release,
            folder / "broker",
            namesrv=namesrv.address,
            settings=settings,
            properties={LOCK_LIFE_KEY: str(LOCK_LIFE_MS)},
        )

    try:
        broker = start(SETTINGS)
        yield Cluster(release, namesrv.address, broker, lambda: start(broker.settings))
    finally:
        namesrv.kill()
