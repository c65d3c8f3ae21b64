"""Asking name servers: one of them, the others when it does not answer, within one time budget."""

import asyncio
from collections.abc import Sequence

import msgspec

from cometmq.codec import bodies
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.errors import ConnectionLost, RemoteProtocolError, RequestTimeout, Unreachable
from cometmq.model.route import TopicRoute
from cometmq.remoting.connections import Connections

_ADVICE = "is a name server running there? 'cometmq up' starts one"
_TLS_ADVICE = "does a name server speak TLS there, with a certificate that this client trusts?"

OUTAGES = (Unreachable, RequestTimeout, ConnectionLost)


class RouteAnswer(msgspec.Struct, frozen=True):
    """Where a topic is, if somebody knows; ``asked`` are the servers and what each said.

    ``is_missing``: a name server has said in so many words that there is no such topic.
    """

    route: TopicRoute | None
    asked: tuple[tuple[str, str], ...]
    is_missing: bool = False


class NameServers:
    """The name servers of one client. The one that answered last is asked first."""

    def __init__(self, addresses: Sequence[str], connections: Connections) -> None:
        self.addresses = tuple(addresses)
        self._connections = connections
        self._preferred = 0

    async def route(self, topic: str, *, is_thorough: bool, timeout_ms: int) -> RouteAnswer:
        """Where a topic is. ``is_thorough`` asks the others too when one does not know it.

        A name server that was just started knows nothing yet. Raises Unreachable when nobody
        answers.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        asked: list[tuple[str, str]] = []
        problems, count, is_missing = 0, len(self.addresses), False
        for step in range(count):
            place = (self._preferred + step) % count
            address = self.addresses[place]
            try:
                answer = await self._ask(address, topic, deadline, count - step)
            except OUTAGES as error:
                asked.append((address, _reason(error)))
                problems += 1
                continue
            if answer.code == ResponseCode.SUCCESS:
                self._preferred = place
                return RouteAnswer(_decoded(answer), (*asked, (address, "it is there")))
            if problems == step:  # those before it are out of order, and cost time each time
                self._preferred = place
            asked.append((address, f"code {answer.code} {answer.remark or ''}".strip()))
            is_missing = is_missing or answer.code == ResponseCode.TOPIC_NOT_EXIST
            if not is_thorough:
                break
        if problems == count:
            reasons = "; ".join(f"{address}: {reason}" for address, reason in asked)
            if count == 1:
                reasons = asked[0][1]
            advice = _TLS_ADVICE if self._connections.has_tls else _ADVICE
            raise Unreachable(";".join(self.addresses), reasons, advice)
        return RouteAnswer(None, tuple(asked), is_missing)

    async def _ask(self, address: str, topic: str, deadline: float, servers_left: int) -> Command:
        """Ask one server; it gets its share of the time, so that a silent one leaves some."""
        left_ms = (deadline - asyncio.get_running_loop().time()) * 1000
        share_ms = round(left_ms / servers_left)
        if share_ms <= 0:
            raise RequestTimeout(address, 0)
        code, header = RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopic(topic)
        return await self._connections.ask(address, code, header, timeout_ms=share_ms)


def _decoded(answer: Command) -> TopicRoute:
    if not answer.body:
        raise RemoteProtocolError("the answer to a question for a route has no body")
    return bodies.decode(TopicRoute, answer.body)


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, Unreachable | ConnectionLost) else str(error)
