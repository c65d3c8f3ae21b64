"""What other engines wrote is refused, and only that."""

import struct
import tarfile
from pathlib import Path

import pytest

from cometmq.errors import ForeignStore
from cometmq.store.files import DiskFiles
from cometmq.store.foreign import refuse_foreign
from tests.golden.store_data import STORES
from tests.unit.store.raw_store import RawStore

DATA = Path(__file__).parents[2] / "data" / "store"

BATCH_UNIT = struct.pack(">qiqqqhii", 0, 100, 0, 1_700_000_000_000, 0, 3, -1, 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    store = RawStore(tmp_path)
    store.put()
    return store.write()


def write(path: Path, data: bytes = b"data") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def refuse(root: Path) -> None:
    refuse_foreign(root, DiskFiles())


def test_a_store_of_our_own_is_not_refused(root: Path) -> None:
    before = sorted(root.rglob("*"))

    refuse(root)

    assert sorted(root.rglob("*")) == before


def test_a_directory_that_does_not_exist_is_not_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "nothing")

    assert not (tmp_path / "nothing").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_stores_of_apaches_brokers_are_not_refused(name: str, tmp_path: Path) -> None:
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")

    refuse(tmp_path / "store")

    assert (tmp_path / "store/rocksdbstore").exists() == name.startswith("5.")


def test_what_a_broker_makes_without_using_it_is_left_alone(root: Path) -> None:
    write(root / "rocksdbstore/000004.log", b"")
    write(root / "rocksdbstore/MANIFEST-000005")
    write(root / "rocksdbstore/LOG", b"what RocksDB tells")
    write(root / "compaction/position-checkpoint")
    write(root / "compaction/compactionLog/T/0/00000000000000000000", bytes(4096))
    write(root / "batchconsumequeue/T/0/00000000000000000000", bytes(4600))
    (root / "dledger-n0/data").mkdir(parents=True)

    refuse(root)

    assert (root / "rocksdbstore/LOG").exists()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("consumequeue/000009.sst", "consume queues in RocksDB"),
        ("consumequeue_rocksdb/000009.log", "consume queues in RocksDB"),
        ("rocksdbstore/000009.sst", "indexes, timers or transactions in RocksDB"),
        ("kvStore/000009.sst", "popped messages in RocksDB"),
        ("config/rdb/000009.log", "topics, groups and offsets in RocksDB"),
        ("config/metadata/000009.sst", "topics, groups and offsets in RocksDB"),
        ("config/topics/000009.sst", "topics in RocksDB"),
        ("config/subscriptionGroups/000009.sst", "groups in RocksDB"),
        ("config/consumerOffsets/000009.blob", "offsets in RocksDB"),
        ("dledger-n0/data/00000000000000000000", "a commit log of DLedger"),
    ],
)
def test_data_of_another_engine_is_refused(root: Path, name: str, what: str) -> None:
    path = write(root / name)

    with pytest.raises(ForeignStore) as refusal:
        refuse(root)

    assert refusal.value.path == str(path)
    assert refusal.value.problem == f"{what}, which CometMQ does not read"
    assert "Apache's broker" in refusal.value.next_step


def test_a_batch_queue_with_a_unit_is_refused(root: Path) -> None:
    write(root / "batchconsumequeue/T/0/00000000000000000000", BATCH_UNIT.ljust(4600, b"\0"))

    with pytest.raises(ForeignStore, match="queue of batches"):
        refuse(root)


def test_a_message_of_a_compacted_topic_is_refused(root: Path) -> None:
    message = bytes((root / "commitlog/00000000000000000000").read_bytes())
    write(root / "compaction/compactionLog/T/0/00000000000000000000", message)

    with pytest.raises(ForeignStore, match="compacted topic"):
        refuse(root)


@pytest.mark.parametrize(
    ("attribute", "value"), [("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION")]
)
@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak"])
def test_a_topic_of_another_engine_is_refused(
    root: Path, name: str, attribute: str, value: str
) -> None:
    topics = '{"topicConfigTable":{"T":{"attributes":{"%s":"%s"},"topicName":"T"}}}'
    write(root / "config" / name, (topics % (attribute, value)).encode())

    with pytest.raises(ForeignStore, match=f"topic 'T' .*{attribute}={value}"):
        refuse(root)


@pytest.mark.parametrize(
    "content",
    [
        b'{"topicConfigTable":{"T":{"attributes":{"queue.type":"SimpleCQ"},"topicName":"T"}}}',
        b'{"topicConfigTable":{"T":{"topicName":"T"}}}',
        b"{}",
        b"not JSON",
        b"",
    ],
)
def test_other_topics_are_not_refused(root: Path, content: bytes) -> None:
    path = write(root / "config/topics.json", content)

    refuse(root)

    assert path.read_bytes() == content
