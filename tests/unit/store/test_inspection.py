"""Looking into a directory: bounds, and messages in order."""

from pathlib import Path

import pytest

from cometmq.errors import NotFound, RemoteProtocolError
from cometmq.store.config import StoreSettings
from cometmq.store.inspection import Inspection, QueueStat
from tests.unit.store.raw_store import RawStore


def store_of(root: Path, count: int = 100) -> RawStore:
    store = RawStore(root)
    for number in range(count):
        store.put("T", number % 2, f"{number}".encode())
    return store


def test_bounds_are_those_of_the_messages(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.log.extend(bytes(store.log_file_bytes))  # made ahead of need

    stat = Inspection(store.write()).stat()

    assert (stat.log_begin, stat.log_end) == (0, store.end)
    assert stat.queues == [QueueStat("T", 0, 0, 50, 3), QueueStat("T", 1, 0, 50, 3)]
    assert not stat.is_killed
    assert stat.disk.free > 0


def test_deleted_messages_are_outside_the_bounds(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    begin = store.log_file_bytes

    stat = Inspection(store.write(log_from=begin)).stat()

    first = next(n for n, e in enumerate(store.queues["T", 0]) if e.physical_offset >= begin)
    assert stat.log_begin == begin
    assert stat.queues[0] == QueueStat("T", 0, first, 50, 3)
    assert 0 < first < 50


def test_fillers_are_outside_the_bounds(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    store.fill("T", 0, 7)
    store.put()

    assert Inspection(store.write()).stat().queues == [QueueStat("T", 0, 7, 8, 1)]


def test_a_queue_may_be_full_empty_or_all_deleted(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    for _ in range(20):
        store.put("Full")
    store.queues["Empty", 0] = []
    store.put("Deleted", body=bytes(2500))
    store.put("Deleted", body=bytes(2500))
    for _ in range(2):
        store.put("Later", body=bytes(2500))

    queues = Inspection(store.write(log_from=3 * store.log_file_bytes)).stat().queues

    assert queues == [
        QueueStat("Deleted", 0, 2, 2, 1),
        QueueStat("Empty", 0, 0, 0, 1),
        QueueStat("Full", 0, 20, 20, 1),
        QueueStat("Later", 0, 0, 2, 1),
    ]


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    stat = Inspection(tmp_path).stat()

    assert (stat.log_begin, stat.log_end) == (0, 0)
    assert stat.checkpoint is None


def test_messages_come_in_order_from_all_files(tmp_path: Path) -> None:
    store = store_of(tmp_path)

    found = list(Inspection(store.write()).records())

    assert [record.body for record in found] == [f"{n}".encode() for n in range(100)]
    assert len(store.log) > store.log_file_bytes


def test_messages_may_begin_anywhere_in_the_log(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    begin = store.queues["T", 0][40].physical_offset

    found = list(Inspection(store.write()).records(begin))

    assert [record.body for record in found] == [f"{n}".encode() for n in range(80, 100)]
    assert begin > store.log_file_bytes


@pytest.mark.parametrize("offset", [-1, 10**9])
def test_a_position_outside_the_log_is_not_found(tmp_path: Path, offset: int) -> None:
    inspection = Inspection(store_of(tmp_path).write())

    with pytest.raises(NotFound, match="position in the log"):
        list(inspection.records(offset))


def test_the_list_ends_with_an_error_where_the_chain_is_broken(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    position = store.queues["T", 1][3].physical_offset
    store.log[position + 4] ^= 1
    records = Inspection(store.write()).records()

    found = [next(records) for _ in range(7)]

    assert found[-1].queue_offset == 3
    with pytest.raises(RemoteProtocolError, match=f"no message at {position}"):
        next(records)


def test_files_that_do_not_fit_are_passed_over(tmp_path: Path) -> None:
    store_of(tmp_path).write()
    (tmp_path / "commitlog/odd").write_bytes(b"")

    assert len(list(Inspection(tmp_path).records())) == 100


def test_a_log_elsewhere_makes_a_store(tmp_path: Path) -> None:
    store_of(tmp_path / "store").write()
    (tmp_path / "store/commitlog").rename(tmp_path / "log")
    (tmp_path / "other").mkdir()

    settings = StoreSettings(log_paths=(str(tmp_path / "log"),))

    assert len(list(Inspection(tmp_path / "other", settings).records())) == 100
    with pytest.raises(NotFound, match="store"):
        Inspection(tmp_path / "other")
