"""Which directories are a broker's: names and inodes agree by chance, what is in a log does not."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow")

from cometmq.codec import record
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command
from cometmq.codec.headers.extensions import LogStatusResponse
from cometmq.errors import NotFound, Unreachable, Unsupported
from cometmq.model.offsets import MessageQueue
from cometmq.spark.options import parse
from cometmq.spark.planning import Range
from cometmq.spark.schema import arrow_schema
from cometmq.spark.store_files import StoreFiles
from cometmq.spark.tasks import Task, TaskReader
from cometmq.spark.visible import store_of_broker, unseen_file
from cometmq.spark.wire import Reply
from cometmq.store import MessageStore
from cometmq.store.log_sample import sample_digest
from tests.unit.store.builders import LOG_FILE_BYTES, TOPIC, message, open_store, put

BROKER = "broker-a"
BODY = b"x" * 200
FIRST = "00000000000000000000"


def made(root: Path, count: int, host: str = "10.0.0.5") -> MessageStore:
    """A store with so many messages, all on disk; they differ from others' by their host alone."""
    store = open_store(root)
    for _ in range(count):
        put(store, message(BODY, store_host=record.pack_host(host, 10911)))
    store.dispatch()
    store.flush()
    return store


def status_of(store: MessageStore, seen: MessageStore | None = None) -> LogStatusResponse:
    """What the broker of ``store`` says; its newest file has the inode of that of ``seen``."""
    confirmed, files = store.watermarks.flushed, store.log_files
    sampled = next((one for one in files if one.begin < confirmed <= one.end), None)
    newest = files[-1].path
    same = (newest if seen is None else seen.root / "commitlog" / newest.name).stat().st_ino
    return LogStatusResponse(
        confirmed_offset=confirmed,
        begin_offset=store.log_begin,
        end_offset=store.log_end,
        file_bytes=LOG_FILE_BYTES,
        store_root=str(store.root),
        newest_file=str(newest),
        newest_file_inode=same,
        pull_count_max=1,
        pull_bytes_max=1,
        sample_begin=confirmed if sampled is None else sampled.begin,
        sample_digest=""
        if sampled is None
        else sample_digest(sampled.path, confirmed - sampled.begin),
    )


def unseen(status: LogStatusResponse, root: Path) -> str | None:
    """What of a broker's log is not in the directory, which has the inode in any case."""
    store = store_of_broker(status, (str(root),))
    assert store is not None
    return unseen_file(store, status)


@pytest.mark.parametrize("count", [3, 40])
def test_another_store_with_the_same_name_and_inode_is_not_the_brokers(
    tmp_path: Path, count: int
) -> None:
    """Two machines with disks formatted alike: in one file of the log, or in the last of many."""
    own, other = made(tmp_path / "a", count), made(tmp_path / "b", count, host="10.0.0.6")

    assert other.watermarks.flushed == own.watermarks.flushed
    assert unseen(status_of(own), own.root) is None
    assert unseen(status_of(other, seen=own), own.root) == other.log_files[-1].path.name
    own.close()
    other.close()


def test_a_copy_of_a_disk_is_not_the_brokers_once_something_new_is_in_it(tmp_path: Path) -> None:
    copied = made(tmp_path / "a", 3)
    copied.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    own, other = open_store(tmp_path / "a"), open_store(tmp_path / "b")

    before = unseen(status_of(other, seen=own), own.root)
    put(own, message(BODY, keys="here"))
    put(other, message(BODY, keys="else"))
    other.flush()
    after = unseen(status_of(other, seen=own), own.root)

    assert (before, after) == (None, FIRST)
    own.close()
    other.close()


