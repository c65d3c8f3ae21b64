"""With the transient pool messages are in memory first; only what is committed exists."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import OffsetOutOfRange
from cometmq.store import FlushMode, GetStatus, MessageStore, PutStatus
from cometmq.testing import CrashingDisk, DiskEvent, FakeClock
from tests.unit.store.builders import (
    LOG_FILE_BYTES,
    TOPIC,
    FakeLoop,
    batch_of,
    bodies,
    body_for,
    killed_copy,
    log_bytes,
    message,
    numbered,
    open_store,
    put,
    put_all,
    read,
    record_size,
)

PAGE = 4096


def open_pool(root: Path, **changes: Any) -> MessageStore:
    return open_store(root, **{"has_transient_pool": True, **changes})


class TestBeforeCommit:
    def test_nothing_is_in_the_file(self, root: Path) -> None:
        with open_pool(root) as store:
            put_all(store, *numbered(3))

            assert not any(log_bytes(root))
            assert store.log_end == 3 * record_size(b"0")
            assert store.watermarks.committed == 0

    def test_nothing_is_read_dispatched_or_replicated(self, root: Path) -> None:
        with open_pool(root) as store:
            result = put(store, message(keys="k"))

            assert store.dispatch() == 0
            assert read(store).status is GetStatus.NO_MESSAGE_IN_QUEUE
            assert store.record_at(result.physical_offset) is None
            assert store.query(TOPIC, "k") == []
            assert store.read_raw(0, 1000).nbytes == 0
            assert store.watermarks.dispatched == 0

    def test_what_is_not_committed_is_outside_the_log_for_replicas(self, root: Path) -> None:
        with open_pool(root) as store:
            result = put(store, message())

            with pytest.raises(OffsetOutOfRange):
                store.read_raw(result.end, 1000)

    def test_nothing_is_flushed(self, root: Path) -> None:
        clock = FakeClock()
        with open_pool(root, clock=clock, commit_interval_ms=60_000,
                       commit_thorough_interval_ms=60_000) as store:  # fmt: skip
            put(store, message())
            clock.advance(10)
            store.flush_step()

            assert store.watermarks.flushed == store.watermarks.committed == 0

    def test_a_kill_loses_it(self, root: Path, tmp_path: Path) -> None:
        with open_pool(root) as store:
            put_all(store, b"0")
            store.flush()
            put_all(store, b"1")
            copy = killed_copy(root, tmp_path / "copy")

        with open_store(copy) as store:
            assert bodies(store) == [b"0"]

    def test_queue_offsets_are_assigned_all_the_same(self, root: Path) -> None:
        with open_pool(root) as store:
            assert [result.queue_offset for result in put_all(store, *numbered(3))] == [0, 1, 2]


class TestCommit:
    """Spec §6.2: every 200 ms if 4 pages wait, or whatever waits after 200 ms."""

    def test_it_makes_messages_readable(self, root: Path) -> None:
        clock = FakeClock()
        with open_pool(root, clock=clock) as store:
            result = put(store, message(keys="k"))
            clock.advance(0.19)
            store.flush_step()
            early = store.watermarks.committed
            clock.advance(0.02)

            store.flush_step()

            assert early == 0
            assert store.watermarks.committed == result.end
            assert bodies(store) == [b"hello"]
            assert store.query(TOPIC, "k") == [0]
            with store.read_raw(0, 1000) as raw:
                assert raw == log_bytes(root)[: result.end]

    def test_pages_and_intervals_are_settings(self, root: Path) -> None:
        clock = FakeClock()
        with open_pool(
            root,
            clock=clock,
            log_file_bytes=16 * PAGE,
            commit_interval_ms=100,
            commit_pages_least=2,
            commit_thorough_interval_ms=1000,
        ) as store:
            put(store, message(body_for(2 * PAGE - 200)))
            clock.advance(0.15)
            store.flush_step()
            early = store.watermarks.committed
            end = put(store, message(body_for(200))).end
            store.flush_step()
            pages = store.watermarks.committed
            put_all(store, b"little")
            clock.advance(0.9)
            store.flush_step()
            later = store.watermarks.committed
            clock.advance(0.2)
            store.flush_step()

            assert (early, pages, later) == (0, end, end)
            assert store.watermarks.committed == store.log_end

    def test_only_what_is_committed_is_dispatched(self, root: Path) -> None:
        clock = FakeClock()
        with open_pool(root, clock=clock) as store:
            put_all(store, b"0")
            clock.advance(1)
            store.flush_step()
            put_all(store, b"1")

            assert bodies(store) == [b"0"]
            assert store.max_offset(TOPIC, 0) == 1
            assert store.watermarks.dispatched == record_size(b"0")

    def test_a_loop_learns_of_it(self, root: Path) -> None:
        loop, clock = FakeLoop(), FakeClock()
        with open_pool(root, clock=clock, loop=loop) as store:
            put_all(store, b"0")
            loop.turn_until_idle()
            before = store.max_offset(TOPIC, 0)
            clock.advance(1)
            store.flush_step()

            loop.turn_until_idle()

            assert before == 0
            assert bodies(store) == [b"0"]

    def test_a_sender_that_waits_hastens_it(self, root: Path) -> None:
        told: list[bool] = []
        with open_pool(root, flush_mode=FlushMode.SYNC_FLUSH) as store:
            store.watermarks.when_flushed(put(store, message()).end, told.append)

            store.flush_step()

            assert told == [True]
            assert store.watermarks.flushed == store.log_end

    def test_flushing_by_hand_leaves_nothing_behind(self, root: Path) -> None:
        """Log, queues, index and checkpoint are on disk when ``flush`` returns."""
        with open_pool(root) as store:
            result = put(store, message(keys="k"))

            store.flush()

            marks = store.watermarks
            assert marks.committed == marks.flushed == marks.dispatched == result.end

    def test_closing_commits_the_rest(self, root: Path) -> None:
        with open_pool(root) as store:
            put_all(store, *numbered(50))

        assert not (root / "abort").exists()
        with open_store(root) as store:
            assert bodies(store) == numbered(50)

    def test_it_goes_on_in_a_file_that_is_half_full(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(5))
        with open_pool(root) as store:
            put_all(store, *numbered(3))

        with open_pool(root) as store:
            assert bodies(store) == numbered(5) + numbered(3)

    def test_a_log_over_several_files_comes_out_whole(self, root: Path) -> None:
        clock = FakeClock()
        with open_pool(root, clock=clock) as store:
            for number in range(20):
                put(store, message(b"%d" % number + body_for(1500)))
                clock.advance(0.3)
                store.flush_step()

            assert [int(body[:2].rstrip(b"b")) for body in bodies(store)] == list(range(20))

    def test_threads_do_it_by_themselves(self, root: Path) -> None:
        with open_pool(root, threads=True) as store:
            results = put_all(store, *[body_for(1500)] * 8)

            assert store.wait_flushed(results[-1]).status is PutStatus.PUT_OK
            assert len(bodies(store)) == 8


class TestEmptyPool:
    def test_a_message_for_which_there_is_no_buffer_is_refused(self, root: Path) -> None:
        with open_pool(root, transient_pool_size=2) as store:
            put_all(store, *[body_for(3000)] * 2)

            refused = store.put(message(body_for(3000)))

            assert refused.status is PutStatus.TRANSIENT_POOL_EMPTY
            assert not refused.status.is_stored
            assert "transient pool" in refused.reason
            assert store.log_end == LOG_FILE_BYTES + 3000

    def test_the_pool_has_5_buffers(self, root: Path) -> None:
        with open_pool(root) as store:
            statuses = [store.put(message(body_for(3000))).status for _ in range(6)]

            assert statuses == [PutStatus.PUT_OK] * 5 + [PutStatus.TRANSIENT_POOL_EMPTY]

    def test_a_smaller_one_that_still_fits_is_taken(self, root: Path) -> None:
        with open_pool(root, transient_pool_size=1) as store:
            put_all(store, body_for(3000))
            refused = store.put(message(body_for(3000)))
            put_all(store, b"small")

            assert refused.status is PutStatus.TRANSIENT_POOL_EMPTY
            store.flush()
            assert bodies(store)[1:] == [b"small"]

    def test_buffers_come_back_when_they_are_committed(self, root: Path) -> None:
        clock = FakeClock()
        with open_pool(root, clock=clock, transient_pool_size=2) as store:
            put_all(store, *[body_for(3000)] * 2)
            store.put(message(body_for(3000)))
            clock.advance(1)
            store.flush_step()

            again = store.put(message(body_for(3000)))

            assert again.status is PutStatus.PUT_OK
            assert again.queue_offset == 2
            assert again.physical_offset == 2 * LOG_FILE_BYTES

    def test_a_batch_is_refused_as_well(self, root: Path) -> None:
        with open_pool(root, transient_pool_size=1) as store:
            put_all(store, body_for(3000))

            refused = store.put_batch(batch_of(body_for(1000), body_for(1000)))

            assert refused.status is PutStatus.TRANSIENT_POOL_EMPTY
            assert store.log_end == 3000


class BrokenForTheLog:
    """A listener of a disk that cannot write to log files while ``is_broken``."""

    def __init__(self, disk: CrashingDisk) -> None:
        self.is_broken = True
        disk.on_event(self._on_event)

    def _on_event(self, event: DiskEvent) -> None:
        if self.is_broken and event.kind == "write" and "commitlog" in event.path.parts:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class TestFailure:
    def test_a_commit_that_fails_makes_the_store_read_only(self, root: Path) -> None:
        disk, clock = CrashingDisk(root), FakeClock()
        told: list[bool] = []
        with open_pool(root, files=disk, clock=clock) as store:
            store.watermarks.when_flushed(put(store, message()).end, told.append)
            log = BrokenForTheLog(disk)
            clock.advance(1)
            store.flush_step()
            log.is_broken = False

            assert told == [False]
            assert "Input/output error" in store.state.refusal
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (root / "abort").exists()

    def test_closing_lets_go_of_the_directory_all_the_same(self, root: Path) -> None:
        disk = CrashingDisk(root)
        store = open_pool(root, files=disk)
        put_all(store, b"0")
        BrokenForTheLog(disk)

        try:
            store.close()

            assert (root / "abort").exists()
            with disk.lock(root / "lock") as is_free:
                assert is_free
        finally:
            disk.abandon()
