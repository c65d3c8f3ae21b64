"""Wheel, log and check page: made, found again, mended, and as Apache has them."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.delay.timer_index import TimerIndex
from cometmq.broker.delay.timer_log import TimerLog
from cometmq.broker.delay.timer_wheel import TimerWheel
from cometmq.broker.delay.timers import Timers
from cometmq.codec import properties, timer
from cometmq.codec.timer import NO_POSITION, TimerBlank, TimerUnit, WheelSlot
from cometmq.errors import DamagedStore
from cometmq.store.files import DiskFiles
from cometmq.testing import FakeClock
from tests.golden.store_data import load, timer_wheel
from tests.unit.broker import tables
from tests.unit.broker.timer_ground import TIMER_TOPIC, WHEEL_SLOTS, Ground, reopened
from tests.unit.store.builders import all_records, killed_copy, open_store, patch

FILES = DiskFiles()
SECOND = 1000
FILE_BYTES = 4096
UNITS_PER_FILE = (FILE_BYTES - timer.BLANK_BYTES) // timer.UNIT_BYTES


def unit(number: int = 0, *, previous: int = NO_POSITION, physical_offset: int = 0) -> TimerUnit:
    return TimerUnit(previous, 1, 1_700_000_000_000, 5000, physical_offset + number, 100, 7)


@pytest.fixture
def wheel(tmp_path: Path) -> Iterator[TimerWheel]:
    made = TimerWheel(FILES, tmp_path / "timerwheel", SECOND, slots=WHEEL_SLOTS)
    yield made
    made.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TimerLog]:
    made = TimerLog(FILES, tmp_path / "timerlog", FILE_BYTES)
    yield made
    made.close()


# --- the wheel


def test_a_slot_keeps_its_first_and_its_last_unit_and_how_many(wheel: TimerWheel) -> None:
    wheel.add(5 * SECOND, 100, 1)
    wheel.add(5 * SECOND + 999, 200, 1)
    wheel.add(5 * SECOND, 300, -1)

    assert wheel.slot(5 * SECOND) == WheelSlot(5, 100, 300, 1)
    assert wheel.slot(6 * SECOND) is None


def test_a_unit_that_a_slot_has_already_changes_nothing(wheel: TimerWheel) -> None:
    wheel.add(5 * SECOND, 200, 1)

    wheel.add(5 * SECOND, 100, 1)
    wheel.add(5 * SECOND, 200, 1)

    assert wheel.slot(5 * SECOND) == WheelSlot(5, 200, 200, 1)


def test_a_slot_of_an_earlier_turn_is_empty_and_is_taken_over(wheel: TimerWheel) -> None:
    wheel.add(5 * SECOND, 100, 1)
    later_ms = (5 + WHEEL_SLOTS) * SECOND

    assert wheel.slot(later_ms) is None
    wheel.add(later_ms, 300, 1)

    assert wheel.slot(later_ms) == WheelSlot(5 + WHEEL_SLOTS, 300, 300, 1)
    assert wheel.slot(5 * SECOND) is None


def test_the_slots_in_use_are_found_from_any_time_on(wheel: TimerWheel) -> None:
    times = [WHEEL_SLOTS - 2, WHEEL_SLOTS + 3, 2 * WHEEL_SLOTS - 4]
    for time in times:
        wheel.add(time * SECOND, time, 1)

    assert [slot.time for slot in wheel.used(times[0] * SECOND)] == times
    assert [slot.time for slot in wheel.used(times[1] * SECOND)] == times[1:]
    wheel.clear()
    assert list(wheel.used(0)) == []


def test_a_wheel_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(100))

    with pytest.raises(DamagedStore, match="has 100 bytes, not"):
        TimerWheel(FILES, tmp_path / "timerwheel", SECOND)


def test_an_empty_file_is_a_wheel_whose_making_was_cut_short(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(b"")

    made = TimerWheel(FILES, tmp_path / "timerwheel", SECOND, slots=WHEEL_SLOTS)

    assert made.is_new
    made.close()


# --- the log


def test_units_are_found_where_they_were_appended(log: TimerLog) -> None:
    positions = [log.append(unit(number)) for number in range(200)]

    assert [log.unit(position) for position in positions] == [unit(n) for n in range(200)]
    assert [number for number, _ in log.units(0)] == positions
    assert log.last() == (positions[-1], unit(199))
    assert log.unit(log.end) is None


def test_a_file_ends_with_a_blank_as_apache_writes_it(log: TimerLog, tmp_path: Path) -> None:
    for number in range(UNITS_PER_FILE):
        log.append(unit(number))

    position = log.append(unit(999))

    assert position == FILE_BYTES
    content = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    blank_at = UNITS_PER_FILE * timer.UNIT_BYTES
    assert timer.parse_log(content, blank_at) == TimerBlank(FILE_BYTES - blank_at)


@pytest.mark.parametrize("count", [1, UNITS_PER_FILE, UNITS_PER_FILE + 1, 200])
@pytest.mark.parametrize("begin", [0, 52, FILE_BYTES, 7, 10**9])
def test_an_opened_log_finds_its_end(log: TimerLog, tmp_path: Path, count: int, begin: int) -> None:
    for number in range(count):
        log.append(unit(number))

    again = TimerLog(FILES, tmp_path / "timerlog", 10**6)
    again.find_end(begin, lambda _: True)

    assert again.end == log.end
    assert again.last() == log.last()
    again.close()


def test_what_lies_behind_the_end_is_cleared(log: TimerLog, tmp_path: Path) -> None:
    for number in range(200):
        log.append(unit(number))

    again = TimerLog(FILES, tmp_path / "timerlog", FILE_BYTES)
    again.find_end(0, lambda found: found.physical_offset < 50)
    assert again.end == 50 * timer.UNIT_BYTES
    again.close()
    third = TimerLog(FILES, tmp_path / "timerlog", FILE_BYTES)
    third.find_end(0, lambda _: True)

    assert third.end == 50 * timer.UNIT_BYTES
    assert len(list((tmp_path / "timerlog").iterdir())) == 1
    third.close()


def test_files_go_when_their_messages_have_gone_but_never_the_last(
    log: TimerLog, tmp_path: Path
) -> None:
    for number in range(3 * UNITS_PER_FILE):
        log.append(unit(number))

    assert log.drop_before(UNITS_PER_FILE - 1) == []
    dropped = log.drop_before(10**9)

    assert [path.name for path in dropped] == [f"{0:020d}", f"{FILE_BYTES:020d}"]
    assert log.begin == 2 * FILE_BYTES
    assert log.unit(0) is None
    assert log.last() is not None


@pytest.mark.parametrize(
    ("sizes", "problem"), [((4096, 8192), "4096 and 8192"), ((20,), "files of 20")]
)
def test_files_of_impossible_sizes_are_refused(
    tmp_path: Path, sizes: tuple[int, ...], problem: str
) -> None:
    for number, size in enumerate(sizes):
        (tmp_path / f"{number * 4096:020d}").write_bytes(bytes(size))

    with pytest.raises(DamagedStore, match=problem):
        TimerLog(FILES, tmp_path, FILE_BYTES)


def test_a_gap_between_files_is_refused(tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"{number * 4096:020d}").write_bytes(bytes(4096))

    with pytest.raises(DamagedStore, match="lacks the file after"):
        TimerLog(FILES, tmp_path, FILE_BYTES)


def test_what_is_no_file_of_the_log_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"mine")
    (tmp_path / f"{0:020d}").write_bytes(b"")

    made = TimerLog(FILES, tmp_path, FILE_BYTES)

    assert made.append(unit()) == 0
    made.close()


# --- mending


def damage_lost_wheel(root: Path) -> None:
    (root / "timerwheel").unlink()


def damage_wheel_ahead(root: Path) -> None:
    """Every slot points far behind the end of the log."""
    content = bytearray((root / "timerwheel").read_bytes())
    for begin in range(0, len(content), timer.SLOT_BYTES):
        if any(content[begin : begin + timer.SLOT_BYTES]):
            struct.pack_into(">q", content, begin + 16, 52 * 10**6)
    (root / "timerwheel").write_bytes(content)


def damage_wheel_of_others(root: Path) -> None:
    """Every slot points to the first unit."""
    content = bytearray((root / "timerwheel").read_bytes())
    for begin in range(0, len(content), timer.SLOT_BYTES):
        if any(content[begin : begin + timer.SLOT_BYTES]):
            struct.pack_into(">q", content, begin + 16, 0)
    (root / "timerwheel").write_bytes(content)


def damage_lost_check(root: Path) -> None:
    (root / "config" / "timercheck").unlink(missing_ok=True)


def damage_short_check(root: Path) -> None:
    (root / "config" / "timercheck").write_bytes(b"short")


def damage_torn_unit(root: Path) -> None:
    """The second half of the last unit never came."""
    last = max((root / "timerlog").iterdir())
    content = last.read_bytes()
    end = max(
        begin
        for begin in range(0, len(content) - timer.UNIT_BYTES, timer.UNIT_BYTES)
        if content[begin : begin + 4] == b"\0\0\0\x34"
    )
    patch(last, end + 20, bytes(32))


def damage_everything(root: Path) -> None:
    damage_lost_wheel(root)
    damage_lost_check(root)
    for path in (root / "timerlog").iterdir():
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        damage_lost_wheel,
        damage_wheel_ahead,
        damage_wheel_of_others,
        damage_lost_check,
        damage_short_check,
        damage_torn_unit,
        damage_everything,
    ],
)
def test_what_is_damaged_is_made_again_and_each_message_comes_once(
    tmp_path: Path, damage: Any
) -> None:
    ground = Ground(tmp_path / "store")
    for number in range(150):
        ground.send_in(1 + number % 5, b"%d" % number)
    ground.pass_time(2)
    before = len(ground.delivered())
    ground.close()

    damage(ground.root)
    ground.open()
    ground.pass_time(10)

    assert 0 < before < 150
    assert sorted(map(int, ground.delivered())) == list(range(150))
    ground.close()


def waiting_at(root: Path, precision_ms: int) -> Ground:
    """Timers that lie in slots of their own, to a tenth of a second."""
    ground = Ground(root, timer_precision_ms=precision_ms)
    for number in range(40):
        ground.send_in(1 + number % 20 / 10, b"%d" % number)
    ground.pass_time(0.5)
    ground.store.flush()
    ground.timers.save()
    return ground


PRECISIONS = pytest.mark.parametrize(
    ("before_ms", "after_ms"), [(1000, 250), (100, 1000), (250, 1000), (100, 250), (1000, 10)]
)


@PRECISIONS
def test_with_another_precision_what_waits_still_comes_once(
    tmp_path: Path, before_ms: int, after_ms: int
) -> None:
    ground = waiting_at(tmp_path / "store", before_ms)

    other = reopened(ground, timer_precision_ms=after_ms)
    other.pass_time(10)

    assert sorted(map(int, other.delivered())) == list(range(40))
    other.close()


def test_who_is_too_far_away_for_smaller_steps_is_parked_on_its_way(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store")
    for number in range(1, 60):
        ground.send_in(20 * number, b"%d" % number)
    ground.recall(int(ground.named(TIMER_TOPIC)[-1]["TIMER_OUT_MS"]), "K000059")
    ground.pass_time(1)
    ground.store.flush()
    ground.timers.save()

    finer = reopened(ground, timer_precision_ms=100)
    finer.pass_time(1300)

    assert list(map(int, finer.delivered())) == list(range(1, 59))
    assert all(it["TIMER_DEQUEUE_MS"] >= it["TIMER_OUT_MS"] for it in finer.named())
    assert finer.timers.rolled_count > 0
    finer.close()


def test_another_precision_is_seen_when_only_the_oldest_unit_waits(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", timer_precision_ms=100)
    ground.send_in(100, b"last")
    for number in range(UNITS_PER_FILE):
        ground.send_in(1, b"%d" % number)
    ground.pass_time(3)
    ground.store.flush()
    ground.timers.save()

    coarser = reopened(ground, timer_precision_ms=1000)
    coarser.pass_time(100)

    assert coarser.delivered()[-1] == b"last"
    coarser.close()


@PRECISIONS
@pytest.mark.parametrize("kept", ["timerlog", "timerwheel", "half"])
def test_a_change_of_precision_that_was_cut_short_is_done_again(
    tmp_path: Path, before_ms: int, after_ms: int, kept: str
) -> None:
    """Of log and wheel one is on disk as it was, or half of the wheel is not there."""
    ground = waiting_at(tmp_path / "store", before_ms)
    changed = reopened(ground, timer_precision_ms=after_ms)
    cut_short = killed_copy(changed.root, tmp_path / "cut")
    if kept == "timerlog":
        for path in (ground.root / kept).iterdir():
            shutil.copyfile(path, cut_short / kept / path.name)
    elif kept == "timerwheel":
        shutil.copyfile(ground.root / kept, cut_short / kept)
    else:
        slot = changed.timers.saved.read_timestamp // after_ms + 2000 // after_ms
        begin = slot % WHEEL_SLOTS * timer.SLOT_BYTES
        patch(cut_short / "timerwheel", begin, bytes(100 * timer.SLOT_BYTES))

    again = Ground(cut_short, clock=ground.clock, timer_precision_ms=after_ms)
    again.pass_time(10)

    assert sorted(map(int, again.delivered())) == list(range(40))
    again.close()


# --- Apache's own


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.5.0-clean", "5.5.0-killed"])
def test_what_waits_in_apaches_directory_is_delivered_once(tmp_path: Path, name: str) -> None:
    golden = load(name)
    for path, content in golden.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    (tmp_path / "timerwheel").write_bytes(timer_wheel(name))
    last_ms = max(found["storeTimestamp"] for found in golden.manifest["messages"])
    clock = FakeClock(last_ms + 60_000)
    store = open_store(tmp_path, clock=clock)
    timers = Timers(store, tables.broker_settings(), clock, store.put)
    waiting = [properties.decode(found.properties) for found in all_records(store, TIMER_TOPIC)]

    for _ in range(4 * 24):
        clock.advance(3600)
        while timers.step(clock.now_ms()) == clock.now_ms():
            pass

    keys = [
        properties.decode(found.properties)["UNIQ_KEY"]
        for topic, queue_id in store.queues()
        if topic != TIMER_TOPIC
        for found in all_records(store, topic, queue_id)
        if b"TIMER_DEQUEUE_MS" in found.properties
    ]
    assert sorted(keys) == sorted({named["UNIQ_KEY"] for named in waiting})
    assert timers.rolled_count == 2
    timers.close()
    store.close()


def test_our_files_have_the_sizes_that_apache_insists_on(tmp_path: Path) -> None:
    store = open_store(tmp_path, clock=FakeClock())
    index = TimerIndex(store, precision_ms=SECOND, log_file_bytes=100 << 20, now_ms=1)
    index.add(5000, unit())
    index.sync(index.resumed, index.log.end, 1)

    assert (tmp_path / "timerwheel").stat().st_size == 38_707_200
    assert (tmp_path / "config" / "timercheck").stat().st_size == 4096
    assert (tmp_path / "timerlog" / f"{0:020d}").stat().st_size == 100 << 20
    index.close()
    store.close()
