"""The connected clients: producers and consumers, by group, known by their heartbeats.

Theory of operation. A client names all its groups in each heartbeat. It is a member of a group from
its first heartbeat there until it says good-bye, its connection ends, or it was silent too long.
Members of a consumer group divide the queues among themselves, each by itself, from the list of
members: so they are told at once when that list changes, or the topics do, and only then.
"""

import itertools
import math
from typing import Final

from cometmq import logs
from cometmq.broker.client_groups import ConsumerGroup, Member, ProducerGroup
from cometmq.broker.config import BrokerSettings
from cometmq.broker.groups import Group, GroupTable
from cometmq.broker.subscriptions import wishes_of
from cometmq.broker.topics import TopicTable, shown
from cometmq.clock import Clock
from cometmq.codec.bodies.clients import ConsumerData, HeartbeatData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.clients import NotifyConsumerIdsChanged
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionData
from cometmq.remoting.channel import Channel

__all__ = ["Clients", "ConsumerGroup", "Member", "ProducerGroup"]

CLIENT_GROUPS_MAX: Final = 1024
"""Groups of one connection, of producers and of consumers."""

GROUP_TOPICS_MAX: Final = 1024
"""Topics that one member of a group may subscribe to."""

NAME_CHARACTERS_MAX: Final = 255
"""Of groups and topics in a heartbeat; what may be made under a name is decided elsewhere."""

CLIENT_ID_CHARACTERS_MAX: Final = 1024
"""Of the name a client gives itself."""

CLIENT_TEXT_MAX: Final = 1024 * 1024
"""Characters of all the subscriptions of one connection."""

_ITEM_SIZE = 16

_log = logs.get_logger("cometmq.broker")


class _Presence:
    """One connection with the groups it is in."""

    __slots__ = ("consumer", "producer", "seen_at")

    def __init__(self) -> None:
        self.consumer: dict[str, Member] = {}
        self.producer: dict[str, Member] = {}
        self.seen_at = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.consumer and not self.producer

    @property
    def client_id(self) -> str:
        """A name for the log: nearly always all groups have the same."""
        return next(iter((self.consumer or self.producer).values())).client_id


