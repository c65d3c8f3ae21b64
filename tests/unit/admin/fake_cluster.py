"""A cluster that answers what a test told it to, and remembers what it was asked."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from cometmq.admin import Admin
from cometmq.codec import bodies
from cometmq.codec.bodies.nameserver import ClusterInfo
from cometmq.codec.codes import V5_5_0, LanguageCode, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import MAGIC_V1, assemble, pack_host, record_bytes
from cometmq.errors import CometError, RequestTimeout
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.routes import Answer
from cometmq.testing import FakeClock

NAMESRV = "10.0.0.1:9876"
OTHER_NAMESRV = "10.0.0.2:9876"
BROKER_A = "10.0.1.1:10911"
BROKER_B = "10.0.1.2:10911"
V4_9_7 = 407


class Asked(msgspec.Struct, frozen=True):
    """One request."""

    address: str
    code: RequestCode
    header: Any
    body: bytes
    is_repeatable: bool


Reply = Answer | CometError | Callable[[Asked], Answer]


class FakeCluster:
    """Two name servers and two brokers, ``broker-a`` and ``broker-b`` of the cluster ``east``.

    ``on`` says what a code is answered with, everywhere or at one address; answers given one after
    the other are used one after the other, the last one for ever.
    """

    def __init__(self, version: int = V5_5_0, language: LanguageCode = LanguageCode.JAVA) -> None:
        self.asked: list[Asked] = []
        self.version = version
        self.language = language
        self._hung: set[str] = set()
        self._replies: dict[tuple[RequestCode, str | None], list[Reply]] = {}
        self.on(RequestCode.GET_BROKER_CLUSTER_INFO, body(self.info()))
        self.on(RequestCode.GET_MAX_OFFSET, Answer())  # asked for the release it comes from

    @property
    def admin(self) -> Admin:
        return Admin(f"{NAMESRV};{OTHER_NAMESRV}", connections=self, clock=FakeClock())

    def on(self, code: RequestCode, *replies: Reply, at: str | None = None) -> None:
        """Answer ``code`` like this from now on."""
        self._replies[code, at] = list(replies)

    def on_route(self, topic: str, *, queues: int = 2, brokers: str = "ab") -> None:
        """Let the name servers know a topic, and no other."""
        answer = body(route(queues=queues, brokers=brokers))
        missing = Answer(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        self.on(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            lambda asked: answer if asked.header.topic == topic else missing,
        )

    def hang(self, address: str) -> None:
        """Let a server take connections and answer nothing from now on."""
        self._hung.add(address)

    def questions(self, code: RequestCode) -> list[Asked]:
        """What was asked with this code."""
        return [asked for asked in self.asked if asked.code == code]

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Command:
        asked = Asked(address, RequestCode(code), header, body, is_repeatable)
        self.asked.append(asked)
        if address in self._hung:
            raise RequestTimeout(address, timeout_ms)
        replies = self._replies.get((asked.code, address)) or self._replies.get((asked.code, None))
        assert replies, f"nobody said what {asked.code!r} is answered with"
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        answer = reply(asked) if callable(reply) else reply
        if isinstance(answer, CometError):
            raise answer
        return Command(
            answer.code,
            language=self.language,
            version=self.version,
            remark=answer.remark,
            ext=answer.header.to_ext() if answer.header else None,
            body=answer.body,
        )

    @staticmethod
    def info() -> ClusterInfo:
        return ClusterInfo(
            {data.broker_name: data for data in broker_datas("ab")},
            {"east": ("broker-a", "broker-b")},
        )


def body(value: msgspec.Struct) -> Answer:
    """A success with this body."""
    return Answer(body=bodies.encode(value))


def refused(code: ResponseCode, remark: str = "no") -> Answer:
    return Answer(code, remark=remark)


def route(*, queues: int = 2, brokers: str = "ab") -> TopicRoute:
    return TopicRoute(
        tuple(broker_datas(brokers)),
        tuple(QueueData(f"broker-{letter}", queues, queues, 6) for letter in brokers),
    )


def broker_datas(letters: str) -> Iterator[BrokerData]:
    for letter in letters:
        address = {"a": BROKER_A, "b": BROKER_B}[letter]
        yield BrokerData(f"broker-{letter}", {0: address}, "east")


def record(
    *,
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    stored_ms: int = 1000,
    body: bytes = b"body",
    sys_flag: int = 0,
    **properties: str,
) -> bytes:
    """A record as brokers send it."""
    text = encode_properties(properties).encode()
    size = record_bytes(len(body), len(topic), len(text), sys_flag)
    return assemble(
        size,
        MAGIC_V1,
        topic.encode(),
        body,
        len(body),
        text,
        queue_id,
        queue_offset,
        physical_offset,
        stored_ms,
        900,
        pack_host("10.0.2.1", 5000),
        pack_host("10.0.1.1", 10911),
        0,
        sys_flag,
        0,
        0,
    )
