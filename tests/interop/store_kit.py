"""Store directories that Apache's broker and our store open in turn, and what each says of them.

``Scenario`` says how a directory is made, ``Ground`` is one such directory with Apache's broker on
it. A message is described by its *facts*, the same mapping whether our store gives them or Apache's
client (``store_shell``).
"""

import base64
import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cometmq import settings
from cometmq.codec import (
    batch,
    bodies,
    compression,
    index_entry,
    message_id,
    properties,
    record,
    sysflag,
)
from cometmq.codec.batch import BatchItem
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.compression import CompressionType
from cometmq.codec.java import index_hash
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.store import MessageStore, StoreSettings
from cometmq.store.results import GetStatus, NewMessage, PutResult
from tests.golden import store_data
from tests.interop import apache, asking
from tests.interop.apache import ApacheBroker
from tests.interop.cache import Cache
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import LOOPBACK, free_port_triple, is_free
from tests.interop.processes import Stoppable

Queue = tuple[str, int]
Facts = Mapping[str, Any]

# Files that a few hundred messages fill several times.
SMALL = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(100 * 20),
    "maxHashSlotNum": "50",
    "maxIndexNum": "200",
}
# After a crash Apache rebuilds its index. It names the files by the millisecond: were they as small
# as above, one that is full within a millisecond would be written over by the next one.
SMALL_REBUILT = {**SMALL, "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
# Apache's own.
DEFAULT = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": str(300_000 * 20),
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
# Level 1 is delivered while a test waits, level 2 after the broker came back, level 3 not at all.
LATER_LEVEL = 2
LATER_S = 25
USUAL = {
    "messageDelayLevel": f"1s {LATER_S}s 2h",
    "transactionCheckInterval": "3600000",
}
QUEUES_OF_TOPICS = {
    "Plain": 4,
    "Tags": 2,
    "Keys": 1,
    "Batch": 2,
    "Tran": 2,
    "Delay": 1,
    "Big": 1,
    "Storm": 4,
}

# 4.9's broker says nothing of its store unless told where; 5.x has a file of its own for it.
LOGBACK = """\
<configuration>
  <appender name="store" class="ch.qos.logback.core.FileAppender">
    <file>{path}</file>
    <encoder><pattern>%d %p %t - %m%n</pattern></encoder>
  </appender>
  <logger name="RocketmqStore" additivity="false"><appender-ref ref="store"/></logger>
  <root level="INFO"/>
</configuration>
"""
STORE_LOG = Path("logs", "rocketmqlogs", "store.log")

# 5.x takes its time: most of a polite stop is waiting for threads to notice.
STOP_TIMEOUT_S = 90.0
BODY_BYTES_MAX = 1 << 20
QUERY_COUNT = 64


@dataclass(frozen=True, slots=True)
class Scenario:
    """A release and how its broker is set up; ``log_folders`` below the store directory."""

    release: str
    name: str
    settings: Mapping[str, str] = field(default_factory=lambda: SMALL)
    log_folders: Sequence[str] = ("commitlog",)

    def __str__(self) -> str:
        return f"{self.release}-{self.name}"


class Ground(Stoppable):
    """A directory for a store, and a name server for the broker that will run on it.

    The broker has the same port whenever it comes back: message ids tell it.
    """

    def __init__(self, cache: Cache, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.root = folder / "store"
        self.log_folders = [self.root / name for name in scenario.log_folders]
        self.port = free_port_triple()
        self.host = record.pack_host(LOOPBACK, self.port)
        self.settings = {
            "listenPort": str(self.port),
            "brokerName": f"broker-{scenario}",
            "storePathRootDir": str(self.root),
            "storePathCommitLog": ",".join(map(str, self.log_folders)),
            **USUAL,
            **scenario.settings,
        }
        self._cache = cache
        self._folder = folder
        self._runs = itertools.count(1)
        self._run_folder = folder
        self._namesrv = OurNameServer(folder / "namesrv")
        self._broker: ApacheBroker | None = None

    @property
    def broker(self) -> ApacheBroker:
        """The one that was started last."""
        assert self._broker is not None
        return self._broker

    @property
    def store_settings(self) -> StoreSettings:
        """What Apache's settings mean to ours."""
        return settings.load(StoreSettings, file=self.settings).settings

    def start_broker(self) -> ApacheBroker:
        """Apache's broker on the directory, with every topic of the tests."""
        self._run_folder = self._folder / f"run-{next(self._runs)}"
        release, namesrv = self.scenario.release, self._namesrv.address
        log_settings = _log_settings(release, self._run_folder)
        with ThreadPoolExecutor(1) as pool:
            topics = pool.submit(self._create_topics)
            self._broker = ApacheBroker(
                self._cache,
                release,
                self._run_folder,
                namesrv=namesrv,
                settings={**self.settings, **log_settings},
            )
            topics.result()
        for topic in QUEUES_OF_TOPICS:
            asking.wait_until_known([namesrv], topic)
        return self._broker

    def _create_topics(self) -> None:
        address = f"{LOOPBACK}:{self.port}"
        asking.wait_until(lambda: not is_free(self.port), "the broker listens")
        for topic, queues in QUEUES_OF_TOPICS.items():
            asking.create_topic(address, topic, queues=queues)
        # A new topic makes a broker register at once if it can. By itself 5.x tries that when it
        # starts, before it has a connection as often as not, and then again after ten seconds.
        names = (f"{self._run_folder.name}-{number}" for number in itertools.count())

        def is_registered() -> bool:
            asking.create_topic(address, next(names), queues=1)
            return address.encode() in apache.cluster_info(self._namesrv.address)

        asking.wait_until(is_registered, "the broker registers")

    def ask_to_stop(self) -> None:
        """SIGTERM, and no waiting: ``wait_stopped`` does that."""
        os.killpg(self.broker.process.pid, signal.SIGTERM)

    def wait_stopped(self) -> None:
        """Return when the broker has ended by itself."""
        self.broker.process.stop(timeout_s=STOP_TIMEOUT_S)
        assert not (self.root / "abort").exists(), self.store_log()

    def shell_options(self) -> dict[str, str]:
        """What every command of the client must know about this broker."""
        return {
            "namesrv": self._namesrv.address,
            "broker": self.settings["brokerName"],
            "known": "Plain",
        }

    def open_store(self) -> MessageStore:
        return MessageStore.open(self.root, self.store_settings)

    def readable(self, queues: Iterable[Queue]) -> list[Queue]:
        """Those whose topic the running broker serves; 4.9.7 keeps two of its own to itself."""
        known = asking.topics(self._namesrv.address)
        return [queue for queue in queues if queue[0] in known]

    def log_end(self) -> int:
        """Where the running broker would put the next record."""
        found: list[str] = []

        def is_told() -> bool:
            # 4.9.7 cannot tell before it has measured itself for the first time.
            answer = asking.ask(self.broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
            if answer.code == ResponseCode.SUCCESS:
                found.append(bodies.decode(KVTable, answer.body).table["commitLogMaxOffset"])
            return bool(found)

        asking.wait_until(is_told, "the broker tells where its log ends")
        return int(found[0])

    def store_log(self) -> str:
        """What the broker's store said in the last run."""
        return (self._run_folder / STORE_LOG).read_text()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.kill()
        self._namesrv.stop()
        # A store of Apache's default sizes takes gigabytes.
        shutil.rmtree(self.root, ignore_errors=True)


def _log_settings(release: str, folder: Path) -> dict[str, str]:
    if release.startswith("5."):
        return {}
    home = folder / "logged"
    (home / "conf").mkdir(parents=True)
    text = LOGBACK.format(path=folder / STORE_LOG)
    (home / "conf" / "logback_broker.xml").write_text(text)
    return {"rocketmqHome": str(home)}


def facts(item: Record) -> Facts:
    """The same of a record; its body as a client would see it.

    A 5.x client forgets that a body was compressed when it unpacks it, so the flag is left out.
    """
    kind = sysflag.compression_type(item.sys_flag)
    body = item.body if kind is None else compression.decompress(item.body, kind, BODY_BYTES_MAX)
    return {
        **store_data.facts(item),
        "sysFlag": item.sys_flag & ~sysflag.COMPRESSED,
        "properties": properties.decode(item.properties),
        "body": base64.b64encode(body).decode(),
    }


def read_queue(
    store: MessageStore, topic: str, queue_id: int, *, tags: frozenset[int] | None = None
) -> list[Record]:
    """Every message of a queue from its first to its last, or those with one of the tags."""
    found: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        with store.get(topic, queue_id, offset, tags=tags) as result:
            assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE), result.status
            assert result.next_offset > offset
            for piece in result.slices:
                found += record.parse_all(piece)
            offset = result.next_offset
    return found


def read_all(store: MessageStore) -> dict[Queue, list[Record]]:
    """Every queue that has messages, by topic and id."""
    found = {queue: read_queue(store, *queue) for queue in store.queues()}
    return {queue: records for queue, records in sorted(found.items()) if records}


def read_at(store: MessageStore, physical_offset: int) -> Record:
    view = store.record_at(physical_offset)
    assert view is not None, physical_offset
    with view:
        item = record.parse(view, check_crc=True)
    assert isinstance(item, Record)
    return item


def find(store: MessageStore, topic: str, key: str) -> list[int]:
    """Where the messages lie that have the key, be it a unique one.

    The index knows only hashes: others may come with them, but only of the same hash.
    """
    found = []
    wanted = index_hash(index_entry.key_text(topic, key))
    for offset in store.query(topic, key, limit=QUERY_COUNT):
        item = read_at(store, offset)
        names = properties.decode(item.properties)
        keys = [names.get(Property.UNIQ_KEY, ""), *names.get(Property.KEYS, "").split(" ")]
        texts = [index_entry.key_text(item.topic, name) for name in keys]
        texts.append(index_entry.tag_text(item.topic, names.get(Property.TAGS, "")))
        assert wanted in map(index_hash, texts), (key, offset)
        if item.topic == topic and key in keys:
            found.append(offset)
    return found


class Appender:
    """Puts messages into a store of ours as a broker at ``host`` would, each with a unique key."""

    def __init__(self, store: MessageStore, host: bytes) -> None:
        self._store = store
        self._host = host
        self._ids = message_id.UniqueIds(host[:4], os.getpid(), 1)

    def put(
        self, topic: str, queue_id: int, body: bytes, *, keys: str, tag: str, sys_flag: int = 0
    ) -> PutResult:
        message = NewMessage(
            topic,
            queue_id,
            body,
            self._properties(keys, tag),
            born_timestamp=_now_ms(),
            born_host=self._host,
            store_host=self._host,
            sys_flag=sys_flag,
        )
        return self._claimed(self._store.put(message))

    def put_batch(
        self, topic: str, queue_id: int, bodies: Sequence[bytes], *, keys: str
    ) -> PutResult:
        """One batch; the key of its n-th message is ``keys`` and n."""
        items = [
            BatchItem(0, body, self._properties(f"{keys}-{number}", "ours"))
            for number, body in enumerate(bodies)
        ]
        message = NewMessage(
            topic,
            queue_id,
            batch.encode(items),
            born_timestamp=_now_ms(),
            born_host=self._host,
            store_host=self._host,
        )
        return self._claimed(self._store.put_batch(message))

    def _properties(self, keys: str, tag: str) -> bytes:
        return properties.encode(
            {
                Property.UNIQ_KEY: self._ids.next(_now_ms()),
                Property.KEYS: keys,
                Property.TAGS: tag,
                Property.CLUSTER: apache.CLUSTER,
                Property.WAIT: "true",
            }
        ).encode()

    def _claimed(self, result: PutResult) -> PutResult:
        assert result.status.is_stored, result
        return result


def append_some(store: MessageStore, host: bytes) -> None:
    """Messages of ours in queues old and new; enough to fill small files of every kind."""
    appender = Appender(store, host)
    for queue_id in range(QUEUES_OF_TOPICS["Plain"]):
        appender.put("Plain", queue_id, b"ours", keys=f"ours-plain-{queue_id}", tag="ours")
    for number in range(90):
        keys = f"ours-{number} ours-group-{number % 5}"
        appender.put("Keys", 0, b"ours %d" % number, keys=keys, tag="tag2")
    for tag in ("red", "Aa", "BB"):
        appender.put("Tags", 0, tag.encode(), keys=f"ours-{tag}", tag=tag)
    appender.put_batch("Batch", 0, [b"batch of ours %d" % i for i in range(12)], keys="ours-batch")
    # No queue of Apache's has this one yet.
    appender.put_batch("Storm", 3, [b"first", b"second"], keys="ours-storm")
    packed = compression.compress(b"ours " * 3000, CompressionType.ZLIB)
    sys_flag = sysflag.with_compression(0, CompressionType.ZLIB)
    appender.put("Big", 0, packed, keys="ours-packed", tag="packed", sys_flag=sys_flag)
    for number in range(40):
        body = bytes([number]) * (16_000 + number)
        appender.put("Big", 0, body, keys=f"ours-big-{number}", tag="ours")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
