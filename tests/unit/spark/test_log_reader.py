"""Queues read from the files of a store: one that our store wrote, with small files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.errors import DamagedStore, NotFound
from cometmq.model.offsets import MessageQueue
from cometmq.spark.decode import RecordDecoder
from cometmq.spark.log_reader import LogReader
from cometmq.spark.losses import Losses, MessagesLost
from cometmq.spark.planning import Range
from cometmq.spark.schema import arrow_schema
from cometmq.spark.store_files import StoreFiles
from cometmq.spark.visible import store_alone
from cometmq.store import MessageStore
from tests.unit.store.builders import (
    LOG_FILE_BYTES,
    TOPIC,
    message,
    open_store,
    put,
)

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
COUNT = 120


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """120 messages in each of two queues, which take turns; there are several log files."""
    opened = open_store(tmp_path / "store")
    for number in range(COUNT):
        tag = "A" if number % 3 else "B"
        put(opened, message(b"m-%d" % number, keys=f"k{number}", tags=tag))
        put(opened, message(b"other", queue_id=1))
    opened.dispatch()
    yield opened
    opened.close()


def reader_of(
    store: MessageStore,
    *,
    settled: float = 1.0,
    end: int | None = None,
    is_fatal: bool = True,
    **given: Any,
) -> LogReader:
    """``settled`` is the part of the log that is mapped."""
    files = StoreFiles(store.root)
    files.log.settled_end = int(files.log.end * settled)
    tags = given.get("tags", frozenset())
    return LogReader(
        files,
        files.log.end if end is None else end,
        RecordDecoder(arrow_schema(["queueOffset", "body"]), tags=tags, verify="all"),
        Losses(is_fatal=is_fatal),
        **{"batch_rows": 50, "batch_bytes": 100_000, **given},
    )


def read(reader: LogReader, begin: int = 0, end: int = COUNT) -> list[tuple[int, bytes]]:
    batches = list(reader.read(Range(QUEUE, begin, end)))
    return [(row["queueOffset"], row["body"]) for one in batches for row in one.to_pylist()]


def wanted(begin: int = 0, end: int = COUNT) -> list[tuple[int, bytes]]:
    return [(number, b"m-%d" % number) for number in range(begin, end)]


@pytest.mark.parametrize("settled", [0.0, 0.5, 1.0], ids=["pread", "both", "mapped"])
def test_a_range_is_read_in_order_over_the_ends_of_files(
    store: MessageStore, settled: float
) -> None:
    assert read(reader_of(store, settled=settled)) == wanted()
    assert read(reader_of(store, settled=settled), 17, 93) == wanted(17, 93)


def test_batches_have_no_more_rows_and_bytes_than_asked_for(store: MessageStore) -> None:
    by_rows = list(reader_of(store, batch_rows=7).read(Range(QUEUE, 0, COUNT)))
    by_bytes = list(reader_of(store, batch_bytes=1000).read(Range(QUEUE, 0, COUNT)))

    assert max(one.num_rows for one in by_rows) == 7
    assert max(one.num_rows for one in by_bytes) < 10
    assert sum(one.num_rows for one in by_bytes) == COUNT


def test_nothing_is_read_past_the_end(store: MessageStore) -> None:
    reader = reader_of(store, end=LOG_FILE_BYTES)

    reached = reader.reach(Range(QUEUE, 0, COUNT))

    assert 0 < reached < COUNT
    assert read(reader, 0, reached) == wanted(0, reached)
    with pytest.raises(MessagesLost):
        read(reader, 0, reached + 1)


def test_all_of_a_range_can_be_reached_when_all_is_settled(store: MessageStore) -> None:
    assert reader_of(store).reach(Range(QUEUE, 0, COUNT)) == COUNT
    assert reader_of(store, end=0).reach(Range(QUEUE, 0, COUNT)) == 0


def test_tags_choose_messages_and_leave_gaps(store: MessageStore) -> None:
    got = read(reader_of(store, tags=frozenset({"B"})))

    assert got == [(number, b"m-%d" % number) for number in range(0, COUNT, 3)]


def test_a_file_that_was_deleted_is_a_loss(store: MessageStore) -> None:
    first = min((store.root / "commitlog").iterdir())
    first.unlink()

    with pytest.raises(MessagesLost) as caught:
        read(reader_of(store))
    rest = read(reader_of(store, is_fatal=False))

    assert caught.value.begin == 0
    assert rest == wanted(caught.value.end, COUNT)


def test_queue_files_that_were_deleted_are_a_loss(store: MessageStore) -> None:
    min((store.root / "consumequeue" / TOPIC / "0").iterdir()).unlink()

    reader = reader_of(store)

    assert reader.reach(Range(QUEUE, 0, COUNT)) == COUNT
    with pytest.raises(MessagesLost, match="offsets 0 to 19"):
        read(reader)


def test_files_that_are_deleted_while_they_are_read_do_not_matter(store: MessageStore) -> None:
    batches = reader_of(store, batch_rows=10, settled=0.5).read(Range(QUEUE, 0, COUNT))
    first = next(batches)

    for path in (store.root / "commitlog").iterdir():
        path.unlink()

    assert first.num_rows + sum(one.num_rows for one in batches) == COUNT


def test_another_message_than_the_queue_says_is_damage(store: MessageStore) -> None:
    queue = store.root / "consumequeue" / TOPIC
    other, own = (min((queue / name).iterdir()) for name in "10")
    own.write_bytes(other.read_bytes())

    with pytest.raises(DamagedStore, match="lies another message than number 0 of orders/0"):
        read(reader_of(store))


def test_a_directory_that_is_not_there_says_what_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="mounted on this machine"):
        StoreFiles(tmp_path / "nothing")


def test_a_directory_with_gaps_in_its_log_is_refused(store: MessageStore) -> None:
    """Its other files may lie in another folder; retention makes no gaps."""
    files = sorted((store.root / "commitlog").iterdir())

    files[0].unlink()
    store_alone(str(store.root)).close()
    files[2].unlink()

    with pytest.raises(DamagedStore, match=r"if its log lies in several folders") as caught:
        store_alone(str(store.root))
    assert caught.value.path.endswith(files[2].name)
