"""The rows of ``bench.spark``: topics that are in a store before its broker starts."""

import time
from collections.abc import Mapping
from pathlib import Path

from bench.broker_subject import SETTLED_POLL_S, SETTLED_TIMEOUT_S, ask, topics_document
from bench.load import connect
from bench.spark_subject import SubjectFailed
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.offsets import GetMaxOffset
from cometmq.codec.record import pack_host
from cometmq.store import MessageStore
from cometmq.store.config import StoreSettings
from cometmq.store.results import NewMessage, PutStatus
from tests.interop.broker import OurBroker
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import LOOPBACK
from tests.interop.processes import Stoppable

QUEUES = 8
BODY_BYTES = 1024
TAGS = ("paid", "sent", "open", "void")
HOST = pack_host(LOOPBACK, 10911)
DISPATCHED = 1024
"""Messages between two dispatches."""

# Apache's defaults; tests have smaller ones.
SIZES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": str(5_000_000),
    "maxIndexNum": str(20_000_000),
    "autoCreateTopicEnable": "false",
}
MANY_SIZES: Mapping[str, str] = {**SIZES, "mappedFileSizeConsumeQueue": str(20 * 200)}


def fill(root: Path, topics: Mapping[str, int], queues: int, sizes: Mapping[str, str]) -> None:
    """Write so many messages of each topic, round its queues, into a store of its own."""
    settings = StoreSettings(
        log_file_bytes=int(sizes["mappedFileSizeCommitLog"]),
        queue_file_bytes=int(sizes["mappedFileSizeConsumeQueue"]),
        index_slots=int(sizes["maxHashSlotNum"]),
        index_entries=int(sizes["maxIndexNum"]),
    )
    store = MessageStore.open(root, settings)
    try:
        for topic, count in topics.items():
            for first in range(0, count, DISPATCHED):
                put(store, topic, range(first, min(first + DISPATCHED, count)), queues)
    finally:
        store.close()


def put(store: MessageStore, topic: str, numbers: range, queues: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    for number in numbers:
        done = store.put(
            NewMessage(topic, number % queues, body(number), properties(number), now_ms, HOST, HOST)
        )
        assert done.status is PutStatus.PUT_OK, done
    while store.dispatch():
        pass


def body(number: int) -> bytes:
    return f"{number} ".encode().ljust(BODY_BYTES, b"x")


def properties(number: int) -> bytes:
    """What a message of a client has: keys, a unique id, a tag."""
    fields = {
        "KEYS": f"key-{number}",
        "UNIQ_KEY": f"7F00000110F330946E094CD1{number:08X}",
        "WAIT": "true",
        "TAGS": TAGS[number % len(TAGS)],
    }
    return "".join(f"{name}\x01{value}\x02" for name, value in fields.items()).encode()


class Cluster(Stoppable):
    """Our broker on a store that has the rows already, and its name server."""

    def __init__(
        self,
        folder: Path,
        topics: Mapping[str, int],
        *,
        queues: int = QUEUES,
        empty: tuple[str, ...] = (),
        sizes: Mapping[str, str] = SIZES,
    ) -> None:
        root = folder / "broker" / "store"
        (root / "config").mkdir(parents=True)
        fill(root, topics, queues, sizes)
        (root / "config" / "topics.json").write_text(topics_document((*topics, *empty), queues))
        self._naming = OurNameServer(folder / "namesrv")
        try:
            self._broker = OurBroker(
                folder / "broker", namesrv=self._naming.address, settings=sizes
            )
        except BaseException:
            self._naming.process.kill()
            raise
        self.name_servers = self._naming.address
        self.store_path = root

    @property
    def pid(self) -> int:
        return self._broker.process.pid

    def message_count(self, topic: str) -> int:
        """Messages that the queues of a topic show."""
        with connect(self._broker.address) as connection:
            answers = [
                ask(connection, RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, number))
                for number in range(QUEUES)
            ]
        return sum(int(answer.ext_fields["offset"]) for answer in answers)

    def wait_for_count(self, topic: str, wanted: int) -> None:
        """Queues follow the log some time behind; they must come to ``wanted`` and not beyond."""
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while (found := self.message_count(topic)) < wanted and time.monotonic() < deadline:
            time.sleep(SETTLED_POLL_S)
        if found != wanted:
            raise SubjectFailed(f"topic {topic} has {found} messages, not {wanted}")

    def stop(self) -> None:
        # A polite stop saves a store nobody will open.
        self._broker.kill()
        self._naming.process.kill()
