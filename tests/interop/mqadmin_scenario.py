"""Two brokers with the same contents and the same clients online, for the tool to look at."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from tests.interop import asking, membership
from tests.interop.admin_shell import AdminShell
from tests.interop.apache import CLUSTER, ApacheBroker
from tests.interop.asking import wait_until
from tests.interop.broker import OurBroker
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer

TOPICS: Mapping[str, int] = {
    "Orders": 4,
    "Idle": 2,
    "Replayed": 2,
    "Skipped": 2,
    "Guarded": 3,
    "Doomed": 2,
}
# Queue, tag, keys and body of each message.
ORDERS = [
    (number % 4, "ABC"[number % 3], f"order-{number} parity-{number % 2}", f"body of {number}")
    for number in range(12)
]
REPLAYED = [(number % 2, "A", f"replayed-{number}", f"again {number}") for number in range(6)]
# How far groups without members are in the queues of Orders; each is for one command to change.
OFFLINE_GROUPS: Mapping[str, tuple[int, ...]] = {
    "G_offline": (1, 2, 3, 0),
    "G_source": (2, 2, 1, 1),
    "G_clone": (),
    "G_rewound": (3, 3, 3, 3),
    "G_skipped": (0, 1, 0, 1),
    "G_doomed": (1, 1, 1, 1),
    "G_doomed_with_offsets": (1, 1, 1, 1),
}
ONLINE_GROUPS: Mapping[str, str] = {"G_online": "Orders", "G_replay": "Replayed"}
PRODUCERS = "PG_online"


# Files for the commands that make many at once.
LISTS: Mapping[str, list[dict[str, str | int]]] = {
    "topics.json": [
        {"topicName": "Listed1", "readQueueNums": 2, "writeQueueNums": 1, "perm": 6},
        {"topicName": "Listed2", "readQueueNums": 3, "writeQueueNums": 3, "perm": 4},
    ],
    "groups.json": [
        {"groupName": "G_listed1", "retryMaxTimes": 5},
        {"groupName": "G_listed2", "retryQueueNums": 2},
    ],
}
# Producers of trace are numbered through, over both sides.
_COUNTED = re.compile(r"(-(?:PRODUCE|CONSUME))-\d+")


class ActFailedError(Exception):
    """A client that is kept online could not do what it was asked to."""


@dataclass(slots=True)
class Side:
    """A name server and a broker, and what the tool is to be told of their contents."""

    name: str
    namesrv: OurNameServer
    broker: OurBroker | ApacheBroker
    shell: AdminShell
    folder: Path
    places: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places |= {
            "namesrv": self.namesrv.address,
            "broker": self.broker.address,
            "store": str(self.broker.store_path),
            "home": str(self.broker.store_path.parent),
            "folder": str(self.folder),
            "producer": f"127.0.0.1@producer-{self.name}",
            **{group: f"127.0.0.1@{group}-{self.name}" for group in ONLINE_GROUPS},
        }

    def neutral(self, text: str) -> str:
        """The text with the places that are this side's own replaced by their names."""
        for name, place in sorted(self.places.items(), key=lambda item: -len(item[1])):
            text = text.replace(place, f"<{name}>")
        return _COUNTED.sub(r"\1", text)

    def act(self, *words: str) -> list[str]:
        """Let a client do something; a line per result."""
        answer = self.shell("@act", *words)
        if "Exception" in answer:
            raise ActFailedError(f"{self.name}: {words}\n{answer}")
        return answer.splitlines()

    def received(self, group: str) -> int:
        """How many messages the online member of the group has handled."""
        (count,) = self.act("received", f"{group}-{self.name}")
        return int(count)

    def fill(self) -> None:
        """Make the topics, groups, messages and clients of the scenario."""
        self.folder.mkdir(parents=True)
        for name, entries in LISTS.items():
            (self.folder / name).write_text(json.dumps(entries))
        for topic, queues in TOPICS.items():
            asking.create_topic(self.broker.address, topic, queues=queues)
        asking.wait_until_known([self.namesrv.address], "Doomed")
        self.act("produce", f"producer-{self.name}", self.namesrv.address, PRODUCERS)
        self._send("Orders", ORDERS)
        self._send("Replayed", REPLAYED)
        for group, offsets in OFFLINE_GROUPS.items():
            self._introduce(group)
            for queue, offset in enumerate(offsets):
                self.commit(group, "Orders", queue, offset)
        for group, topic in ONLINE_GROUPS.items():
            self._introduce(group)
            # Otherwise its member comes to know it at some time, or not.
            self.commit(group, f"%RETRY%{group}", 0, 0)
            self.act("consume", f"{group}-{self.name}", self.namesrv.address, group, topic)

    def wait_until_settled(self) -> None:
        """Return once the members have handled everything and told so."""
        for group, messages in (("G_online", ORDERS), ("G_replay", REPLAYED)):
            is_done = functools.partial(self._has_handled, group, len(messages))
            wait_until(is_done, f"{group} of {self.name} has handled {len(messages)}")

    def _has_handled(self, group: str, count: int) -> bool:
        topic = ONLINE_GROUPS[group]
        committed = (self._committed(group, topic, queue) for queue in range(TOPICS[topic]))
        return self.received(group) == sum(committed) == count

    def _committed(self, group: str, topic: str, queue: int) -> int:
        header = QueryConsumerOffset(group, topic, queue)
        answer = asking.ask(self.broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code != ResponseCode.SUCCESS:
            return 0
        return OffsetResponse.from_ext(answer.ext_fields).offset

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        header = UpdateConsumerOffset(group, topic, queue, offset)
        asking.ask_well(self.broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def _introduce(self, group: str) -> None:
        """Let the broker know the group and its retry topic, by which the tool finds a group."""
        membership.join_and_leave(self.broker.address, group)
        asking.wait_until_known([self.namesrv.address], f"%RETRY%{group}")

    def _send(self, topic: str, messages: list[tuple[int, str, str, str]]) -> None:
        lines = ["\t".join(map(str, message)) for message in messages]
        for number, result in enumerate(self.act("send", f"producer-{self.name}", topic, *lines)):
            unique, offset_id = result.split("\t")
            self.places[f"{topic}{number}"] = unique
            self.places[f"{topic}{number}@"] = offset_id


@dataclass(frozen=True, slots=True)
class Pair:
    """Ours and Apache's, with the tool of Apache's release."""

    release: str
    shell: AdminShell
    ours: Side
    apaches: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.ours, self.apaches


@contextmanager
def running(
    cache: Cache, release: str, shell: AdminShell, folder: Path, *, in_place_of_ours: str | None
) -> Iterator[Pair]:
    """Both sides, filled, for as long as the block; ``in_place_of_ours`` is a release or None."""
    versions = {"ours": in_place_of_ours, "apaches": release}
    with ExitStack() as stack, ThreadPoolExecutor() as threads:

        def start(name: str) -> Side:
            below = folder / name
            namesrv = stack.enter_context(OurNameServer(below / "namesrv"))
            broker = _broker(cache, versions[name], below / "broker", namesrv.address)
            stack.callback(broker.kill)
            return Side(name, namesrv, broker, shell, below / "exported")

        pair = Pair(release, shell, *threads.map(start, versions))
        list(threads.map(Side.fill, pair.sides))
        for side in pair.sides:
            side.wait_until_settled()
        yield pair


def _broker(
    cache: Cache, version: str | None, folder: Path, namesrv: str
) -> OurBroker | ApacheBroker:
    settings = {"brokerClusterName": CLUSTER, "traceTopicEnable": "true"}
    if version is None:
        return OurBroker(folder, namesrv=namesrv, settings=settings)
    return ApacheBroker(cache, version, folder, namesrv=namesrv, settings=settings)
