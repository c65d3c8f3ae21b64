"""Administrators making and changing topics."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NoReturn

import msgspec

from cometmq import logs
from cometmq.broker.handlers.reading import with_body
from cometmq.broker.topics import QUEUES_MAX, TopicTable, problem_of, shown
from cometmq.codec import core
from cometmq.codec.bodies.topics import TopicConfigList
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.topics import UpdateAndCreateTopic
from cometmq.errors import BrokerError
from cometmq.model.topic import TopicConfig, TopicFilterType
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

_log = logs.get_logger("cometmq.broker")

_PERM_MAX: Final = 7
_ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    # Batch queues and compaction are other storage engines, and a store with them is not ours.
    "queue.type": ("SimpleCQ",),
    "cleanup.policy": ("DELETE",),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}
_UNCHANGEABLE: Final = frozenset({"queue.type", "cleanup.policy"})


class TopicHandlers:
    """Requests that change topics.

    ``settle`` is awaited before a change is answered: then it is to be saved and registered. It
    must end by itself, whatever happens.
    """

    def __init__(
        self, topics: TopicTable, settle: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._topics = topics
        self._settle = settle

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.UPDATE_AND_CREATE_TOPIC, self.update)
        routes.add(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self.update_list)

    async def update(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, UpdateAndCreateTopic)
        self._check_name(said.topic)
        wanted = self._wanted(_asked(said), said.attributes or "")
        if self._put(channel, wanted) and self._settle is not None:
            await self._settle()
        return Answer()

    async def update_list(self, channel: Channel, command: Command) -> Answer:
        """Make or change some topics: all of them, or none when there is something to refuse."""
        before = self._topics.data_version

        def put(said: TopicConfigList) -> Answer:
            for config in said.topic_config_list:
                self._check_name(config.topic_name)
            wanted = [
                self._wanted(config, _changes(config.attributes))
                for config in said.topic_config_list
            ]
            for config in wanted:
                self._put(channel, config)
            return Answer()

        answer = with_body(channel, command, TopicConfigList, put)
        if not isinstance(answer, Answer):
            answer = await answer
        if self._topics.data_version != before and self._settle is not None:
            await self._settle()
        return answer

    def _check_name(self, name: str) -> None:
        if problem := problem_of(name):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        if self._topics.is_system(name):
            remark = f"The topic[{name}] is conflict with system topic."
            raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)

    def _wanted(self, asked: TopicConfig, changes: str) -> TopicConfig:
        """The topic as it shall be; ``changes`` are those of its attributes."""
        _check_number("readQueueNums", asked.read_queue_nums, QUEUES_MAX)
        _check_number("writeQueueNums", asked.write_queue_nums, QUEUES_MAX)
        _check_number("perm", asked.perm, _PERM_MAX)
        known = self._topics.get(asked.topic_name)
        before = None if known is None else known.config.attributes or {}
        return msgspec.structs.replace(asked, attributes=altered(before, changes))

    def _put(self, channel: Channel, config: TopicConfig) -> bool:
        """Whether that changed anything."""
        known = self._topics.get(config.topic_name)
        if known is not None and known.config == config:
            return False
        if known is not None:
            _log.info("topic=%s changed by %s: %s", config.topic_name, channel.peer, config)
        self._topics.put(config)
        return True


def _asked(said: UpdateAndCreateTopic) -> TopicConfig:
    try:
        filter_type = TopicFilterType(said.topic_filter_type)
    except ValueError:
        remark = f"topicFilterType = [{shown(said.topic_filter_type)}] value invalid"
        raise BrokerError(ResponseCode.INVALID_PARAMETER, remark) from None
    return TopicConfig(
        said.topic,
        said.read_queue_nums,
        said.write_queue_nums,
        said.perm,
        filter_type,
        said.topic_sys_flag or 0,
        bool(said.order),
    )


def _changes(attributes: Mapping[str, str] | None) -> str:
    """Changes of attributes as a header would say them: ``+key`` has a value, ``-key`` none."""
    pairs = (attributes or {}).items()
    return ",".join(f"{key}={value}" if key.startswith("+") else key for key, value in pairs)


def _check_number(name: str, value: int, maximum: int) -> None:
    if not 0 <= value <= maximum:
        remark = f"{name} = [{value}] value invalid, 0 to {maximum} are possible"
        raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)


def altered(before: Mapping[str, str] | None, changes: str) -> dict[str, str]:
    """Attributes after ``changes`` (``+key=value,-key``); ``before`` is None for a new topic.

    Raises BrokerError with Apache's words when they cannot be made.
    """
    attributes = dict(before or {})
    seen = set()
    for change in changes.split(",") if changes else ():
        signed, equals, value = change.partition("=")
        sign, key = signed[:1], signed[1:]
        if sign != ("+" if equals else "-"):
            kind = "add/alter" if equals else "delete"
            _refuse(f"{kind} attribute format is wrong: {signed}")
        if not key or "+" in key or "-" in key:
            _refuse("kv string format wrong.")
        if key in seen:
            _refuse(f"alter duplication key. key: {key}")
        seen.add(key)
        _check_attribute(before, key, value if equals else None)
        if equals:
            attributes[key] = value
        else:
            del attributes[key]
    return attributes


def _check_attribute(before: Mapping[str, str] | None, key: str, value: str | None) -> None:
    """Whether ``key`` may be set to ``value``, or deleted when that is None."""
    if before is None and value is None:
        _refuse(f"only add attribute is supported while creating topic. key: {key}")
    if before is not None and value is None and key not in before:
        _refuse(f"attempt to delete a nonexistent key: {key}")
    if key not in _ATTRIBUTES:
        _refuse(f"unsupported key: {key}")
    if before is not None and key in _UNCHANGEABLE:
        _refuse(f"attempt to update an unchangeable attribute. key: {key}")
    if value is not None and value not in _ATTRIBUTES[key]:
        _refuse(f"value is not in set: [{', '.join(_ATTRIBUTES[key])}]")


def _refuse(remark: str) -> NoReturn:
    raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
