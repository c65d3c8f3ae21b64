"""A name server and brokers on one data directory: what ``cometmq up`` runs.

::

    DATA/namesrv/         what the name server keeps
    DATA/broker.conf      settings of broker-a
    DATA/store/           its store
    DATA/broker-b/        broker.conf and store of the second broker, and so on

One broker runs in this process. With more, each has a process of its own, and the name server
stays here: Python runs on one processor at a time, and clients that connect to several brokers see
what they would see elsewhere.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase

from cometmq.broker.config import BrokerNetworkSettings
from cometmq.cli.broker_process import BrokerProcess
from cometmq.cli.local_broker import BrokerPlace, LocalBroker, properties_in
from cometmq.errors import SettingsError
from cometmq.nameserver.app import NameServer
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.remoting.running import Background
from cometmq.settings import load

BROKERS_MAX = len(ascii_lowercase)
PORT_STEP = 10
"""From one broker's port to the next: a broker also takes n-2, and slaves are told n+1."""

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
_OF_ONE_BROKER = (
    *("COMETMQ_BROKER_NAME", "COMETMQ_CONFIG_STORE_PATH"),
    *("COMETMQ_HA_LISTEN_PORT", "COMETMQ_LOG_PATHS"),
)
_HEALTH = "COMETMQ_HEALTH_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """What ``up`` was asked for; ``log_flags`` are for the processes of several brokers."""

    data: Path
    listen: str = "127.0.0.1"
    port: int | None = None
    namesrv_port: int = 9876
    brokers: int = 1
    log_flags: Mapping[str, str] | None = None


class LocalService:
    """Runs all of it until it is stopped; ``on_started`` is told when it can be used."""

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
        self.brokers: list[LocalBroker | BrokerProcess] = []

    @property
    def name_server_address(self) -> str:
        """Where clients on this machine find the name server, once started."""
        assert self._name_server is not None
        return _join(
            _EVERYWHERE.get(self.options.listen, self.options.listen), self._name_server.port
        )

    @property
    def left_out(self) -> list[str]:
        """Brokers of an earlier run that had more of them: their messages are not to be seen."""
        running = {broker.place.name for broker in self.brokers}
        files = self.options.data.glob("broker-?/broker.conf")
        return sorted({file.parent.name for file in files} - running)

    async def start(self) -> None:
        """Start the name server, then brokers. Raises PortInUse, StoreLocked and the like."""
        try:
            self.options.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            fact = f"'{self.options.data}' cannot be made: {error.strerror}"
            raise SettingsError("data", fact, "choose another directory with --data") from error
        self._name_server = NameServer(self._name_server_config())
        await self._name_server.start()
        self._watch("name server", self._name_server.background)
        places = [self._place(number) for number in range(self.options.brokers)]
        self.brokers = [self._broker(place) for place in places]
        for outcome in await asyncio.gather(
            *(broker.start() for broker in self.brokers), return_exceptions=True
        ):
            if outcome is not None:
                raise outcome
        for broker in self.brokers:
            self._watch(broker.name, broker.background)
        self._on_started(self)

    async def stop(self) -> None:
        """Stop the brokers, which still want to unregister, then the name server."""
        await self.background.stop()
        await asyncio.gather(*(broker.stop() for broker in self.brokers))
        if self._name_server is not None:
            await self._name_server.stop()

    def _name_server_config(self) -> NameServerConfig:
        folder = self.options.data / "namesrv"
        kept = folder / "namesrv.properties"
        file = {
            **properties_in(kept),
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(kept),
        }
        # There is one port for probes and metrics, the broker's.
        environment = _without(self._environment, _HEALTH)
        flags = {
            "listen_port": self.options.namesrv_port,
            "bind_address": self.options.listen,
        }
        return NameServerConfig.load(file=file, environment=environment, flags=flags)

    def _place(self, number: int) -> BrokerPlace:
        """The first broker lives where the only one does, so that there may be more of them."""
        name = f"broker-{ascii_lowercase[number]}"
        return BrokerPlace(
            folder=self.options.data if number == 0 else self.options.data / name,
            name=name,
            listen=self.options.listen,
            port=self._port(number),
            namesrv=self.name_server_address,
        )

    def _port(self, number: int) -> int | None:
        first = self.options.port
        if number == 0 or first == 0:
            return first
        if first is None:
            network = load(BrokerNetworkSettings, environment=self._environment).settings
            first = network.listen_port
        return first and first + number * PORT_STEP

    def _broker(self, place: BrokerPlace) -> LocalBroker | BrokerProcess:
        if self.options.brokers == 1:
            return LocalBroker(place, self._environment, lambda _: None)
        is_first = place.folder == self.options.data
        # What can hold for one broker only is for the first.
        environment = (
            self._environment if is_first else _without(self._environment, _HEALTH, *_OF_ONE_BROKER)
        )
        return BrokerProcess(place, environment, self.options.log_flags or {})

    def _watch(self, name: str, background: Background) -> None:
        async def watch() -> None:
            raise await background.wait_for_death()

        self.background.spawn(name, watch())


def _without(environment: Mapping[str, str], *beginnings: str) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(beginnings)}


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
