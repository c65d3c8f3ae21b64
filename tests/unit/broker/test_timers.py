"""Messages with a time of their own: delivered when it has come, once, whatever happens."""

import asyncio
import logging
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.delay import timers as working
from cometmq.codec import timer
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.store import PutResult, PutStatus
from cometmq.store.check import check
from cometmq.store.files import DiskFiles
from cometmq.testing import CrashingDisk
from tests.unit.broker.timer_ground import TIMER_TOPIC, TOPIC, WHEEL_SLOTS, Ground, reopened
from tests.unit.store.builders import message, property_text, put
from tests.unit.store.shut_disk import ShutDisk


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path / "store")
    yield made
    made.close()
    assert check(made.root).is_consistent


# --- when


def test_a_message_comes_when_the_second_of_its_time_is_over_and_not_before(
    ground: Ground,
) -> None:
    ground.send_in(2.5)

    assert ground.run_out() == 1000
    ground.pass_time(2.999)
    assert ground.delivered() == []

    ground.pass_time(0.001)
    assert ground.delivered() == [b"later"]


def test_a_time_on_the_second_is_kept_to_the_millisecond(ground: Ground) -> None:
    ground.send_in(2)

    ground.pass_time(1.999)
    assert ground.delivered() == []
    ground.pass_time(0.001)
    assert ground.delivered() == [b"later"]


