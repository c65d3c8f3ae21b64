"""Opening a directory again: nothing that was on disk is lost, and nothing is invented."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.codec import checkpoint
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.record import MAGIC_BLANK
from cometmq.codec.sysflag import TransactionType
from cometmq.errors import DamagedStore
from cometmq.store import MessageStore
from cometmq.testing import CrashingDisk, FakeClock, PowerCut
from tests.unit.store.builders import (
    HOST_V6,
    LOG_FILE_BYTES,
    QUEUE_ENTRIES,
    TOPIC,
    batch_of,
    bodies,
    body_for,
    flip,
    killed_copy,
    log_bytes,
    log_files,
    message,
    numbered,
    open_store,
    patch,
    put,
    put_all,
    queue_files,
    raw_record,
    record_of,
    record_size,
)

SIZE = record_size(b"0")
"""Of a record whose body is a digit."""


@pytest.fixture
def killed(root: Path, tmp_path: Path) -> Callable[[Callable[[MessageStore], object]], Path]:
    """Does something with a store and returns the directory as a kill would have left it."""

    def kill(use: Callable[[MessageStore], object]) -> Path:
        with open_store(root) as store:
            use(store)
            return killed_copy(root, tmp_path / "killed")

    return kill


Kill = Callable[..., Path]


class TestKilledProcess:
    """A kill takes nothing from what was put: the pages are the system's."""

    @pytest.mark.parametrize("is_dispatched", [False, True])
    def test_every_message_is_there(self, is_dispatched: bool, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *numbered(50), keys="k", tags="A")
            if is_dispatched:
                store.dispatch()

        with open_store(killed(use)) as store:
            assert bodies(store) == numbered(50)
            assert len(store.query(TOPIC, "k", limit=64)) == 50
            assert put(store, message(b"next")).queue_offset == 50

    def test_so_are_records_of_every_kind(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put(store, message(b"v2", "%RETRY%" + "g" * 200))
            put(store, message(b"v6", sys_flag=0x30, born_host=HOST_V6, store_host=HOST_V6))
            store.put_batch(batch_of(b"b1", b"b2", b""))
            put(store, message(b"half", sys_flag=TransactionType.PREPARED))
            put(store, message(body_for(3000)))
            put(store, message(b"last", sys_flag=TransactionType.ROLLBACK))

        with open_store(killed(use)) as store:
            assert bodies(store, "%RETRY%" + "g" * 200) == [b"v2"]
            assert bodies(store) == [b"v6", b"b1", b"b2", b"", body_for(3000)]

    def test_the_mark_of_a_crash_is_there_until_the_store_is_closed(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, b"0"))
        before = (copy / "abort").exists()

        with open_store(copy):
            while_open = (copy / "abort").exists()

        assert (before, while_open, (copy / "abort").exists()) == (True, True, False)

    def test_recovery_may_be_killed_and_run_again(self, killed: Kill, tmp_path: Path) -> None:
        copy = killed(lambda store: put_all(store, *numbered(50), keys="k"))

        for number in range(3):
            with open_store(copy):
                copy = killed_copy(copy, tmp_path / f"again{number}")

        with open_store(copy) as store:
            assert bodies(store) == numbered(50)
            assert len(store.query(TOPIC, "k", limit=64)) == 50

    @pytest.mark.slow
    def test_at_any_point(self, killed: Kill, tmp_path: Path) -> None:
        """Each step of recovery is the last one of a process once."""
        copy = killed(lambda store: put_all(store, *numbered(30), keys="k"))
        patch(log_files(copy)[-1], 25 * SIZE % LOG_FILE_BYTES, b"\xff" * 300)
        with open_store(killed_copy(copy, tmp_path / "whole")) as store:
            expected = bodies(store)

        kills = 0
        while True:
            again = tmp_path / f"again{kills}"
            shutil.copytree(copy, again)
            disk = CrashingDisk(again)
            disk.cut_power_at(kills + 1)
            try:
                open_store(again, files=disk).close()
            except PowerCut:
                kills += 1
            else:
                break
            disk.abandon()
            with open_store(again) as store:
                assert bodies(store) == expected, kills
            shutil.rmtree(again)

        assert kills > 10
        assert 0 < len(expected) < 30

    def test_a_store_killed_before_its_first_message_is_empty(self, killed: Kill) -> None:
        with open_store(killed(lambda _: None)) as store:
            assert store.log_end == 0
            assert put(store, message()).physical_offset == 0


