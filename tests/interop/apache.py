"""Apache's own name server and broker, small enough to run beside a test."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop import java, maven, raw, requirements, tls
from tests.interop.cache import Cache
from tests.interop.ports import LOOPBACK, free_port, free_port_triple
from tests.interop.processes import Process, Stoppable

VERSIONS = ("4.9.7", "5.5.0")
CLUSTER = "DefaultCluster"
READY = "boot success"
# Their brokers say nothing; that name servers know them is enough.
SILENT_VERSIONS = ("4.2.0",)
REGISTERED_TIMEOUT_S = 30.0
REGISTERED_POLL_S = 0.05
NAMESRV_HEAP_MB = 128
BROKER_HEAP_MB = 384

# 4.9.x refuses to start without these; warnings are all a failing test wants to read.
LOGBACK_FILES = tuple(f"logback_{part}.xml" for part in ("namesrv", "broker", "tools", "filtersrv"))
LOGBACK = '<configuration><root level="WARN"/></configuration>\n'

# Small files: a test broker holds some thousand messages, not a day's worth.
BROKER_SETTINGS: Mapping[str, str] = {
    "brokerClusterName": CLUSTER,
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": LOOPBACK,
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 10_000),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "fileReservedTime": "87600",
    # A developer's disk may well be fuller than the 75 per cent at which a broker starts to clean.
    "diskMaxUsedSpaceRatio": "95",
    # Apache's refuses sends that waited 200 ms or found the log busy for a second. On a loaded
    # machine that is its first second, and a client that names the queue does not try again.
    "waitTimeMillsInSendQueue": "30000",
    "osPageCacheBusyTimeOutMills": "30000",
    # 5.5.0 compares its wheel of 37 MB byte by byte each time: a third of a core with each second.
    "timerFlushIntervalMs": "10000",
}


class ApacheNameServer(Stoppable):
    """A running name server of one Apache release, in ``folder``.

    Short-lived for tests; a benchmark wants it as fast as it gets.
    """

    def __init__(
        self, cache: Cache, version: str, folder: Path, *, is_short_lived: bool = True
    ) -> None:
        self.version = version
        self.port = free_port()
        self.address = f"{LOOPBACK}:{self.port}"
        self.kv_config_path = folder / "kvConfig.json"
        settings = {"listenPort": str(self.port), "kvConfigPath": str(self.kv_config_path)}
        self.process = _start(
            cache,
            version,
            name=f"namesrv-{version}",
            main="org.apache.rocketmq.namesrv.NamesrvStartup",
            folder=folder,
            settings=settings,
            heap_mb=NAMESRV_HEAP_MB if is_short_lived else 4 * NAMESRV_HEAP_MB,
            is_short_lived=is_short_lived,
        )

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()


class ApacheBroker(Stoppable):
    """A running broker of one Apache release, in ``folder``, known to the name server(s).

    ``properties`` are its JVM's; with ``tls.enable`` it speaks TLS to the name servers.
    """

    def __init__(
        self,
        cache: Cache,
        version: str,
        folder: Path,
        *,
        namesrv: str,
        settings: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self._speaks_tls = (properties or {}).get("tls.enable") == "true"
        self.store_path = folder / "store"
        self.settings = {
            "listenPort": str(free_port_triple()),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(self.store_path),
            "storePathCommitLog": str(self.store_path / "commitlog"),
            **BROKER_SETTINGS,
            **(settings or {}),
        }
        self.name = self.settings["brokerName"]
        self.port = int(self.settings["listenPort"])
        self.address = f"{LOOPBACK}:{self.port}"
        self.process = _start(
            cache,
            version,
            name=f"broker-{version}-{self.name}",
            main="org.apache.rocketmq.broker.BrokerStartup",
            folder=folder,
            settings=self.settings,
            heap_mb=BROKER_HEAP_MB,
            properties=properties,
            says_ready=version not in SILENT_VERSIONS,
        )
        try:
            self._wait_until_registered(namesrv)
        except BaseException:
            self.kill()
            raise

    def _wait_until_registered(self, namesrv: str) -> None:
        """5.x says that it is ready some time before the name servers know it."""
        deadline = time.monotonic() + REGISTERED_TIMEOUT_S
        for address in namesrv.split(";"):
            while self.address.encode() not in cluster_info(address, is_tls=self._speaks_tls):
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{self.address} is still unknown to {address}")
                time.sleep(REGISTERED_POLL_S)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        """End it as a power cut would, leaving the store as it is."""
        self.process.kill()


class ApacheFilterServer(Stoppable):
    """A program beside a broker on this machine that runs class filters; 4.2.0 is the last."""

    def __init__(self, cache: Cache, broker: ApacheBroker, folder: Path) -> None:
        settings = {
            "listenPort": str(broker.port),  # the broker's; its own is any
            "namesrvAddr": broker.settings["namesrvAddr"],
            "filterServerIP": LOOPBACK,
        }
        self.process = _start(
            cache,
            broker.version,
            name=f"filtersrv-{broker.version}",
            main="org.apache.rocketmq.filtersrv.FiltersrvStartup",
            folder=folder,
            settings=settings,
            heap_mb=NAMESRV_HEAP_MB,
        )

    def stop(self) -> None:
        self.process.kill()


@dataclass(frozen=True, slots=True)
class ApacheCluster:
    """One name server and one broker of the same release."""

    version: str
    namesrv: ApacheNameServer
    broker: ApacheBroker


@contextmanager
def cluster(
    cache: Cache, version: str, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[ApacheCluster]:
    """A cluster of Apache's release ``version`` that runs for as long as the block.

    It is killed at the end: a polite stop takes ten seconds and saves a store nobody will open.
    """
    namesrv = ApacheNameServer(cache, version, folder / "namesrv")
    try:
        address = namesrv.address
        broker = ApacheBroker(cache, version, folder / "broker", namesrv=address, settings=settings)
        try:
            yield ApacheCluster(version, namesrv, broker)
        finally:
            broker.kill()
    finally:
        namesrv.kill()


def cluster_info(namesrv: str, *, is_tls: bool = False) -> bytes:
    """What a name server says about its brokers, as JSON text in a frame."""
    header = b'{"code":106,"language":"PYTHON","version":401,"opaque":1,"flag":0}'
    frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    with raw.connect(namesrv, tls=tls.anyone_is_trusted() if is_tls else None) as connection:
        return connection.exchange(frame)


def home(folder: Path) -> Path:
    """A ``ROCKETMQ_HOME`` below ``folder`` with what 4.9.x insists on finding there."""
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for name in LOGBACK_FILES:
        (conf / name).write_text(LOGBACK)
    return folder


def _start(
    cache: Cache,
    version: str,
    *,
    name: str,
    main: str,
    folder: Path,
    settings: Mapping[str, str],
    heap_mb: int,
    properties: Mapping[str, str] | None = None,
    is_short_lived: bool = True,
    says_ready: bool = True,
) -> Process:
    requirements.need("java")
    class_path = maven.class_path(cache, f"servers-{version}")
    conf = home(folder) / "server.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    arguments = ["-c", str(conf)]
    command = java.command(
        class_path,
        main,
        arguments,
        home=folder,
        heap_mb=heap_mb,
        properties=properties,
        is_short_lived=is_short_lived,
    )
    process = Process(name, command, folder=folder, env={"ROCKETMQ_HOME": str(folder)})
    try:
        if says_ready:
            process.wait_until_printed(READY)
    except BaseException:
        process.stop()
        raise
    return process
