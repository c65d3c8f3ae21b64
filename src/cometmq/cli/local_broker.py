"""A broker of ``cometmq up`` in a folder of its own, and the file that tells Apache's about it.

::

    FOLDER/broker.conf    settings of the broker, read at the start and kept up to date
    FOLDER/store/         its store

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
from cometmq.broker.config import BrokerSettings
from cometmq.codec import java_properties
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.remoting.client import split_address
from cometmq.remoting.running import Background
from cometmq.store.directory import LOG_FOLDER, Layout
from cometmq.store.files import DiskFiles

_DEFAULTS: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(30_000 * ENTRY_BYTES),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    # Off in Apache's broker; who tries 'produce --delay' is told how to take it back.
    "recallMessageEnable": "true",
}
"""For a broker on a desk: Apache's sizes are made for a server with a disk of its own."""

_DECIDED = (
    *("brokerIP1", "bindAddress", "listenPort", "haListenPort", "namesrvAddr"),
    *("storePathRootDir", "storePathCommitLog"),
)
"""Keys that do not come from the file: what it says is how things were the last time."""

_REFUSED_KEY = "configBlackList"
"""Keys that a broker does not let anybody change while it runs."""

_HEADING = b"""\
# Settings of the broker of 'cometmq up', with which Apache's broker opens the same store.
# Addresses, ports, directories and sizes are written at each start; the rest is yours.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """Where a broker keeps its things and listens; ``name`` is for one that has none yet."""

    folder: Path
    name: str
    listen: str
    port: int | None
    namesrv: str

    @property
    def store_root(self) -> Path:
        return self.folder / "store"

    @property
    def file(self) -> Path:
        return self.folder / "broker.conf"


class LocalBroker:
    """Runs the broker until it is stopped; ``on_started`` is told when it can be used."""

    def __init__(
        self,
        place: BrokerPlace,
        environment: Mapping[str, str],
        on_started: "Callable[[LocalBroker], None]",
    ) -> None:
        self.place = place
        self.background = Background()
        self._environment = environment
        self._on_started = on_started
        self.name = place.name  # as the broker has it, once started
        self.broker: Broker | None = None

    @property
    def address(self) -> str:
        """What clients are told about it, once started."""
        assert self.broker is not None
        return self.broker.address

    async def start(self) -> None:
        """Raises PortInUse, StoreLocked and the like."""
        config = self._config()
        # Tools look for it, and the store makes it with the first message only.
        (self.place.store_root / LOG_FOLDER).mkdir(parents=True, exist_ok=True)
        layout = Layout.survey(self.place.store_root, config.store, DiskFiles())
        self.name = config.broker.broker_name
        self.broker = Broker(config)
        await self.broker.start()
        self.background.spawn("broker", _watch(self.broker.background))
        self._write_file(self._properties(config, layout))
        self._on_started(self)

    async def stop(self) -> None:
        await self.background.stop()
        if self.broker is not None:
            await self.broker.stop()

    def _config(self) -> BrokerConfig:
        known = {
            key: value
            for key, value in properties_in(self.place.file).items()
            if key not in _DECIDED
        }
        flags = {
            "listen_port": self.place.port,
            "bind_address": self.place.listen,
            "namesrv_addr": self.place.namesrv,
            "root": str(self.place.store_root.absolute()),
        }
        # Else who sets one would be told that it takes effect after a restart, and it never does.
        refused = known.get(_REFUSED_KEY) or ";".join(BrokerSettings().config_black_list)
        own = {
            "brokerConfigPath": str(self.place.file.absolute()),
            _REFUSED_KEY: ";".join((refused, *_DECIDED)),
        }
        file = {"brokerName": self.place.name, **_DEFAULTS, **known, **own}
        return BrokerConfig.load(file=file, environment=self._environment, flags=flags)

    def _write_file(self, decided: Mapping[str, str]) -> None:
        existing = properties_in(self.place.file)
        wanted = {**existing, **decided}
        if wanted != existing:
            saved_file.replace_file(self.place.file, _HEADING + java_properties.dumps(wanted))

    def _properties(self, config: BrokerConfig, layout: Layout) -> dict[str, str]:
        """What Apache's broker needs to know to go on where this one stops.

        Files that exist keep their sizes, and Apache's broker must be told which they are.
        """
        host, port = split_address(self.address)
        return {
            "brokerClusterName": config.broker.cluster_name,
            "brokerName": config.broker.broker_name,
            "brokerId": "0",
            "brokerIP1": host,
            "bindAddress": self.place.listen,
            "listenPort": str(port),
            "haListenPort": str(config.broker.ha_listen_port or port + 1),
            "namesrvAddr": self.place.namesrv,
            "storePathRootDir": str(self.place.store_root.absolute()),
            "storePathCommitLog": str((self.place.store_root / LOG_FOLDER).absolute()),
            "mappedFileSizeCommitLog": str(layout.log_file_bytes),
            "mappedFileSizeConsumeQueue": str(layout.queue_file_bytes),
            "maxHashSlotNum": str(layout.index_slots),
            "maxIndexNum": str(layout.index_entries),
        }


def properties_in(path: Path) -> dict[str, str]:
    """What an earlier run has left; nothing the first time."""
    content = saved_file.read_file(path)
    return {} if content is None else java_properties.loads(content)


async def _watch(background: Background) -> None:
    raise await background.wait_for_death()
