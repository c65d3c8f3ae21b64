"""What consumers ask and say about positions in queues."""

from typing import Final

from cometmq.broker.groups import GroupTable
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.topics import Topic, TopicTable, shown
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.digest import store_timestamp
from cometmq.codec.headers.offsets import (
    GetEarliestMsgStoretime,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from cometmq.errors import BrokerError
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes
from cometmq.store import GetLimits, GetStatus, MessageStore
from cometmq.store.consume_queues import Boundary

_ONE: Final = GetLimits(count=1)
_NO_TIME: Final = -1


class OffsetHandlers:
    """The offsets of groups, and the bounds of queues."""

    def __init__(
        self, offsets: ConsumerOffsets, topics: TopicTable, groups: GroupTable, store: MessageStore
    ) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._store = store

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.QUERY_CONSUMER_OFFSET, self.query)
        routes.add(RequestCode.UPDATE_CONSUMER_OFFSET, self.update)
        routes.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search)
        routes.add(RequestCode.GET_MAX_OFFSET, self.max_offset)
        routes.add(RequestCode.GET_MIN_OFFSET, self.min_offset)
        routes.add(RequestCode.GET_EARLIEST_MSG_STORETIME, self.earliest_time)

    def query(self, channel: Channel, command: Command) -> Answer:
        """Where a group goes on; 22 lets the client begin where its settings say.

        A group that is new to a young queue begins at its first message, whatever it is set to:
        Apache's clients rely on it, or a consumer started right after the producer misses messages.
        """
        said = core.read(command, QueryConsumerOffset)
        offset = self._offsets.get(said.consumer_group, said.topic, said.queue_id)
        if offset >= 0:
            if self._offsets.has_resets:
                self._offsets.note_asked(said.consumer_group, said.topic, said.queue_id)
            return Answer(header=OffsetResponse(offset))
        if said.set_zero_if_not_found is False:
            remark = "Not found, do not set to zero, maybe this group boot first"
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        if self._is_young(said.topic, said.queue_id):
            return Answer(header=OffsetResponse(0))
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)

    def update(self, channel: Channel, command: Command) -> Answer:
        """Note how far a group is; only of what exists, since nobody would ever clean up after."""
        said = core.read(command, UpdateConsumerOffset)
        if self._groups.get(said.consumer_group) is None:
            remark = f"Group {shown(said.consumer_group)} not exist!"
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        topic = self._topics.get(said.topic)
        if topic is None:
            remark = f"Topic {shown(said.topic)} not exist!"
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark)
        require_queue(self._store, topic, said.queue_id)
        if self._offsets.is_reset(said.consumer_group, said.topic, said.queue_id):
            return Answer(remark="Offset has been previously reset")
        if said.commit_offset > (end := self._store.max_offset(said.topic, said.queue_id)):
            # Of a topic that was deleted and made again, or from before the log lost its end: a
            # group that were set there would never see what comes next.
            remark = f"Offset {said.commit_offset} is not noted, the queue ends at {end}"
            return Answer(remark=remark)
        is_noted = self._offsets.commit(
            said.consumer_group, said.topic, said.queue_id, said.commit_offset
        )
        if not is_noted and said.commit_offset >= 0:
            remark = f"the broker has {len(self._offsets)} offsets: no new ones are kept"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return Answer()

    def search(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, SearchOffsetByTimestamp)
        boundary = Boundary(said.boundary_type or Boundary.LOWER.value)
        offset = self._store.offset_at_time(said.topic, said.queue_id, said.timestamp, boundary)
        return Answer(header=OffsetResponse(offset))

    def max_offset(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetMaxOffset)
        return Answer(header=OffsetResponse(self._store.max_offset(said.topic, said.queue_id)))

    def min_offset(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetMinOffset)
        return Answer(header=OffsetResponse(self._store.min_offset(said.topic, said.queue_id)))

    def earliest_time(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetEarliestMsgStoretime)
        begin = self._store.min_offset(said.topic, said.queue_id)
        with self._store.get(said.topic, said.queue_id, begin, _ONE) as result:
            is_found = result.status is GetStatus.FOUND
            time_ms = store_timestamp(result.slices[0], 0) if is_found else _NO_TIME
        return Answer(header=GetEarliestMsgStoretimeResponse(time_ms))

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Whether the first message of a queue is still there, and probably in memory."""
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        with self._store.get(topic, queue_id, 0, _ONE) as result:
            return result.status is GetStatus.FOUND and not result.is_cold


def require_queue(store: MessageStore, topic: Topic, queue_id: int) -> None:
    """Raise BrokerError when a topic has no such queue.

    Those that it had before it shrank may still be drained.
    """
    if 0 <= queue_id < topic.queue_count or store.queue(topic.name, queue_id) is not None:
        return
    remark = f"QueueId {queue_id} not exist, topic is {topic.name}"
    raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
