"""How the broker is doing and how it is set up: asked, and changed while it runs."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq import logs
from cometmq.broker.finishing import Finishing
from cometmq.broker.handlers.reading import BODY_BYTES_MAX
from cometmq.broker.topics import shown
from cometmq.codec import bodies, core, java_properties, timer
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.bodies.stats import HAClientInfo, HARuntimeInfo, TimerMetrics
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.runtime import GetBrokerConfigResponse, ViewBrokerStatsData
from cometmq.errors import BrokerError, SettingsError
from cometmq.model.topic import DataVersion
from cometmq.remoting.routes import Answer
from cometmq.store.files import DiskFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.broker.live_settings import Change, LiveSettings
    from cometmq.broker.runtime_info import RuntimeInfo, Timers
    from cometmq.broker.statistics import Statistics
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore
    from cometmq.store.files import DiskUsage

_log = logs.get_logger("cometmq.broker")

_CHECK_BYTES: Final = 56
"""Of the page that says how far timers are, what is sent: the rest is zeros."""


class RuntimeHandlers:
    """Requests 25, 26, 28, 60, 61, 315 and 907."""

    def __init__(
        self,
        store: MessageStore,
        info: RuntimeInfo,
        statistics: Statistics,
        settings: LiveSettings,
        *,
        timers: Timers | None = None,
        usage: Callable[[Path], DiskUsage] | None = None,
    ) -> None:
        self._store = store
        self._info = info
        self._statistics = statistics
        self._settings = settings
        self._timers = timers
        self._usage = usage or DiskFiles().usage
        # One change at a time: each reads the file, changes it and writes it.
        self._changing = asyncio.Lock()
        self._finishing = Finishing()

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.GET_BROKER_RUNTIME_INFO, self.runtime_info)
        routes.add(RequestCode.VIEW_BROKER_STATS_DATA, self.stats)
        routes.add(RequestCode.GET_BROKER_CONFIG, self.show_settings)
        routes.add(RequestCode.UPDATE_BROKER_CONFIG, self.change_settings)
        routes.add(RequestCode.GET_BROKER_HA_STATUS, self.replication)
        routes.add(RequestCode.GET_TIMER_CHECK_POINT, self.timer_check)
        routes.add(RequestCode.GET_TIMER_METRICS, self.timer_metrics)

    async def runtime_info(self, channel: Channel, command: Command) -> Answer:
        folders, root = self._info.log_folders(), self._store.root
        usages, of_root = await asyncio.to_thread(self._measured, folders, root)
        return Answer(body=bodies.encode(KVTable(self._info.table(usages, of_root))))

    def stats(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, ViewBrokerStatsData)
        found = self._statistics.view(said.stats_name, said.stats_key)
        if found is None:
            name, key = shown(said.stats_name), shown(said.stats_key)
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return Answer(body=bodies.encode(found))

    def show_settings(self, channel: Channel, command: Command) -> Answer:
        version = bodies.encode(self._settings.version).decode()
        body = java_properties.dumps(self._settings.shown())
        return Answer(header=GetBrokerConfigResponse(version), body=body)

    async def change_settings(self, channel: Channel, command: Command) -> Answer:
        """Keep changes and have them take effect; the answer says for which that comes later."""
        if len(command.body) > BODY_BYTES_MAX:
            remark = f"body of {len(command.body)} bytes: more than {BODY_BYTES_MAX} make no sense"
            raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
        changes = java_properties.loads(command.body)
        if refused := self._settings.refused(changes):
            _log.warning("%s tried to change %s", channel.peer, ", ".join(refused))
            remark = "Can not update config in black list."
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        change = await self._finishing.run(self._change(changes))
        _log.info("settings changed by %s: %s", channel.peer, change)
        return Answer(remark=change.remark or None)

    async def _change(self, changes: Mapping[str, str]) -> Change:
        async with self._changing:
            try:
                change = self._settings.check(changes)
                await asyncio.to_thread(self._settings.look_up, changes)
                await asyncio.to_thread(self._settings.save, changes)
            except SettingsError as error:
                raise BrokerError(ResponseCode.INVALID_PARAMETER, shown(str(error))) from error
            except OSError as error:
                remark = f"nothing is changed, the broker's file cannot be written: {error}"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark) from error
            self._settings.apply(changes)
            return change

    def replication(self, channel: Channel, command: Command) -> Answer:
        """A master without slaves."""
        told = HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self._store.log_end,
            ha_client_runtime_info=HAClientInfo(),
        )
        return Answer(body=bodies.encode(told))

    def timer_check(self, channel: Channel, command: Command) -> Answer:
        if self._timers is None:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "The checkpoint is null")
        return Answer(body=timer.pack_check(self._timers.check())[:_CHECK_BYTES])

    def timer_metrics(self, channel: Channel, command: Command) -> Answer:
        nothing = TimerMetrics(DataVersion(state_version=0))
        told = nothing if self._timers is None else self._timers.metrics()
        return Answer(body=bodies.encode(told))

    def _measured(
        self, folders: tuple[str, ...], root: Path
    ) -> tuple[dict[str, DiskUsage], DiskUsage]:
        measure = functools.cache(self._usage)
        return {folder: measure(Path(folder)) for folder in folders}, measure(root)