def test_a_log_that_ends_with_a_file_is_known_by_that_file(tmp_path: Path) -> None:
    """The next one is there already, and nothing is in it."""
    store = made(tmp_path / "a", 40)
    status = status_of(store)
    newest = Path(status.newest_file)
    begin = int(newest.name)
    before = newest.with_name(f"{begin - LOG_FILE_BYTES:020}")
    status.confirmed_offset, status.sample_begin = begin, begin - LOG_FILE_BYTES
    status.sample_digest = sample_digest(before, LOG_FILE_BYTES)

    assert unseen(status, store.root) is None
    before.write_bytes(bytes(LOG_FILE_BYTES))
    assert unseen(status, store.root) == before.name
    before.unlink()
    assert unseen(status, store.root) == before.name
    status.begin_offset = begin  # the broker says now that retention has deleted it
    assert unseen(status, store.root) == before.name
    status.sample_begin, status.sample_digest = begin, ""
    assert unseen(status, store.root) is None
    store.close()


def test_a_file_that_came_since_in_another_folder_is_found_there(tmp_path: Path) -> None:
    """As with ``storePathCommitLog=a,b``, when the log rolls while a task waits for it."""
    store = made(tmp_path / "a", 40)
    status = status_of(store)
    store.close()
    newest = Path(status.newest_file)
    elsewhere = tmp_path / "b"
    elsewhere.mkdir()
    aside = newest.rename(tmp_path / "aside")
    files = StoreFiles(tmp_path / "a", (newest.parent, elsewhere))
    files.log.look()
    aside.rename(elsewhere / newest.name)

    assert unseen_file(files, status) is None


@pytest.mark.parametrize("changes", [{"sample_begin": 10**15}, {"sample_begin": -(2**63)}])
def test_a_place_that_no_file_has_is_not_seen(tmp_path: Path, changes: dict[str, int]) -> None:
    store = made(tmp_path / "a", 3)

    assert unseen(msgspec.structs.replace(status_of(store), **changes), store.root) is not None
    store.close()


class OldBroker:
    """A wire to a broker that says of its log what ``status`` has, and cannot be pulled from."""

    def __init__(self, status: LogStatusResponse) -> None:
        self.status = status

    def ask(self, address: str, code: RequestCode, *_: Any, **__: Any) -> Reply:
        assert code == RequestCode.COMET_LOG_STATUS
        return Reply(Command(code=0, opaque=0, flag=1, header=self.status), b"")

    def line(self, address: str) -> Any:
        raise Unreachable(address, "no pulls here")

    def forget(self, address: str) -> None:
        pass


class Reader(TaskReader):
    """A reader of tasks whose broker is ``broker``."""

    broker: OldBroker

    def _wire(self) -> Any:
        return self.broker


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., int]:
    """``rows(status, "log")``: how many of three messages are read; the store is in ``a``."""

    def read(status: LogStatusResponse, source: str) -> int:
        given = {"rocketmq.namesrv.addr": "127.0.0.1:1", "subscribe": TOPIC, "source": source}
        reader = Reader(parse(given), arrow_schema(["body"]), pause=lambda _: None)
        reader.broker = OldBroker(status)
        wanted = Range(MessageQueue(TOPIC, BROKER, 0), 0, 3)
        return sum(one.num_rows for one in reader.read(Task((wanted,), ((BROKER, "b:1"),))))

    return read


def test_files_are_read_only_when_their_content_is_the_brokers(
    tmp_path: Path, rows: Callable[..., int]
) -> None:
    own, other = made(tmp_path / "a", 3), made(tmp_path / "b", 3, host="10.0.0.6")
    foreign = status_of(other, seen=own)
    foreign.store_root = str(own.root)

    assert rows(status_of(own), "log") == rows(status_of(own), "auto") == 3
    with pytest.raises(Unreachable, match="no pulls here"):
        rows(foreign, "auto")
    with pytest.raises(NotFound, match=f"has {FIRST}, which .*another store's of that name"):
        rows(foreign, "log")
    own.close()
    other.close()


def test_a_broker_that_does_not_tell_what_is_in_its_log_is_pulled_from(
    tmp_path: Path, rows: Callable[..., int]
) -> None:
    store = made(tmp_path / "a", 3)
    status = status_of(store)
    status.sample_begin = status.sample_digest = None

    with pytest.raises(Unreachable, match="no pulls here"):
        rows(status, "auto")
    with pytest.raises(Unsupported, match="lacks telling how far its log may be read"):
        rows(status, "log")
    store.close()
