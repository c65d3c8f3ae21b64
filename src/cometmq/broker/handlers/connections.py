"""Who is connected, for administrators."""

from collections.abc import Iterable
from typing import Final

import msgspec

from cometmq.broker.client_groups import ClientGroup, ConsumerGroup, Member
from cometmq.broker.clients import Clients
from cometmq.broker.subscriptions import Conflict
from cometmq.broker.topics import shown
from cometmq.clock import Clock
from cometmq.codec import bodies, core
from cometmq.codec.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.clients import GetConsumerConnectionList, GetProducerConnectionList
from cometmq.errors import BrokerError
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

_LANGUAGES: Final = {language.value: language.name for language in LanguageCode}


class SubscriptionConflict(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Two members of a group want different things of a topic."""

    topic: str
    client_id: str
    expression: str
    other_client_id: str
    other_expression: str


class ConflictingConnection(ConsumerConnection, frozen=True, rename="camel"):
    """A group whose members disagree; Apache's tools pass over the member they do not know."""

    conflicts: tuple[SubscriptionConflict, ...] = ()


class ConnectionHandlers:
    """Requests 203, 204 and 328."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.consumers)
        routes.add(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.producers)
        routes.add(RequestCode.GET_ALL_PRODUCER_INFO, self.all_producers)

    def consumers(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, GetConsumerConnectionList).consumer_group
        group = self._clients.consumer_groups.get(name)
        if group is None:
            remark = f"the consumer group[{shown(name)}] not online"
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        return Answer(body=bodies.encode(_consumers(group)))

    def producers(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, GetProducerConnectionList).producer_group
        group = self._clients.producer_groups.get(name)
        if group is None:
            remark = f"the producer group[{shown(name)}] not exist"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return Answer(body=bodies.encode(ProducerConnection(_connections(group))))

    def all_producers(self, channel: Channel, command: Command) -> Answer:
        started_ms = self._clock.now_ms() - int(self._clock.monotonic() * 1000)
        told = {
            name: tuple(_producers(group.members.values(), started_ms))
            for name, group in self._clients.producer_groups.items()
        }
        return Answer(body=bodies.encode(ProducerTable(told)))


def _consumers(group: ConsumerGroup) -> ConsumerConnection:
    connections = _connections(group)
    wanted = {topic: subscription.data for topic, subscription in group.subscriptions.items()}
    kinds = group.consume_type, group.message_model, group.consume_from_where
    conflicts = tuple(map(_conflict, group.conflicts))
    if conflicts:
        return ConflictingConnection(connections, wanted, *kinds, conflicts)
    return ConsumerConnection(connections, wanted, *kinds)


def _connections(group: ClientGroup) -> tuple[Connection, ...]:
    return tuple(
        Connection(member.client_id, member.channel.peer, _language(member), member.version)
        for member in group.members.values()
    )


def _producers(members: Iterable[Member], started_ms: int) -> Iterable[ProducerInfo]:
    for member in members:
        seen_ms = started_ms + int(member.seen_at * 1000)
        # Java's way to write an address without a name.
        address = f"/{member.channel.peer}"
        yield ProducerInfo(member.client_id, address, _language(member), member.version, seen_ms)


def _language(member: Member) -> str:
    return _LANGUAGES.get(member.language, LanguageCode.OTHER.name)


def _conflict(found: Conflict) -> SubscriptionConflict:
    return SubscriptionConflict(
        found.topic,
        found.client_id,
        found.expression,
        found.other_client_id,
        found.other_expression,
    )
