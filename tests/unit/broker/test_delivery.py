"""Messages with a delay level: delivered when they are due, once or more, never lost."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.broker.delay import delivery as delivering
from cometmq.broker.delay.delivery import LevelDelivery
from cometmq.broker.delay.levels import DelayLevels
from cometmq.clock import SystemClock
from cometmq.codec import properties
from cometmq.codec.bodies.offsets import DelayOffsetTable
from cometmq.codec.record import Record
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from cometmq.model.topic import SCHEDULE_TOPIC, DataVersion
from cometmq.saved_file import Files
from cometmq.store import MessageStore, NewMessage, PutResult, PutStatus, StoreSettings
from cometmq.store.check import check
from cometmq.store.documents import ConfigDocument, ConfigDocuments
from cometmq.store.files import Files as StoreFiles
from cometmq.testing import CrashingDisk, FakeClock
from tests.golden.store_data import load
from tests.unit.store.builders import all_records, bodies, message, open_store, put
from tests.unit.store.shut_disk import ShutDisk

LEVELS = DelayLevels((1000, 5000, 10_000))
SECONDS = "1s 5s 10s"
LOG_BYTES = 256 * 1024
QUEUE_BYTES = 20 * 1000


class Ground:
    """A store with a fake clock, and the delivery of its delayed messages."""

    def __init__(
        self,
        root: Path,
        *,
        saved: dict[int, int] | None = None,
        files: StoreFiles | None = None,
        **sizes: Any,
    ) -> None:
        self.root = root
        self.clock = FakeClock()
        usual = {"log_file_bytes": LOG_BYTES, "queue_file_bytes": QUEUE_BYTES, "has_index": False}
        sizes = {"delay_levels": SECONDS, **usual, **sizes}
        self.store = open_store(root, clock=self.clock, files=files, **sizes)
        self.document = document(root)
        if saved is not None:
            self.document.save(DelayOffsetTable(saved))
        # What the store answers instead of taking a message; it takes them when this is empty.
        self.refusals: list[PutResult | OSError] = []
        self.saves_asked = 0
        self.delivery = self.start()

    def start(self) -> LevelDelivery:
        """A delivery that begins where the document says."""
        made = LevelDelivery(self.store, LEVELS, self.document, self.clock, self._put)
        made.on_progress = self._note_progress
        return made

    def send(
        self, body: bytes = b"later", level: int = 1, topic: str = "orders", **fields: Any
    ) -> None:
        """Put a message aside."""
        put(self.store, LEVELS.diverted(message(body, topic, **fields), level))

    def step(self) -> int | None:
        """One step now; milliseconds until the next one."""
        now_ms = self.clock.now_ms()
        wake_ms = self.delivery.step(now_ms)
        return None if wake_ms is None else wake_ms - now_ms

    def run_out(self, steps_max: int = 1000) -> None:
        """Deliver all that is due."""
        for _ in range(steps_max):
            if self.step() != 0:
                return
        raise AssertionError(f"something is due after {steps_max} steps")

    def save(self) -> None:
        """What the keeper does from time to time."""
        self.document.save(self.delivery.table())

    def saved(self) -> dict[int, int]:
        return self.delivery.table().offset_table

    def _put(self, new: NewMessage) -> PutResult:
        if not self.refusals:
            return self.store.put(new)
        refusal = self.refusals.pop(0)
        if isinstance(refusal, OSError):
            raise refusal
        return refusal

    def _note_progress(self) -> None:
        self.saves_asked += 1


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path / "store")
    yield made
    made.store.close()
    assert check(made.root).is_consistent


def document(root: Path, files: Files | None = None) -> ConfigDocument[DelayOffsetTable]:
    return ConfigDocuments(root, files).delay_offsets


# --- when


def test_a_message_is_delivered_when_its_delay_is_over_and_not_before(ground: Ground) -> None:
    ground.send(b"later", level=2)

    assert ground.step() == 5000
    ground.clock.advance(4.999)
    assert ground.step() == 1
    assert bodies(ground.store) == []

    ground.clock.advance(0.001)
    assert ground.step() is None
    assert bodies(ground.store) == [b"later"]


def test_nothing_wakes_it_when_nothing_waits(ground: Ground) -> None:
    assert ground.step() is None


def test_it_comes_again_for_the_earliest_of_all_levels(ground: Ground) -> None:
    ground.send(b"third", level=3)
    ground.clock.advance(8)
    ground.send(b"first", level=1)
    ground.send(b"second", level=2)

    assert ground.step() == 1000
    ground.clock.advance(1)
    assert ground.step() == 1000  # of ten seconds nine have passed
    ground.clock.advance(1)
    assert ground.step() == 3000
    assert bodies(ground.store) == [b"first", b"third"]


def test_messages_of_a_level_keep_their_order(ground: Ground) -> None:
    for number in range(30):
        ground.send(b"%d" % number)
    ground.clock.advance(1)

    ground.run_out()

    assert bodies(ground.store) == [b"%d" % number for number in range(30)]


def test_a_clock_that_was_set_back_does_not_hold_messages_up(ground: Ground) -> None:
    ground.send(b"stuck?", level=2)
    ground.step()
    ground.clock.set_back(3600)

    ground.step()

    assert bodies(ground.store) == [b"stuck?"]


# --- what


def test_a_delivered_message_is_the_one_that_was_sent_with_the_marks_of_its_delay(
    ground: Ground,
) -> None:
    ground.send(
        b"body",
        topic="orders",
        queue_id=3,
        properties=b"WAIT\x01true\x02DELAY\x011\x02",
        born_timestamp=17,
        born_host=b"\x0a\x00\x00\x09\x00\x00\x00\x50",
        flag=5,
        sys_flag=1,
        reconsume_times=4,
    )
    ground.clock.advance(1)

    ground.run_out()

    (found,) = all_records(ground.store, "orders", 3)
    (aside,) = all_records(ground.store, SCHEDULE_TOPIC, 0)
    assert (
        found.properties
        == b"WAIT\x01true\x02DELAY\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x013\x02"
    )
    assert kept(found) == kept(aside)


def test_a_message_from_4x_gets_the_end_of_its_properties(ground: Ground) -> None:
    put_raw(ground, b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02DELAY\x011")
    ground.clock.advance(1)

    ground.run_out()

    (found,) = all_records(ground.store)
    assert found.properties == b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02DELAY\x011\x02"


def test_properties_that_fill_their_field_are_delivered_as_they_are(ground: Ground) -> None:
    text = b"REAL_TOPIC\x01orders\x02REAL_QID\x010\x02DELAY\x011\x02x\x01"
    text += b"v" * (PROPERTIES_BYTES_MAX - len(text))
    put_raw(ground, text)
    ground.clock.advance(1)

    ground.run_out()

    (found,) = all_records(ground.store)
    assert found.properties == text


def test_a_delivered_record_has_one_checksum_and_it_is_its_own(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", is_record_crc_appended=True)
    ground.send(b"summed")
    ground.clock.advance(1)

    ground.run_out()

    (found,) = all_records(ground.store)
    assert found.properties.count(b"__CRC32#") == 1
    ground.store.close()
    assert check(ground.root).is_consistent


# --- what cannot be delivered


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"DELAY\x011\x02REAL_QID\x010\x02", "does not say where"),
        (b"DELAY\x011\x02REAL_TOPIC\x01orders\x02", "does not say where"),
        (b"DELAY\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x01-1\x02", "does not say where"),
        (b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02", "half"),
        (b"DELAY\x011\x02REAL_TOPIC\x01../x\x02REAL_QID\x010\x02", "MESSAGE_ILLEGAL"),
        (b"DELAY\x011\x02REAL_TOPIC\x01orders\x02REAL_QID\x019999999999\x02", "MESSAGE_ILLEGAL"),
    ],
)
def test_a_message_that_never_can_be_delivered_does_not_hold_up_the_next(
    ground: Ground, caplog: pytest.LogCaptureFixture, text: bytes, reason: str
) -> None:
    put_raw(ground, text)
    ground.send(b"next")
    ground.clock.advance(1)

    ground.run_out()

    assert bodies(ground.store) == [b"next"]
    assert ground.delivery.skipped_count == 1
    (line,) = errors(caplog)
    assert line.startswith("level=1 messages=1 given up, the last one before offset")
    assert reason in line


def test_messages_that_are_gone_are_passed_over_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ground = Ground(tmp_path / "store")
    put(ground.store, message(topic=SCHEDULE_TOPIC))
    queue = ground.store.queue(SCHEDULE_TOPIC, 0)
    assert queue is not None
    # As after a part of the log was lost: fillers, and an entry of a record that is not there.
    end = ground.store.log_end
    queue.append(delivering.STEP_MESSAGES_MAX * 2, end, 100, 0)
    ground.delivery = ground.start()

    ground.run_out()

    assert ground.delivery.skipped_count == delivering.STEP_MESSAGES_MAX * 2 + 1
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="the disk is full"),
        OSError(28, "the disk is full"),
    ],
)
def test_what_the_store_refuses_is_tried_again_and_not_passed_over(
    ground: Ground, caplog: pytest.LogCaptureFixture, refusal: PutResult | OSError
) -> None:
    ground.send(b"first")
    ground.send(b"second")
    ground.clock.advance(1)
    ground.refusals = [refusal, refusal]

    waits = [ground.step()]
    ground.clock.advance(0.04)
    waits.append(ground.step())
    ground.clock.advance(0.06)
    waits.append(ground.step())
    ground.clock.advance(0.1)
    waits.append(ground.step())

    assert waits == [100, 60, 100, None]
    assert bodies(ground.store) == [b"first", b"second"]
    (line,) = errors(caplog)
    assert line.startswith("level=1 offset=0 cannot be delivered")
    assert "the disk is full" in line


def test_a_level_that_fails_does_not_hold_up_the_others(ground: Ground) -> None:
    ground.send(b"held up", level=1)
    ground.send(b"goes on", level=2)
    ground.clock.advance(5)
    ground.refusals = [PutResult(PutStatus.OS_PAGE_CACHE_BUSY)]

    assert ground.step() == 100

    assert bodies(ground.store) == [b"goes on"]


def test_a_level_whose_queue_cannot_be_read_is_tried_again_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = ShutDisk()
    ground = Ground(tmp_path / "store", files=disk, mapped_queue_files_max=1)
    ground.send(b"held up", level=1)
    ground.send(b"goes on", level=2)
    ground.store.dispatch()
    ground.clock.advance(5)
    disk.shut = tmp_path / "store" / "consumequeue" / SCHEDULE_TOPIC / "0"

    waits = [ground.step() for _ in range(2)]
    meanwhile = bodies(ground.store)
    disk.shut = None
    ground.clock.advance(0.1)
    ground.run_out()

    assert waits == [100, 100]
    assert meanwhile == [b"goes on"]
    assert bodies(ground.store) == [b"goes on", b"held up"]
    (line,) = errors(caplog)
    assert line.startswith("level=1 offset=0 cannot be delivered")
    assert "Too many open files" in line
    ground.store.close()


def test_a_clock_set_back_does_not_make_a_failed_level_wait_longer(ground: Ground) -> None:
    ground.send(b"kept")
    ground.clock.advance(1)
    ground.refusals = [PutResult(PutStatus.OS_PAGE_CACHE_BUSY)]
    ground.step()

    ground.clock.set_back(3600)

    assert ground.step() == 100


# --- how much at a time


def test_a_step_is_bounded_however_much_is_due(ground: Ground) -> None:
    for number in range(delivering.STEP_MESSAGES_MAX + 1):
        ground.send(b"%d" % number)
    ground.clock.advance(1)

    assert ground.step() == 0
    assert ground.delivery.delivered_count == delivering.STEP_MESSAGES_MAX
    assert ground.step() is None
    assert ground.delivery.delivered_count == delivering.STEP_MESSAGES_MAX + 1


def test_big_messages_end_a_step_sooner(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", log_file_bytes=8 * 1024 * 1024)
    for _ in range(3):
        ground.send(bytes(delivering.STEP_BYTES_MAX))
    ground.clock.advance(1)

    counts = []
    for _ in range(3):
        ground.step()
        counts.append(ground.delivery.delivered_count)

    assert counts == [1, 2, 3]
    ground.store.close()


def test_a_level_with_very_many_messages_lets_the_others_in_between(ground: Ground) -> None:
    for _ in range(delivering.STEP_MESSAGES_MAX * 2):
        ground.send(b"many", level=1)
    ground.send(b"one", level=3)
    ground.clock.advance(10)

    ground.step()
    ground.step()

    assert b"one" in bodies(ground.store)
    assert ground.delivery.delivered_count == delivering.STEP_MESSAGES_MAX * 2


# --- how far


def test_it_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store")
    ground.send(b"before")
    ground.send(b"after", level=2)
    ground.clock.advance(1)
    ground.run_out()
    ground.store.flush()
    ground.save()

    ground.delivery = ground.start()
    ground.clock.advance(5)
    ground.run_out()

    assert bodies(ground.store) == [b"before", b"after"]
    ground.store.close()


def test_progress_is_saved_only_when_what_was_delivered_is_on_disk(ground: Ground) -> None:
    ground.send(b"one")
    ground.clock.advance(1)
    ground.store.flush()

    ground.run_out()
    before_flush = ground.saved()
    ground.store.flush()

    assert before_flush == {}
    assert ground.saved() == {1: 1}
    assert ground.saves_asked == 1


def test_progress_made_while_the_disk_works_is_saved_afterwards(ground: Ground) -> None:
    ground.send(b"one")
    ground.send(b"two", level=2)
    ground.clock.advance(1)
    ground.run_out()
    ground.clock.advance(4)
    ground.run_out()

    ground.store.flush()

    assert ground.saved() == {1: 1, 2: 1}


def test_when_stopping_all_that_is_on_disk_is_saved(ground: Ground) -> None:
    ground.send(b"one")
    ground.clock.advance(1)
    ground.run_out()
    marks = ground.store.watermarks
    marks.move_flushed(marks.committed)  # on disk, but nobody was told yet

    ground.delivery.settle()

    assert ground.saved() == {1: 1}
    assert ground.saves_asked == 1


def test_saved_offsets_outside_a_queue_are_corrected(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store")
    for level in (1, 2):
        ground.send(b"%d" % level, level=level)
    ground.document.save(DelayOffsetTable({1: 7, 2: -3, 3: 5}))
    ground.delivery = ground.start()
    ground.clock.advance(10)

    saved = ground.saved()
    ground.run_out()

    assert saved == {1: 1, 2: 0, 3: 0}
    assert bodies(ground.store) == [b"2"]
    ground.store.close()


def test_offsets_that_retention_has_passed_are_left_behind(ground: Ground) -> None:
    ground.send(b"deleted")
    ground.send(b"kept")
    queue = ground.store.queue(SCHEDULE_TOPIC, 0)
    assert queue is not None
    queue.min_offset = 1
    ground.clock.advance(1)

    ground.run_out()

    assert bodies(ground.store) == [b"kept"]
    assert ground.delivery.skipped_count == 0


def test_levels_that_are_not_configured_now_keep_their_offset_and_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ground = Ground(tmp_path / "store")
    put(ground.store, message(topic=SCHEDULE_TOPIC, queue_id=7))
    ground.document.save(DelayOffsetTable({8: 0, 9: 4}))

    ground.delivery = ground.start()

    assert ground.saved() == {8: 0, 9: 4}
    lines = [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]
    assert lines == ["level=8 messages=1 are not delivered: messageDelayLevel has 3 levels only"]
    ground.store.close()


def test_the_saved_table_has_a_version_that_changes_with_it(ground: Ground) -> None:
    first = ground.delivery.table().data_version
    ground.send()
    ground.clock.advance(1)
    ground.run_out()
    ground.store.flush()

    assert first == DataVersion(0, 0, 0)
    assert ground.delivery.table().data_version == DataVersion(1, 0, ground.clock.now_ms())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_cut_every_message_is_delivered_at_least_once(
    tmp_path: Path, seed: int
) -> None:
    """The offsets are on disk at once, the messages when they are flushed: the worst case."""
    root = tmp_path / "store"
    disk, clock = CrashingDisk(root), FakeClock()
    sizes: dict[str, Any] = {"delay_levels": SECONDS, "log_file_bytes": LOG_BYTES}
    sizes |= {"clock": clock, "files": disk}
    store = open_store(root, **sizes)
    sent = {b"%d" % number for number in range(40)}
    for body in sorted(sent):
        put(store, LEVELS.diverted(message(body), 1 + int(body) % 3))
    store.flush()

    for crash in range(4):
        made = LevelDelivery(store, LEVELS, document(root, disk), clock, store.put)
        clock.advance(3)
        made.step(clock.now_ms())
        if (seed + crash) % 2:
            store.flush()
            clock.advance(1)
            made.step(clock.now_ms())
        document_saved(root, disk, made)
        disk.crash(seed * 10 + crash)
        store = open_store(root, **sizes)

    clock.advance(10)
    made = LevelDelivery(store, LEVELS, document(root, disk), clock, store.put)
    while made.step(clock.now_ms()) is not None:
        pass

    assert set(bodies(store)) == sent, f"seed {seed}"
    store.close()


# --- on a loop


def test_an_arrival_wakes_it(ground: Ground) -> None:
    async def scenario() -> None:
        running = asyncio.create_task(ground.delivery.run())
        await turns()
        ground.send(b"arrived")
        ground.clock.advance(1)
        assert bodies(ground.store) == []

        ground.delivery.notify()
        await turns()

        assert bodies(ground.store) == [b"arrived"]
        running.cancel()

    asyncio.run(scenario())


def test_it_wakes_by_itself_when_something_is_due(tmp_path: Path) -> None:
    root = tmp_path / "store"
    levels, clock = DelayLevels((5,)), SystemClock()
    with open_store(root, clock=clock) as store:
        put(store, levels.diverted(message(b"soon"), 1))
        is_there = asyncio.Event()

        def put_and_tell(new: NewMessage) -> PutResult:
            is_there.set()
            return store.put(new)

        made = LevelDelivery(store, levels, document(root), clock, put_and_tell)

        async def scenario() -> None:
            running = asyncio.create_task(made.run())
            await asyncio.wait_for(is_there.wait(), 10)
            running.cancel()

        asyncio.run(scenario())

        assert bodies(store) == [b"soon"]


def test_other_work_goes_on_between_the_steps(ground: Ground) -> None:
    for _ in range(delivering.STEP_MESSAGES_MAX * 3):
        ground.send()
    ground.clock.advance(1)

    async def scenario() -> list[int]:
        running = asyncio.create_task(ground.delivery.run())
        counts = []
        for _ in range(3):
            await asyncio.sleep(0)
            counts.append(ground.delivery.delivered_count)
        running.cancel()
        return counts

    assert asyncio.run(scenario()) == [delivering.STEP_MESSAGES_MAX * steps for steps in (1, 2, 3)]


# --- what Apache put aside


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean", "4.9.7-killed", "5.5.0-killed"])
def test_what_apache_put_aside_is_delivered_as_apache_delivers_it(
    tmp_path: Path, name: str
) -> None:
    golden = load(name)
    for path, data in golden.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    levels_text = golden.manifest["brokerConf"]["messageDelayLevel"]
    settings = StoreSettings(root=tmp_path, delay_levels=levels_text)
    clock = FakeClock(4_000_000_000_000)
    store = MessageStore.open(tmp_path, settings, clock=clock, threads=False)
    delivered = apache_delivered(store)
    document(tmp_path).save(DelayOffsetTable())

    made = LevelDelivery(
        store, DelayLevels(settings.delays_ms()), document(tmp_path), clock, store.put
    )
    begin = store.log_end
    while made.step(clock.now_ms()) is not None:
        pass

    ours = [found for found in scheduled_copies(store) if found.physical_offset >= begin]
    by_key = {identity(found): kept(found) for found in ours}
    assert len(delivered) > 8
    for found in delivered:
        assert by_key[identity(found)] == kept(found)
    assert made.delivered_count == len(ours) == count_aside(store)
    store.close()


def apache_delivered(store: MessageStore) -> list[Record]:
    return [found for found in scheduled_copies(store) if "TIMER_OUT_MS" not in text_of(found)]


def scheduled_copies(store: MessageStore) -> list[Record]:
    """Messages that lie where they were sent to, with the marks of their delay."""
    return [
        found
        for topic, queue_id in store.queues()
        for found in all_records(store, topic, queue_id)
        if text_of(found).get("REAL_TOPIC") == topic and int(text_of(found).get("DELAY", "0")) > 0
    ]


def count_aside(store: MessageStore) -> int:
    return sum(
        store.max_offset(topic, queue_id) - store.min_offset(topic, queue_id)
        for topic, queue_id in store.queues()
        if topic == SCHEDULE_TOPIC
    )


def identity(found: Record) -> tuple[str, int, str, int]:
    return found.topic, found.queue_id, text_of(found)["UNIQ_KEY"], found.reconsume_times


def kept(found: Record) -> Record:
    """A record without what its place in the log decides; properties end as ours do."""
    return msgspec.structs.replace(
        found,
        size=0,
        topic="",
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        store_timestamp=0,
        properties=found.properties.removesuffix(b"\x02") + b"\x02",
    )


def text_of(found: Record) -> dict[str, str]:
    return properties.decode(found.properties)


def put_raw(ground: Ground, text: bytes) -> None:
    """Put into the queue of level 1 what a broker may have written there."""
    put(ground.store, message(b"raw", SCHEDULE_TOPIC, properties=text))


def document_saved(root: Path, disk: CrashingDisk, made: LevelDelivery) -> None:
    saved = document(root, disk)
    saved.load()
    saved.save(made.table())


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR]


async def turns(count: int = 5) -> None:
    """Let everything happen that can happen now."""
    for _ in range(count):
        await asyncio.sleep(0)
