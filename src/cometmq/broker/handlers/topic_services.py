"""What administrators ask about topics, and deleting them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from cometmq import logs
from cometmq.broker.clients import Clients
from cometmq.broker.handlers.paging import page
from cometmq.broker.handlers.writing import made, written
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.progress import (
    ENTRIES_MAX,
    NO_TIME,
    EntryRoom,
    Pace,
    Tps,
    no_tps,
    stored_at,
)
from cometmq.broker.removal import TopicRemoval
from cometmq.broker.topics import Topic, TopicTable, shown
from cometmq.codec import bodies, core
from cometmq.codec.bodies.groups import GroupList
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.bodies.topics import TopicConfigTable, TopicOffset, TopicStatsTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.topics import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetAllTopicConfigResponse,
    GetTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
)
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DataVersion
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes
from cometmq.store import MessageStore

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
"""The statistic of messages taken, by topic."""

_NO_MAPPINGS: Final = DataVersion(0, 0, 0)

_log = logs.get_logger("cometmq.broker")


class TopicServiceHandlers:
    """Requests 21, 202, 215, 300, 305, 316 and 351.

    ``settle`` is awaited before a deletion is answered: then it is to be saved and registered. It
    must end by itself, whatever happens.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: Clients,
        removal: TopicRemoval,
        *,
        broker_name: str,
        settle: Callable[[], Awaitable[object]] | None = None,
        tps: Tps = no_tps,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._removal = removal
        self._broker_name = broker_name
        self._settle = settle
        self._tps = tps
        self._room = EntryRoom(entries_max)
        # Who consumes a topic is told to one after the other: it may be very many groups.
        self._naming_consumers = asyncio.Lock()

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.DELETE_TOPIC_IN_BROKER, self.delete)
        routes.add(RequestCode.CLEAN_UNUSED_TOPIC, self.clean_unused)
        routes.add(RequestCode.GET_ALL_TOPIC_CONFIG, self.all_configs)
        routes.add(RequestCode.GET_TOPIC_CONFIG, self.config)
        routes.add(RequestCode.GET_TOPIC_STATS_INFO, self.stats)
        routes.add(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.consumers)
        routes.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.system_topics)

    # --- deleting

    async def delete(self, channel: Channel, command: Command) -> Answer:
        """Deleting what does not exist is a success: so it is not there afterwards."""
        name = core.read(command, DeleteTopicInBroker).topic
        if not name.strip():
            raise BrokerError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if self._topics.is_system(name):
            remark = f"The topic[{shown(name)}] is conflict with system topic."
            raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
        if self._topics.get(name) is not None:
            _log.info("topic=%s to be deleted by %s", name, channel.peer)
        await self._removal.remove(name)
        if self._settle is not None:
            await self._settle()
        return Answer()

    async def clean_unused(self, channel: Channel, command: Command) -> Answer:
        count = await self._removal.remove_unused()
        if count:
            _log.info("queues of %d unused topics deleted by %s", count, channel.peer)
        return Answer()

    # --- telling

    async def all_configs(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetAllTopicConfig)
        table = self._topics.table()
        count = len(table.topic_config_table)
        body = await made(count, lambda: _page(table, said))
        return Answer(header=GetAllTopicConfigResponse(count), body=body)

    def config(self, channel: Channel, command: Command) -> Answer:
        """Tools of 5.x give up on any other code than 17 for a topic that is not here."""
        name = core.read(command, GetTopicConfig).topic
        topic = self._topics.get(name)
        if topic is None:
            remark = f"No topic in this broker. topic: {shown(name)}"
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return Answer(body=bodies.encode(topic.config))

    async def stats(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, GetTopicStatsInfo).topic
        topic = self._topics.get(name)
        if topic is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{shown(name)}] not exist")
        count = topic.queue_count
        with self._room.take(count, "give the topic fewer queues"):
            table, pace = {}, Pace()
            for queue_id in range(count):
                await pace.step()
                queue = MessageQueue(name, self._broker_name, queue_id)
                table[queue] = self._bounds(topic, queue_id)
            stats = TopicStatsTable(table, self._tps(TOPIC_PUT_NUMS, name))
            return Answer(body=await written(stats, count))

    async def consumers(self, channel: Channel, command: Command) -> Answer:
        """Groups that are online for a topic, and those that have offsets of it."""
        name = core.read(command, QueryTopicConsumeByWho).topic
        async with self._naming_consumers:
            online = (
                group.name
                for group in self._clients.consumer_groups.values()
                if name in group.subscriptions
            )
            groups = dict.fromkeys([*online, *self._offsets.groups_of(name)])
            return Answer(body=await written(GroupList(tuple(groups)), len(groups)))

    def system_topics(self, channel: Channel, command: Command) -> Answer:
        names = tuple(sorted(self._topics.system_names()))
        return Answer(body=bodies.encode(TopicList(names)))

    def _bounds(self, topic: Topic, queue_id: int) -> TopicOffset:
        queue = self._store.queue(topic.name, queue_id)
        if queue is None:
            return TopicOffset()
        begin, end = queue.min_offset, queue.max_offset
        is_empty = end <= begin
        last = NO_TIME if is_empty else stored_at(self._store, topic.name, queue_id, end - 1)
        return TopicOffset(begin, end, last)


def _page(table: TopicConfigTable, said: GetAllTopicConfig) -> bytes:
    version = table.data_version or DataVersion()
    names = page(
        table.topic_config_table,
        version,
        begin=said.topic_seq,
        stamp=said.data_version,
        count=said.max_topic_num,
    )
    told = msgspec.structs.replace(
        table,
        topic_config_table={name: table.topic_config_table[name] for name in names},
        # Of static topics, which this broker has none of; tools of 5.x look into them.
        mapping_data_version=_NO_MAPPINGS,
        topic_queue_mapping_detail_map={},
        topic_queue_mapping_info_map={},
    )
    return bodies.encode(told)
