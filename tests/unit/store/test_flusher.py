"""When things get to disk, in which order, and what happens when the disk refuses."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from cometmq.codec import checkpoint
from cometmq.codec.checkpoint import Checkpoint
from cometmq.errors import StoreError
from cometmq.store import FlushMode, MessageStore, PutStatus
from cometmq.testing import CrashingDisk, DiskEvent, FakeClock
from tests.unit.store.builders import (
    TOPIC,
    FakeLoop,
    bodies,
    body_for,
    message,
    numbered,
    open_store,
    part_of,
    put,
    put_all,
    watch,
)

PAGE = 4096
BROKEN_DISK = OSError(errno.EIO, os.strerror(errno.EIO))


class Bench:
    """An open store of roomy files on a disk that can be watched, and its clock."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.disk = CrashingDisk(root)
        self.clock = FakeClock()
        self.root = root
        sizes: dict[str, Any] = {"log_file_bytes": 64 * 1024, "queue_file_bytes": 20_000, **changes}
        self.store: MessageStore = open_store(root, clock=self.clock, files=self.disk, **sizes)
        self.syncs = watch(self.disk, "sync")

    def after(self, seconds: float) -> list[str]:
        """Let time pass and the flusher do what is due; what was synced."""
        self.clock.advance(seconds)
        begin = len(self.syncs)
        self.store.flush_step()
        return [part for _, part in self.syncs[begin:]]

    @property
    def checkpoint(self) -> Checkpoint:
        return checkpoint.unpack((self.root / "checkpoint").read_bytes())


@pytest.fixture
def bench(root: Path) -> Bench:
    return Bench(root)


class TestLog:
    """Spec §6.1: every 500 ms if 4 pages wait, every 10 s whatever waits."""

    def test_four_pages_are_flushed_after_half_a_second(self, bench: Bench) -> None:
        with bench.store as store:
            result = put(store, message(body_for(4 * PAGE)))

            early, due = bench.after(0.499), bench.after(0.001)

            assert (early, due) == ([], ["commitlog"])
            assert store.watermarks.flushed == result.end

    def test_fewer_wait_for_the_thorough_flush(self, bench: Bench) -> None:
        with bench.store as store:
            result = put(store, message(body_for(4 * PAGE - 1)))

            early = [part for _ in range(19) for part in bench.after(0.5)]
            before = store.watermarks.flushed
            due = bench.after(0.5)

            assert "commitlog" not in early
            assert before == 0
            assert "commitlog" in due
            assert store.watermarks.flushed == result.end

    def test_the_next_half_second_counts_from_the_last_flush(self, bench: Bench) -> None:
        with bench.store as store:
            put(store, message(body_for(4 * PAGE)))
            first = bench.after(0.7)
            put(store, message(body_for(4 * PAGE)))
            early, due = bench.after(0.4), bench.after(0.1)

            assert (first, early, due) == (["commitlog"], [], ["commitlog"])

    def test_nothing_is_flushed_when_nothing_is_new(self, bench: Bench) -> None:
        with bench.store:
            assert [bench.after(10) for _ in range(3)] == [[], [], []]

    def test_a_full_file_is_flushed_however_little_waits(self, root: Path) -> None:
        """Spec §6.1: full file always flushes."""
        bench = Bench(root, log_file_bytes=PAGE)
        with bench.store as store:
            put(store, message(body_for(3000)))
            put(store, message(body_for(3000)))

            bench.after(0.5)

            assert store.watermarks.flushed >= PAGE

    def test_every_file_that_is_concerned_is_flushed(self, root: Path) -> None:
        bench = Bench(root, log_file_bytes=PAGE)
        with bench.store as store:
            for _ in range(6):
                put(store, message(body_for(3000)))

            assert bench.after(0.5).count("commitlog") == 6
            put(store, message(body_for(500)))
            assert bench.after(10).count("commitlog") == 1

    def test_intervals_and_pages_are_settings(self, root: Path) -> None:
        bench = Bench(
            root,
            flush_interval_ms=100,
            flush_pages_least=1,
            flush_thorough_interval_ms=200,
        )
        with bench.store as store:
            put(store, message(body_for(PAGE)))
            pages = bench.after(0.1)
            put(store, message(b"little"))
            early, thorough = bench.after(0.19), bench.after(0.02)

            assert (pages, early, thorough) == (["commitlog"], [], ["commitlog"])

    def test_what_is_flushed_survives_and_nothing_else_is_promised(self, root: Path) -> None:
        bench = Bench(root)
        put(bench.store, message(body_for(4 * PAGE)))
        bench.after(0.5)

        assert bench.disk.durable(root / "commitlog" / f"{0:020d}") == (
            (root / "commitlog" / f"{0:020d}").read_bytes()
        )
        bench.store.close()