class TestTornTail:
    """Half a record was on disk when the power failed: it never happened."""

    @pytest.mark.parametrize("kept", [0, 1, 4, 7, 8, 50, SIZE - 10, SIZE - 4])
    def test_it_is_cut_off(self, kept: int, killed: Kill) -> None:
        """The last one has lost nothing but the end of its topic."""
        copy = killed(lambda store: put_all(store, *numbered(5)))
        patch(log_files(copy)[0], 4 * SIZE + kept, bytes(SIZE - kept))

        with open_store(copy) as store:
            assert store.log_end == 4 * SIZE
            assert bodies(store) == numbered(4)
            assert store.max_offset(TOPIC, 0) == 4
            again = put(store, message(b"again"))
            assert (again.physical_offset, again.queue_offset) == (4 * SIZE, 4)
            assert bodies(store) == [*numbered(4), b"again"]

    def test_what_lies_behind_a_hole_is_cut_off_too(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, *numbered(5)))
        patch(log_files(copy)[0], 2 * SIZE, bytes(SIZE))

        with open_store(copy) as store:
            assert bodies(store) == numbered(2)
            assert store.log_end == 2 * SIZE
        assert not any(log_bytes(copy)[2 * SIZE :])

    def test_whole_files_behind_the_end_go(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, *[body_for(1500)] * 8))
        patch(log_files(copy)[1], 1500, b"\xff" * 8)

        with open_store(copy) as store:
            assert len(bodies(store)) == 3
            assert len(log_files(copy)) == 2
            assert put(store, message(b"next")).physical_offset == LOG_FILE_BYTES + 1500

    @pytest.mark.parametrize("number", [0, 3, 4])
    def test_a_flipped_bit_in_a_body_ends_the_log(self, number: int, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, *numbered(5)))
        flip(log_files(copy)[0], number * SIZE + 88)

        with open_store(copy) as store:
            assert bodies(store) == numbered(number)
            assert store.log_end == number * SIZE

    def test_checksums_need_not_be_looked_at(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, *numbered(5)))
        flip(log_files(copy)[0], 3 * SIZE + 88)

        with open_store(copy, is_crc_checked_on_recovery=False) as store:
            found = bodies(store)
            flip(log_files(copy)[0], 3 * SIZE + 88)

        assert found == [b"0", b"1", b"2", bytes([ord("3") ^ 1]), b"4"]

    @pytest.mark.parametrize(
        ("position", "field"),
        [(0, "size"), (4, "magic"), (28, "physical offset"), (84, "body length")],
    )
    def test_so_does_one_in_a_field_that_holds_it_together(
        self, position: int, field: str, killed: Kill
    ) -> None:
        copy = killed(lambda store: put_all(store, *numbered(5)))
        flip(log_files(copy)[0], 3 * SIZE + position + 3, 0x10)

        with open_store(copy) as store:
            assert bodies(store) == numbered(3), field
            assert store.log_end == 3 * SIZE

    def test_a_batch_is_cut_between_its_records(self, killed: Kill) -> None:
        copy = killed(lambda store: store.put_batch(batch_of(*numbered(5))))
        patch(log_files(copy)[0], 3 * SIZE + 10, bytes(20))

        with open_store(copy) as store:
            assert bodies(store) == numbered(3)

    def test_nothing_at_all_is_left(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, *numbered(5)))
        log_files(copy)[0].write_bytes(bytes(LOG_FILE_BYTES))

        with open_store(copy) as store:
            assert bodies(store) == []
            assert store.log_end == 0
            again = put(store, message())
            assert (again.physical_offset, again.queue_offset) == (0, 0)


