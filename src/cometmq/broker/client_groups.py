"""Groups of connected clients: who belongs to each and, for consumers, what they want."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from cometmq.broker.subscriptions import Conflict, Subscription, Wishes, differences, subscription
from cometmq.codec.bodies.clients import ConsumerData
from cometmq.model.group import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from cometmq.remoting.channel import Channel

CONFLICTS_MAX: Final = 64
"""How many disagreements of a group are listed, and remembered so that none is told twice."""


class Member:
    """One connection as a member of one group."""

    __slots__ = ("channel", "client_id", "language", "seen_at", "text_size", "version", "wishes")

    def __init__(
        self, channel: Channel, client_id: str, language: int, version: int, seen_at: float
    ) -> None:
        self.channel = channel
        self.client_id = client_id
        # What the client is written in (LanguageCode) and its release, as its heartbeats say.
        self.language = language
        self.version = version
        # Monotonic seconds of the last heartbeat.
        self.seen_at = seen_at
        # None until the client has said what it wants; producers never do.
        self.wishes: Wishes | None = None
        # Characters of that, for the limit on what one client may say.
        self.text_size = 0


class ClientGroup:
    """Connected clients that go by the name of one group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: OrderedDict[Channel, Member] = OrderedDict()

    def join(self, member: Member) -> bool:
        """Note a heartbeat; whether there was no such member."""
        known = self.members.get(member.channel)
        is_new = known is None or known.client_id != member.client_id
        if known is not None and not is_new:
            member.wishes, member.text_size = known.wishes, known.text_size
        self.members[member.channel] = member
        return is_new


class ConsumerGroup(ClientGroup):
    """What is known of a group while at least one of its members is connected.

    What the group wants is what the member with the latest heartbeat wants: all members are
    supposed to want the same, and ``conflicts`` tells when they do not.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.subscriptions: dict[str, Subscription] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        # Of the last heartbeat with subscriptions, when it had one: heartbeats of the second
        # version leave out subscriptions that the broker is supposed to know.
        self.fingerprint: int | None = None
        self._told: dict[Conflict, None] = {}  # the oldest first

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        """Each once, even if the client is just about to change its connection; in order."""
        return sorted({member.client_id for member in self.members.values()})

    @property
    def conflicts(self) -> list[Conflict]:
        """Where the members disagree now, each about what the first of them wants."""
        return list(islice(self._conflicts(), CONFLICTS_MAX))

    def find(self, client_id: str) -> Member | None:
        """The member with this id that was heard of last."""
        found = [member for member in self.members.values() if member.client_id == client_id]
        return max(found, key=lambda member: member.seen_at, default=None)

    def describe(self, data: ConsumerData) -> None:
        """Be what the latest heartbeat says, apart from the subscriptions."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Want this and nothing else; whether the topics are others than before.

        A subscription is replaced only by a later one: heartbeats of two members must not undo
        each other for ever.
        """
        latest: dict[str, Subscription] = {}
        for data in wanted:
            known = latest.get(data.topic) or self.subscriptions.get(data.topic)
            if known is None or data.sub_version > known.version:
                known = subscription(data)
            latest[data.topic] = known
        is_changed = latest.keys() != self.subscriptions.keys()
        self.subscriptions = latest
        return is_changed

    def news(self, member: Member, wishes: Wishes) -> Conflict | None:
        """Note what ``member`` wants; a disagreement that this brings, unless it was told before.

        One at most, also when there are many: they have the same cause.
        """
        if member.wishes == wishes:
            return None
        if member.wishes is not None:  # changed: what was told of it is history
            self._told = {
                told: None
                for told in self._told
                if member.client_id not in (told.client_id, told.other_client_id)
            }
        member.wishes = wishes
        conflict = next(self._conflicts_of(member, self.members.values()), None)
        if conflict is None or conflict in self._told:
            return None
        if len(self._told) >= CONFLICTS_MAX:
            del self._told[next(iter(self._told))]
        self._told[conflict] = None
        return conflict

    def _conflicts(self) -> Iterator[Conflict]:
        by_wishes: dict[Wishes, Member] = {}
        for member in self.members.values():
            if member.wishes is not None:
                by_wishes.setdefault(member.wishes, member)
        distinct = list(by_wishes.values())
        for other in distinct[1:]:
            yield from self._conflicts_of(other, distinct[:1])

    @staticmethod
    def _conflicts_of(member: Member, others: Iterable[Member]) -> Iterator[Conflict]:
        for other in others:
            # The former connection of the same client is no other client.
            if other.wishes is None or member.wishes is None or other.client_id == member.client_id:
                continue
            for topic, wish, other_wish in differences(member.wishes, other.wishes):
                yield Conflict(topic, member.client_id, wish, other.client_id, other_wish)


class ProducerGroup(ClientGroup):
    """The connected producers of a group; questions to the group go to one after the other."""

    def next_channel(self) -> Channel | None:
        """A connection that can be used, another one each time; None if there is none."""
        for _ in range(len(self.members)):
            channel = next(iter(self.members))
            self.members.move_to_end(channel)
            if channel.is_open:
                return channel
        return None
