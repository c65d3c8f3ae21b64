"""Handing messages out: pulls, answered with slices of the log or held until there is something.

Theory of operation. The first pull of a group from a topic is looked at closely: may it, which tags
does it want, how much? That becomes a plan, by which the store answers those that follow
(``codec.pulls``), until something about topic, group or members changes. What finds nothing, or
much, is looked at closely each time.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from cometmq import logs
from cometmq.broker.extensions import large_limits
from cometmq.broker.long_polling import HeldPull, HeldPulls
from cometmq.broker.statistics import pair_counter
from cometmq.broker.subscriptions import tags_of
from cometmq.broker.topics import shown
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.pulls import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from cometmq.errors import BrokerError
from cometmq.model.group import TAG_EXPRESSION, MessageModel
from cometmq.model.topic import Permission
from cometmq.remoting.routes import Answer, failure
from cometmq.store.results import GetLimits, GetStatus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from cometmq.broker.clients import Clients
    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.groups import Group, GroupTable
    from cometmq.broker.identity import Identity
    from cometmq.broker.offsets import ConsumerOffsets
    from cometmq.broker.topics import Topic, TopicTable
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore
    from cometmq.store.consume_queue import ConsumeQueue
    from cometmq.store.results import GetResult

_log = logs.get_logger("cometmq.broker")

CLASS_FILTER: Final = 0x8

_READ: Final = int(Permission.READ)

HOLD_MS_MAX: Final = 25_000
"""Clients wait 30 s for an answer, whatever they say about being held."""

PLANS_MAX: Final = 4096
TAKEN_MAX: Final = 65_536
"""Pairs of topic and group that are planned for and counted; more are served all the same."""

_EXPRESSIONS_KEPT: Final = 1024
_ENTRIES_MIN: Final = 800
_COUNT_MAX: Final = 1024

_FOUND: Final = GetStatus.FOUND.name
_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Of all but those of a queue without messages, where it depends on the offset asked for."""