class TestStaleBytes:
    """What lay behind the end of the log never becomes a part of it again."""

    def test_a_record_of_the_same_size_does_not_bring_back_what_followed(
        self, killed: Kill, tmp_path: Path
    ) -> None:
        copy = killed(lambda store: put_all(store, b"A", b"B", b"C", b"D"))
        flip(log_files(copy)[0], SIZE + 88)
        with open_store(copy) as store:
            put_all(store, b"b")
            again = killed_copy(copy, tmp_path / "again")

        with open_store(again) as store:
            assert bodies(store) == [b"A", b"b"]
            assert store.log_end == 2 * SIZE
        with open_store(copy) as store:
            assert bodies(store) == [b"A", b"b"]

    def test_nor_do_entries_of_a_queue(self, killed: Kill, tmp_path: Path) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *numbered(QUEUE_ENTRIES + 5))
            store.dispatch()

        copy = killed(use)
        flip(log_files(copy)[0], 3 * SIZE + 88)
        with open_store(copy) as store:
            assert store.max_offset(TOPIC, 0) == 3
            again = killed_copy(copy, tmp_path / "again")

        assert len(queue_files(copy)) == 1
        for path in (copy, again):
            assert not any(queue_files(path)[0].read_bytes()[60:])

    def test_the_rest_of_the_file_is_zero_on_disk_before_it_is_used(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, b"A", b"B", b"C"))
        flip(log_files(copy)[0], SIZE + 88)
        disk = CrashingDisk(copy)

        open_store(copy, files=disk)

        durable = disk.durable(log_files(copy)[0])
        assert durable is not None
        assert not any(durable[SIZE:])
        disk.abandon()

    def test_index_entries_of_lost_records_are_gone(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *numbered(5), keys="k")
            store.dispatch()

        copy = killed(use)
        size = record_size(b"0", text=b"KEYS\x01k\x02")
        flip(log_files(copy)[0], 2 * size + 88)

        with open_store(copy) as store:
            assert store.query(TOPIC, "k") == [0, size]
            again = put(store, message(b"x", keys="k"))
            assert store.query(TOPIC, "k") == [0, size, again.physical_offset]


class TestEndOfTheLog:
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_a_file_made_ahead_is_removed(self, is_clean: bool, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(3))
        ahead = root / "commitlog" / f"{LOG_FILE_BYTES:020d}"
        ahead.write_bytes(bytes(LOG_FILE_BYTES))
        if not is_clean:
            (root / "abort").write_bytes(b"")

        with open_store(root) as store:
            assert not ahead.exists()
            assert bodies(store) == numbered(3)
            assert store.log_end == 3 * SIZE

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_a_file_of_no_bytes_is_removed(self, is_clean: bool, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(3))
        cut_short = root / "commitlog" / f"{LOG_FILE_BYTES:020d}"
        cut_short.write_bytes(b"")
        if not is_clean:
            (root / "abort").write_bytes(b"")

        with open_store(root) as store:
            assert not cut_short.exists()
            put_all(store, *[body_for(3000)] * 2)
            assert len(bodies(store)) == 5

    @pytest.mark.parametrize("has_next_file", [False, True])
    def test_a_log_may_end_with_a_blank(self, has_next_file: bool, killed: Kill) -> None:
        """The file was filled up, and the record that was to follow is lost."""
        copy = killed(lambda store: put_all(store, body_for(3000), body_for(3000)))
        first, second = log_files(copy)
        assert struct.unpack_from(">ii", first.read_bytes(), 3000) == (1096, MAGIC_BLANK)
        if has_next_file:
            second.write_bytes(bytes(LOG_FILE_BYTES))
        else:
            second.unlink()

        with open_store(copy) as store:
            assert store.log_end == LOG_FILE_BYTES
            assert len(bodies(store)) == 1
            again = put(store, message(b"again"))
            assert (again.physical_offset, again.queue_offset) == (LOG_FILE_BYTES, 1)
            assert bodies(store)[1:] == [b"again"]

    def test_and_be_opened_like_that_any_number_of_times(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, body_for(3000), body_for(3000)))
        log_files(copy)[1].unlink()

        for _ in range(3):
            with open_store(copy) as store:
                assert store.log_end == LOG_FILE_BYTES
                assert len(bodies(store)) == 1

    def test_a_blank_that_does_not_reach_the_end_of_its_file_is_none(self, killed: Kill) -> None:
        copy = killed(lambda store: put_all(store, body_for(3000), body_for(3000)))
        patch(log_files(copy)[0], 3000, struct.pack(">i", 1095))

        with open_store(copy) as store:
            assert store.log_end == 3000
            assert len(bodies(store)) == 1

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_a_log_that_fills_its_file_to_the_last_byte_goes_on(
        self, is_clean: bool, killed: Kill, root: Path
    ) -> None:
        copy = killed(lambda store: put_all(store, body_for(LOG_FILE_BYTES - 8)))
        with open_store(root if is_clean else copy) as store:
            assert put(store, message(b"next")).physical_offset == LOG_FILE_BYTES
            assert bodies(store)[1:] == [b"next"]


