"""Consumers that could not handle a message hand it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker import retry
from cometmq.broker.retry import Destination
from cometmq.broker.statistics import pair_counter
from cometmq.codec import core, record
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import ConsumerSendMsgBack
from cometmq.errors import BrokerError, RemoteProtocolError
from cometmq.model.topic import Permission
from cometmq.remoting.routes import Answer

if TYPE_CHECKING:
    import random

    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.delay.levels import DelayLevels
    from cometmq.broker.groups import GroupTable
    from cometmq.broker.topics import Topic, TopicTable
    from cometmq.codec.command import Command
    from cometmq.codec.record import Record
    from cometmq.model.group import SubscriptionGroupConfig
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore


class SendBackHandlers:
    """Request 36. The copy is in the log when it is answered; nobody waits for the disk.

    ``host`` is the broker's address as refusals name it, ``store_host`` as records do.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        levels: DelayLevels,
        *,
        settings: BrokerSettings,
        host: str,
        store_host: bytes,
        chance: random.Random,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._levels = levels
        # May be replaced while running.
        self.settings = settings
        self._host = host
        self._store_host = store_host
        # Chooses the queue of a copy.
        self._chance = chance
        # Messages that came back, by topic and group, and those of them that went to dead letters.
        self.returned: dict[tuple[str, str], list[int]] = {}
        self.buried: dict[tuple[str, str], list[int]] = {}

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.CONSUMER_SEND_MSG_BACK, self.send_back)

    def send_back(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, ConsumerSendMsgBack)
        group = self._groups.obtain(said.group)
        if group is None:
            raise retry.unknown_group(said.group)
        if not self.settings.broker_permission & Permission.WRITE:
            remark = f"the broker[{self._host}] sending message is forbidden"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        if group.config.retry_queue_nums <= 0:
            return Answer()  # the group does not want anything again
        topic = self._retry_topic(said, group.config)
        found = self._record(said.offset)
        chosen = retry.plan(found, said, group.config, command.version)
        if chosen.destination is Destination.DEAD_LETTER:
            topic = self._topics.create_dead_letter(said.group)
        queue_id = self._chance.randrange(max(topic.write_queue_count, 1))
        message = retry.handed_back(found, chosen, topic.name, queue_id, self._store_host)
        result = self._store.put(self._levels.diverted(message, chosen.delay_level))
        if not result.status.is_stored:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, result.status.name)
        topic.put_count += 1
        topic.put_bytes += result.end - result.physical_offset
        self._count(found, said.group, chosen.destination)
        return Answer()

    def _count(self, found: Record, group: str, destination: Destination) -> None:
        origin = retry.origin_topic(found)
        pair_counter(self.returned, origin, group, width=1)[0] += 1
        if destination is Destination.DEAD_LETTER:
            pair_counter(self.buried, origin, group, width=1)[0] += 1

    def _retry_topic(self, said: ConsumerSendMsgBack, group: SubscriptionGroupConfig) -> Topic:
        topic = self._topics.create_retry(
            said.group, group.retry_queue_nums, is_unit=bool(said.unit_mode)
        )
        if not topic.config.is_writable:
            remark = f"the topic[{topic.name}] sending message is forbidden"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        return topic

    def _record(self, offset: int) -> Record:
        view = self._store.record_at(offset)
        if view is not None:
            try:
                with view:
                    found = record.parse(view)
                    assert isinstance(found, record.Record)
                    return found
            except RemoteProtocolError:
                pass  # bytes that look like a record: the offset is none of ours
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