def test_finer_steps_are_kept_more_exactly(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", timer_precision_ms=100)
    ground.send_in(0.25)

    ground.pass_time(0.299)
    assert ground.delivered() == []
    ground.pass_time(0.001)

    assert ground.delivered() == [b"later"]
    ground.close()


def test_messages_of_one_second_come_in_the_order_in_which_they_were_sent(ground: Ground) -> None:
    for number in range(5):
        ground.send_in(3.9 - number / 10, b"%d" % number)

    ground.pass_time(4)

    assert ground.delivered() == [b"0", b"1", b"2", b"3", b"4"]


def test_messages_of_different_seconds_come_in_the_order_of_their_times(ground: Ground) -> None:
    for seconds in (5, 3, 4):
        ground.send_in(seconds, b"%d" % seconds)

    ground.pass_time(5)

    assert ground.delivered() == [b"3", b"4", b"5"]


def test_without_messages_there_is_nothing_to_wait_for_and_nothing_on_disk(ground: Ground) -> None:
    assert ground.step() is None

    assert not (ground.root / "timerwheel").exists()
    assert not (ground.root / "timerlog").exists()


def test_when_all_are_delivered_there_is_nothing_to_wait_for(ground: Ground) -> None:
    ground.send_in(1)
    ground.pass_time(1)

    assert ground.run_out() is None


def test_one_step_delivers_a_bounded_number(ground: Ground) -> None:
    count = 3 * working.STEP_MESSAGES_MAX
    for number in range(count):
        ground.send_in(1, b"%d" % number)
    while ground.timers._queue_offset < count:
        ground.step()
    ground.clock.advance(1)

    seen = []
    while ground.step() == 0:
        seen.append(len(ground.delivered()))

    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(steps) == working.STEP_MESSAGES_MAX
    assert len(ground.delivered()) == count


def test_what_was_stored_in_time_is_waited_for_though_it_is_not_in_the_queue_yet(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot must not be read before: it would be too late for it."""
    ground.send_in(5, b"other")
    ground.run_out()
    ground.clock.advance(0.9)
    late = ground.send_in(0.05, b"close")
    ground.clock.advance(0.2)
    marks = ground.store.watermarks
    monkeypatch.setattr(ground.store, "queue", lambda *_: ground.store._table[TIMER_TOPIC, 0])

    assert marks.dispatched < late.end
    assert ground.step() == working.LOOK_MS
    monkeypatch.undo()
    ground.run_out()

    assert ground.delivered() == [b"close"]


# --- what


def test_a_message_is_as_it_was_sent_with_its_times_added(ground: Ground) -> None:
    start_ms = ground.clock.now_ms()
    ground.send(b"later", key="A", TIMER_DELAY_SEC=4, TAGS="red", own="kept")

    ground.pass_time(4)

    assert ground.named() == [
        {
            "UNIQ_KEY": "A",
            "TIMER_DELAY_SEC": "4",
            "TAGS": "red",
            "own": "kept",
            "TIMER_OUT_MS": str(start_ms + 3000),
            "REAL_TOPIC": TOPIC,
            "REAL_QID": "0",
            "TIMER_ENQUEUE_MS": str(start_ms),
            "TIMER_DEQUEUE_MS": str(start_ms + 4000),
        }
    ]


def test_properties_without_room_for_the_times_are_delivered_as_they_are(ground: Ground) -> None:
    ground.send_in(1, key="A", own="x" * 32_650)

    ground.pass_time(1)

    (named,) = ground.named()
    assert "TIMER_DEQUEUE_MS" not in named
    assert len(named["own"]) == 32_650


# --- further away than the window


def test_a_message_beyond_the_window_goes_round_and_comes_at_its_time(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", timer_roll_window_slot=12)
    start_ms = ground.clock.now_ms()
    ground.send_in(30, key="A")

    ground.pass_time(29.999)
    assert ground.delivered() == []
    ground.pass_time(0.001)

    (named,) = ground.named()
    assert named["TIMER_OUT_MS"] == str(start_ms + 29_000)
    rolls = [one.get("TIMER_ROLL_TIMES") for one in ground.named(TIMER_TOPIC)]
    assert rolls == [None, "1", "2"]
    assert named["TIMER_ROLL_TIMES"] == "2"
    assert ground.timers.rolled_count == 2
    ground.close()


def test_a_recall_goes_round_with_its_message(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", timer_roll_window_slot=12)
    start_ms = ground.clock.now_ms()
    ground.send_in(30, key="A")
    ground.pass_time(2)
    ground.recall(start_ms + 29_000, "A")

    ground.pass_time(40)

    assert ground.delivered() == []
    assert ground.timers.recalled_count == 1
    ground.close()


# --- taking back


def test_a_message_that_was_taken_back_does_not_come(ground: Ground) -> None:
    ground.send_in(5, b"wanted", key="A")
    ground.send_in(5, b"unwanted", key="B")
    ground.recall(ground.clock.now_ms() + 4000, "B")

    ground.pass_time(6)

    assert ground.delivered() == [b"wanted"]
    assert ground.timers.recalled_count == 1


@pytest.mark.parametrize("mark", ["A", "orders+A"])
def test_both_forms_of_a_recall_are_understood(ground: Ground, mark: str) -> None:
    ground.send_in(5, key="A")
    ground.recall(ground.clock.now_ms() + 4000, "A", mark=mark)

    ground.pass_time(6)

    assert ground.delivered() == []


def test_a_recall_of_another_topic_does_not_count(ground: Ground) -> None:
    ground.send_in(5, key="A")
    ground.recall(ground.clock.now_ms() + 4000, "A", topic="others")

    ground.pass_time(6)

    assert ground.delivered() == [b"later"]
    assert ground.delivered("others") == []


def test_a_recall_before_a_restart_counts_after_it(ground: Ground) -> None:
    ground.send_in(5, key="A")
    ground.recall(ground.clock.now_ms() + 4000, "A")
    ground.run_out()

    ground.restart()
    ground.pass_time(6)

    assert ground.delivered() == []


# --- restarts


def test_what_waits_is_delivered_after_a_restart(ground: Ground) -> None:
    for number in range(200):
        ground.send_in(5 + number % 3, b"%d" % number)
    ground.run_out()

    ground.restart()
    assert ground.delivered() == []
    ground.pass_time(8)

    assert sorted(map(int, ground.delivered())) == list(range(200))


def test_what_became_due_meanwhile_comes_at_once_after_a_restart(ground: Ground) -> None:
    ground.send_in(5)
    ground.run_out()
    ground.close()

    ground.clock.advance(3600)
    ground.open()
    ground.run_out()

    assert ground.delivered() == [b"later"]


def test_after_a_stop_longer_than_the_wheel_is_round_nothing_is_lost(ground: Ground) -> None:
    """Apache's broker loses what was due more than seven days before it is started."""
    for number in range(20):
        ground.send_in(5 + number, b"%d" % number)
    ground.run_out()
    ground.close()

    ground.clock.advance(2 * WHEEL_SLOTS)
    ground.open()
    ground.send_in(5, b"20")
    ground.pass_time(10)

    assert [int(body) for body in ground.delivered()] == list(range(21))


def test_what_was_delivered_before_a_restart_is_not_delivered_again(ground: Ground) -> None:
    ground.send_in(1)
    ground.pass_time(1)

    ground.restart()
    ground.pass_time(5)

    assert ground.delivered() == [b"later"]


def test_what_was_stored_but_never_seen_is_delivered_after_a_restart(ground: Ground) -> None:
    ground.send_in(5)

    ground.restart()
    ground.pass_time(5)

    assert ground.delivered() == [b"later"]


def test_a_check_page_says_how_far_it_is_as_apache_reads_it(ground: Ground) -> None:
    ground.send_in(1)
    ground.send_in(9)
    ground.pass_time(3)
    now_ms = ground.clock.now_ms()

    ground.store.flush()
    ground.timers.save()

    page = (ground.root / "config" / "timercheck").read_bytes()
    assert len(page) == 4096
    assert struct.unpack_from(">7q", page) == (now_ms, 104, 2, 2, 0, now_ms, 1)


# --- kills


@pytest.mark.parametrize("is_saved", [False, True])
def test_after_a_kill_nothing_is_lost_and_nothing_comes_twice(
    tmp_path: Path, is_saved: bool
) -> None:
    ground = Ground(tmp_path / "store")
    ground.send_in(20, b"first")
    ground.run_out()
    if is_saved:
        ground.store.flush()
        ground.timers.save()
    for number in range(100):
        ground.send_in(1 + number % 3, b"%d" % number)
    ground.pass_time(2)
    before = ground.delivered()

    after = reopened(ground)
    after.pass_time(20)

    assert 0 < len(before) < 100
    assert sorted(after.delivered()) == sorted([b"first", *(b"%d" % n for n in range(100))])
    after.close()


def test_a_kill_within_a_slot_goes_on_with_the_rest_of_it(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store")
    count = 2 * working.STEP_MESSAGES_MAX
    for number in range(count):
        ground.send_in(1, b"%d" % number)
    ground.run_out()
    ground.clock.advance(1)
    while not ground.delivered():
        ground.step()
    before = len(ground.delivered())

    after = reopened(ground)
    after.pass_time(1)

    assert before == working.STEP_MESSAGES_MAX
    assert [int(body) for body in after.delivered()] == list(range(count))
    after.close()


def test_without_an_index_a_kill_delivers_again_what_was_not_saved(tmp_path: Path) -> None:
    """Nobody could say what was delivered; better twice than never."""
    ground = Ground(tmp_path / "store", has_index=False)
    ground.send_in(1)
    ground.pass_time(1)

    after = reopened(ground, has_index=False)
    after.pass_time(3)

    assert after.delivered() == [b"later", b"later"]
    after.close()


def test_a_message_that_went_round_before_a_kill_does_not_go_twice(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", timer_roll_window_slot=12)
    ground.send_in(30)
    ground.pass_time(13)
    assert ground.timers.rolled_count == 1

    after = reopened(ground, timer_roll_window_slot=12)
    after.pass_time(30)

    assert after.delivered() == [b"later"]
    assert len(after.records(TIMER_TOPIC)) == 3
    after.close()


# --- power cuts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_cut_all_that_was_on_disk_is_delivered(tmp_path: Path, seed: int) -> None:
    """Pages of wheel, timer log and commit log survive, each by chance."""
    print(f"seed {seed}")
    disk = CrashingDisk(tmp_path / "store")
    ground = Ground(tmp_path / "store", files=disk)
    for number in range(120):
        ground.send_in(3 + number % 5, b"safe %d" % number)
    ground.pass_time(2)
    ground.store.flush()
    if seed % 2:
        ground.timers.save()
    for number in range(60):
        ground.send_in(1 + number % 7, b"unsafe %d" % number)
    ground.pass_time(seed % 5)

    disk.crash(seed)
    after = Ground(tmp_path / "store", clock=ground.clock, files=disk)
    after.pass_time(20)

    found = after.delivered()
    safe = [body for body in found if body.startswith(b"safe")]
    assert sorted(set(safe)) == sorted(b"safe %d" % number for number in range(120))
    assert len(safe) == 120
    assert len(set(found)) == len(found)
    after.close()


# --- clocks


def test_a_clock_set_back_delays_nothing_and_repeats_nothing(ground: Ground) -> None:
    ground.send_in(1, b"before")
    ground.pass_time(60)

    ground.clock.set_back(30)
    ground.send_in(5, b"after")
    ground.pass_time(5)

    assert ground.delivered() == [b"before", b"after"]
    ground.pass_time(60)
    assert ground.delivered() == [b"before", b"after"]


def test_without_an_index_a_clock_set_back_repeats_nothing_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """What is due in between has to wait until the clock is where it was."""
    ground = Ground(tmp_path / "store", has_index=False)
    ground.clock.set_back(-40_000_000)
    ground.send_in(1, b"before")
    ground.pass_time(2)

    ground.clock.set_back(40_000_000)
    ground.send_in(5, b"after")
    ground.pass_time(10)
    assert ground.delivered() == [b"before"]
    ground.clock.set_back(-40_000_000)
    ground.run_out()

    assert ground.delivered() == [b"before", b"after"]
    ground.close()


def test_a_clock_set_forward_delivers_what_is_due_by_it(ground: Ground) -> None:
    ground.send_in(600)
    ground.run_out()

    ground.clock.set_back(-600)
    ground.run_out()

    assert ground.delivered() == [b"later"]


# --- trouble


def test_a_message_that_the_store_refuses_is_tried_again(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.send_in(1)
    ground.run_out()
    ground.clock.advance(1)
    ground.refusals = [
        PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="full"),
        OSError("no space"),
    ]

    assert ground.run_out() == working.RETRY_MS
    ground.clock.advance(working.RETRY_MS / 1000)
    assert ground.run_out() == working.RETRY_MS
    ground.clock.advance(working.RETRY_MS / 1000)
    ground.run_out()

    assert ground.delivered() == [b"later"]
    assert len(errors(caplog)) == 1


def test_a_message_that_can_never_be_stored_does_not_hold_up_the_others(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.send_in(1, b"illegal")
    ground.send_in(1, b"legal")
    ground.run_out()
    ground.clock.advance(1)
    ground.refusals = [PutResult(PutStatus.MESSAGE_ILLEGAL, reason="too long")]

    ground.run_out()

    assert ground.delivered() == [b"legal"]
    assert ground.timers.skipped_count == 1
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02",
        b"TIMER_OUT_MS\x011\x02",
        b"TIMER_OUT_MS\x01-5\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02",
        b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x01x\x02",
        b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02",
        b"TIMER_OUT_MS\x011\x02REAL_TOPIC\x01rmq_sys_wheel_timer\x02REAL_QID\x010\x02",
    ],
)
def test_what_a_client_put_into_the_queue_by_itself_is_passed_over(
    ground: Ground, text: bytes
) -> None:
    put(ground.store, message(b"raw", TIMER_TOPIC, properties=text))
    ground.send_in(1)

    ground.pass_time(3)

    assert ground.delivered() == [b"later"]
    assert ground.timers.skipped_count == 1


def test_an_older_time_than_can_be_is_delivered_at_once(ground: Ground) -> None:
    """5.5.0 counts on nobody writing this, and so may we; but it must not be lost."""
    text = property_text(TIMER_OUT_MS="1", REAL_TOPIC=TOPIC, REAL_QID="0", UNIQ_KEY="A")
    put(ground.store, message(b"old", TIMER_TOPIC, properties=text))

    ground.pass_time(1)

    assert ground.delivered() == [b"old"]


def test_a_disk_without_room_for_the_timer_log_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = CrashingDisk(tmp_path / "store")
    ground = Ground(tmp_path / "store", files=disk)
    ground.send_in(1, b"first")
    ground.run_out()
    index = ground.timers._index
    assert index is not None
    appended = index.log.append
    index.log.append = failing  # type: ignore[method-assign]
    ground.send_in(2, b"second")

    assert ground.run_out() == working.RETRY_MS
    index.log.append = appended  # type: ignore[method-assign]
    ground.pass_time(3)

    assert ground.delivered() == [b"first", b"second"]
    assert len(errors(caplog)) == 1
    ground.close()


def failing(unit: timer.TimerUnit) -> int:
    raise OSError("no space left")


def test_when_timers_are_off_nothing_happens(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store")
    ground.send_in(1)
    off = reopened(ground, timer_wheel_enable=False)
    off.clock.advance(5)

    assert off.step() is None

    assert off.delivered() == []
    off.close()


# --- running


def test_running_delivers_and_saves(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", timer_flush_interval_ms=1)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(ground.timers.run()),
                group.create_task(ground.timers.keep()),
            ]
            await asyncio.sleep(0)
            ground.send_in(0.001, b"soon")
            ground.clock.advance(2)
            ground.timers.notify()
            async with asyncio.timeout(5):
                while not (ground.root / "config" / "timercheck").exists():
                    await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()

    asyncio.run(scenario())

    assert ground.delivered() == [b"soon"]
    ground.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR]


@pytest.mark.parametrize("jump", [0, 3000], ids=["passed", "jumped"])
def test_nothing_comes_twice_when_the_clock_was_set_back_before_a_restart(
    tmp_path: Path, jump: int
) -> None:
    ground = Ground(tmp_path)
    for number in range(5):
        ground.send_in(10 + number, b"%d" % number)
    ground.pass_time(30)
    ground.clock.advance(jump)
    ground.run_out()
    ground.clock.set_back(25 + jump)
    ground.pass_time(1)

    ground.restart()
    ground.pass_time(60)

    assert ground.delivered() == [b"0", b"1", b"2", b"3", b"4"]
    ground.close()


def test_a_queue_that_cannot_be_read_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it is only looked at whether there is something that is due earlier."""
    disk = ShutDisk()
    sizes = {"queue_file_bytes": working.STEP_ENTRIES_MAX * ENTRY_BYTES}
    sizes |= {"mapped_queue_files_max": 1}
    ground = Ground(tmp_path / "store", files=disk, sizes=sizes)
    for number in range(working.STEP_ENTRIES_MAX * 2):
        ground.send_in(1, b"%d" % number)
    put(ground.store, message(b"maps another file", "bills"))
    ground.store.dispatch()
    folder = tmp_path / "store" / "consumequeue" / TIMER_TOPIC / "0"
    disk.shut = folder / f"{sizes['queue_file_bytes']:020d}"

    waits = [ground.step() for _ in range(2)]
    disk.shut = None
    ground.pass_time(3)

    assert waits == [working.RETRY_MS] * 2
    assert len(ground.delivered()) == working.STEP_ENTRIES_MAX * 2
    (line,) = errors(caplog)
    assert "Too many open files" in line
    ground.close()


class _FullDisk(DiskFiles):
    """A disk that has no room for the wheel while ``is_full``."""

    is_full = True

    def create(self, path: Path, size: int, *, durable: bool = True) -> None:
        if self.is_full and path.name == "timerwheel":
            raise OSError(28, "No space left on device", str(path))
        super().create(path, size, durable=durable)


def test_the_first_one_waits_for_a_disk_that_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = _FullDisk()
    ground = Ground(tmp_path, files=disk)
    ground.send_in(1)
    waits = [ground.step() for _ in range(3)]
    disk.is_full = False

    ground.pass_time(3)

    assert waits == [working.RETRY_MS] * 3
    assert "No space left on device" in caplog.text
    assert ground.delivered() == [b"later"]
    ground.close()
