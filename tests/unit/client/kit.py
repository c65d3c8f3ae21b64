"""Name servers and brokers that answer what a test told them to, on real sockets of loopback."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Self

import msgspec

from cometmq.client.client import Client
from cometmq.codec import batch, bodies, command
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command, CommandFlag
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.codec.properties import decode as decode_properties
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ServerSettings
from cometmq.remoting.routes import Answer, Routes
from cometmq.remoting.server import Server

V4_9_7 = 407
CLUSTER = "east"
NOT_THERE = Answer(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info in name server")


class Asked(msgspec.Struct):
    """One request that came."""

    code: int
    command: Command
    channel: Channel

    @property
    def body(self) -> bytes:
        return self.command.body

    @property
    def send(self) -> SendMessageV2:
        """Its header, if it is a send."""
        return SendMessageV2.from_ext(self.command.ext_fields)

    @property
    def properties(self) -> dict[str, str]:
        """Of the message in a send."""
        return decode_properties(self.send.properties or "")


Reply = Answer | Callable[[Asked], Answer | Awaitable[Answer | None] | None] | None
"""None is never answered."""


class Node:
    """A server. ``on`` says what a code is answered with; the last answer counts for ever."""

    def __init__(self, name: str, *, has_vip_port: bool = False) -> None:
        self.name = name
        self.address = ""
        self._settings = ServerSettings(is_vip_enabled=has_vip_port)
        self.asked: list[Asked] = []
        self.version: int | None = None  # None is our own
        self._replies: dict[int, list[Reply]] = {}
        self._routes = _Everything(self._take)
        self._server: Server | None = None
        self._came = asyncio.Event()

    def on(self, code: RequestCode, *replies: Reply) -> None:
        self._replies[code] = list(replies)

    def questions(self, code: RequestCode) -> list[Asked]:
        """What was asked with this code."""
        return [asked for asked in self.asked if asked.code == code]

    @property
    def sends(self) -> list[Asked]:
        return self.questions(RequestCode.SEND_MESSAGE_V2)

    async def until(self, code: RequestCode, count: int = 1) -> list[Asked]:
        """Wait until so many requests of this code have come."""
        while len(found := self.questions(code)) < count:
            self._came.clear()
            await self._came.wait()
        return found

    async def start(self) -> None:
        self._server = Server(self._routes, settings=self._settings)
        host, _, port = self.address.rpartition(":")
        await self._server.start(host or "127.0.0.1", int(port or 0))
        self.address = f"127.0.0.1:{self._server.ports[0]}"

    async def stop(self) -> None:
        if self._server is not None:
            for channel in self._server.channels:
                channel.drop("the test stops it")
            await self._server.stop()
            self._server = None

    @property
    def vip_address(self) -> str:
        host, _, port = self.address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    @property
    def channels(self) -> frozenset[Channel]:
        return frozenset() if self._server is None else self._server.channels

    def _take(self, channel: Channel, request: Command) -> None:
        asked = Asked(request.code, request, channel)
        self.asked.append(asked)
        self._came.set()
        replies = self._replies.get(request.code)
        reply: Any = Answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not in this test")
        if replies:
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
        answer = reply(asked) if callable(reply) else reply
        if answer is not None and not isinstance(answer, Answer):
            channel.finish_later(request, answer)
        elif isinstance(answer, Answer):
            self._reply(channel, request, answer)

    def _reply(self, channel: Channel, request: Command, answer: Answer) -> None:
        if self.version is None or request.is_oneway:
            channel.reply(request, answer)
            return
        ext = None if answer.header is None else answer.header.to_ext()
        written = Command(
            answer.code,
            version=self.version,
            opaque=request.opaque,
            flag=CommandFlag.RESPONSE,
            remark=answer.remark,
            ext=ext,
            body=answer.body,
        )
        channel.answer_with([command.encode(written)])


class _Everything(Routes):
    """Hands all requests to one handler, whatever their code."""

    def __init__(self, handler: Callable[[Channel, Command], None]) -> None:
        super().__init__()
        self._handler = handler

    def dispatch(self, channel: Channel, commands: Sequence[Command]) -> list[bytes]:
        for request in commands:
            self._handler(channel, request)
        return []


class FakeCluster:
    """Name servers and brokers ``broker-a``, ``broker-b``, … that take every send."""

    def __init__(
        self, brokers: str = "a", name_servers: int = 1, *, have_vip_ports: bool = False
    ) -> None:
        self.name_servers = [Node(f"namesrv-{number}") for number in range(name_servers)]
        self.brokers = {
            letter: Node(f"broker-{letter}", has_vip_port=have_vip_ports) for letter in brokers
        }
        self.topics: dict[str, TopicRoute] = {}
        self._offset = 0
        for server in self.name_servers:
            server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        for broker in self.brokers.values():
            broker.on(RequestCode.HEART_BEAT, Answer())
            broker.on(RequestCode.UNREGISTER_CLIENT, Answer())
            for code in (
                RequestCode.SEND_MESSAGE_V2,
                RequestCode.SEND_BATCH_MESSAGE,
                RequestCode.SEND_REPLY_MESSAGE_V2,
            ):
                broker.on(code, self.stored)

    @property
    def namesrv(self) -> str:
        return ";".join(server.address for server in self.name_servers)

    @property
    def a(self) -> Node:
        return self.brokers["a"]

    @property
    def b(self) -> Node:
        return self.brokers["b"]

    @property
    def sends(self) -> list[Asked]:
        return [asked for broker in self.brokers.values() for asked in broker.sends]

    def create(self, topic: str, *, queues: int = 2, brokers: str = "", perm: int = 6) -> None:
        """Let the name servers know a topic."""
        letters = brokers or "".join(self.brokers)
        self.topics[topic] = TopicRoute(
            tuple(self._data(letter) for letter in letters),
            tuple(QueueData(f"broker-{letter}", queues, queues, perm) for letter in letters),
        )

    def stored(self, asked: Asked) -> Answer:
        """The answer of a broker that has stored a message."""
        count = 1
        if asked.code == RequestCode.SEND_BATCH_MESSAGE:
            count = len(bodies_of(asked.body))
        first = self._offset
        self._offset += count
        ids = ",".join(f"ID{first + number}" for number in range(count))
        return Answer(header=SendMessageResponse(ids, asked.send.queue_id, first, "T"))

    def _data(self, letter: str) -> BrokerData:
        return BrokerData(f"broker-{letter}", {0: self.brokers[letter].address}, CLUSTER)

    def _route(self, asked: Asked) -> Answer:
        topic = GetRouteInfoByTopic.from_ext(asked.command.ext_fields).topic
        route = self.topics.get(topic)
        return NOT_THERE if route is None else Answer(body=bodies.encode(route))

    async def __aenter__(self) -> Self:
        for node in (*self.name_servers, *self.brokers.values()):
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in (*self.name_servers, *self.brokers.values()):
            await node.stop()


def bodies_of(data: bytes) -> list[bytes]:
    """The bodies in a batch."""
    return [item.body for item in batch.decode(data)]


def refused(code: ResponseCode, remark: str = "no") -> Answer:
    return Answer(code, remark=remark)


def status(code: ResponseCode) -> Callable[[Asked], Answer]:
    """A message is stored, but not as safely as was asked for."""

    def answer(asked: Asked) -> Answer:
        header: Header = SendMessageResponse("ID", asked.send.queue_id, 7)
        return Answer(code, header)

    return answer


@contextlib.asynccontextmanager
async def connected(cluster: FakeCluster, **options: Any) -> AsyncIterator[Client]:
    """A client of a cluster, with an address of its own."""
    options.setdefault("client_ip", "10.0.0.9")
    async with Client(cluster.namesrv, **options) as client:
        yield client


def told_by_child(work: Callable[[], object]) -> str:
    """What a forked process raises when it does ``work``, or what that returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = str(work())
        except BaseException as error:
            told = str(error)
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    told = os.read(reader, 10_000).decode()
    os.close(reader)
    return told
