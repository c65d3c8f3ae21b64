"""Who is asked: name servers one after the other until one answers, and the brokers they know.

Nothing is remembered but which name server answered last: each question finds its brokers anew, so
that an admin that lives long never speaks of brokers that are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from cometmq.clock import Clock
from cometmq.codec import bodies
from cometmq.codec.bodies.nameserver import ClusterInfo
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode, version_name
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.offsets import GetMaxOffset
from cometmq.errors import (
    Ambiguous,
    CometError,
    ConnectionLost,
    NotFound,
    PartlyDone,
    Refused,
    RequestTimeout,
    Unreachable,
    Unsupported,
)
from cometmq.model.route import MASTER_ID, BrokerData, TopicRoute
from cometmq.remoting.client import split_address

ANY_TOPIC = "TBW102"
"""A topic that every broker has, and after which it makes others."""

SUCCESS = (ResponseCode.SUCCESS,)
OUTAGES = (Unreachable, RequestTimeout, ConnectionLost)
"""How a server shows that it is not there."""

_MISSING = {
    ResponseCode.TOPIC_NOT_EXIST: ("topic", ("topic",)),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (
        "group",
        ("consumer_group", "group", "group_name", "dest_group"),
    ),
}
"""Answers that mean "there is no such thing", and which field of the request had its name."""

_FEATURES = {
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ("giving back the permission to write", "4.9.0"),
    RequestCode.GET_ALL_PRODUCER_INFO: ("the list of all producers", "4.9.3"),
    RequestCode.GET_BROKER_HA_STATUS: ("the state of replication", "5.0.0"),
    RequestCode.GET_TIMER_METRICS: ("counts of pending timers", "5.0.0"),
}
"""What people call a request that not all releases know, and which release brought it."""

INCOMPLETE = "what it holds would be missing in the answer"
UNCHANGED = "nothing was changed; do it again once it is there"

T = TypeVar("T")
K = TypeVar("K")


class Asking(Protocol):
    """What carries questions to addresses: the admin's own connections, or a client's."""

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Command: ...


class BrokerAddress(msgspec.Struct, frozen=True, order=True):
    """One broker: the master of its group when ``broker_id`` is 0, else a slave."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Outage(msgspec.Struct, frozen=True, order=True):
    """A broker that could not be asked, so that its part is missing in a result."""

    broker_name: str
    address: str
    reason: str


class Survey(msgspec.Struct, Generic[T], frozen=True):
    """What each broker answered, and who did not."""

    answers: tuple[tuple[BrokerAddress, T], ...]
    outages: tuple[Outage, ...]

    def whole(self, advice: str = INCOMPLETE) -> tuple[tuple[BrokerAddress, T], ...]:
        """The answers of all who were asked. Raises Unreachable when one did not answer."""
        require_none(self.outages, advice)
        return self.answers


class Release(msgspec.Struct, frozen=True):
    """Which software a server is; ours presents itself with the release it is compatible with."""

    version: int
    name: str
    is_ours: bool


