"""What administrators ask about consumer groups, forbidding and deleting."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from cometmq import logs
from cometmq.broker import topics
from cometmq.broker.clients import Clients
from cometmq.broker.groups import GroupTable, problem_of
from cometmq.broker.handlers.paging import page
from cometmq.broker.handlers.writing import made, written
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.progress import ENTRIES_MAX, EntryRoom, Pace, Progress, entry_count
from cometmq.broker.topics import Topic
from cometmq.codec import bodies, core
from cometmq.codec.bodies.groups import (
    GroupForbidden,
    QuerySubscriptionAnswer,
    SubscriptionGroupTable,
)
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.bodies.offsets import ConsumeStats, ConsumeStatsList
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    GetAllSubscriptionGroupConfigResponse,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetSubscriptionGroupConfig,
    QuerySubscriptionByConsumer,
    QueryTopicsByConsumer,
    UpdateAndGetGroupForbidden,
)
from cometmq.errors import BrokerError
from cometmq.model.topic import DataVersion
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

_log = logs.get_logger("cometmq.broker")


class GroupServiceHandlers:
    """Requests 201, 207, 208, 317, 343, 345, 352 and 353.

    ``settle`` is awaited before a change is answered: then it is to be saved. It must end by
    itself, whatever happens.
    """

    def __init__(
        self,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        clients: Clients,
        progress: Progress,
        *,
        broker_address: str,
        settle: Callable[[], Awaitable[object]] | None = None,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._progress = progress
        self._broker_address = broker_address
        self._settle = settle
        self._room = EntryRoom(entries_max)
        # Answers about all groups are made one at a time, and do not take the others' room.
        self._room_for_all = EntryRoom(entries_max)
        self._is_telling_all = False

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete)
        routes.add(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, self.forbidden)
        routes.add(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.all_configs)
        routes.add(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self.config)
        routes.add(RequestCode.GET_CONSUME_STATS, self.consume_stats)
        routes.add(RequestCode.GET_BROKER_CONSUME_STATS, self.all_consume_stats)
        routes.add(RequestCode.QUERY_TOPICS_BY_CONSUMER, self.topics)
        routes.add(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, self.subscription)

    # --- changing

    async def delete(self, channel: Channel, command: Command) -> Answer:
        """Deleting what does not exist is a success.

        The topics of the group's retries and dead letters stay: whoever wants them gone deletes
        them, as Apache's tool does when it is told to remove the offsets.
        """
        said = core.read(command, DeleteSubscriptionGroup)
        name = said.group_name
        is_known = self._groups.delete(name)
        count = 0
        if said.clean_offset or said.remove_offset:
            count = self._offsets.delete_group(name)
        if is_known or count:
            _log.info("group=%s deleted by %s: offsets=%d", name, channel.peer, count)
        if self._settle is not None:
            await self._settle()
        return Answer()

    async def forbidden(self, channel: Channel, command: Command) -> Answer:
        """Whether a group may read a topic, after the change if one is asked for."""
        said = core.read(command, UpdateAndGetGroupForbidden)
        group, topic = said.group, said.topic
        if problem := problem_of(group) or topics.problem_of(topic):
            raise BrokerError(ResponseCode.INVALID_PARAMETER, problem)
        may_read = self._groups.may_read(group, topic)
        if said.readable is not None and said.readable != may_read:
            may_read = said.readable
            self._groups.set_may_read(group, topic, may_read)
            _log.info(
                "group=%s topic=%s reading %s by %s",
                group, topic, "allowed" if may_read else "forbidden", channel.peer,
            )  # fmt: skip
            if self._settle is not None:
                await self._settle()
        return Answer(body=bodies.encode(GroupForbidden(topic, group, may_read)), remark="")

    # --- telling

    async def all_configs(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetAllSubscriptionGroupConfig)
        table = self._groups.table()
        count = len(table.subscription_group_table)
        body = await made(count, lambda: _page(table, said))
        return Answer(header=GetAllSubscriptionGroupConfigResponse(count), body=body)

    def config(self, channel: Channel, command: Command) -> Answer:
        """A group that may be made by its first member is made by this question, too.

        Apache's proxies ask before they let a member in, and refuse it when there is no group.
        """
        group = self._groups.obtain(core.read(command, GetSubscriptionGroupConfig).group)
        if group is None:
            remark = "No group in this broker"
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return Answer(body=bodies.encode(group.config))

    async def consume_stats(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetConsumeStats)
        group = said.consumer_group
        listed = [name for name in (said.topic_list or "").split(";") if name.strip()]
        chosen: Iterable[str]
        if listed:
            chosen = dict.fromkeys(listed)
        elif said.topic and said.topic.strip():
            chosen = self._progress.wanted(group, (said.topic,))
        else:
            chosen = self._progress.topics_of(group)
        found = self._progress.existing(chosen)
        with self._room.take(entry_count(found), "ask topic by topic"):
            stats = await self._progress.of(group, found)
            return Answer(body=await written(stats, len(stats.offset_table)))

    async def all_consume_stats(self, channel: Channel, command: Command) -> Answer:
        is_order = core.read(command, GetBrokerConsumeStats).is_order
        with self._telling_all():
            pace = Pace()
            topics_by_group = await self._consumed(pace, is_order=is_order)
            count = sum(map(entry_count, topics_by_group.values()))
            with self._room_for_all.take(count, "ask group by group"):
                return await self._told_all(topics_by_group, count, pace)

    @contextmanager
    def _telling_all(self) -> Iterator[None]:
        if self._is_telling_all:
            remark = "[REJECTREQUEST]somebody else is being told of all groups, try later"
            raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        self._is_telling_all = True
        try:
            yield
        finally:
            self._is_telling_all = False

    async def _consumed(self, pace: Pace, *, is_order: bool) -> dict[str, list[Topic]]:
        """The topics that each group consumes; with ``is_order`` the ordered ones."""
        topics_by_group = {}
        for name in list(self._groups.by_name):
            await pace.step()
            wanted = self._progress.topics_of(name)
            topics_by_group[name] = self._progress.existing(wanted, is_order=is_order)
        return topics_by_group

    async def _told_all(
        self, topics_by_group: dict[str, list[Topic]], count: int, pace: Pace
    ) -> Answer:
        told: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = 0
        for name, found in topics_by_group.items():
            await pace.step()
            stats = [await self._progress.of(name, (topic,), pace) for topic in found]
            behind += _behind(stats)
            told.append({name: tuple(stats)})
        answer = ConsumeStatsList(tuple(told), self._broker_address, behind, 0)
        return Answer(body=await written(answer, count + len(told)))

    def topics(self, channel: Channel, command: Command) -> Answer:
        """Topics of which a group has offsets."""
        group = core.read(command, QueryTopicsByConsumer).group
        names = tuple(self._offsets.topics_of(group))
        return Answer(body=bodies.encode(TopicList(names, self._broker_address)))

    def subscription(self, channel: Channel, command: Command) -> Answer:
        """What the members of a group want of a topic; none when they do not want it."""
        said = core.read(command, QuerySubscriptionByConsumer)
        online = self._clients.consumer_groups.get(said.group)
        wanted = None if online is None else online.subscriptions.get(said.topic or "")
        data = None if wanted is None else wanted.data
        return Answer(body=bodies.encode(QuerySubscriptionAnswer(said.group, said.topic, data)))


def _behind(found: Iterable[ConsumeStats]) -> int:
    return sum(
        wrapper.broker_offset - wrapper.consumer_offset
        for stats in found
        for wrapper in stats.offset_table.values()
    )


def _page(table: SubscriptionGroupTable, said: GetAllSubscriptionGroupConfig) -> bytes:
    version = table.data_version or DataVersion()
    names = page(
        table.subscription_group_table,
        version,
        begin=said.group_seq,
        stamp=said.data_version,
        count=said.max_group_num,
    )
    configs = {name: table.subscription_group_table[name] for name in names}
    is_whole = len(configs) == len(table.subscription_group_table)
    forbidden = table.forbidden_table or {}
    told = msgspec.structs.replace(
        table,
        subscription_group_table=configs,
        forbidden_table={
            name: topics for name, topics in forbidden.items() if is_whole or name in configs
        },
    )
    return bodies.encode(told)