class PullHandlers:
    """Requests 11 and 361."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        offsets: ConsumerOffsets,
        *,
        identity: Identity,
        settings: BrokerSettings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._identity = identity
        self._settings = settings
        self._loop = loop
        self._limits_for = functools.lru_cache(maxsize=256)(self._make_limits)
        self._tags_for = functools.lru_cache(maxsize=_EXPRESSIONS_KEPT)(tags_of)
        self.held = HeldPulls(
            loop,
            count_max=settings.held_pulls_max,
            try_again=self._try_again,
            give_up=self._give_up,
            fail=_fail,
        )
        # Pulls that were answered without a message.
        self.missed = 0
        # Messages and bytes handed out since the start, by topic and group.
        self.taken: dict[tuple[str, str], list[int]] = {}
        self._tail = store.pull_tail(
            clients.consumer_groups, answer=_written, commit=offsets.commit
        )
        for listeners in (topics.on_change, topics.on_delete, groups.on_change, groups.on_delete):
            listeners.append(self._forget_plans)
        offsets.on_reset = self._forget_plan

    def add_to(self, routes: Routes) -> None:
        routes.add_batch(RequestCode.PULL_MESSAGE, self.pull)
        routes.add_batch(RequestCode.LITE_PULL_MESSAGE, self.lite_pull)
        routes.add_short_way(RequestCode.PULL_MESSAGE, self._take)
        routes.add_short_way(RequestCode.LITE_PULL_MESSAGE, self._take_lite)

    def lite_pull(self, channel: Channel, commands: Sequence[Command]) -> None:
        if self._settings.lite_pull_message_enable:
            self.pull(channel, commands)
            return
        remark = f"the broker[{self._identity.store_ip}] for lite pull consumer is forbidden"
        for command in commands:
            channel.reply(command, Answer(ResponseCode.NO_PERMISSION, remark=remark))

    def pull(self, channel: Channel, commands: Sequence[Command]) -> None:
        """Answer pulls, of which the first is not plain, or too much was found before it."""
        position, count = 0, len(commands)
        while position < count:
            command = commands[position]
            try:
                self._pull(channel, command)
            except Exception as error:
                channel.reply(command, failure(command, error))
            position += 1
            frames: list[bytes] = []
            if taken := self._taken(commands, position, frames):
                channel.answer_with(frames)
                position += taken

    def use(self, settings: BrokerSettings) -> None:
        """Settings have changed, the store's perhaps too."""
        self._settings = settings
        self._limits_for.cache_clear()
        self._tail.plans.clear()

    def on_arrival(self, queues: Iterable[ConsumeQueue]) -> None:
        """Messages have come to these queues: pulls that wait for them go on."""
        if self.held.count:
            self.held.on_arrival((queue.topic, queue.queue_id) for queue in queues)

    def on_reset(self, topic: str, queue_ids: Iterable[int]) -> None:
        """A group was set elsewhere in these queues: a member that waits there is told at once."""
        self.held.on_arrival((topic, queue_id) for queue_id in queue_ids)

    def close(self) -> None:
        """The broker stops: pulls that wait are told so.

        Were they told that there is nothing, clients would pull again at once, on a connection that
        is about to end, and wait for that answer until they give up.
        """
        answer = Answer(ResponseCode.SYSTEM_BUSY, remark="the broker is stopping")
        self.held.close(lambda pull: pull.channel.reply(pull.command, answer))

    # --- the inside

    def _take(self, _: Channel, commands: Sequence[Command], frames: list[bytes]) -> int:
        return self._taken(commands, 0, frames)

    def _take_lite(self, _: Channel, commands: Sequence[Command], frames: list[bytes]) -> int:
        if not self._settings.lite_pull_message_enable:
            return 0
        return self._taken(commands, 0, frames)

    def _taken(self, commands: Sequence[Command], begin: int, frames: list[bytes]) -> int:
        """Answer plain pulls from ``begin`` on; how many, each with a frame."""
        if begin == len(commands):
            return 0
        try:
            self._store.take_pulls(self._tail, commands, begin, frames)
        except OSError as error:
            # Of one pull, whose queue cannot be mapped; it is told so on the long way.
            _log.error("pulls cannot be answered the short way: %s", error)
        return len(frames)

    def _pull(self, channel: Channel, command: Command) -> None:
        header = core.read(command, PullMessage)
        group = self._group_for(header)
        topic = self._topic_for(channel, header)
        tags = self._wanted_tags(header, group)
        if header.sys_flag & COMMIT_OFFSET and header.commit_offset <= self._store.max_offset(
            header.topic, header.queue_id
        ):
            self._offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        if self._offsets.has_resets and self._send_elsewhere(channel, command, header):
            return
        limits = self._limits_for(header.max_msg_nums, header.max_msg_bytes)
        if header.is_extended:
            limits = large_limits(header.large_count, header.large_bytes, limits, self._settings)
        result = self._store.get(
            header.topic, header.queue_id, header.queue_offset, limits, tags=tags
        )
        code = _code_of(result.status, header.queue_offset)
        if code == ResponseCode.PULL_NOT_FOUND and header.sys_flag & SUSPEND and self.held.has_room:
            hold_ms = header.suspend_timeout_millis
            if not self._settings.long_polling_enable:
                hold_ms = self._settings.short_polling_ms
            if hold_ms > 0:
                deadline = self._loop.time() + min(hold_ms, HOLD_MS_MAX) / 1000
                self.held.hold(HeldPull(channel, command, header, limits, tags, deadline))
                return
        if code == ResponseCode.SUCCESS and not header.is_extended:
            self._plan(header, limits, tags, topic, group)
        self._answer(channel, command, header, code, result, topic, group)

    def _send_elsewhere(self, channel: Channel, command: Command, header: PullMessage) -> bool:
        """Tell a consumer whose group was reset where to go on; whether it was told."""
        place = header.consumer_group, header.topic, header.queue_id
        offset = self._offsets.take_reset(*place, header.queue_offset)
        if offset is None:
            return False
        low = self._store.min_offset(header.topic, header.queue_id)
        high = self._store.max_offset(header.topic, header.queue_id)
        told = PullMessageResponse(0, offset, low, high, 0, 0)
        channel.reply_parts(command, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", told, ())
        return True

    def _plan(
        self,
        header: PullMessage,
        limits: GetLimits,
        tags: frozenset[int] | None,
        topic: Topic,
        group: Group,
    ) -> None:
        """The store may answer the next pulls of this kind by itself, if they are simple enough."""
        flags = topic.config.topic_sys_flag, group.config.group_sys_flag or 0
        if any(flags) or self._settings.slave_read_enable:
            return
        if self._offsets.has_resets_of(header.consumer_group, header.topic):
            return  # whoever reads one of the other queues has to be sent elsewhere
        plans = self._tail.plans
        if len(plans) >= PLANS_MAX:
            plans.clear()
        is_told = header.sys_flag & SUBSCRIPTION
        plans[header.consumer_group, header.topic] = core.PullPlan(
            header,
            topic.read_queue_count,
            tags,
            (
                limits.count,
                limits.bytes_max,
                limits.count_cold,
                limits.bytes_cold_max,
                max(limits.count, limits.entries_max),
            ),
            self._taken_of(header),
            self._offsets.pulled(header.consumer_group, header.topic),
            None if is_told else self._clients.consumer_groups[header.consumer_group],
        )

    def _forget_plans(self, _: object) -> None:
        """Something about topics or groups has changed."""
        self._tail.plans.clear()

    def _forget_plan(self, group: str, topic: str) -> None:
        """A group is to be sent elsewhere, which only the long way does."""
        self._tail.plans.pop((group, topic), None)

    def _taken_of(self, header: PullMessage) -> list[int]:
        pair = header.topic, header.consumer_group
        return pair_counter(self.taken, *pair, width=2, pairs_max=TAKEN_MAX)

    def _answer(
        self,
        channel: Channel,
        command: Command,
        said: PullMessage,
        code: int,
        result: GetResult,
        topic: Topic | None,
        group: Group | None,
    ) -> None:
        suggested = 0
        if group is not None and self._settings.slave_read_enable:
            config = group.config
            suggested = (
                config.which_broker_when_consume_slowly if result.is_cold else config.broker_id
            )
        header = PullMessageResponse(
            suggested,
            result.next_offset,
            result.min_offset,
            result.max_offset,
            0 if topic is None else topic.config.topic_sys_flag,
            0 if group is None else group.config.group_sys_flag or 0,
        )
        if result.count:
            pulled = self._offsets.pulled(said.consumer_group, said.topic)
            pulled[said.queue_id] = result.next_offset
            taken = self._taken_of(said)
            taken[0] += result.count
            taken[1] += result.bytes
        else:
            self.missed += 1
        # The slices are let go when the last of them is written: nobody else keeps them.
        channel.reply_parts(command, code, result.status.name, header, result.slices)

    def _try_again(self, pull: HeldPull) -> bool:
        """Answer a held pull if there is something for it now."""
        if self._offsets.has_resets and self._send_elsewhere(
            pull.channel, pull.command, pull.header
        ):
            return True
        result = self._look(pull)
        if result is None:
            return True
        if result.status is GetStatus.NO_MATCHED_MESSAGE:
            pull.offset = result.next_offset
            if pull.offset >= result.max_offset:
                return False
            # A look is bounded, and what is wanted may lie behind it: nobody else will wake this
            # pull for that. So its client is told to go on from there, as Apache's broker does.
        code = _code_of(result.status, pull.offset)
        if code == ResponseCode.PULL_NOT_FOUND:
            return False
        self._answer_held(pull, code, result)
        return True

    def _give_up(self, pull: HeldPull) -> None:
        """The time is over: say what there is, perhaps only how far to go on."""
        result = self._look(pull)
        if result is None:
            return
        code = _code_of(result.status, pull.offset)
        if code == ResponseCode.PULL_NOT_FOUND and pull.offset != pull.header.queue_offset:
            # Messages came, but none that was wanted.
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        self._answer_held(pull, code, result)

    def _look(self, pull: HeldPull) -> GetResult | None:
        """What there is for a held pull; much may have changed since it came.

        None when it is not allowed any more, and was told so.
        """
        header = pull.header
        try:
            group = self._group_for(header)
            self._topic_for(pull.channel, header)
            tags = self._wanted_tags(header, group)
        except BrokerError as error:
            _fail(pull, error)
            return None
        if tags != pull.tags:
            # What was passed over may be wanted now.
            pull.tags, pull.offset = tags, header.queue_offset
        return self._store.get(
            header.topic, header.queue_id, pull.offset, pull.limits, tags=pull.tags
        )

    def _answer_held(self, pull: HeldPull, code: int, result: GetResult) -> None:
        topic = self._topics.get(pull.header.topic)
        group = self._groups.get(pull.header.consumer_group)
        self._answer(pull.channel, pull.command, pull.header, code, result, topic, group)

    # --- may it be read, and what of it?

    def _group_for(self, header: PullMessage) -> Group:
        if not self._settings.broker_permission & _READ:
            remark = f"the broker[{self._identity.store_ip}] pulling message is forbidden"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        name = header.consumer_group
        group = self._groups.by_name.get(name) or self._groups.obtain(name)
        if group is None:
            remark = f"subscription group [{shown(name)}] does not exist"
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.config.consume_enable:
            remark = f"subscription group no permission, {name}"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        return group

    def _topic_for(self, channel: Channel, header: PullMessage) -> Topic:
        topic = self._topics.by_name.get(header.topic)
        if topic is None:
            remark = f"topic[{shown(header.topic)}] not exist, apply first please!"
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.is_readable:
            remark = f"the topic[{header.topic}] pulling message is forbidden"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= header.queue_id < topic.read_queue_count:
            raise BrokerError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_count}] consumer:[{channel.peer}]",
            )
        return topic

    def _wanted_tags(self, header: PullMessage, group: Group) -> frozenset[int] | None:
        """Hashes of the tags that are wanted, None for all; from the request or the heartbeat."""
        if header.sys_flag & CLASS_FILTER:
            raise _unsupported("class")
        if header.sys_flag & SUBSCRIPTION:
            kind = header.expression_type or TAG_EXPRESSION
            if kind != TAG_EXPRESSION:
                raise _unsupported(kind)
            return self._tags_for(header.subscription or "")
        online = self._clients.consumer_groups.get(header.consumer_group)
        if online is None:
            remark = "the consumer's group info not exist"
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if (
            online.message_model is MessageModel.BROADCASTING
            and not group.config.consume_broadcast_enable
        ):
            remark = f"the consumer group[{group.name}] can not consume by broadcast way"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        if header.topic in group.forbidden:
            remark = f"the consumer group[{group.name}] is forbidden for topic[{header.topic}]"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        subscription = online.subscriptions.get(header.topic)
        if subscription is None:
            remark = "the consumer's subscription not exist"
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if subscription.version < header.sub_version:
            remark = "the consumer's subscription not latest"
            raise BrokerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        if subscription.is_class_filter:
            raise _unsupported("class")
        if subscription.kind != TAG_EXPRESSION:
            raise _unsupported(subscription.kind)
        return subscription.tags

    def _make_limits(self, count: int, bytes_max: int | None) -> GetLimits:
        """The smaller of what a client asks for and what the store is set up to return."""
        settings = self._store.settings
        count = max(1, min(count, _COUNT_MAX))
        wanted_bytes = bytes_max if bytes_max is not None and bytes_max > 0 else 1 << 30
        return GetLimits(
            min(count, settings.read_count_memory),
            min(wanted_bytes, settings.read_bytes_memory),
            min(count, settings.read_count_disk),
            min(wanted_bytes, settings.read_bytes_disk),
            max(_ENTRIES_MIN, count),
        )


def _code_of(status: GetStatus, offset: int) -> int:
    code = _CODES.get(status)
    if code is None:
        code = ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return code


def _fail(pull: HeldPull, error: Exception) -> None:
    """A pull that was held cannot be answered as it should."""
    pull.channel.reply(pull.command, failure(pull.command, error))


def _written(form: int, opaque: int, offset: int, low: int, high: int, size: int) -> bytes:
    """All of an answer that precedes ``size`` bytes of records."""
    header = PullMessageResponse(0, offset, low, high, 0, 0)
    return core.encode_head(form, ResponseCode.SUCCESS, opaque, 1, _FOUND, header, size)


def _unsupported(kind: str) -> BrokerError:
    return BrokerError(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {shown(kind)}",
    )