class Fleet(msgspec.Struct, frozen=True):
    """All brokers that a name server knows."""

    brokers: tuple[BrokerAddress, ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        return tuple(sorted({broker.cluster for broker in self.brokers}))

    @property
    def server_names(self) -> frozenset[str]:
        """Names of clusters and brokers; a topic goes by each of them."""
        return frozenset(name for b in self.brokers for name in (b.cluster, b.broker_name))

    def masters(self, cluster: str | None = None) -> tuple[BrokerAddress, ...]:
        """Those that take changes, of one cluster or of all."""
        return tuple(broker for broker in self.within(cluster) if broker.is_master)

    def readers(self, cluster: str | None = None) -> tuple[BrokerAddress, ...]:
        """One of each broker group: the master, or a slave while there is none."""
        first: dict[str, BrokerAddress] = {}
        for broker in self.within(cluster):  # in the order of broker ids
            first.setdefault(broker.broker_name, broker)
        return tuple(first.values())

    def within(self, cluster: str | None) -> tuple[BrokerAddress, ...]:
        """The brokers of one cluster, or all. Raises NotFound for a cluster that has none."""
        if cluster is None:
            return self.brokers
        chosen = tuple(broker for broker in self.brokers if broker.cluster == cluster)
        if not chosen:
            known = ", ".join(self.clusters) or "none"
            raise NotFound("cluster", cluster, f"the name server knows: {known}")
        return chosen

    def broker(self, broker: str) -> BrokerAddress:
        """The broker with this address, or the master (else a slave) with this name."""
        for known in self.brokers:
            if broker in (known.address, known.broker_name):
                return known
        names = ", ".join(sorted({known.broker_name for known in self.brokers})) or "none"
        raise NotFound("broker", broker, f"the name server knows: {names}")


class Servers:
    """Asks name servers and brokers, and turns what they refuse into errors."""

    def __init__(
        self,
        name_servers: Sequence[str],
        connections: Asking,
        *,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self.name_servers = tuple(name_servers)
        self.clock = clock
        self.timeout_ms = timeout_ms
        self._connections = connections
        self._preferred = 0  # the name server that answered last

    # --- one server

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        accept: Sequence[int] = SUCCESS,
        timeout_ms: int | None = None,
        is_repeatable: bool = True,
    ) -> Command:
        """The answer of one server, which has one of the codes in ``accept``.

        Raises Unsupported, NotFound (of the topic or the group that was asked about) or Refused
        for other answers, and what the connection raises.
        """
        answer = await self._connections.ask(
            address,
            code,
            header,
            body,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            is_repeatable=is_repeatable,
        )
        if answer.code not in accept:
            raise refusal(address, code, header, answer)
        return answer

    async def ask_for(
        self,
        kind: type[K],
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> K:
        """As ``ask``, for an answer whose body is JSON; an empty body is an empty answer."""
        answer = await self.ask(address, code, header, timeout_ms=timeout_ms)
        return bodies.decode(kind, answer.body or b"{}")

    async def release(self, broker: str) -> Release:
        """Which software the broker at this address is; every answer tells, so a small one."""
        code, header = RequestCode.GET_MAX_OFFSET, GetMaxOffset(ANY_TOPIC, 0)
        return release_of(
            await self._connections.ask(broker, code, header, timeout_ms=self.timeout_ms)
        )

    # --- name servers

    async def ask_name_server(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        accept: Sequence[int] = SUCCESS,
    ) -> Command:
        """The answer of the first name server that is there. Raises Unreachable when none is."""
        problems = []
        for step in range(len(self.name_servers)):
            place = (self._preferred + step) % len(self.name_servers)
            address = self.name_servers[place]
            try:
                answer = await self.ask(address, code, header, body, accept=accept)
            except OUTAGES as error:
                problems.append(f"{address}: {reason_of(error)}")
            else:
                self._preferred = place
                return answer
        raise no_name_server(self.name_servers, problems)

    async def ask_name_servers(
        self,
        what: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        only: str | None = None,
    ) -> tuple[tuple[str, Command], ...]:
        """The answers of all name servers, or of ``only`` one; for what each must know by itself.

        Raises PartlyDone when some of them did not do it.
        """
        addresses = self.name_servers if only is None else (only,)
        return await in_all(what, addresses, str, lambda one: self.ask(one, code, header, body))

    async def fleet(self) -> Fleet:
        """All brokers."""
        return _fleet(await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def fleet_of(self, name_server: str) -> Fleet:
        """All brokers that one name server knows."""
        return _fleet(await self.ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO))

    async def route(self, topic: str) -> TopicRoute:
        """Where a topic is. Raises NotFound."""
        header = GetRouteInfoByTopic(topic)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        return bodies.decode(TopicRoute, (await self.ask_name_server(code, header)).body)

    async def find_route(self, topic: str) -> TopicRoute | None:
        """Where a topic is, or None when nobody has it."""
        try:
            return await self.route(topic)
        except NotFound:
            return None

    async def holders(self, topic: str) -> frozenset[str]:
        """Names of the brokers that have a topic, as any of the name servers has it.

        One that missed a deletion still has what the others have forgotten. Name servers that are
        not there are passed over. Raises Unreachable when none is.
        """
        header = GetRouteInfoByTopic(topic)
        accept = (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        names: set[str] = set()
        problems = []
        for address in self.name_servers:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            try:
                answer = await self.ask(address, code, header, accept=accept)
            except OUTAGES as error:
                problems.append(f"{address}: {reason_of(error)}")
                continue
            if answer.code == ResponseCode.SUCCESS:
                route = bodies.decode(TopicRoute, answer.body)
                names |= {data.broker_name for data in route.queue_datas}
        if len(problems) == len(self.name_servers):
            raise no_name_server(self.name_servers, problems)
        return frozenset(names)

    # --- brokers

    async def broker(self, broker: str) -> BrokerAddress:
        """The broker with this name or address; an address need not be known to name servers."""
        if is_address(broker):
            try:
                return (await self.fleet()).broker(broker)
            except NotFound:
                return BrokerAddress("", "", MASTER_ID, broker)
        return (await self.fleet()).broker(broker)

    async def targets(self, *, cluster: str | None, broker: str | None) -> Sequence[BrokerAddress]:
        """The masters that a change is for: of a cluster, or one; the only cluster by default."""
        if broker is not None:
            return [await self.broker(broker)]
        fleet = await self.fleet()
        if cluster is None and len(fleet.clusters) > 1:
            raise Ambiguous("cluster", fleet.clusters)
        masters = fleet.masters(cluster)
        if not masters:
            raise NotFound("broker", cluster or "any", "is a broker registered?")
        return masters

    async def require_there(self, brokers: Iterable[BrokerAddress]) -> None:
        """Raise Unreachable unless each of them is a master and answers: before a change."""
        asked = tuple(brokers)
        require_masters(asked)
        (await self.survey(asked, lambda broker: self.release(broker.address))).whole(UNCHANGED)

    async def survey(
        self,
        brokers: Iterable[BrokerAddress],
        question: Callable[[BrokerAddress], Awaitable[T]],
    ) -> Survey[T]:
        """Ask all of them at once; those that are not there are outages.

        Raises what a broker refused, and the outage when nobody is there at all.
        """
        asked = tuple(brokers)
        results = await asyncio.gather(*map(question, asked), return_exceptions=True)
        answers, outages, failures = [], [], []
        for broker, result in zip(asked, results, strict=True):
            if isinstance(result, OUTAGES):
                failures.append(result)
                outages.append(Outage(broker.broker_name, broker.address, reason_of(result)))
            elif isinstance(result, BaseException):
                raise result
            else:
                answers.append((broker, result))
        if failures and not answers:
            raise failures[0]
        return Survey(tuple(answers), tuple(outages))

    async def change(
        self,
        what: str,
        brokers: Iterable[BrokerAddress],
        act: Callable[[BrokerAddress], Awaitable[T]],
    ) -> tuple[tuple[BrokerAddress, T], ...]:
        """Let all of them do it. Raises PartlyDone when some did and some did not."""
        return await in_all(what, tuple(brokers), lambda broker: broker.address, act)


def _fleet(answer: Command) -> Fleet:
    info = bodies.decode(ClusterInfo, answer.body or b"{}")
    clusters = {name: own for own, names in info.cluster_addr_table.items() for name in names}
    return Fleet(
        tuple(
            sorted(
                BrokerAddress(data.cluster or clusters.get(name, ""), name, number, address)
                for name, data in info.broker_addr_table.items()
                for number, address in data.broker_addrs.items()
            )
        )
    )


async def in_all(
    what: str,
    places: Sequence[K],
    name_of: Callable[[K], str],
    act: Callable[[K], Awaitable[T]],
) -> tuple[tuple[K, T], ...]:
    """Do it in all places at once. Raises PartlyDone, or the error when none did it."""
    results = await asyncio.gather(*map(act, places), return_exceptions=True)
    done: list[tuple[K, T]] = []
    failed: list[tuple[str, CometError]] = []
    for place, result in zip(places, results, strict=True):
        if isinstance(result, CometError):
            failed.append((name_of(place), result))
        elif isinstance(result, BaseException):
            raise result
        else:
            done.append((place, result))
    if failed and done:
        names = tuple(name_of(place) for place, _ in done)
        raise PartlyDone(what, names, tuple((name, reason_of(error)) for name, error in failed))
    if failed:
        raise failed[0][1]
    return tuple(done)


async def all_of(questions: Iterable[Awaitable[T]]) -> list[T]:
    """All answers in their order; the first failure in that order is raised."""
    results = await asyncio.gather(*questions, return_exceptions=True)
    answers: list[T] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        answers.append(result)
    return answers


def require_none(outages: Iterable[Outage], advice: str = INCOMPLETE) -> None:
    """Raise Unreachable, naming all who are missing, unless nobody is."""
    missing = merged(outages)
    if missing:
        addresses = ";".join(outage.address for outage in missing)
        reasons = "; ".join(f"{outage.broker_name}: {outage.reason}" for outage in missing)
        raise Unreachable(addresses, reasons, advice)


def merged(*outages: Iterable[Outage]) -> tuple[Outage, ...]:
    """The outages of several questions, each broker once."""
    first: dict[str, Outage] = {}
    for group in outages:
        for outage in group:
            first.setdefault(outage.address, outage)
    return tuple(sorted(first.values()))


def require_masters(brokers: Iterable[BrokerAddress]) -> None:
    """Raise Unreachable when a broker that a change is for is there as a slave only."""
    reason = "its master is not there, only a slave"
    slaves = (broker for broker in brokers if not broker.is_master)
    require_none((Outage(one.broker_name, one.address, reason) for one in slaves), UNCHANGED)


def refusal(address: str, code: RequestCode, header: Header | None, answer: Command) -> CometError:
    """The error that an answer stands for."""
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        feature, since = _FEATURES.get(code, (f"request {int(code)} ({code.name})", ""))
        advice = f"it came with release {since}" if since else ""
        return Unsupported(feature, address, release_of(answer).name, advice)
    missing = _MISSING.get(ResponseCode(answer.code)) if answer.code in _MISSING else None
    if missing is not None:
        kind, attributes = missing
        names: list[Any] = [getattr(header, attribute, None) for attribute in attributes]
        if any(names):
            return NotFound(kind, next(name for name in names if name))
    return Refused(address, code.name, answer.code, (answer.remark or "").strip() or "no remark")


def release_of(answer: Command) -> Release:
    """Which software answered, as far as an answer tells."""
    number = version_name(answer.version).removeprefix("V").replace("_", ".")
    is_ours = answer.language == LanguageCode.PYTHON
    name = f"CometMQ (as RocketMQ {number})" if is_ours else f"RocketMQ {number}"
    return Release(answer.version, name, is_ours)


def reason_of(error: CometError) -> str:
    """Why a server could not be asked, without saying again which one."""
    return getattr(error, "reason", "") or error.fact or str(error)


def no_name_server(addresses: Sequence[str], problems: Sequence[str]) -> Unreachable:
    """The error when none of the name servers is there."""
    noun = "a name server" if len(addresses) == 1 else "any name server"
    reason = "; ".join(problems).removeprefix(f"{addresses[0]}: " if len(addresses) == 1 else "")
    advice = f"is {noun} running there, and is the address right?"
    return Unreachable(";".join(addresses), reason, advice)


def is_address(text: str) -> bool:
    """Whether this is ``host:port``."""
    try:
        split_address(text)
    except Unreachable:
        return False
    return True


def broker_of(data: BrokerData) -> BrokerAddress | None:
    """Whom to ask about a broker group in a route: the master, else the first slave."""
    for number in sorted(data.broker_addrs):
        address = data.broker_addrs[number]
        return BrokerAddress(data.cluster or "", data.broker_name, number, address)
    return None


def brokers_of(route: TopicRoute) -> tuple[BrokerAddress, ...]:
    """Whom to ask about a topic: one broker of each group that has it."""
    found = (broker_of(data) for data in route.broker_datas)
    return tuple(sorted(broker for broker in found if broker is not None))
