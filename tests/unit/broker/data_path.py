"""Sending and pulling without a network: the handlers on a real store, a loop that is turned."""

import random
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cometmq.broker.clients import Clients
from cometmq.broker.config import BrokerNetworkSettings
from cometmq.broker.delay.levels import DelayLevels
from cometmq.broker.durability import Durability
from cometmq.broker.handlers.pull import PullHandlers
from cometmq.broker.handlers.send import SendHandlers
from cometmq.broker.idempotence import IdempotentSends
from cometmq.broker.idempotence_snapshot import SnapshotFile
from cometmq.broker.identity import resolve_identity
from cometmq.broker.queue_locks import QueueLocks
from cometmq.broker.retry import Retries
from cometmq.broker.send_plans import SendPlans
from cometmq.codec import properties, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessage, SendMessageV2
from cometmq.codec.record import Record
from cometmq.remoting.routes import Routes
from cometmq.store import MessageStore, StoreSettings
from cometmq.store.config import FlushMode
from cometmq.store.files import Files
from cometmq.testing import FakeClock
from tests.unit.broker import tables
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.timed_loop import TimedLoop

TOPIC, GROUP = "orders", "readers"
PROPERTIES = {"UNIQ_KEY": "0A00000500002A9F0001", "TAGS": "red", "WAIT": "true"}
WAITING_MAX = 3


class DataPath:
    """A broker's sending and pulling; ``settings`` are the broker's, ``store`` the store's.

    Topic ``orders`` has four queues. One channel asks everything unless a test brings another.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: Mapping[str, Any] | None = None,
        files: Files | None = None,
        clock: FakeClock | None = None,
        has_idempotence: bool = False,
        **settings: Any,
    ) -> None:
        chosen = tables.broker_settings(**settings)
        store_settings = StoreSettings(root=folder, log_file_bytes=1 << 20, **(store or {}))
        self.clock = clock or FakeClock()
        self.loop = TimedLoop()
        self.store = MessageStore.open(
            folder,
            store_settings,
            clock=self.clock,
            files=files,
            loop=self.loop,
            threads=False,
        )
        self.topics = tables.topic_table(folder, self.clock, **settings)
        self.groups = tables.group_table(folder, self.clock, **settings)
        self.offsets = tables.consumer_offsets(folder)
        self.clients = Clients(self.groups, self.topics, chosen, self.clock)
        self.locks = QueueLocks(self.clock, 60_000)
        network = BrokerNetworkSettings(bind_address="127.0.0.1")
        self.identity = resolve_identity(chosen, network, 10911)
        self.durability = Durability(
            self.store.watermarks, self.loop.as_asyncio, timeout_ms=5000, waiting_max=WAITING_MAX
        )
        plans = self.plans = SendPlans(
            self.topics,
            Retries(self.groups, self.topics, self.locks.has_lock),
            DelayLevels(store_settings.delays_ms()),
            self.identity,
            chosen,
            body_bytes_max=store_settings.message_bytes_max,
            clock=self.clock,
            chance=random.Random(1),
        )
        self.idempotent: IdempotentSends | None = None
        if has_idempotence:
            file = SnapshotFile(folder)
            self.idempotent = IdempotentSends(self.store, file, chosen, self.clock)
        is_sync = store_settings.flush_mode is FlushMode.SYNC_FLUSH
        self.sends = SendHandlers(
            self.store,
            plans,
            self.durability if is_sync else None,
            self.idempotent,
        )
        self.pulls = PullHandlers(
            self.store,
            self.topics,
            self.groups,
            self.clients,
            self.offsets,
            identity=self.identity,
            settings=chosen,
            loop=self.loop.as_asyncio,
        )
        self.store.on_arrival(self.pulls.on_arrival)
        self.routes = Routes()
        self.sends.add_to(self.routes)
        self.pulls.add_to(self.routes)
        self.channel = FakeChannel()
        tables.add_topic(self.topics, TOPIC)

    # --- sending

    def send(self, body: bytes = b"hello", **changes: Any) -> Reply:
        """Send one message and turn the loop; the answer."""
        (reply,) = self.send_frames(sending(body, **changes))
        return reply

    def send_frames(self, *frames: tuple[SendMessage, bytes]) -> list[Reply]:
        """Send messages that came with one read."""
        commands = [
            request(code_of(header), header, body, opaque=number)
            for number, (header, body) in enumerate(frames)
        ]
        replies = self.channel.ask(self.routes, *commands)
        self.loop.turn()
        return replies

    # --- pulling

    def pull(self, offset: int = 0, **changes: Any) -> list[Reply]:
        """Pull from queue 0; empty while the pull is held."""
        return self.channel.ask(
            self.routes, request(RequestCode.PULL_MESSAGE, pulling(offset, **changes))
        )

    def later(self) -> list[Reply]:
        """What has been answered meanwhile."""
        replies, self.channel.replies = self.channel.replies, []
        return replies

    def stored(self, topic: str = TOPIC, queue_id: int = 0) -> list[Record]:
        """All messages of a queue."""
        with self.store.get(topic, queue_id, 0) as result:
            return [item for piece in result.slices for item in record.parse_all(piece)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.store.close()


def code_of(header: SendMessage) -> RequestCode:
    return (
        RequestCode.SEND_MESSAGE_V2
        if isinstance(header, SendMessageV2)
        else RequestCode.SEND_MESSAGE
    )


def sending(
    body: bytes = b"hello",
    *,
    kind: type[SendMessage] = SendMessageV2,
    text: str | None = None,
    asked: Mapping[str, str] | None = None,
    **changes: Any,
) -> tuple[SendMessage, bytes]:
    """A send to queue 0 of ``orders``; ``asked`` are properties in addition to the usual ones."""
    fields: dict[str, Any] = {
        "producer_group": "writers",
        "topic": TOPIC,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": properties.encode({**PROPERTIES, **(asked or {})}) if text is None else text,
        **changes,
    }
    return kind(**fields), body


def pulling(offset: int = 0, **changes: Any) -> PullMessage:
    """A pull of all tags that brings its subscription along and may be held for 15 s."""
    fields: dict[str, Any] = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": 0x4 | 0x2,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "subscription": "*",
        "sub_version": 0,
        **changes,
    }
    return PullMessage(**fields)


def bodies(reply: Reply) -> list[bytes]:
    """The bodies in the answer to a pull."""
    return [item.body for item in record.parse_all(reply.body)]