class TestQueues:
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_queues_that_are_missing_are_made_from_the_log(
        self, is_clean: bool, root: Path
    ) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(30), tags="A")
            put_all(store, *numbered(3), queue_id=1)
        shutil.rmtree(root / "consumequeue")
        if not is_clean:
            (root / "abort").write_bytes(b"")

        with open_store(root) as store:
            assert bodies(store) == numbered(30)
            assert bodies(store, TOPIC, 1) == numbered(3)
            assert store.max_offset(TOPIC, 0) == 30

    def test_entries_lost_with_a_page_are_made_again(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *numbered(QUEUE_ENTRIES))
            store.dispatch()

        copy = killed(use)
        patch(queue_files(copy)[0], 100, bytes(300))

        with open_store(copy) as store:
            assert bodies(store) == numbered(QUEUE_ENTRIES)

    @pytest.mark.parametrize("number", [0, 1, 4, 8, 9])
    def test_entries_lost_in_any_of_many_files_are_made_again(
        self, number: int, killed: Kill
    ) -> None:
        """Only the thorough flush syncs queues that grow slowly: any file may have lost a page."""

        def use(store: MessageStore) -> None:
            put_all(store, *numbered(10 * QUEUE_ENTRIES))
            store.dispatch()

        copy = killed(use)
        queue_files(copy)[number].write_bytes(bytes(20 * QUEUE_ENTRIES))

        with open_store(copy) as store:
            assert bodies(store) == numbered(10 * QUEUE_ENTRIES)

    def test_entries_ahead_of_the_log_are_forgotten(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *numbered(3 * QUEUE_ENTRIES))
            store.dispatch()

        copy = killed(use)
        patch(log_files(copy)[0], 5 * SIZE, bytes(LOG_FILE_BYTES - 5 * SIZE))

        with open_store(copy) as store:
            assert store.max_offset(TOPIC, 0) == 5
            assert put(store, message(b"5")).queue_offset == 5
            assert bodies(store) == numbered(6)
        assert len(queue_files(copy)) == 1

    def test_so_are_those_before_a_gap(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, b"0", b"1")
            store.append_raw(store.log_end, raw_record(store.log_end, 5, b"5"))
            store.dispatch()

        copy = killed(use)
        patch(log_files(copy)[0], SIZE, bytes(2 * SIZE))

        with open_store(copy) as store:
            assert bodies(store) == [b"0"]
            assert store.log_end == SIZE

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_without_a_log_there_are_no_messages(self, is_clean: bool, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(30), keys="k")
        shutil.rmtree(root / "commitlog")
        if not is_clean:
            (root / "abort").write_bytes(b"")

        with open_store(root) as store:
            assert bodies(store) == []
            assert store.query(TOPIC, "k") == []
            again = put(store, message(keys="k"))
            assert (again.physical_offset, again.queue_offset) == (0, 0)
            assert bodies(store) == [b"hello"]
            assert store.query(TOPIC, "k") == [0]

    @pytest.mark.parametrize("is_queue_lost", [False, True])
    def test_a_topic_that_was_deleted_and_made_anew_keeps_its_new_messages(
        self, is_queue_lost: bool, killed: Kill
    ) -> None:
        """Its old records are in the log still, with the same numbers."""

        def use(store: MessageStore) -> None:
            put_all(store, b"old 0", b"old 1", b"old 2")
            store.delete_topic(TOPIC)
            put_all(store, b"new 0", b"new 1")
            store.flush()

        copy = killed(use)
        if is_queue_lost:
            shutil.rmtree(copy / "consumequeue")

        with open_store(copy) as store:
            assert bodies(store)[-2:] == [b"new 0", b"new 1"]

    def test_a_queue_without_entries_goes_with_its_folder(self, killed: Kill) -> None:
        """It was made anew after its topic was deleted, and lost its messages with a page."""

        def use(store: MessageStore) -> None:
            put_all(store, b"kept", topic="other")
            put_all(store, b"lost")
            store.flush()

        copy = killed(use)
        (path,) = queue_files(copy)
        path.write_bytes(bytes(path.stat().st_size))
        log_path = log_files(copy)[0]
        patch(log_path, record_size(b"kept", topic="other"), bytes(SIZE))

        with open_store(copy) as store:
            assert store.queues() == [("other", 0)]
        assert not path.parent.exists()

    def test_nothing_is_written_outside_the_store(self, killed: Kill, tmp_path: Path) -> None:
        """A topic read from a damaged record must not become a path."""

        def use(store: MessageStore) -> None:
            put_all(store, b"kept")
            put_all(store, b"hit", topic="aaaaaaoutside")

        copy = killed(use)
        position = log_bytes(copy).index(b"aaaaaaoutside")
        patch(log_files(copy)[0], position, b"../../")

        with open_store(copy) as store:
            assert bodies(store) == [b"kept"]

        assert not (tmp_path / "outside").exists()

    def test_a_topic_that_cannot_be_a_name_does_not_keep_the_store_shut(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, b"kept")
            put_all(store, b"hit", topic="aZZb")

        copy = killed(use)
        patch(log_files(copy)[0], log_bytes(copy).index(b"aZZb"), b"a\0\0b")

        with open_store(copy) as store:
            assert bodies(store) == [b"kept"]