class TestQueues:
    """Spec §6.1: every second those with 2 new pages, every minute all, then the checkpoint."""

    def test_two_pages_of_entries_are_flushed_after_a_second(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, *numbered(2 * PAGE // 20 + 1))
            put_all(store, b"little", queue_id=1)
            store.dispatch()
            bench.after(0.5)

            early, due = bench.after(0.499), bench.after(0.001)

            assert "consumequeue" not in early
            assert due.count("consumequeue") == 1

    def test_fewer_wait_for_the_thorough_flush(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, *numbered(2 * PAGE // 20))
            store.dispatch()

            early = [part for _ in range(59) for part in bench.after(1)]
            due = bench.after(1)

            assert "consumequeue" not in early
            assert due.count("consumequeue") == 1

    def test_every_minute_all_is_flushed_and_the_checkpoint_comes_last(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0", b"1", keys="k")
            put_all(store, b"0", queue_id=1)
            store.dispatch()
            bench.after(59)
            put_all(store, b"2", keys="k")
            store.dispatch()
            writes = watch(bench.disk, "write", "sync")

            bench.after(1)

            parts = [part for _, part in writes]
            assert parts[0] == "commitlog"
            assert parts.count("consumequeue") == 2
            assert "index" in parts
            assert writes[-2:] == [("write", "checkpoint"), ("sync", "checkpoint")]
            assert parts.count("checkpoint") == 2

    def test_the_checkpoint_has_the_times_of_what_is_on_disk(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")
            bench.clock.advance(7)
            second = put(store, message(b"1"))
            store.dispatch()
            bench.clock.advance(50)
            bench.after(3)

            assert bench.checkpoint.log_timestamp == second.store_timestamp
            assert bench.checkpoint.queue_timestamp == second.store_timestamp

    def test_the_checkpoint_says_nothing_of_what_is_not_dispatched(self, bench: Bench) -> None:
        with bench.store as store:
            first = put(store, message(b"0"))
            store.dispatch()
            bench.clock.advance(30)
            put_all(store, b"1")
            bench.after(30)

            assert bench.checkpoint.queue_timestamp <= first.store_timestamp

    def test_the_checkpoint_says_nothing_when_a_queue_could_not_be_flushed(
        self, bench: Bench
    ) -> None:
        def refuse(event: DiskEvent) -> None:
            if event.kind == "sync" and part_of(event.path) == "consumequeue":
                raise BROKEN_DISK

        with bench.store as store:
            put_all(store, b"0")
            store.dispatch()
            bench.disk.on_event(refuse)

            bench.after(60)

            assert not (bench.root / "checkpoint").exists()
            assert not store.state.is_writable

    def test_flush_by_hand_does_all_of_it_at_once(self, bench: Bench) -> None:
        with bench.store as store:
            result = put(store, message(keys="k"))

            store.flush()

            parts = [part for _, part in bench.syncs]
            assert set(parts) == {"commitlog", "consumequeue", "index", "checkpoint"}
            assert parts[0] == "commitlog"
            assert parts[-1] == "checkpoint"
            marks = store.watermarks
            assert marks.flushed == marks.dispatched == result.end
            assert bench.checkpoint.log_timestamp == result.store_timestamp

    def test_what_was_flushed_is_not_flushed_again(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0", keys="k")
            store.flush()
            begin = len(bench.syncs)

            store.flush()

            assert bench.syncs[begin:] == []


class TestGroupCommit:
    def test_one_sync_serves_all_who_wait(self, root: Path) -> None:
        bench = Bench(root, flush_mode=FlushMode.SYNC_FLUSH)
        told: list[bool] = []
        with bench.store as store:
            for body in numbered(100):
                store.watermarks.when_flushed(put(store, message(body)).end, told.append)

            synced = bench.after(0)

            assert synced == ["commitlog"]
            assert told == [True] * 100

    def test_a_message_put_meanwhile_is_flushed_by_the_next_one(self, root: Path) -> None:
        bench = Bench(root, flush_mode=FlushMode.SYNC_FLUSH)
        late: list[int] = []

        def put_meanwhile(event: DiskEvent) -> None:
            if event.kind == "sync" and not event.is_done and not late:
                late.append(put(bench.store, message(b"late")).end)

        with bench.store as store:
            early = put(store, message(b"early")).end
            bench.disk.on_event(put_meanwhile)
            bench.after(0)
            between = store.watermarks.flushed
            bench.after(0)

            assert between == early
            assert store.watermarks.flushed == late[0]

    def test_without_a_request_nothing_is_flushed_early(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")

            assert bench.after(0) == []

    def test_a_loop_is_told_on_its_own_turn(self, root: Path) -> None:
        loop, disk = FakeLoop(), CrashingDisk(root)
        told: list[bool] = []
        with open_store(root, files=disk, loop=loop, flush_mode=FlushMode.SYNC_FLUSH) as store:
            store.watermarks.when_flushed(put(store, message()).end, told.append)
            store.flush_step()
            before = list(told)
            loop.turn_until_idle()

            assert (before, told) == ([], [True])


class TestManyQueues:
    def test_a_sender_does_not_wait_until_all_queues_are_on_disk(self, root: Path) -> None:
        """They have a schedule of their own; with thousands of them a round takes seconds."""
        bench = Bench(root, flush_mode=FlushMode.SYNC_FLUSH)
        late: list[int] = []

        def put_meanwhile(event: DiskEvent) -> None:
            if event.kind == "sync" and part_of(event.path) == "consumequeue" and not late:
                late.append(put(bench.store, message(b"late")).end)

        with bench.store as store:
            for queue_id in range(20):
                put(store, message(queue_id=queue_id))
            store.dispatch()
            bench.disk.on_event(put_meanwhile)

            synced = bench.after(60) + bench.after(0)

            after = synced[synced.index("consumequeue") :]
            assert store.watermarks.flushed == late[0]
            assert after.index("commitlog") < 5


class TestWaiting:
    def test_a_message_that_gets_to_disk_in_time_is_well(self, root: Path) -> None:
        with open_store(root, threads=True) as store:
            result = put(store, message())

            assert store.wait_flushed(result) == result
            assert store.watermarks.flushed >= result.end

    def test_one_that_does_not_is_stored_but_late(self, root: Path) -> None:
        with open_store(root) as store:
            result = put(store, message())

            late = store.wait_flushed(result, timeout_ms=1)

            assert late.status is PutStatus.FLUSH_DISK_TIMEOUT
            assert late.status.is_stored
            assert (late.physical_offset, late.end) == (result.physical_offset, result.end)
            assert "1 ms" in late.reason
            assert bodies(store) == [b"hello"]

    def test_how_long_is_a_setting(self, root: Path) -> None:
        with open_store(root, sync_flush_timeout_ms=2) as store:
            late = store.wait_flushed(put(store, message()))

            assert late.status is PutStatus.FLUSH_DISK_TIMEOUT
            assert "2 ms" in late.reason

    def test_what_was_refused_is_not_waited_for(self, root: Path) -> None:
        with open_store(root) as store:
            refused = store.put(message(topic=""))

            assert store.wait_flushed(refused) is refused

    def test_what_is_on_disk_is_not_waited_for(self, root: Path) -> None:
        with open_store(root) as store:
            result = put(store, message())
            store.flush()

            assert store.wait_flushed(result, timeout_ms=60_000) is result


class TestFailure:
    """A failed sync: the pages may be lost, so nothing later could be promised."""

    def test_the_store_is_read_only_from_then_on(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")
            bench.disk.fail_sync(BROKEN_DISK)
            store.flush()
            bench.disk.heal()

            refused = store.put(message())

            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "read-only" in refused.reason
            assert "Input/output error" in refused.reason
            assert store.state.refusal == refused.reason
            assert not store.state.is_writable
            assert bodies(store) == [b"0"]

    def test_a_later_sync_that_works_changes_nothing(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")
            bench.disk.fail_sync(BROKEN_DISK)
            store.flush()
            bench.disk.heal()
            store.flush()
            bench.after(60)

            assert store.watermarks.flushed == 0
            assert not store.state.is_writable

    def test_who_waits_is_told(self, root: Path) -> None:
        bench = Bench(root, flush_mode=FlushMode.SYNC_FLUSH)
        told: list[bool] = []
        with bench.store as store:
            on_disk = put(store, message())
            bench.after(0)
            result = put(store, message())
            store.watermarks.when_flushed(result.end, told.append)
            bench.disk.fail_sync(BROKEN_DISK)

            bench.after(0)

            assert told == [False]
            late = store.wait_flushed(result, timeout_ms=60_000)
            assert late.status is PutStatus.FLUSH_DISK_TIMEOUT
            assert "Input/output error" in late.reason
            assert store.wait_flushed(on_disk).status is PutStatus.PUT_OK

    def test_closing_keeps_the_mark_of_a_crash(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")
            bench.disk.fail_sync(BROKEN_DISK)
            store.flush()

        assert (bench.root / "abort").exists()

    def test_a_failure_while_closing_keeps_it_too(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")
            bench.disk.fail_sync(BROKEN_DISK)

        assert (bench.root / "abort").exists()
        bench.disk.heal()
        with open_store(bench.root, files=bench.disk) as store:
            assert store.state.is_writable

    def test_a_program_with_threads_notices_with_the_next_message(self, root: Path) -> None:
        """Nobody has to ask: the flusher's thread found out by itself."""
        disk = CrashingDisk(root)
        with open_store(root, files=disk, threads=True) as store:
            disk.fail_sync(BROKEN_DISK)
            late = store.wait_flushed(put(store, message()))

            refused = store.put(message())

            assert late.status is PutStatus.FLUSH_DISK_TIMEOUT
            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert not store.state.is_writable

    def test_a_program_with_a_loop_notices_on_the_next_turn(self, root: Path) -> None:
        loop, disk = FakeLoop(), CrashingDisk(root)
        with open_store(root, files=disk, loop=loop, flush_mode=FlushMode.SYNC_FLUSH) as store:
            told: list[bool] = []
            store.watermarks.when_flushed(put(store, message()).end, told.append)
            disk.fail_sync(BROKEN_DISK)
            store.flush_step()
            loop.turn_until_idle()

            assert told == [False]
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE

    @pytest.mark.parametrize("kind", ["sync", "write"])
    def test_a_checkpoint_that_cannot_be_written_is_a_failure_too(
        self, kind: str, bench: Bench
    ) -> None:
        def refuse(event: DiskEvent) -> None:
            if event.kind == kind and event.path.name == "checkpoint":
                raise BROKEN_DISK

        with bench.store as store:
            put_all(store, b"0")
            bench.disk.on_event(refuse)
            store.flush()

            assert "Input/output error" in store.state.refusal
        assert (bench.root / "abort").exists()

    def test_a_read_only_store_does_not_go_on_replicating(self, bench: Bench) -> None:
        with bench.store as store:
            put_all(store, b"0")
            bench.disk.fail_sync(BROKEN_DISK)
            store.flush()
            end = store.log_end

            with pytest.raises(StoreError, match="read-only"):
                store.append_raw(end, b"\0" * 100)

            assert store.log_end == end


def test_a_store_that_is_only_read_writes_no_checkpoint(root: Path) -> None:
    with open_store(root) as store:
        put_all(store, b"0")
    before = (root / "checkpoint").read_bytes()

    with open_store(root) as store:
        assert store.max_offset(TOPIC, 0) == 1

    assert (root / "checkpoint").read_bytes() == before