class Clients:
    """Who is connected; knows nothing of connections that never send a heartbeat."""

    def __init__(
        self, groups: GroupTable, topics: TopicTable, settings: BrokerSettings, clock: Clock
    ) -> None:
        # May be replaced while running.
        self.settings = settings
        self.groups = groups
        # Those with members; only this class changes them.
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.producer_groups: dict[str, ProducerGroup] = {}
        self._topics = topics
        self._clock = clock
        self._present: dict[Channel, _Presence] = {}  # in at least one group
        self._producers: dict[str, Channel] = {}  # by client id, as last heard of

    # --- what clients do

    def heartbeat(
        self, channel: Channel, data: HeartbeatData, *, language: int, version: int
    ) -> bool:
        """Note a client and its groups; whether its next heartbeat has to be complete.

        Groups that may not be made are passed over: the client hears of it when it pulls. Raises
        BrokerError for more than one client can mean, and then notes nothing.
        """
        presence = self._present.get(channel) or _Presence()
        _check(data, presence)
        now = presence.seen_at = self._clock.monotonic()
        is_wanted = not data.heartbeat_fingerprint
        for consumer in data.consumer_data_set:
            member = Member(channel, data.client_id, language, version, now)
            is_wanted |= self._consume(presence, member, consumer, data)
        for producer in data.producer_data_set:
            member = Member(channel, data.client_id, language, version, now)
            self._produce(presence, member, producer.group_name)
        if not presence.is_empty:
            self._present[channel] = presence
        return is_wanted

    def unregister(self, channel: Channel, *, producer_group: str, consumer_group: str) -> None:
        """A client leaves groups; an empty name is none, and leaving what one is not in is fine."""
        presence = self._present.get(channel)
        if presence is None:
            return
        if producer_group in presence.producer:
            self._leave_producers(presence, channel, producer_group)
        if consumer_group in presence.consumer:
            self._notify(self._leave_consumers(presence, channel, consumer_group))
        if presence.is_empty:
            del self._present[channel]

    def on_closed(self, channel: Channel) -> None:
        """A connection ended; what it was a member of goes on without it."""
        for group in self._forget(channel):
            self._notify(group)

    def scan(self) -> None:
        """End the connections of clients that were silent too long, and memberships likewise.

        A client that goes on sending heartbeats without one of its groups has left that group;
        some clients do not say so.
        """
        horizon = self._clock.monotonic() - self.settings.client_expiry_ms / 1000
        shrunk: dict[str, ConsumerGroup] = {}
        for channel, presence in list(self._present.items()):
            if presence.seen_at < horizon:
                _log.warning(
                    "client=%s peer=%s no heartbeat for more than %d ms: connection closed",
                    presence.client_id, channel.peer, self.settings.client_expiry_ms,
                )  # fmt: skip
                left = self._forget(channel)
                channel.close("no heartbeat")
            else:
                left = self._leave_since(presence, channel, horizon)
                if presence.is_empty:
                    self._present.pop(channel, None)
            shrunk.update((group.name, group) for group in left)
        for group in shrunk.values():
            self._notify(group)

    # --- what others ask

    def producer_channel(self, group: str) -> Channel | None:
        """A connection to one of the group's producers, another one each time."""
        found = self.producer_groups.get(group)
        return None if found is None else found.next_channel()

    def channel_of_producer(self, client_id: str) -> Channel | None:
        """The connection to one client, if it is a producer here."""
        return self._producers.get(client_id)

    def may_pull(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a connected member of a group may come for a queue, now or later."""
        online, known = self.consumer_groups.get(group), self._topics.get(topic)
        if online is None or known is None or queue_id >= known.read_queue_count:
            return False
        # One is enough, also when the others want something else. Whoever chooses its queues by
        # itself subscribes to nothing, and may choose this one.
        return topic in online.subscriptions or any(
            not member.wishes or topic in dict(member.wishes) for member in online.members.values()
        )

    # --- consumers

    def _consume(
        self, presence: _Presence, member: Member, data: ConsumerData, heartbeat: HeartbeatData
    ) -> bool:
        """Note a member of a consumer group; whether its subscriptions should be sent next time."""
        configured = self.groups.obtain(data.group_name)
        if configured is None:
            return False
        self._provide_retry_topic(configured, data)
        name = data.group_name
        group = self.consumer_groups.get(name)
        if group is None:
            group = self.consumer_groups[name] = ConsumerGroup(name)
        is_new = group.join(member)
        presence.consumer[name] = member
        group.describe(data)
        fingerprint = heartbeat.heartbeat_fingerprint or None
        if fingerprint is not None and heartbeat.without_sub:
            is_wanted = is_new or group.fingerprint != fingerprint
            is_changed = False
        else:
            is_wanted = group.fingerprint not in (None, fingerprint)
            group.fingerprint = fingerprint
            is_changed = self._subscribe(group, member, data)
        if is_new or is_changed:
            self._notify(group)
        return is_wanted

    def _subscribe(self, group: ConsumerGroup, member: Member, data: ConsumerData) -> bool:
        """Whether the topics of the group have changed."""
        member.text_size = _text_size(data)
        conflict = group.news(member, wishes_of(data.subscription_data_set))
        if conflict is not None:
            _log.warning(
                "group=%s topic=%s members want different things, so both lose messages:"
                " client=%s wants %s, client=%s wants %s",
                group.name, conflict.topic, conflict.client_id, conflict.expression,
                conflict.other_client_id, conflict.other_expression,
            )  # fmt: skip
        return group.subscribe(data.subscription_data_set)

    def _provide_retry_topic(self, group: Group, data: ConsumerData) -> None:
        """Clients and tools rely on a route to this topic from the first heartbeat on."""
        is_ordered = any(
            topic.is_order
            for wanted in data.subscription_data_set
            if (topic := self._topics.get(wanted.topic)) is not None
        )
        self._topics.create_retry(
            group.name,
            group.config.retry_queue_nums,
            is_unit=data.unit_mode,
            is_order=is_ordered or None,
        )

    def _leave_consumers(self, presence: _Presence, channel: Channel, name: str) -> ConsumerGroup:
        """The group that is left, without members perhaps."""
        del presence.consumer[name]
        group = self.consumer_groups[name]
        del group.members[channel]
        if not group.members:
            del self.consumer_groups[name]
        return group

    def _notify(self, group: ConsumerGroup) -> None:
        """Tell all members, the new one too, to divide the queues anew."""
        configured = self.groups.get(group.name)
        is_wanted = configured is None or configured.config.notify_consumer_ids_changed_enable
        is_wanted = is_wanted and self.settings.notify_consumer_ids_changed_enable
        if is_wanted and not group.is_broadcasting:
            header = NotifyConsumerIdsChanged(group.name)
            for channel in list(group.members):
                channel.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)

    # --- producers

    def _produce(self, presence: _Presence, member: Member, name: str) -> None:
        group = self.producer_groups.get(name)
        if group is None:
            group = self.producer_groups[name] = ProducerGroup(name)
        former = presence.producer.get(name)
        group.join(member)
        presence.producer[name] = member
        self._producers[member.client_id] = member.channel
        if former is not None:
            self._forget_name(presence, former)

    def _leave_producers(self, presence: _Presence, channel: Channel, name: str) -> None:
        member = presence.producer.pop(name)
        group = self.producer_groups[name]
        del group.members[channel]
        if not group.members:
            del self.producer_groups[name]
        self._forget_name(presence, member)

    def _forget_name(self, presence: _Presence, member: Member) -> None:
        """A client is no producer any more once no group of its connection goes by its id."""
        client_id = member.client_id
        is_used = any(other.client_id == client_id for other in presence.producer.values())
        if not is_used and self._producers.get(client_id) is member.channel:
            del self._producers[client_id]

    # --- going

    def _forget(self, channel: Channel) -> list[ConsumerGroup]:
        presence = self._present.pop(channel, None)
        return [] if presence is None else self._leave_since(presence, channel, math.inf)

    def _leave_since(
        self, presence: _Presence, channel: Channel, horizon: float
    ) -> list[ConsumerGroup]:
        """Leave the groups not named since ``horizon``; the consumer groups among them."""
        for name in [n for n, member in presence.producer.items() if member.seen_at < horizon]:
            self._leave_producers(presence, channel, name)
        silent = [n for n, member in presence.consumer.items() if member.seen_at < horizon]
        return [self._leave_consumers(presence, channel, name) for name in silent]


def _check(data: HeartbeatData, presence: _Presence) -> None:
    """Refuse what no client means, so that none can fill the tables."""
    consumers = {consumer.group_name for consumer in data.consumer_data_set}
    producers = {producer.group_name for producer in data.producer_data_set}
    topics = [s.topic for c in data.consumer_data_set for s in c.subscription_data_set]
    count = len(consumers | presence.consumer.keys()) + len(producers | presence.producer.keys())
    if not data.client_id.strip():
        raise _refusal("a heartbeat needs a clientID")
    if len(data.client_id) > CLIENT_ID_CHARACTERS_MAX:
        raise _refusal(
            f"clientID of {len(data.client_id)} characters: at most {CLIENT_ID_CHARACTERS_MAX}"
        )
    if count > CLIENT_GROUPS_MAX:
        raise _refusal(f"{count} groups of one client: at most {CLIENT_GROUPS_MAX}")
    for name in itertools.chain(consumers, producers, topics):
        if len(name) > NAME_CHARACTERS_MAX:
            raise _refusal(
                f"name of {len(name)} characters: at most {NAME_CHARACTERS_MAX}: {shown(name)}"
            )
    for consumer in data.consumer_data_set:
        if (wanted := len(consumer.subscription_data_set)) > GROUP_TOPICS_MAX:
            raise _refusal(
                f"group {consumer.group_name} subscribes to {wanted} topics:"
                f" at most {GROUP_TOPICS_MAX}"
            )
    _check_text(data, presence)


def _check_text(data: HeartbeatData, presence: _Presence) -> None:
    sizes = {name: member.text_size for name, member in presence.consumer.items()}
    if not data.without_sub:
        sizes.update(
            (consumer.group_name, _text_size(consumer)) for consumer in data.consumer_data_set
        )
    if (size := sum(sizes.values())) > CLIENT_TEXT_MAX:
        raise _refusal(f"subscriptions of {size} characters: at most {CLIENT_TEXT_MAX}")


def _text_size(data: ConsumerData) -> int:
    return sum(map(_size, data.subscription_data_set))


def _size(wanted: SubscriptionData) -> int:
    text = (wanted.topic, wanted.sub_string, wanted.expression_type, *wanted.tags_set)
    # A number, or a text of no length, is something to keep as well.
    return sum(map(len, text)) + _ITEM_SIZE * (len(wanted.tags_set) + len(wanted.code_set))


def _refusal(remark: str) -> BrokerError:
    return BrokerError(ResponseCode.INVALID_PARAMETER, remark)