class TestIndex:
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_one_that_is_missing_is_made_from_the_log(self, is_clean: bool, root: Path) -> None:
        with open_store(root) as store:
            results = put_all(store, *numbered(10), keys="k")
        shutil.rmtree(root / "index")
        if not is_clean:
            (root / "abort").write_bytes(b"")

        with open_store(root) as store:
            assert store.query(TOPIC, "k") == [result.physical_offset for result in results]

    def test_nothing_is_in_it_twice_after_a_kill(self, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *numbered(5), keys="k")
            store.flush()
            put_all(store, *numbered(5), keys="k")
            store.dispatch()

        with open_store(killed(use)) as store:
            found = store.query(TOPIC, "k", limit=64)

            assert len(found) == len(set(found)) == 10

    def test_a_store_without_index_has_none(self, root: Path) -> None:
        with open_store(root, has_index=False) as store:
            put_all(store, b"0", keys="k")

            assert store.query(TOPIC, "k") == []
            assert bodies(store) == [b"0"]
        assert not (root / "index").exists()


class TestCheckpoint:
    @pytest.mark.parametrize(
        "content",
        [
            None,
            b"",
            bytes(4096),
            bytes(100),
            checkpoint.pack(Checkpoint(1000, 1000, 1000)),
            checkpoint.pack(Checkpoint(-5, -5, -5)),
        ],
        ids=["missing", "empty", "zeros", "short", "old", "negative"],
    )
    def test_one_that_says_little_loses_nothing(self, content: bytes | None, killed: Kill) -> None:
        def use(store: MessageStore) -> None:
            put_all(store, *[body_for(1500)] * 9)
            store.flush()
            put_all(store, b"last")

        copy = killed(use)
        if content is None:
            (copy / "checkpoint").unlink()
        else:
            (copy / "checkpoint").write_bytes(content)

        with open_store(copy) as store:
            assert len(bodies(store)) == 10
        with open_store(copy) as store:
            assert len(bodies(store)) == 10

    def test_what_it_vouches_for_is_not_read_again(self, root: Path, tmp_path: Path) -> None:
        """A flipped bit in an old file would end the log if it were."""
        clock = FakeClock()
        with open_store(root, clock=clock) as store:
            for _ in range(9):
                put(store, message(body_for(1500)))
                clock.advance(2)
            store.flush()
            copy = killed_copy(root, tmp_path / "killed")
        flip(log_files(copy)[0], 100)

        with open_store(copy) as store:
            count = len(bodies(store))
            flip(log_files(copy)[0], 100)

        assert count == 9

    def test_messages_of_the_last_three_seconds_are_not_vouched_for(
        self, root: Path, tmp_path: Path
    ) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock) as store:
            for _ in range(4):
                put(store, message(body_for(1500)))
            clock.advance(2.999)
            put(store, message(b"newest"))
            store.flush()
            copy = killed_copy(root, tmp_path / "killed")
        patch(copy / "checkpoint", 64, bytes(40))  # as if another program had written it
        flip(log_files(copy)[0], 1500 + 100)

        with open_store(copy) as store:
            assert len(bodies(store)) == 1


