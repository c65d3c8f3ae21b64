"""Administrators making and changing consumer groups."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from cometmq import logs
from cometmq.broker.groups import GroupTable, problem_of
from cometmq.broker.handlers.reading import with_body
from cometmq.broker.topics import QUEUES_MAX
from cometmq.codec import bodies
from cometmq.codec.bodies.groups import SubscriptionGroupList
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

_log = logs.get_logger("cometmq.broker")

_BODY_BYTES_MAX: Final = 32 * 1024
"""A group's settings take some 400 bytes; reading a large body would hold up everybody."""


class GroupHandlers:
    """Requests that change groups.

    ``settle`` is awaited before a change is answered: then it is to be saved. It must end by
    itself, whatever happens.
    """

    def __init__(
        self, groups: GroupTable, settle: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._groups = groups
        self._settle = settle

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.update)
        routes.add(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self.update_list)

    async def update(self, channel: Channel, command: Command) -> Answer:
        if self._put(channel, _checked(_read(command))) and self._settle is not None:
            await self._settle()
        return Answer()

    async def update_list(self, channel: Channel, command: Command) -> Answer:
        """Make or change some groups: all of them, or none when there is something to refuse."""
        before = self._groups.data_version

        def put(said: SubscriptionGroupList) -> Answer:
            wanted = list(map(_checked, said.group_config_list))
            for config in wanted:
                self._put(channel, config)
            return Answer()

        answer = with_body(channel, command, SubscriptionGroupList, put)
        if not isinstance(answer, Answer):
            answer = await answer
        if self._groups.data_version != before and self._settle is not None:
            await self._settle()
        return answer

    def _put(self, channel: Channel, config: SubscriptionGroupConfig) -> bool:
        """Whether that changed anything."""
        known = self._groups.get(config.group_name)
        if known is not None and known.config == config:
            return False
        if known is not None:
            _log.info("group=%s changed by %s: %s", config.group_name, channel.peer, config)
        self._groups.put(config)
        return True


def _read(command: Command) -> SubscriptionGroupConfig:
    size = len(command.body)
    if not 0 < size <= _BODY_BYTES_MAX:
        remark = f"body of {size} bytes: a group takes 1 to {_BODY_BYTES_MAX}"
        raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
    return bodies.decode(SubscriptionGroupConfig, command.body)


def _checked(config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
    """A group as it is kept: with the members that only 5.x knows, should they be missing."""
    if problem := problem_of(config.group_name):
        raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
    if config.retry_queue_nums > QUEUES_MAX:
        remark = f"retryQueueNums = [{config.retry_queue_nums}] value invalid, at most {QUEUES_MAX}"
        raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
    if config.attributes:
        # As with topics these are changes ("+key"), and there is none that groups have yet.
        key = next(iter(config.attributes)).lstrip("+-")
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"unsupported key: {key}")
    default = SubscriptionGroupConfig.with_defaults(config.group_name)
    missing = {
        name: value
        for name in config.__struct_fields__
        if getattr(config, name) is None and (value := getattr(default, name)) is not None
    }
    return msgspec.structs.replace(config, **missing)
