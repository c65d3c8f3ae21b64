"""The store as a whole: opening and closing, what it says of itself, and what it keeps."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import CometError, StoreLocked
from cometmq.store import GetStatus, MessageStore, PutStatus, StoreSettings
from cometmq.store.check import check
from cometmq.store.files import DiskFiles
from cometmq.store.retention import DiskState
from cometmq.testing import CrashingDisk, FakeClock
from tests.unit.store.builders import (
    FAR_FUTURE_MS,
    INDEX_ENTRIES,
    INDEX_SLOTS,
    LOG_FILE_BYTES,
    QUEUE_ENTRIES,
    TOPIC,
    FakeLoop,
    batch_of,
    bodies,
    body_for,
    log_files,
    message,
    numbered,
    open_store,
    put,
    put_all,
    queue_files,
    read,
    settings,
)


class TestOpening:
    def test_a_directory_is_made_if_there_is_none(self, root: Path) -> None:
        with open_store(root / "deep" / "below") as store:
            assert store.state.is_writable
            assert store.queues() == []

        assert (root / "deep" / "below" / "lock").read_bytes() == b"lock"

    def test_a_path_may_be_text_and_needs_no_settings(self, root: Path) -> None:
        with MessageStore.open(str(root), threads=False) as store:
            assert store.settings == StoreSettings(root=root)
            assert store.log_end == 0

    def test_abort_holds_the_process_id_while_it_is_open(self, root: Path) -> None:
        with open_store(root):
            assert (root / "abort").read_text() == str(os.getpid())

        assert not (root / "abort").exists()

    def test_only_one_has_it_open(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")

            with pytest.raises(StoreLocked) as caught:
                open_store(root)

            assert caught.value.path == str(root)
            assert "locked" in str(caught.value)
            put_all(store, b"1")
            assert bodies(store) == [b"0", b"1"]

    @pytest.mark.parametrize("is_real", [True, False], ids=["disk", "crashing-disk"])
    @pytest.mark.parametrize("log_paths", [("log",), ("spare", "log")])
    def test_two_stores_do_not_write_into_one_log(
        self, tmp_path: Path, log_paths: tuple[str, ...], is_real: bool
    ) -> None:
        """They would write over each other's messages; their own directories say nothing of it."""
        disk = DiskFiles() if is_real else CrashingDisk(tmp_path)
        log = tmp_path / "log"
        with open_store(tmp_path / "one", files=disk, log_paths=(str(log),)) as store:
            put_all(store, b"0")
            paths = tuple(str(tmp_path / name) for name in log_paths)
            with pytest.raises(StoreLocked, match="storePathCommitLog") as caught:
                open_store(tmp_path / "two", files=disk, log_paths=paths)

            assert caught.value.path == str(log)
            put_all(store, b"1")
            assert bodies(store) == [b"0", b"1"]
        open_store(tmp_path / "one", files=disk, log_paths=(str(log),)).close()

    def test_the_usual_log_of_a_store_is_its_own_too(self, root: Path, tmp_path: Path) -> None:
        with open_store(root), pytest.raises(StoreLocked):
            open_store(tmp_path / "two", log_paths=(str(root / "commitlog"),))

    def test_a_log_that_is_only_read_may_be_shared(self, root: Path, tmp_path: Path) -> None:
        old = str(root / "commitlog")
        with open_store(root):
            paths = (old, str(tmp_path / "new"))
            open_store(tmp_path / "two", log_paths=paths, log_paths_read_only=(old,)).close()

    def test_after_closing_it_can_be_opened_again(self, root: Path) -> None:
        for _ in range(3):
            with open_store(root) as store:
                put_all(store, b"x")

        with open_store(root) as store:
            assert bodies(store) == [b"x"] * 3

    @pytest.mark.slow
    def test_another_process_does_not_get_it(self, root: Path) -> None:
        script = (
            "import sys; from cometmq.errors import StoreLocked\n"
            "from cometmq.store import MessageStore\n"
            "try: MessageStore.open(sys.argv[1], threads=False).close()\n"
            "except StoreLocked as error: print('locked:', error.path)\n"
            "else: print('opened')"
        )

        def ask() -> str:
            command = [sys.executable, "-c", script, str(root)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            return done.stdout.strip()

        with open_store(root) as store:
            put_all(store, b"0")
            while_open = ask()

            assert bodies(store) == [b"0"]
        assert while_open == f"locked: {root}"
        assert ask() == "opened"

    def test_threads_end_with_the_store(self, root: Path) -> None:
        before = set(threading.enumerate())
        with open_store(root, threads=True) as store:
            put_all(store, *[body_for(3000)] * 3)
            names = {thread.name for thread in set(threading.enumerate()) - before}

        assert all(name.startswith("cometmq-") for name in names)
        assert names
        assert set(threading.enumerate()) == before

    def test_without_threads_there_are_none(self, root: Path) -> None:
        before = threading.active_count()
        with open_store(root) as store:
            put_all(store, *[body_for(3000)] * 3)

            assert threading.active_count() == before

    def test_no_descriptor_is_left(self, root: Path) -> None:
        def descriptors() -> int:
            return len(list(Path("/proc/self/fd").iterdir()))

        before = descriptors()
        for _ in range(2):
            with open_store(root) as store:
                put_all(store, *numbered(50), keys="k")
                store.flush()

        assert descriptors() == before


class TestSizes:
    def test_files_that_exist_keep_theirs(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(5), keys="k")
        larger: dict[str, Any] = {
            "log_file_bytes": 1 << 20,
            "queue_file_bytes": 6000,
            "index_slots": 100,
            "index_entries": 400,
        }

        with open_store(root, **larger) as store:
            put_all(store, *[body_for(1500)] * 60, keys="k")
            store.flush()

            assert len(bodies(store)) == 65
            assert len(store.query(TOPIC, "k", limit=64)) == 64
        index_bytes = 40 + 4 * INDEX_SLOTS + 20 * INDEX_ENTRIES
        for folder, size in [
            ("commitlog", LOG_FILE_BYTES),
            (f"consumequeue/{TOPIC}/0", 20 * QUEUE_ENTRIES),
            ("index", index_bytes),
        ]:
            sizes = [path.stat().st_size for path in (root / folder).iterdir()]
            assert set(sizes) == {size}, folder
            assert len(sizes) > 1, folder

    def test_new_queues_of_a_store_that_exists_have_its_size(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")

        with open_store(root, queue_file_bytes=6000) as store:
            put_all(store, b"0", topic="new")
        assert queue_files(root, "new")[0].stat().st_size == 20 * QUEUE_ENTRIES

    def test_limits_follow_the_size_that_counts(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")

        with open_store(root, log_file_bytes=1 << 20) as store:
            result = store.put(message(body_for(LOG_FILE_BYTES)))

            assert result.status is PutStatus.MESSAGE_ILLEGAL


class TestSeveralLogPaths:
    @staticmethod
    def names(folder: Path) -> list[int]:
        return sorted(int(path.name) // LOG_FILE_BYTES for path in folder.iterdir())

    def test_files_take_turns(self, root: Path, tmp_path: Path) -> None:
        paths = tuple(str(tmp_path / name) for name in ("b", "a"))
        with open_store(root, log_paths=paths) as store:
            put_all(store, *[body_for(3000)] * 5)

            assert len(bodies(store)) == 5
        assert self.names(tmp_path / "a") == [0, 2, 4]
        assert self.names(tmp_path / "b") == [1, 3]
        assert not (root / "commitlog").exists()
        with open_store(root, log_paths=paths) as store:
            assert len(bodies(store)) == 5
        assert check(root, settings(root, log_paths=paths)).is_consistent

    def test_a_path_for_reading_only_gets_no_new_files(self, root: Path, tmp_path: Path) -> None:
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        with open_store(root, log_paths=(a, b)) as store:
            put_all(store, *[body_for(3000)] * 4)

        both: dict[str, Any] = {"log_paths": (a, b), "log_paths_read_only": (a,)}
        with open_store(root, **both) as store:
            put_all(store, *[body_for(3000)] * 3)

            assert len(bodies(store)) == 7
        assert self.names(tmp_path / "a") == [0, 2]
        assert self.names(tmp_path / "b") == [1, 3, 4, 5, 6]

    def test_the_oldest_files_go_whichever_path_they_lie_in(
        self, root: Path, tmp_path: Path
    ) -> None:
        paths = tuple(str(tmp_path / name) for name in "ab")
        clock = FakeClock(FAR_FUTURE_MS)
        with open_store(root, log_paths=paths, clock=clock) as store:
            put_all(store, *[body_for(3000)] * 5)
            store.flush()

            assert store.clean(at_any_hour=True) == 4
            assert store.min_offset(TOPIC, 0) == 4
        assert self.names(tmp_path / "a") == [4]
        assert self.names(tmp_path / "b") == []


class TestClosing:
    def test_it_may_be_done_twice(self, root: Path) -> None:
        store = open_store(root)

        store.close()
        store.close()

        assert not (root / "abort").exists()

    def test_everything_is_on_disk_afterwards(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            put_all(store, *numbered(100), keys="k", tags="A")
        disk.crash(seed=1)

        with open_store(root, files=disk) as store:
            assert bodies(store) == numbered(100)
            assert len(store.query(TOPIC, "k", limit=64)) == 64

    def test_nothing_is_taken_afterwards(self, root: Path) -> None:
        store = open_store(root)
        put_all(store, b"0")
        store.close()

        for result in (store.put(message()), store.put_batch(batch_of(b"a"))):
            assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "closed" in result.reason
        assert "closed" in store.state.refusal

    @pytest.mark.parametrize("what", ["get", "record_at", "query", "offset_at_time", "read_raw"])
    def test_nothing_is_read_afterwards(self, what: str, root: Path) -> None:
        """An error, and not an answer that may be wrong by then: the lock is somebody else's."""
        store = open_store(root)
        put_all(store, b"0", keys="k")
        store.close()

        questions: dict[str, Callable[[], object]] = {
            "get": lambda: store.get(TOPIC, 0, 0),
            "record_at": lambda: store.record_at(0),
            "query": lambda: store.query(TOPIC, "k"),
            "offset_at_time": lambda: store.offset_at_time(TOPIC, 0, 1),
            "read_raw": lambda: store.read_raw(0, 10),
        }
        with pytest.raises((CometError, ValueError)):
            questions[what]()

    @pytest.mark.parametrize("what", ["flush", "flush_step", "clean", "dispatch"])
    def test_upkeep_afterwards_changes_nothing(self, what: str, root: Path) -> None:
        store = open_store(root)
        put_all(store, b"0", keys="k")
        store.close()
        before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))

        with contextlib.suppress(CometError, ValueError):  # as good as doing nothing
            getattr(store, what)()

        assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before

    def test_an_exception_in_the_block_closes_it_too(self, root: Path) -> None:
        with contextlib.suppress(ZeroDivisionError), open_store(root) as store:
            put_all(store, b"0")
            raise ZeroDivisionError

        with open_store(root) as store:
            assert bodies(store) == [b"0"]


class TestState:
    def test_a_store_that_is_well_says_so(self, root: Path) -> None:
        with open_store(root) as store:
            state = store.state

            assert state.is_writable
            assert (state.refusal, state.disk, state.disk_reason) == ("", DiskState.NORMAL, "")
            assert (state.index_failure, state.files_condemned) == ("", 0)

    def test_a_disk_that_is_too_full_refuses_messages_until_there_is_room(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            put_all(store, b"0")
            store.dispatch()
            disk.fill_after(1)
            store.clean()
            refused, state = store.put(message()), store.state
            disk.heal()
            store.clean()

            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert refused.reason == state.refusal == state.disk_reason
            assert "make room" in refused.reason
            assert state.disk is DiskState.REFUSING
            assert store.state.is_writable
            assert bodies(store) == [b"0"]

    def test_a_loop_looks_at_the_disk_every_10_seconds(self, root: Path) -> None:
        loop, disk = FakeLoop(), CrashingDisk(root)
        with open_store(root, files=disk, loop=loop) as store:
            put_all(store, b"0")
            loop.turn_until_idle()
            disk.fill_after(1)
            delays = [timer.delay for timer in loop.timers]

            loop.fire_timers()
            refused = store.put(message())
            disk.heal()
            loop.fire_timers()

            assert delays == [10]
            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert store.state.is_writable

    def test_a_slave_takes_no_messages(self, root: Path) -> None:
        with open_store(root, is_slave=True) as store:
            assert "slave" in store.state.refusal
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE

    def test_a_store_that_takes_nothing_says_so_before_looking_at_the_message(
        self, root: Path
    ) -> None:
        """Spec §7.2: the order of the checks."""
        with open_store(root, is_slave=True) as store:
            assert store.put(message(topic="")).status is PutStatus.SERVICE_NOT_AVAILABLE


class TestDeletedTopics:
    def test_its_queues_and_files_go(self, root: Path) -> None:
        with open_store(root) as store:
            for queue_id in range(3):
                put_all(store, *numbered(30), queue_id=queue_id)
            put_all(store, b"kept", topic="other")

            assert store.delete_topic(TOPIC) == 3

            assert store.queues() == [("other", 0)]
            assert read(store).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
            assert not (root / "consumequeue" / TOPIC).exists()
            assert bodies(store, "other") == [b"kept"]

    def test_messages_that_were_not_dispatched_go_with_it(self, root: Path) -> None:
        loop = FakeLoop()
        with open_store(root, loop=loop) as store:
            put_all(store, *numbered(3))

            store.delete_topic(TOPIC)
            loop.turn_until_idle()

            assert store.queues() == []

    def test_it_may_be_made_anew(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(30))
            store.delete_topic(TOPIC)
            again = put(store, message(b"new"))
            store.flush()

            assert again.queue_offset == 0
            assert bodies(store) == [b"new"]
        with open_store(root) as store:
            assert bodies(store) == [b"new"]

    def test_it_stays_deleted_after_a_restart(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(3))
            put_all(store, b"kept", topic="other")
            store.delete_topic(TOPIC)

        with open_store(root) as store:
            assert store.queues() == [("other", 0)]

    def test_so_it_does_when_the_log_ends_with_its_messages(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"kept", topic="other")
            put_all(store, *numbered(3))
            store.delete_topic(TOPIC)
            end = store.log_end

        with open_store(root) as store:
            assert store.queues() == [("other", 0)]
            assert store.log_end == end

    def test_and_when_it_was_the_only_one(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(3))
            store.delete_topic(TOPIC)
            end = store.log_end

        with open_store(root) as store:
            assert store.queues() == []
            assert store.log_end == end

    def test_one_that_does_not_exist_has_no_queues(self, root: Path) -> None:
        with open_store(root) as store:
            assert store.delete_topic("nothing") == 0


class TestCleaning:
    @staticmethod
    def filled(root: Path, **changes: Any) -> MessageStore:
        store = open_store(root, clock=FakeClock(FAR_FUTURE_MS), **changes)
        put_all(store, *[body_for(3000)] * 5, keys="k")
        return store

    def test_what_is_not_on_disk_yet_stays(self, root: Path) -> None:
        with self.filled(root) as store:
            assert store.clean(at_any_hour=True) == 0

            store.flush()
            assert store.clean(at_any_hour=True) == 4

    def test_what_is_not_dispatched_yet_stays(self, root: Path) -> None:
        loop = FakeLoop()
        with self.filled(root, loop=loop) as store:
            assert store.clean(at_any_hour=True) == 0

    def test_a_hook_may_hold_files_back(self, root: Path) -> None:
        allowed: list[int] = []

        def may_delete(path: Path, begin: int, end: int) -> bool:
            return begin in allowed

        with self.filled(root, may_delete=may_delete) as store:
            store.flush()
            before = store.clean(at_any_hour=True)
            allowed.append(0)
            after = store.clean(at_any_hour=True)

            assert (before, after) == (0, 1)
            assert store.log_begin == LOG_FILE_BYTES
        assert len(log_files(root)) == 4

    def test_messages_that_are_gone_are_found_by_no_key(self, root: Path) -> None:
        with self.filled(root) as store:
            store.flush()
            store.clean(at_any_hour=True)

            found = store.query(TOPIC, "k")

            assert [offset for offset in found if store.record_at(offset) is not None] == [
                4 * LOG_FILE_BYTES
            ]

    def test_a_store_that_lost_its_beginning_goes_on(self, root: Path, tmp_path: Path) -> None:
        with self.filled(root) as store:
            store.flush()
            store.clean(at_any_hour=True)
            put_all(store, b"next")

            assert bodies(store)[1:] == [b"next"]
        (root / "abort").write_bytes(b"")
        with open_store(root) as store:
            assert store.log_begin == 4 * LOG_FILE_BYTES
            assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (4, 6)
            assert bodies(store)[1:] == [b"next"]
