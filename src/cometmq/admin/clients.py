"""Connected clients: members of groups, producers, and what a consumer says about itself."""

import asyncio
from collections.abc import Iterable

import msgspec

from cometmq.admin.servers import BrokerAddress, Outage, Servers, brokers_of, require_none
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import (
    ConsumeDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProducerConnection,
    ProducerTable,
)
from cometmq.codec.bodies.offsets import ConsumerStatusBody
from cometmq.codec.codes import RequestCode, ResponseCode, version_name
from cometmq.codec.headers.clients import (
    ConsumeMessageDirectly,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    GetProducerConnectionList,
)
from cometmq.errors import NotFound, Refused
from cometmq.model.group import SubscriptionData

RELAY_TIMEOUT_MS = 15_000
"""For questions that a broker passes on to a client, for which it waits 10 s."""

_ONLINE_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)


class Client(msgspec.Struct, frozen=True, order=True):
    """A connected client; ``brokers`` are those it is connected with."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]


class Subscription(msgspec.Struct, frozen=True, order=True):
    """What a group wants of a topic."""

    topic: str
    expression: str
    expression_type: str


class Membership(msgspec.Struct, frozen=True):
    """The members of a consumer group and what the brokers think it subscribes.

    The three texts are RocketMQ's own names and empty while nobody is connected. ``problems`` are
    contradictions between brokers: members that some do not see, subscriptions that differ.
    """

    group: str
    members: tuple[Client, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    problems: tuple[str, ...] = ()
    outages: tuple[Outage, ...] = ()


class ProcessQueue(msgspec.Struct, frozen=True):
    """What a consumer has in memory of one queue."""

    topic: str
    broker_name: str
    queue_id: int
    commit_offset: int
    cached_count: int
    cached_mib: int
    cached_min_offset: int
    cached_max_offset: int
    is_locked: bool
    is_dropped: bool
    last_pull_ms: int
    last_consume_ms: int


class ConsumeRates(msgspec.Struct, frozen=True):
    """What a consumer does with one topic; times in milliseconds, rates per second."""

    topic: str
    pull_ms: float
    pull_tps: float
    consume_ms: float
    consume_ok_tps: float
    consume_failed_tps: float
    consume_failed_count: int


class RunningInfo(msgspec.Struct, frozen=True):
    """What a consumer says about itself; ``properties`` by RocketMQ's keys."""

    group: str
    client_id: str
    properties: dict[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[ProcessQueue, ...]
    rates: tuple[ConsumeRates, ...]
    stacks: str | None = None


class ClientOffset(msgspec.Struct, frozen=True):
    """How far a consumer is with a queue, in its own memory."""

    client_id: str
    topic: str
    broker_name: str
    queue_id: int
    offset: int


class DirectResult(msgspec.Struct, frozen=True):
    """How a consumer got on with the one message that it was given; ``outcome`` as Java has it."""

    group: str
    client_id: str
    outcome: str
    is_ordered: bool
    is_auto_commit: bool
    spent_ms: int
    remark: str | None


class Clients:
    """``admin.clients``."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    # --- who is connected

    async def consumers(self, group: str) -> Membership:
        """The members of a consumer group; nobody may be connected."""
        return await self.consumers_on((await self._servers.fleet()).readers(), group)

    async def consumers_on(self, brokers: Iterable[BrokerAddress], group: str) -> Membership:
        """As ``consumers``, those that are connected with some brokers."""
        header = GetConsumerConnectionList(group)

        async def ask(broker: BrokerAddress) -> ConsumerConnection:
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            answer = await self._servers.ask(broker.address, code, header, accept=_ONLINE_OR_NOT)
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return ConsumerConnection()
            return bodies.decode(ConsumerConnection, answer.body or b"{}")

        survey = await self._servers.survey(brokers, ask)
        return _membership(group, survey.answers, survey.outages)

    async def producers(self, group: str, topic: str) -> tuple[Client, ...]:
        """The members of a producer group on the brokers that have ``topic``.

        Raises NotFound when none is connected, Unreachable when a broker does not answer.
        """
        header = GetProducerConnectionList(group)

        async def ask(broker: BrokerAddress) -> ProducerConnection:
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            accept = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)  # 1: nobody of that group
            answer = await self._servers.ask(broker.address, code, header, accept=accept)
            if answer.code != ResponseCode.SUCCESS:
                return ProducerConnection()
            return bodies.decode(ProducerConnection, answer.body or b"{}")

        survey = await self._servers.survey(brokers_of(await self._servers.route(topic)), ask)
        seen = _Seen()
        for broker, found in survey.whole():
            for one in found.connection_set:
                seen.add(broker, one.client_id, one.client_addr, one.language, one.version)
        if not seen.clients:
            raise NotFound("producer group", group, "is a producer of it connected?")
        return seen.clients

    async def all_producers(self) -> dict[str, tuple[Client, ...]]:
        """All connected producers by group.

        Raises Unsupported before 4.9.3, Unreachable when a broker does not answer.
        """
        fleet = await self._servers.fleet()
        code = RequestCode.GET_ALL_PRODUCER_INFO
        survey = await self._servers.survey(
            fleet.readers(), lambda b: self._servers.ask_for(ProducerTable, b.address, code)
        )
        groups: dict[str, _Seen] = {}
        for broker, table in survey.whole():
            for group, infos in table.data.items():
                seen = groups.setdefault(group, _Seen())
                for one in infos:
                    address = (one.remote_ip or "").removeprefix("/")
                    seen.add(broker, one.client_id, address, one.language, one.version)
        return {group: seen.clients for group, seen in sorted(groups.items())}

    # --- questions to a consumer

    async def running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> RunningInfo:
        """What one consumer says about itself. Raises NotFound when it is not connected.

        ``with_stacks`` asks for the stacks of its threads, too. Raises Refused when it does not
        answer: Node's clients do not know the question.
        """
        header = GetConsumerRunningInfo(group, client_id, with_stacks)
        info = await self._servers.ask_for(
            ConsumerRunningInfo,
            await self._broker_with(group, client_id),
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
            timeout_ms=RELAY_TIMEOUT_MS,
        )
        return _running_info(group, client_id, info)

    async def offsets(
        self, group: str, topic: str, client_id: str | None = None
    ) -> tuple[ClientOffset, ...]:
        """How far the connected consumers of a group are, as each of them sees it.

        Raises Unreachable when a broker does not answer.
        """
        membership = await self.consumers(group)
        if not membership.members:
            require_none(membership.outages)
            return ()  # a broker of Apache's fails when it is asked about nobody
        header = GetConsumerStatus(topic, group, client_id or "")
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        survey = await self._servers.survey(
            brokers_of(await self._servers.route(topic)),
            lambda broker: self._servers.ask_for(
                ConsumerStatusBody, broker.address, code, header, timeout_ms=RELAY_TIMEOUT_MS
            ),
        )
        found = {
            ClientOffset(client, queue.topic, queue.broker_name, queue.queue_id, offset)
            for _, body in survey.whole()
            for client, offsets in body.consumer_table.items()
            for queue, offset in offsets.items()
        }
        return tuple(sorted(found, key=lambda o: (o.client_id, o.broker_name, o.queue_id)))

    async def consume_directly(
        self, group: str, client_id: str, offset_id: str, *, topic: str, broker: str
    ) -> DirectResult:
        """Let one consumer handle one message now, whatever its offsets say.

        ``broker`` has the message, and ``offset_id`` says where. Never asked twice: the consumer
        may have handled it although the answer was lost.
        """
        place = await self._servers.broker(broker)
        header = ConsumeMessageDirectly(
            group, client_id, offset_id, place.broker_name or None, topic
        )
        try:
            answer = await self._servers.ask(
                place.address,
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                header,
                timeout_ms=RELAY_TIMEOUT_MS,
                is_repeatable=False,
            )
        except Refused as error:
            if "not online" not in error.remark:
                raise
            raise NotFound(f"member of group '{group}'", client_id, "is it connected?") from error
        result = bodies.decode(ConsumeDirectlyResult, answer.body or b"{}")
        return DirectResult(
            group,
            client_id,
            result.consume_result.value if result.consume_result else "",
            result.order,
            result.auto_commit,
            result.spent_time_mills,
            result.remark,
        )

    async def inconsistencies(self, group: str) -> tuple[str, ...]:
        """Where the members of a group contradict each other: each is asked what it subscribes.

        A member or a broker that does not answer is named as well: nothing can be said of it.
        """
        membership = await self.consumers(group)
        members = [member.client_id for member in membership.members]
        infos = await asyncio.gather(*(self._find_info(group, member) for member in members))
        said = {m: info.subscriptions for m, info in zip(members, infos, strict=True) if info}
        silent = [f"{m} does not say what it subscribes" for m in members if m not in said]
        silent += [f"{o.broker_name} cannot be asked: {o.reason}" for o in membership.outages]
        return (*membership.problems, *_contradictions(said), *silent)

    async def _find_info(self, group: str, client_id: str) -> RunningInfo | None:
        try:
            return await self.running_info(group, client_id)
        except (Refused, NotFound):
            return None

    async def _broker_with(self, group: str, client_id: str) -> str:
        membership = await self.consumers(group)
        for member in membership.members:
            if member.client_id == client_id:
                return (await self._servers.broker(member.brokers[0])).address
        require_none(membership.outages)
        known = ", ".join(member.client_id for member in membership.members) or "nobody"
        raise NotFound(f"member of group '{group}'", client_id, f"connected are: {known}")


class _Seen:
    """Clients as several brokers see them; one client has a connection with each."""

    def __init__(self) -> None:
        self._found: dict[str, Client] = {}

    def add(
        self,
        broker: BrokerAddress,
        client_id: str | None,
        address: str | None,
        language: str | None,
        version: int,
    ) -> None:
        name = client_id or "?"
        known = self._found.get(name)
        brokers = (*(known.brokers if known else ()), broker.broker_name)
        release = version_name(version).removeprefix("V").replace("_", ".")
        self._found[name] = Client(name, address or "?", language or "?", release, brokers)

    @property
    def clients(self) -> tuple[Client, ...]:
        return tuple(sorted(self._found.values()))


def _membership(
    group: str,
    answers: tuple[tuple[BrokerAddress, ConsumerConnection], ...],
    outages: tuple[Outage, ...],
) -> Membership:
    seen = _Seen()
    wanted: dict[str, dict[str, Subscription]] = {}
    online = [(broker, found) for broker, found in answers if found.connection_set]
    for broker, found in online:
        for one in found.connection_set:
            seen.add(broker, one.client_id, one.client_addr, one.language, one.version)
        wanted[broker.broker_name] = {
            s.topic: s for s in _sorted(found.subscription_table.values())
        }
    names = [broker.broker_name for broker, _ in answers]
    partly = [
        f"{client.client_id} is not connected with {', '.join(sorted(missing))}"
        for client in seen.clients
        if (missing := set(names).difference(client.brokers))
    ]
    topics = sorted({topic for table in wanted.values() for topic in table})
    latest = [next(t[topic] for t in wanted.values() if topic in t) for topic in topics]
    first = online[0][1] if online else ConsumerConnection()
    said = {name: tuple(table.values()) for name, table in wanted.items()}
    return Membership(
        group,
        seen.clients,
        tuple(latest),
        first.consume_type.value if first.consume_type else "",
        first.message_model.value if first.message_model else "",
        first.consume_from_where.value if first.consume_from_where else "",
        (*partly, *_contradictions(said)),
        outages,
    )


def _sorted(subscriptions: Iterable[SubscriptionData]) -> tuple[Subscription, ...]:
    return tuple(
        sorted(Subscription(s.topic, s.sub_string, s.expression_type) for s in subscriptions)
    )


def _contradictions(said: dict[str, tuple[Subscription, ...]]) -> tuple[str, ...]:
    """Who wants something else of a topic than the first who speaks of it."""
    first: dict[str, tuple[str, Subscription]] = {}
    problems = []
    for name, subscriptions in said.items():
        for own in subscriptions:
            other, wanted = first.setdefault(own.topic, (name, own))
            if wanted != own:
                problems.append(
                    f"topic '{own.topic}': {name} wants '{own.expression}'"
                    f" but {other} wants '{wanted.expression}'"
                )
    for topic, (other, _) in first.items():
        lacking = [name for name, own in said.items() if topic not in {s.topic for s in own}]
        problems += [f"topic '{topic}': {name} lacks it, {other} has it" for name in lacking]
    return tuple(problems)


def _running_info(group: str, client_id: str, info: ConsumerRunningInfo) -> RunningInfo:
    queues = tuple(
        ProcessQueue(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            own.commit_offset,
            own.cached_msg_count,
            own.cached_msg_size_in_mib,
            own.cached_msg_min_offset,
            own.cached_msg_max_offset,
            own.locked,
            own.droped,
            own.last_pull_timestamp,
            own.last_consume_timestamp,
        )
        for queue, own in sorted(info.mq_table.items())
    )
    rates = tuple(
        ConsumeRates(
            topic,
            status.pull_rt,
            status.pull_tps,
            status.consume_rt,
            status.consume_ok_tps,
            status.consume_failed_tps,
            status.consume_failed_msgs,
        )
        for topic, status in sorted(info.status_table.items())
    )
    return RunningInfo(
        group,
        client_id,
        dict(sorted(info.properties.items())),
        _sorted(info.subscription_set),
        queues,
        rates,
        info.jstack,
    )
