"""From the log to queues and index: in order, soon, and as far as the disk allows."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.store import GetStatus, MessageStore, PutStatus
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.testing import CrashingDisk, DiskEvent
from tests.unit.store.builders import (
    INDEX_ENTRIES,
    QUEUE_ENTRIES,
    TOPIC,
    FakeLoop,
    batch_of,
    bodies,
    message,
    numbered,
    open_store,
    part_of,
    put,
    put_all,
    queue_files,
    raw_record,
    read,
)


class FullForQueues:
    """A listener of a disk that has no room for queue files while ``is_full``."""

    part = "consumequeue"

    def __init__(
        self, disk: CrashingDisk, *, kind: str = "allocate", error: Exception | None = None
    ) -> None:
        self.is_full = True
        self._kind = kind
        self._error = error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        disk.on_event(self._on_event)

    def _on_event(self, event: DiskEvent) -> None:
        if self.is_full and event.kind == self._kind and part_of(event.path) == self.part:
            raise self._error


class FullForTheIndex(FullForQueues):
    part = "index"


class TestWithALoop:
    def test_a_message_is_readable_after_one_turn(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            result = put(store, message(keys="k"))
            before = read(store).status, store.query(TOPIC, "k")

            loop.turn()

            assert before == (GetStatus.NO_MESSAGE_IN_QUEUE, [])
            assert read(store).bodies == [b"hello"]
            assert store.query(TOPIC, "k") == [result.physical_offset]
            assert store.watermarks.dispatched == result.end

    def test_messages_of_one_turn_are_dispatched_in_one(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            put_all(store, *numbered(30))
            store.put_batch(batch_of(b"30", b"31"))

            loop.turn()

            assert loop.is_idle
            assert store.max_offset(TOPIC, 0) == 32

    def test_nothing_waits_on_the_loop_when_nothing_was_put(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            put_all(store, b"0")
            loop.turn_until_idle()
            read(store)

            assert loop.is_idle

    @pytest.mark.slow
    def test_10000_messages_are_dispatched_in_one_turn_and_no_more(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop, log_file_bytes=1 << 20, queue_file_bytes=300_000) as store:
            for _ in range(10):
                store.put_batch(batch_of(*[b"x"] * 1000))
            loop.turn()
            after_10000 = store.max_offset(TOPIC, 0)
            for _ in range(11):
                store.put_batch(batch_of(*[b"x"] * 1000))
            loop.turn()
            after_21000 = store.max_offset(TOPIC, 0)

            assert after_10000 == 10_000
            assert after_21000 == 20_000
            assert loop.turn_until_idle() == 1
            assert store.max_offset(TOPIC, 0) == 21_000

    def test_how_many_are_dispatched_in_a_turn_is_a_setting(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop, dispatch_records_max=10) as store:
            put_all(store, *numbered(35))

            steps = []
            while not loop.is_idle:
                loop.turn()
                steps.append(store.max_offset(TOPIC, 0))

            assert steps == [10, 20, 30, 35]

    def test_replicated_bytes_are_dispatched_too(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop, is_slave=True) as store:
            store.append_raw(0, raw_record(0, 0, b"copy"))

            loop.turn()

            assert bodies(store) == [b"copy"]

    def test_half_a_record_does_not_keep_the_loop_busy(self, root: Path) -> None:
        """Replication sends bytes, not records: the rest may be long in coming."""
        whole = raw_record(0, 0, b"copy")
        loop = FakeLoop()
        with open_store(root, loop=loop, is_slave=True) as store:
            store.append_raw(0, whole[:50])
            loop.turn_until_idle(turns_max=5)
            before = store.max_offset(TOPIC, 0)
            store.append_raw(50, whole[50:])
            loop.turn_until_idle(turns_max=5)

            assert before == 0
            assert bodies(store) == [b"copy"]

    def test_closing_dispatches_what_waits(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            put_all(store, *numbered(3))

        loop.turn_until_idle()
        with open_store(root) as store:
            assert bodies(store) == numbered(3)

    def test_the_loop_is_left_alone_after_closing(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            put_all(store, b"0")

        loop.turn_until_idle()
        loop.fire_timers()

        assert loop.is_idle
        assert loop.timers == []


class TestByHand:
    def test_a_program_without_loop_reads_what_it_has_put(self, root: Path) -> None:
        with open_store(root) as store:
            result = put(store, message(keys="k", tags="A"))

            assert store.watermarks.dispatched == 0
            assert bodies(store) == [b"hello"]
            assert store.watermarks.dispatched == result.end

    @pytest.mark.parametrize("ask", ["get", "query", "max_offset", "queues", "offset_at_time"])
    def test_every_question_is_answered_with_the_latest(self, ask: str, root: Path) -> None:
        with open_store(root) as store:
            result = put(store, message(keys="k"))

            answers = {
                "get": lambda: store.get(TOPIC, 0, 0).count,
                "query": lambda: len(store.query(TOPIC, "k")),
                "max_offset": lambda: store.max_offset(TOPIC, 0),
                "queues": lambda: len(store.queues()),
                "offset_at_time": lambda: store.offset_at_time(
                    TOPIC, 0, result.store_timestamp + 1
                ),
            }
            assert answers[ask]() == 1

    def test_dispatch_tells_how_many_there_were(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(7))

            assert [store.dispatch(3), store.dispatch(3), store.dispatch(), store.dispatch()] == [
                3, 3, 1, 0
            ]  # fmt: skip


class TestArrivals:
    def test_queues_are_told_once_for_each_step(self, root: Path) -> None:
        loop, told = FakeLoop(), []

        def note(queues: set[ConsumeQueue]) -> None:
            told.append(sorted((one.topic, one.queue_id, one.max_offset) for one in queues))

        with open_store(root, loop=loop) as store:
            store.on_arrival(note)
            put_all(store, b"0", b"1")
            put_all(store, b"0", queue_id=3)
            put_all(store, b"0", topic="other")
            loop.turn()
            put_all(store, b"2")
            loop.turn()

        assert told == [[(TOPIC, 0, 2), (TOPIC, 3, 1), ("other", 0, 1)], [(TOPIC, 0, 3)]]

    def test_the_message_can_be_read_when_its_arrival_is_told(self, root: Path) -> None:
        loop, found = FakeLoop(), []
        with open_store(root, loop=loop) as store:
            store.on_arrival(lambda _: found.append(read(store).bodies))
            put_all(store, b"0")

            loop.turn()

        assert found == [[b"0"]]

    def test_messages_that_are_in_no_queue_do_not_arrive(self, root: Path) -> None:
        loop = FakeLoop()
        told: list[set[ConsumeQueue]] = []
        with open_store(root, loop=loop) as store:
            store.on_arrival(told.append)
            put(store, message(sys_flag=4))
            loop.turn_until_idle()

        assert told == []

    def test_a_callback_may_put_messages(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:

            def answer(queues: set[ConsumeQueue]) -> None:
                if any(one.topic == TOPIC for one in queues):
                    put_all(store, b"answer", topic="answers")

            store.on_arrival(answer)
            put_all(store, b"question")
            loop.turn_until_idle()

            assert bodies(store, "answers") == [b"answer"]


class TestUnawaited:
    """As long as nobody waits for messages, several are dispatched together."""

    def test_messages_are_dispatched_together_after_5_ms(self, root: Path) -> None:
        loop = FakeLoop()
        told: list[set[ConsumeQueue]] = []
        with open_store(root, loop=loop) as store:
            store.on_arrival(told.append, is_awaited=lambda: False)
            loop.timers.clear()
            for body in numbered(3):
                put_all(store, body)
                loop.turn_until_idle()

            (timer,) = loop.timers
            behind = store.watermarks.dispatched < store.watermarks.committed
            loop.fire_timers()

            assert timer.delay == 0.005
            assert behind
            assert store.watermarks.dispatched == store.watermarks.committed
            assert len(told) == 1

    @pytest.mark.parametrize(
        "look",
        [
            lambda store: read(store).bodies,
            lambda store: [b"0"] * store.max_offset(TOPIC, 0),
            lambda store: [b"0"] * len(store.query(TOPIC, "k")),
            lambda store: [b"0"] * len(store.queues()),
            lambda store: [b"0"] * (store.offset_at_time(TOPIC, 0, 1 << 60)),
        ],
        ids=["get", "max_offset", "query", "queues", "offset_at_time"],
    )
    def test_who_reads_finds_what_was_put(
        self, root: Path, look: Callable[[MessageStore], list[bytes]]
    ) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            store.on_arrival(lambda _: None, is_awaited=lambda: False)
            put(store, message(b"0", keys="k"))

            assert look(store) == [b"0"]

    def test_the_next_message_is_dispatched_at_once_when_somebody_began_to_wait(
        self, root: Path
    ) -> None:
        """Whoever waits has read first, and so ended the wait of what was there before."""
        loop = FakeLoop()
        waiting: list[str] = []
        with open_store(root, loop=loop) as store:
            store.on_arrival(lambda _: None, is_awaited=lambda: bool(waiting))
            put_all(store, b"0")
            read(store)
            waiting.append("a pull")

            put_all(store, b"1")
            loop.turn()

            assert store.watermarks.dispatched == store.watermarks.committed
            assert all(timer.is_cancelled for timer in loop.timers if timer.delay == 0.005)

    def test_what_waits_is_dispatched_when_the_store_is_closed(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            store.on_arrival(lambda _: None, is_awaited=lambda: False)
            put_all(store, b"0")
        loop.fire_timers()

        with open_store(root) as store:
            assert bodies(store) == [b"0"]


class TestFullDisk:
    @pytest.mark.parametrize("kind", ["allocate", "create"])
    def test_dispatching_stops_and_says_so(self, kind: str, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            put_all(store, b"0")
            store.dispatch()
            full = FullForQueues(disk, kind=kind)
            taken = put_all(store, *numbered(3), topic="new")
            store.dispatch()

            assert "No space left" in store.state.refusal
            assert not store.state.is_writable
            assert store.watermarks.dispatched <= taken[0].physical_offset
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "No space left" in store.put(message()).reason
            full.is_full = False

    def test_so_it_does_whatever_the_error(
        self, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Else readiness would say that all is well, and the end of the process be a surprise."""
        disk = CrashingDisk(root)
        loop = FakeLoop()
        with open_store(root, files=disk, loop=loop) as store:
            broken = FullForQueues(disk, kind="create", error=OverflowError("too large"))
            put_all(store, b"0")
            loop.turn()
            store.flush()

            assert "OverflowError: too large" in store.state.refusal
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
            (shown,) = [record for record in caplog.records if record.exc_info]
            assert shown.getMessage().startswith("dispatch stopped at 0: ")

            broken.is_full = False
            store.clean()
            assert bodies(store) == [b"0"]

    def test_what_is_there_can_still_be_read(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            put_all(store, b"0")
            store.dispatch()
            full = FullForQueues(disk)
            put_all(store, b"1", topic="new")

            assert bodies(store) == [b"0"]
            assert read(store, 0, "new").status is GetStatus.NO_MESSAGE_IN_QUEUE
            full.is_full = False

    def test_it_goes_on_when_there_is_room_again(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            full = FullForQueues(disk)
            put_all(store, *numbered(QUEUE_ENTRIES + 5))
            store.dispatch()
            full.is_full = False

            store.dispatch()

            assert store.state.is_writable
            assert put(store, message(b"next")).queue_offset == QUEUE_ENTRIES + 5
            assert bodies(store) == [*numbered(QUEUE_ENTRIES + 5), b"next"]

    def test_nothing_is_entered_twice_when_it_stopped_in_the_middle(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            put_all(store, *numbered(5), keys="k")
            store.dispatch()
            full = FullForQueues(disk)
            put_all(store, *numbered(QUEUE_ENTRIES), keys="k")  # some fit, some do not
            for _ in range(3):
                store.dispatch()
            full.is_full = False
            store.dispatch()

            assert bodies(store) == numbered(5) + numbered(QUEUE_ENTRIES)
            assert len(store.query(TOPIC, "k", limit=64)) == 5 + QUEUE_ENTRIES
        assert len(queue_files(root)) == 2

    @pytest.mark.parametrize("offset", [25, 47])
    def test_a_queue_that_does_not_begin_at_0_recovers_too(self, offset: int, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk, is_slave=True) as store:
            full = FullForQueues(disk)
            store.append_raw(0, raw_record(0, offset, b"first"))
            store.dispatch()
            full.is_full = False

            store.dispatch()

            assert store.watermarks.dispatched == store.log_end
            assert store.min_offset(TOPIC, 0) == offset
            assert bodies(store) == [b"first"]

    def test_cleaning_tries_again(self, root: Path) -> None:
        loop, disk = FakeLoop(), CrashingDisk(root)
        with open_store(root, files=disk, loop=loop) as store:
            full = FullForQueues(disk)
            put_all(store, *numbered(5))
            loop.turn_until_idle()
            refused = store.put(message())
            full.is_full = False

            loop.fire_timers()
            loop.turn_until_idle()

            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert store.state.is_writable
            assert bodies(store) == numbered(5)

    def test_everything_is_dispatched_then_even_if_nothing_is_put_any_more(
        self, root: Path
    ) -> None:
        loop, disk = FakeLoop(), CrashingDisk(root)
        with open_store(root, files=disk, loop=loop, dispatch_records_max=10) as store:
            full = FullForQueues(disk)
            put_all(store, *numbered(35))
            loop.turn_until_idle()
            full.is_full = False

            loop.fire_timers()
            loop.turn_until_idle()

            assert store.max_offset(TOPIC, 0) == 35

    def test_closing_with_a_full_disk_leaves_the_mark_of_a_crash(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            FullForQueues(disk)
            put_all(store, *numbered(3))

        assert (root / "abort").exists()
        with open_store(root) as store:
            assert bodies(store) == numbered(3)
        assert not (root / "abort").exists()


class TestFullDiskForTheIndex:
    @pytest.mark.parametrize("kind", ["allocate", "create"])
    def test_queues_go_on_and_the_state_tells(self, kind: str, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            full = FullForTheIndex(disk, kind=kind)
            put_all(store, *numbered(3), keys="k")

            assert bodies(store) == numbered(3)
            assert "No space left" in store.state.index_failure
            assert store.query(TOPIC, "k") == []
            full.is_full = False

    def test_what_is_missing_is_made_up_for_when_there_is_room_again(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            before = put_all(store, b"0", keys="k")
            store.dispatch()
            full = FullForTheIndex(disk, kind="create")
            during = put_all(store, *numbered(INDEX_ENTRIES), keys="k")
            store.dispatch()
            full.is_full = False
            store.clean()
            after = put_all(store, b"2", keys="k")

            assert store.state.index_failure == ""
            results = [*before, *during, *after]
            assert store.query(TOPIC, "k", limit=64) == [one.physical_offset for one in results]

    @pytest.mark.parametrize("before", [0, 5])
    def test_or_at_the_latest_when_the_store_is_opened_again(self, before: int, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            results = put_all(store, *numbered(before), keys="k")
            store.dispatch()
            full = FullForTheIndex(disk, kind="create")
            results += put_all(store, *numbered(INDEX_ENTRIES), keys="k")
            store.dispatch()
            full.is_full = False

        with open_store(root) as store:
            found = store.query(TOPIC, "k", limit=64)
            assert found == [one.physical_offset for one in results]


def test_a_message_in_the_index_only_is_found(root: Path) -> None:
    with open_store(root) as store:
        half = put(store, message(sys_flag=4, keys="k"))

        assert store.query(TOPIC, "k") == [half.physical_offset]
        assert read(store).bodies == []
