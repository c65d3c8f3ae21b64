"""Queues with damaged entries: what a store can bring back from its log when it opens it does."""

import itertools
import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.codec import queue_entry
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.store import MessageStore
from cometmq.store.check import check
from cometmq.store.dispatcher import Dispatcher
from cometmq.testing import CrashingDisk, PowerCut
from tests.unit.store.builders import (
    TOPIC,
    bodies,
    body_for,
    delayed,
    flip,
    killed_copy,
    log_files,
    message,
    numbered,
    open_store,
    patch,
    put,
    put_all,
    queue_files,
    raw_record,
)

COUNT = 34
SIZES: dict[str, Any] = {"queue_file_bytes": 100 * ENTRY_BYTES}
Left = Callable[..., Path]


@pytest.fixture(params=[True, False], ids=["stopped", "killed"])
def left(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Left:
    """Makes a store, does something with it and returns the directory as it was left."""
    is_clean = request.param

    def leave(use: Callable[[MessageStore], object], **sizes: Any) -> Path:
        with open_store(root, **{**SIZES, **sizes}) as store:
            use(store)
            store.flush()
            if not is_clean:
                return killed_copy(root, tmp_path / "killed")
        return root

    return leave


def fill(store: MessageStore) -> None:
    """Two queues whose messages take turns."""
    for body in numbered(COUNT):
        put(store, message(body, keys="k"))
        put(store, message(body, queue_id=1, keys="k"))


def claim_whole(store: MessageStore) -> None:
    for queue_id in (0, 1):
        assert bodies(store, TOPIC, queue_id) == numbered(COUNT)
        assert store.max_offset(TOPIC, queue_id) == COUNT
    assert len(store.query(TOPIC, "k", limit=64)) == 64
    assert put(store, message(b"next")).queue_offset == COUNT
    assert bodies(store)[-1] == b"next"


def entry_of(root: Path, number: int) -> queue_entry.QueueEntry:
    return queue_entry.unpack(queue_files(root)[0].read_bytes(), number * ENTRY_BYTES)


@pytest.mark.parametrize("byte", [0, 1, 2, 3, 4, 5, 6, 8, 9, 10])
@pytest.mark.parametrize("number", [0, 1, 17, COUNT - 2])
def test_a_damaged_entry_costs_no_message(number: int, byte: int, left: Left) -> None:
    copy = left(fill)
    flip(queue_files(copy)[0], number * ENTRY_BYTES + byte, 0x40)

    with open_store(copy, **SIZES) as store:
        claim_whole(store)
    assert check(copy).is_clean


@pytest.mark.parametrize("damage", [b"\0", b"\xff", b"\x01\x02\x03"], ids=["zeros", "ones", "any"])
@pytest.mark.parametrize(("begin", "end"), [(0, 5), (1, 2), (3, 33), (20, 33)])
def test_nor_do_many_in_a_row(begin: int, end: int, damage: bytes, left: Left) -> None:
    copy = left(fill)
    length = (end - begin) * ENTRY_BYTES
    patch(queue_files(copy)[0], begin * ENTRY_BYTES, (damage * length)[:length])

    with open_store(copy, **SIZES) as store:
        claim_whole(store)


def test_nor_do_several_here_and_there(left: Left) -> None:
    copy = left(fill)
    for queue_id, number in ((0, 2), (0, 3), (0, 9), (0, 30), (1, 0), (1, 32)):
        patch(queue_files(copy, TOPIC, queue_id)[0], number * ENTRY_BYTES, b"\xff" * 8)

    with open_store(copy, **SIZES) as store:
        claim_whole(store)


def test_it_is_told_which_messages_were_concerned(
    left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    copy = left(fill)
    flip(queue_files(copy)[0], 7 * ENTRY_BYTES)

    with caplog.at_level(logging.WARNING, "cometmq"), open_store(copy, **SIZES):
        pass

    before, told = [said.getMessage() for said in caplog.records]
    assert before == "queues=1 damaged: the log is read for what they have lost"
    assert told.startswith("topic=orders queue=0 was damaged from offset 7 on: 1 entries")
    assert told.endswith(f"it goes on to offset {COUNT}")


def test_nothing_is_told_of_a_store_without_damage(
    left: Left, caplog: pytest.LogCaptureFixture
) -> None:
    copy = left(fill)

    with caplog.at_level(logging.WARNING, "cometmq"), open_store(copy, **SIZES) as store:
        claim_whole(store)

    assert not caplog.records


def test_what_is_not_vouched_for_goes_on_behind_it(root: Path, tmp_path: Path) -> None:
    """Entries that the checkpoint knows nothing of are entered again, as after any kill."""
    with open_store(root, **SIZES) as store:
        put_all(store, *numbered(20))
        store.flush()
        put_all(store, *numbered(40)[20:])
        store.dispatch()
        copy = killed_copy(root, tmp_path / "killed")

    for number in (0, 5, 18, 20, 21, 39):
        again = Path(shutil.copytree(copy, tmp_path / f"again{number}"))
        flip(queue_files(again)[0], number * ENTRY_BYTES + 6, 0x40)
        with open_store(again, **SIZES) as store:
            assert bodies(store) == numbered(40), number
            assert put(store, message()).queue_offset == 40
        shutil.rmtree(again)


def test_damage_may_reach_over_files(left: Left) -> None:
    def use(store: MessageStore) -> None:
        put_all(store, *numbered(70))

    copy = left(use, queue_file_bytes=20 * ENTRY_BYTES)
    third, fourth = queue_files(copy)[2:]
    patch(third, 19 * ENTRY_BYTES, b"\xff" * ENTRY_BYTES)
    patch(fourth, 0, b"\xff" * 3 * ENTRY_BYTES)

    with open_store(copy, queue_file_bytes=20 * ENTRY_BYTES) as store:
        assert bodies(store) == numbered(70)
        assert put(store, message()).queue_offset == 70


def test_a_delayed_message_gets_its_time_of_delivery_again(left: Left) -> None:
    copy = left(lambda store: [put(store, delayed(3)) for _ in range(5)])
    path = queue_files(copy, "SCHEDULE_TOPIC_XXXX")[0]
    before = path.read_bytes()
    patch(path, 2 * ENTRY_BYTES, b"\xff" * ENTRY_BYTES)

    open_store(copy, **SIZES).close()

    assert path.read_bytes() == before


def test_the_old_messages_of_a_topic_that_was_made_anew_stay_out(left: Left) -> None:
    """Nothing right is before the damage, so it is looked for where the topic begins."""

    def use(store: MessageStore) -> None:
        put_all(store, *[b"old"] * 9)
        put_all(store, b"gone", topic="deleted")
        store.delete_topic(TOPIC)
        store.delete_topic("deleted")
        put_all(store, b"new 0", b"new 1", b"new 2")

    copy = left(use)
    patch(queue_files(copy)[0], 0, b"\xff" * 8)

    with open_store(copy, **SIZES) as store:
        assert bodies(store) == [b"new 0", b"new 1", b"new 2"]
        assert store.queues() == [(TOPIC, 0)]


def test_a_gap_in_the_numbers_stays_one(left: Left) -> None:
    def use(store: MessageStore) -> None:
        put_all(store, b"0", b"1")
        store.append_raw(store.log_end, raw_record(store.log_end, 5, b"5"))
        put_all(store, b"6")

    copy = left(use)
    patch(queue_files(copy)[0], 1 * ENTRY_BYTES, b"\xff" * 3 * ENTRY_BYTES)

    with open_store(copy, **SIZES) as store:
        assert bodies(store) == [b"0", b"1", b"5", b"6"]
        assert store.max_offset(TOPIC, 0) == 7


def test_leftovers_behind_the_end_are_no_damage(left: Left) -> None:
    """Apache's brokers leave them there when they cut a queue."""
    copy = left(fill)
    first = queue_files(copy)[0].read_bytes()[: 3 * ENTRY_BYTES]
    patch(queue_files(copy)[0], COUNT * ENTRY_BYTES, first)

    with open_store(copy, **SIZES) as store:
        claim_whole(store)
    shutil.rmtree(copy)


def test_messages_that_their_queue_numbers_otherwise_stay_where_they_are(left: Left) -> None:
    """Apache's brokers enter a message where the queue stands, whatever number it has."""
    copy = left(fill)
    path = queue_files(copy)[0]
    shifted = path.read_bytes()[ENTRY_BYTES : COUNT * ENTRY_BYTES]
    patch(path, 0, shifted)
    patch(path, 20 * ENTRY_BYTES, b"\xff" * ENTRY_BYTES)

    with open_store(copy, **SIZES) as store:
        found = bodies(store)
    shutil.rmtree(copy)

    assert found == numbered(COUNT)[1:21]


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_is_no_damage(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries may be on disk whose records are not: here the first of a topic made anew."""
    fed: list[object] = []
    monkeypatch.setattr(Dispatcher, "feed_queues", lambda *said, **_: fed.append(said))
    disk = CrashingDisk(tmp_path / "cut")
    store = open_store(tmp_path / "cut", files=disk, **SIZES)
    put_all(store, *[b"old"] * 9)
    store.flush()
    store.delete_topic(TOPIC)
    store.vouch()
    put_all(store, b"other", topic="other")
    store.flush()
    put_all(store, b"new 0")
    store.dispatch()

    disk.crash(seed)

    with open_store(tmp_path / "cut", **SIZES) as again:
        found = bodies(again) if (TOPIC, 0) in again.queues() else []
    assert found in ([], [b"new 0"])
    assert not fed


def test_a_topic_made_anew_is_mended_without_its_old_messages_whenever_that_is_cut_short(
    root: Path, tmp_path: Path
) -> None:
    with open_store(root, **SIZES) as store:
        put_all(store, *[b"old"] * 9)
        store.delete_topic(TOPIC)
        put_all(store, b"new 0", b"new 1", b"new 2")
        store.flush()
    patch(queue_files(root)[0], 0, b"\xff" * 2 * ENTRY_BYTES)

    for number in itertools.count(1):
        again = tmp_path / f"again{number}"
        shutil.copytree(root, again, ignore=shutil.ignore_patterns("lock"))
        disk = CrashingDisk(again)
        disk.cut_power_at(number)
        is_cut = False
        try:
            open_store(again, files=disk, **SIZES).close()
        except PowerCut:
            is_cut = True
            disk.abandon()
        with open_store(again, **SIZES) as store:
            assert bodies(store) == [b"new 0", b"new 1", b"new 2"], number
        shutil.rmtree(again)
        if not is_cut:
            break
    open_store(root, **SIZES).close()

    assert number > 5


def test_of_a_topic_made_anew_whose_log_has_begun_to_go_all_is_there_at_once(root: Path) -> None:
    with open_store(root, **SIZES) as store:
        put_all(store, *[body_for(1000)] * 30)
        store.delete_topic(TOPIC)
        put_all(store, b"new 0", b"new 1", b"new 2")
        store.flush()
    for path in log_files(root)[:2]:
        path.unlink()
    patch(queue_files(root)[0], 0, b"\xff" * 2 * ENTRY_BYTES)

    with open_store(root, **SIZES) as store:
        assert bodies(store) == [b"new 0", b"new 1", b"new 2"]
        assert store.min_offset(TOPIC, 0) == 0


def test_check_calls_damage_of_what_is_vouched_for_an_error(left: Left) -> None:
    """No kill leaves that: the disk did, or a hand."""
    copy = left(fill)
    flip(queue_files(copy)[0], 1 * ENTRY_BYTES + 5)

    before = check(copy)
    open_store(copy, **SIZES).close()

    assert not before.is_consistent
    assert check(copy).is_clean


def test_check_calls_only_damage_recoverable_of_what_is_entered_again(
    root: Path, tmp_path: Path
) -> None:
    with open_store(root, **SIZES) as store:
        put_all(store, *numbered(20))
        store.flush()
        put_all(store, *numbered(40)[20:])
        store.dispatch()
        copy = killed_copy(root, tmp_path / "killed")
    path = queue_files(copy)[0]

    flip(path, 30 * ENTRY_BYTES + 5)
    later = check(copy)
    flip(path, 30 * ENTRY_BYTES + 5)
    flip(path, 10 * ENTRY_BYTES + 5)
    earlier = check(copy)
    open_store(copy, **SIZES).close()

    assert later.is_consistent
    assert not later.is_clean
    assert not earlier.is_consistent


@pytest.mark.slow
def test_mending_may_be_cut_short_at_any_point(left: Left, tmp_path: Path) -> None:
    copy = left(fill)
    for number in (0, 7, 20, 32):
        patch(queue_files(copy)[0], number * ENTRY_BYTES, b"\xff" * 8)
    kills = 0
    while True:
        again = tmp_path / f"again{kills}"
        shutil.copytree(copy, again, ignore=shutil.ignore_patterns("lock"))
        disk = CrashingDisk(again)
        disk.cut_power_at(kills + 1)
        try:
            open_store(again, files=disk, **SIZES).close()
        except PowerCut:
            kills += 1
        else:
            break
        disk.abandon()
        with open_store(again, **SIZES) as store:
            claim_whole(store)
        shutil.rmtree(again)
    open_store(copy, **SIZES).close()

    assert kills > 5


def test_a_hole_in_the_log_takes_only_its_own_messages(left: Left) -> None:
    copy = left(lambda store: put_all(store, *[body_for(1000)] * 12))
    patch(log_files(copy)[0], 1000, struct.pack(">ii", 0, 0))
    patch(queue_files(copy)[0], 1 * ENTRY_BYTES, b"\xff" * 8)

    with open_store(copy, **SIZES) as store:
        assert len(bodies(store)) == 11
        assert store.max_offset(TOPIC, 0) == 12
    shutil.rmtree(copy)
