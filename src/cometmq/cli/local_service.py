"""A name server and a broker in one process, on one data directory: what ``cometmq up`` runs.

::

    DATA/broker.conf      settings of the broker, read at the start and kept up to date
    DATA/store/           the broker's store
    DATA/namesrv/         what the name server keeps

With ``broker.conf`` Apache's broker opens the same store. What ``up`` itself decides (addresses,
ports, directories, and the sizes of files that exist) is written into it at each start; anything
else in it is left alone and takes effect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cometmq import saved_file
from cometmq.broker.app import Broker
from cometmq.broker.broker_config import BrokerConfig
from cometmq.codec import java_properties
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.nameserver.app import NameServer
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.client import split_address
from cometmq.remoting.running import Background
from cometmq.store.directory import LOG_FOLDER, Layout
from cometmq.store.files import DiskFiles

_DEFAULTS: Mapping[str, str] = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(30_000 * ENTRY_BYTES),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}
"""For a broker on a desk: Apache's sizes are made for a server with a disk of its own."""

_DECIDED = (
    *("brokerIP1", "bindAddress", "listenPort", "haListenPort", "namesrvAddr"),
    *("storePathRootDir", "storePathCommitLog"),
)
"""Keys that do not come from the file: what it says is how things were the last time."""

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
_HEADING = b"""\
# Settings of the broker of 'cometmq up', with which Apache's broker opens the same store.
# Addresses, ports, directories and sizes are written at each start; the rest is yours.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What ``up`` was asked for."""

    data: Path
    listen: str = "127.0.0.1"
    port: int | None = None
    namesrv_port: int = 9876


class LocalService:
    """Runs both until it is stopped; ``on_started`` is told when both can be used."""

    def __init__(
        self,
        options: LocalOptions,
        environment: Mapping[str, str],
        on_started: "Callable[[LocalService], None]",
    ) -> None:
        self.background = Background()
        self.options = options
        self._environment = environment
        self._on_started = on_started
        self._name_server: NameServer | None = None
        self.broker: Broker | None = None

    @property
    def store_root(self) -> Path:
        return self.options.data / "store"

    @property
    def broker_file(self) -> Path:
        return self.options.data / "broker.conf"

    @property
    def name_server_address(self) -> str:
        """Where clients on this machine find the name server, once started."""
        assert self._name_server is not None
        return _join(
            _EVERYWHERE.get(self.options.listen, self.options.listen), self._name_server.port
        )

    @property
    def broker_address(self) -> str:
        """What clients are told about the broker, once started."""
        assert self.broker is not None
        return self.broker.address

    async def start(self) -> None:
        """Start the name server, then the broker. Raises PortInUse, StoreLocked and the like."""
        self.options.data.mkdir(parents=True, exist_ok=True)
        self._name_server = NameServer(self._name_server_config())
        await self._name_server.start()
        self._watch("name server", self._name_server.background)
        config = self._broker_config()
        # Tools look for it, and the store makes it with the first message only.
        (self.store_root / LOG_FOLDER).mkdir(parents=True, exist_ok=True)
        layout = Layout.survey(self.store_root, config.store, DiskFiles())
        self.broker = Broker(config)
        await self.broker.start()
        self._watch("broker", self.broker.background)
        self._write_broker_file(self._broker_properties(config, layout))
        self._on_started(self)

    async def stop(self) -> None:
        """Stop the broker, which still wants to unregister, then the name server."""
        await self.background.stop()
        if self.broker is not None:
            await self.broker.stop()
        if self._name_server is not None:
            await self._name_server.stop()

    def _name_server_config(self) -> NameServerConfig:
        folder = self.options.data / "namesrv"
        kept = folder / "namesrv.properties"
        file = {
            **_properties(kept),
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(kept),
        }
        # There is one port for probes and metrics, the broker's.
        environment = {
            name: value
            for name, value in self._environment.items()
            if not name.startswith("COMETMQ_HEALTH_")
        }
        flags = {
            "listen_port": self.options.namesrv_port,
            "bind_address": self.options.listen,
        }
        return NameServerConfig.load(file=file, environment=environment, flags=flags)

    def _broker_config(self) -> BrokerConfig:
        known = {
            key: value
            for key, value in _properties(self.broker_file).items()
            if key not in _DECIDED
        }
        flags = {
            "listen_port": self.options.port,
            "bind_address": self.options.listen,
            "namesrv_addr": self.name_server_address,
            "root": str(self.store_root.absolute()),
        }
        file = {**_DEFAULTS, **known, "brokerConfigPath": str(self.broker_file.absolute())}
        return BrokerConfig.load(file=file, environment=self._environment, flags=flags)

    def _write_broker_file(self, decided: Mapping[str, str]) -> None:
        existing = _properties(self.broker_file)
        wanted = {**existing, **decided}
        if wanted != existing:
            content = _HEADING + java_properties.dumps(wanted)
            saved_file.replace_file(self.broker_file, content)

    def _broker_properties(self, config: BrokerConfig, layout: Layout) -> dict[str, str]:
        """What Apache's broker needs to know to go on where this one stops.

        Files that exist keep their sizes, and Apache's broker must be told which they are.
        """
        host, port = split_address(self.broker_address)
        return {
            "brokerClusterName": config.broker.cluster_name,
            "brokerName": config.broker.broker_name,
            "brokerId": "0",
            "brokerIP1": host,
            "bindAddress": self.options.listen,
            "listenPort": str(port),
            "haListenPort": str(config.broker.ha_listen_port or port + 1),
            "namesrvAddr": self.name_server_address,
            "storePathRootDir": str(self.store_root.absolute()),
            "storePathCommitLog": str((self.store_root / LOG_FOLDER).absolute()),
            "mappedFileSizeCommitLog": str(layout.log_file_bytes),
            "mappedFileSizeConsumeQueue": str(layout.queue_file_bytes),
            "maxHashSlotNum": str(layout.index_slots),
            "maxIndexNum": str(layout.index_entries),
        }

    def _watch(self, name: str, background: Background) -> None:
        async def watch() -> None:
            raise await background.wait_for_death()

        self.background.spawn(name, watch())


def _properties(path: Path) -> dict[str, str]:
    """What an earlier run has left; nothing the first time."""
    content = saved_file.read_file(path)
    return {} if content is None else java_properties.loads(content)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