class TestCleanStart:
    def test_everything_is_as_it_was(self, root: Path) -> None:
        with open_store(root) as store:
            results = put_all(store, *numbered(100), keys="k", tags="A")
            end = store.log_end
        before = log_bytes(root)

        with open_store(root) as store:
            assert store.log_end == end
            assert store.watermarks.flushed == store.watermarks.dispatched == end
            assert bodies(store) == numbered(100)
            assert store.query(TOPIC, "k", limit=64) == [
                result.physical_offset for result in results[-64:]
            ]
        assert log_bytes(root) == before

    def test_an_empty_store_stays_empty(self, root: Path) -> None:
        for _ in range(3):
            with open_store(root) as store:
                assert store.log_begin == store.log_end == 0
                assert store.queues() == []

    def test_records_behind_the_last_entry_are_found(self, root: Path) -> None:
        """5.0 to 5.3.1 may leave some after a clean stop."""
        with open_store(root) as store:
            put_all(store, *numbered(3), keys="k")
        checkpoint = (root / "checkpoint").read_bytes()
        with open_store(root) as store:
            results = put_all(store, b"3", b"4", keys="k")
        patch(queue_files(root)[0], 60, bytes(40))
        # Others do not say how far they came.
        (root / "checkpoint").write_bytes(checkpoint)

        with open_store(root) as store:
            assert bodies(store) == numbered(5)
            assert record_of(store, results[-1]).body == b"4"

    def test_the_last_file_is_read_again(self, root: Path) -> None:
        """Spec §5.3: whole files are scanned, not only what is behind the newest entry."""
        with open_store(root) as store:
            put_all(store, *numbered(5))
        patch(log_files(root)[0], 3 * SIZE, bytes(2 * SIZE))

        with open_store(root) as store:
            assert store.log_end == 3 * SIZE
            assert bodies(store) == numbered(3)


class TestDamage:
    def test_a_log_file_of_another_size_keeps_the_store_shut(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *[body_for(1500)] * 8)
        middle = log_files(root)[1]
        content = middle.read_bytes()
        middle.write_bytes(content[:-100])

        with pytest.raises(DamagedStore, match="3996 bytes"):
            open_store(root)

        assert not (root / "abort").exists()
        middle.write_bytes(content)
        with open_store(root) as store:
            assert len(bodies(store)) == 8

    def test_so_does_a_queue_file_that_was_cut_short(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(60))
        middle = queue_files(root)[1]
        content = middle.read_bytes()
        middle.write_bytes(content[:-13])

        with pytest.raises(DamagedStore, match="387 bytes"):
            open_store(root)

        middle.write_bytes(content)
        with open_store(root) as store:
            assert bodies(store) == numbered(60)

    def test_so_does_a_log_file_that_is_missing(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *[body_for(1500)] * 8)
        middle = log_files(root)[1]
        content = middle.read_bytes()
        middle.unlink()

        with pytest.raises(DamagedStore, match="missing"):
            open_store(root)

        middle.write_bytes(content)
        with open_store(root) as store:
            assert len(bodies(store)) == 8
