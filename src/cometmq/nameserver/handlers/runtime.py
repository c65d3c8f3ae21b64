"""The settings of a running name server: read and changed from outside."""

import asyncio

from cometmq import logs
from cometmq.codec import java_properties
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import BrokerError, SettingsError
from cometmq.nameserver.live_settings import LiveSettings
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

_log = logs.get_logger("cometmq.nameserver")


class RuntimeHandlers:
    """Code 319 shows all settings as properties text, 318 changes some and keeps them."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.GET_NAMESRV_CONFIG, self.show)
        routes.add(RequestCode.UPDATE_NAMESRV_CONFIG, self.update)

    def show(self, channel: Channel, command: Command) -> Answer:
        return Answer(body=java_properties.dumps(self._settings.as_properties()))

    async def update(self, channel: Channel, command: Command) -> Answer:
        changes = java_properties.loads(command.body)
        if refused := self._settings.refused(changes):
            _log.warning("%s tried to change %s", channel.peer, ", ".join(refused))
            remark = "Can not update config in black list."
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        try:
            update = self._settings.update(changes)
        except SettingsError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, error.fact) from error
        _log.info("settings changed by %s: %s", channel.peer, update)
        await asyncio.to_thread(self._settings.save)
        return Answer()
