"""Reading a queue: every status with where to go on, limits, filters, and slices without a copy."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from cometmq.codec import record
from cometmq.codec.java import string_hash
from cometmq.store import Boundary, GetLimits, GetStatus, MessageStore
from cometmq.store.files import DiskFiles
from cometmq.store.opening import Parts, open_parts
from cometmq.testing import FakeClock
from tests.unit.store.builders import (
    FAR_FUTURE_MS,
    LOG_FILE_BYTES,
    QUEUE_ENTRIES,
    TOPIC,
    batch_of,
    bodies,
    body_for,
    log_bytes,
    log_files,
    message,
    numbered,
    open_store,
    put,
    put_all,
    queue_files,
    raw_record,
    read,
    record_size,
    records,
    settings,
)

KIB = 1024
MIB = 1024 * KIB


class TestStatuses:
    """Spec §3.5, the table."""

    def test_there_is_no_such_queue(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")

            for topic, queue_id in [("other", 0), (TOPIC, 1), (TOPIC, -1)]:
                found = read(store, 7, topic, queue_id)
                assert found == (GetStatus.NO_MATCHED_LOGIC_QUEUE, [], 0)

    def test_there_was_never_a_message(self, root: Path) -> None:
        (root / "consumequeue" / TOPIC / "0").mkdir(parents=True)
        with open_store(root) as store:
            for offset in (0, 1, 100):
                assert read(store, offset) == (GetStatus.NO_MESSAGE_IN_QUEUE, [], 0)

    def test_the_offset_is_too_small(self, root: Path) -> None:
        with open_store(root) as store:
            store.append_raw(0, raw_record(0, 5))

            for offset in (4, 0, -1):
                assert read(store, offset) == (GetStatus.OFFSET_TOO_SMALL, [], 5)

    def test_the_offset_is_negative(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")

            assert read(store, -1) == (GetStatus.OFFSET_TOO_SMALL, [], 0)

    def test_the_offset_is_the_next_one(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0", b"1")

            assert read(store, 2) == (GetStatus.OFFSET_OVERFLOW_ONE, [], 2)

    @pytest.mark.parametrize("offset", [3, 4, 1 << 60])
    def test_the_offset_is_beyond_the_next_one(self, offset: int, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0", b"1")

            assert read(store, offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, [], 2)

    def test_a_full_queue_file_has_its_next_offset_in_the_one_to_come(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(QUEUE_ENTRIES))

            assert read(store, QUEUE_ENTRIES).status is GetStatus.OFFSET_OVERFLOW_ONE

    def test_something_is_found(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(5))

            assert read(store, 0) == (GetStatus.FOUND, numbered(5), 5)
            assert read(store, 3) == (GetStatus.FOUND, [b"3", b"4"], 5)

    def test_nothing_matches(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(5), tags="A")

            by_tag = read(store, 1, tags=frozenset({string_hash("B")}))
            by_test = read(store, 1, accept=lambda _: False)

            assert by_tag == by_test == (GetStatus.NO_MATCHED_MESSAGE, [], 5)

    def test_a_queue_file_has_gone(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(3 * QUEUE_ENTRIES))
        with open_store(root, mapped_queue_files_max=1) as store:
            read(store, 2 * QUEUE_ENTRIES + 5)
            gone = queue_files(root)[1]
            content = gone.read_bytes()
            gone.unlink()

            try:
                found = read(store, QUEUE_ENTRIES + 5)
            finally:
                gone.write_bytes(content)

            assert found == (GetStatus.OFFSET_FOUND_NULL, [], 2 * QUEUE_ENTRIES)

    @pytest.mark.parametrize("is_tested", [False, True])
    def test_the_records_have_gone(self, is_tested: bool, root: Path) -> None:
        """The log was deleted, and the queue's minimum has not followed yet."""
        with open_store(root) as store:
            put_all(store, *[body_for(2000)] * 4)
            put_all(store, *[body_for(2000, "other")] * 4, topic="other")
        parts = parts_of(root)
        for _ in range(2):
            parts.log.files.drop_first()

        accept = (lambda _: True) if is_tested else None
        queue = parts.queues.table[TOPIC, 0]
        result = parts.reader.get(queue, 1, GetLimits(), accept=accept)
        parts.queues.delete_before(parts.log.begin)

        assert (result.status, result.next_offset) == (GetStatus.MESSAGE_WAS_REMOVING, 4)
        assert (result.count, result.slices) == (0, [])
        close(parts)

    def test_reading_on_over_records_that_have_gone_loses_nothing(self, root: Path) -> None:
        parts = parts_with(root, *[b"%d" % n + body_for(2000)[1:] for n in range(10)])
        for _ in range(2):
            parts.log.files.drop_first()
        queue, offset, found = parts.queues.table[TOPIC, 0], 0, []

        while offset < 10:
            with parts.reader.get(queue, offset, GetLimits(count=1)) as result:
                assert result.next_offset > offset
                found += [one.queue_offset for one in records(result)]
                offset = result.next_offset
        parts.queues.delete_before(parts.log.begin)

        assert found == [4, 5, 6, 7, 8, 9]
        close(parts)

    def test_what_is_still_there_is_found_behind_what_has_gone(self, root: Path) -> None:
        parts = parts_with(root, *[body_for(2000)] * 10)
        parts.log.files.drop_first()

        with parts.reader.get(parts.queues.table[TOPIC, 0], 0, GetLimits()) as result:
            found = [one.queue_offset for one in records(result)]
        parts.queues.delete_before(parts.log.begin)

        assert (result.status, result.next_offset) == (GetStatus.FOUND, 10)
        assert found == list(range(2, 10))
        close(parts)

    def test_the_bounds_of_the_queue_come_with_every_answer(self, root: Path) -> None:
        with open_store(root) as store:
            store.append_raw(0, raw_record(0, 5))

            for offset in (0, 5, 6, 9):
                with store.get(TOPIC, 0, offset) as result:
                    assert (result.min_offset, result.max_offset) == (5, 6), offset


def parts_with(root: Path, *stored: bytes) -> Parts:
    """The parts of a store with messages in one queue."""
    with open_store(root) as store:
        put_all(store, *stored)
    return parts_of(root)


def parts_of(root: Path) -> Parts:
    return open_parts(
        root,
        settings(root),
        files=DiskFiles(),
        clock=FakeClock(),
        has_threads=False,
        on_progress=lambda: None,
    )


def close(parts: Parts) -> None:
    parts.log.close()
    parts.queues.close()
    if parts.index is not None:
        parts.index.close()


class TestLimits:
    def test_32_messages_are_read_unless_told_otherwise(self, root: Path) -> None:
        with open_store(root, queue_file_bytes=2000, log_file_bytes=16384) as store:
            put_all(store, *numbered(100))

            assert read(store, 0) == (GetStatus.FOUND, numbered(32), 32)
            assert read(store, 80) == (GetStatus.FOUND, numbered(100)[80:], 100)

    @pytest.mark.parametrize("count", [1, 2, 19, 20])
    def test_so_many_messages_are_read_as_asked_for(self, count: int, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(QUEUE_ENTRIES))

            assert read(store, count=count) == (GetStatus.FOUND, numbered(count), count)

    def test_messages_together_have_at_most_so_many_bytes(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *[body_for(200)] * 10)

            counts = [len(read(store, bytes_max=size).bodies) for size in (599, 600, 601, 799, 800)]

            assert counts == [2, 3, 3, 3, 4]

    def test_256_kib_are_read_unless_told_otherwise(self, root: Path) -> None:
        with open_store(root, log_file_bytes=MIB) as store:
            put_all(store, *[body_for(32 * KIB)] * 10)

            assert len(read(store).bodies) == 8

    @pytest.mark.parametrize("percent", [0, 40])
    def test_the_first_message_is_read_whatever_its_size(self, percent: int, root: Path) -> None:
        with open_store(root, memory_percent=percent, log_file_bytes=MIB) as store:
            put_all(store, body_for(300 * KIB), b"small")

            found = read(store, bytes_max=10, bytes_cold_max=10)

            assert (len(found.bodies), found.next_offset) == (1, 1)

    def test_a_large_message_behind_small_ones_waits_for_the_next_read(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0", b"1", body_for(3000), b"3")

            first = read(store, bytes_max=1000)
            second = read(store, first.next_offset, bytes_max=1000)

            assert first == (GetStatus.FOUND, [b"0", b"1"], 2)
            assert (len(second.bodies), second.next_offset) == (1, 3)

    def test_a_read_stays_within_one_queue_file(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(30))

            first, second = read(store, 15), read(store, QUEUE_ENTRIES)

            assert first == (GetStatus.FOUND, numbered(30)[15:20], 20)
            assert second == (GetStatus.FOUND, numbered(30)[20:], 30)

    def test_cold_messages_are_read_8_at_a_time(self, root: Path) -> None:
        with open_store(root, memory_percent=0) as store:
            put_all(store, *numbered(15))

            with store.get(TOPIC, 0, 0) as result:
                assert (result.count, result.next_offset, result.is_cold) == (8, 8, True)
            assert read(store, 10) == (GetStatus.FOUND, numbered(15)[10:], 15)

    def test_and_64_kib_at_a_time(self, root: Path) -> None:
        with open_store(root, memory_percent=0, log_file_bytes=MIB) as store:
            put_all(store, *[body_for(16 * KIB)] * 10)

            assert read(store)[::2] == (GetStatus.FOUND, 4)

    @pytest.mark.parametrize("count", [1, 3, 7])
    def test_cold_or_not_no_more_is_read_than_asked_for(self, count: int, root: Path) -> None:
        with open_store(root, memory_percent=0) as store:
            put_all(store, *numbered(15))

            assert read(store, count=count) == (GetStatus.FOUND, numbered(count), count)

    def test_warm_messages_are_not_cold(self, root: Path) -> None:
        with open_store(root, memory_percent=100) as store:
            put_all(store, *numbered(15))

            with store.get(TOPIC, 0, 0) as result:
                assert (result.count, result.is_cold) == (15, False)

    @pytest.mark.parametrize(
        ("key", "value", "percent", "count"),
        [
            ("read_count_memory", 5, 100, 5),
            ("read_bytes_memory", 4 * record_size(b"0"), 100, 4),
            ("read_count_disk", 3, 0, 3),
            ("read_bytes_disk", 2 * record_size(b"0"), 0, 2),
        ],
    )
    def test_the_limits_are_settings(
        self, key: str, value: int, percent: int, count: int, root: Path
    ) -> None:
        limits: dict[str, Any] = {key: value}
        with open_store(root, memory_percent=percent, **limits) as store:
            put_all(store, *numbered(10))

            with store.get(TOPIC, 0, 0) as result:
                assert (result.count, result.next_offset) == (count, count)

    def test_count_and_bytes_are_told(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"a", b"bb")

            with store.get(TOPIC, 0, 0) as result:
                assert result.count == 2
                assert result.bytes == record_size(b"a") + record_size(b"bb")
                assert sum(piece.nbytes for piece in result.slices) == result.bytes


class TestFilters:
    def test_tags_are_compared_by_hash(self, root: Path) -> None:
        """``Aa`` and ``BB`` have the same hash: who reads has to look at the tag itself."""
        with open_store(root) as store:
            for number, tag in enumerate(["Aa", "BB", "C", "", "Aa"]):
                put(store, message(b"%d" % number, tags=tag))

            assert read(store, tags=frozenset({string_hash("Aa")})) == (
                GetStatus.FOUND,
                [b"0", b"1", b"4"],
                5,
            )
            assert read(store, tags=frozenset({string_hash("C"), 0})).bodies == [b"2", b"3"]
            assert read(store, tags=frozenset()).status is GetStatus.NO_MATCHED_MESSAGE

    def test_reading_on_after_a_filtered_read_finds_the_rest(self, root: Path) -> None:
        wanted = frozenset({string_hash("A")})
        with open_store(root) as store:
            for number in range(50):
                put(store, message(b"%d" % number, tags="A" if number % 3 == 0 else "B"))

            offset, found = 0, []
            while offset < 50:
                part = read(store, offset, tags=wanted, count=2)
                assert part.next_offset > offset
                assert len(part.bodies) <= 2
                found += part.bodies
                offset = part.next_offset

            assert found == numbered(50)[::3]

    def test_accept_sees_each_whole_record_and_decides(self, root: Path) -> None:
        seen = []

        def accept(view: memoryview) -> bool:
            one = record.parse(view)
            assert isinstance(one, record.Record)
            seen.append((one.body, view.nbytes == one.size))
            return one.body in (b"1", b"3")

        with open_store(root) as store:
            put_all(store, *numbered(5))

            found = read(store, accept=accept)

            assert found == (GetStatus.FOUND, [b"1", b"3"], 5)
            assert seen == [(body, True) for body in numbered(5)]

    def test_accept_is_asked_only_about_what_has_the_tag(self, root: Path) -> None:
        asked = []

        def accept(view: memoryview) -> bool:
            asked.append(bytes(view))
            return True

        with open_store(root) as store:
            for number, tag in enumerate("ABAB"):
                put(store, message(b"%d" % number, tags=tag))

            found = read(store, tags=frozenset({string_hash("B")}), accept=accept)

            assert found.bodies == [b"1", b"3"]
            assert len(asked) == 2

    def test_accept_and_the_limit_of_messages(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(10))

            first = read(store, count=2, accept=lambda view: b"3" not in bytes(view)[90:])
            second = read(store, first.next_offset, count=10, accept=lambda _: True)

            assert len(first.bodies) == 2
            assert first.bodies + second.bodies == numbered(10)

    def test_accept_never_sees_what_is_no_message_of_the_queue(self, root: Path) -> None:
        """A filler's position is 0, where another queue's message may lie."""
        asked = []

        def accept(view: memoryview) -> bool:
            asked.append(bytes(view))
            return True

        with open_store(root) as store:
            put_all(store, b"of another queue", topic="other")
            put_all(store, b"0")
            store.append_raw(store.log_end, raw_record(store.log_end, 5, b"5"))

            found = read(store, 1, accept=accept)

            assert found == (GetStatus.FOUND, [b"5"], 6)
            assert len(asked) == 1

    def test_a_filter_looks_at_800_entries_at_most(self, root: Path) -> None:
        with open_store(root, queue_file_bytes=20_000, log_file_bytes=256 * KIB) as store:
            store.put_batch(batch_of(*numbered(900)))

            by_tag = read(store, tags=frozenset({1}))
            by_test = read(store, 50, accept=lambda _: False)

            assert by_tag == (GetStatus.NO_MATCHED_MESSAGE, [], 800)
            assert by_test == (GetStatus.NO_MATCHED_MESSAGE, [], 850)

    def test_or_at_as_many_as_are_asked_for(self, root: Path) -> None:
        with open_store(root, queue_file_bytes=20_000, log_file_bytes=256 * KIB) as store:
            store.put_batch(batch_of(*numbered(900)))

            assert read(store, tags=frozenset({1}), count=850).next_offset == 850


class TestSlices:
    def test_adjacent_records_share_one(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(10))

            with store.get(TOPIC, 0, 2) as result:
                (piece,) = result.slices
                assert piece == log_bytes(root)[2 * record_size(b"0") : 10 * record_size(b"0")]

    def test_records_of_other_queues_between_them_are_left_out(self, root: Path) -> None:
        with open_store(root) as store:
            for number, queue_id in enumerate([0, 0, 1, 0, 1, 0, 0, 0]):
                put(store, message(b"%d" % number, queue_id=queue_id))

            with store.get(TOPIC, 0, 0) as result:
                lengths = [piece.nbytes // record_size(b"0") for piece in result.slices]
                assert lengths == [2, 1, 3]
                assert [one.body for one in records(result)] == [b"0", b"1", b"3", b"5", b"6", b"7"]

    def test_records_of_two_files_do_not_share_one(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *[body_for(1500)] * 4)

            with store.get(TOPIC, 0, 0) as result:
                assert [piece.nbytes for piece in result.slices] == [3000, 3000]

    def test_they_cannot_be_written_to(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")

            with store.get(TOPIC, 0, 0) as result:
                assert all(piece.readonly for piece in result.slices)
            view = store.record_at(0)
            assert view is not None
            with view:
                assert view.readonly

    def test_releasing_twice_is_harmless(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
            result = store.get(TOPIC, 0, 0)
            (piece,) = result.slices

            result.release()
            result.release()

            assert result.slices == []
            with pytest.raises(ValueError, match="released"):
                piece.tobytes()

    @pytest.mark.parametrize("is_tested", [False, True])
    def test_bodies_are_not_copied_on_the_way(self, is_tested: bool, root: Path) -> None:
        with open_store(root, log_file_bytes=4 * MIB, queue_file_bytes=20_000) as store:
            put_all(store, *[body_for(16 * KIB)] * 192)
            limits = GetLimits(count=64, bytes_max=MIB)
            accept = (lambda _: True) if is_tested else None
            store.get(TOPIC, 0, 0, limits, accept=accept).release()

            tracemalloc.start()
            try:
                results = [store.get(TOPIC, 0, n, limits, accept=accept) for n in (0, 64, 128)]
                allocated = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

            assert [result.bytes for result in results] == [MIB] * 3
            assert allocated / 3 < 64 * KIB
            for result in results:
                result.release()


class TestLeases:
    @staticmethod
    def filled(root: Path) -> MessageStore:
        store = open_store(root, clock=FakeClock(FAR_FUTURE_MS))
        put_all(store, *[b"%d" % n + body_for(2000)[1:] for n in range(6)])
        store.flush()
        return store

    def test_a_deleted_file_stays_mapped_while_a_slice_of_it_is_in_use(self, root: Path) -> None:
        with self.filled(root) as store:
            result = store.get(TOPIC, 0, 0, GetLimits(count=1))
            first_file = log_files(root)[0]

            store.clean(at_any_hour=True)

            assert store.log_begin == 2 * LOG_FILE_BYTES
            assert first_file.exists()
            assert store.state.files_condemned > 0
            assert records(result)[0].body == b"0" + body_for(2000)[1:]
            result.release()

    def test_it_is_removed_after_the_slice_was_released(self, root: Path) -> None:
        with self.filled(root) as store:
            result = store.get(TOPIC, 0, 0, GetLimits(count=1))
            first_file, second_file, _ = log_files(root)
            store.clean(at_any_hour=True)

            result.release()
            store.clean()

            assert not first_file.exists()
            assert not second_file.exists()
            assert store.state.files_condemned == 0

    def test_files_are_removed_in_their_order_so_that_there_is_never_a_gap(
        self, root: Path
    ) -> None:
        with self.filled(root) as store:
            result = store.get(TOPIC, 0, 0, GetLimits(count=1))

            store.clean(at_any_hour=True)

            begins = [int(path.name) for path in log_files(root)]
            assert begins == list(range(0, 3 * LOG_FILE_BYTES, LOG_FILE_BYTES))
            result.release()

    def test_what_is_deleted_is_read_no_more(self, root: Path) -> None:
        with self.filled(root) as store:
            result = store.get(TOPIC, 0, 0, GetLimits(count=1))
            store.clean(at_any_hour=True)

            assert read(store, 0) == (GetStatus.OFFSET_TOO_SMALL, [], 4)
            assert store.record_at(0) is None
            result.release()

    def test_a_slice_outlives_the_store(self, root: Path) -> None:
        with self.filled(root) as store:
            result = store.get(TOPIC, 0, 0, GetLimits(count=1))

        assert records(result)[0].body == b"0" + body_for(2000)[1:]
        result.release()
        with open_store(root) as store:
            assert len(bodies(store)) == 6

    def test_a_record_by_position_is_a_lease_too(self, root: Path) -> None:
        with self.filled(root) as store:
            view = store.record_at(0)
            assert view is not None

            store.clean(at_any_hour=True)
            with view:
                assert store.state.files_condemned > 0
                assert record.peek(view, 0)[0] == 2000
            store.clean()

            assert store.state.files_condemned == 0

    def test_a_file_that_was_deleted_but_not_removed_is_gone_after_a_restart(
        self, root: Path
    ) -> None:
        with self.filled(root) as store:
            result = store.get(TOPIC, 0, 0, GetLimits(count=1))
            store.clean(at_any_hour=True)
            begin = store.log_begin
        result.release()

        with open_store(root) as store:
            assert store.log_begin <= begin
            assert store.min_offset(TOPIC, 0) in (0, 4)
            assert len(bodies(store)) == 6 - store.min_offset(TOPIC, 0)


class TestByTime:
    """Spec §3.2: LOWER is the first entry at or after the time, UPPER the last at or before."""

    @pytest.fixture
    def store(self, root: Path) -> MessageStore:
        """Offsets 0 to 5 with the store times 1000, 2000, 2000, 2000, 3000, 5000."""
        clock = FakeClock(1000)
        store = open_store(root, clock=clock)
        for seconds in (0, 1, 0, 0, 1, 2):
            clock.advance(seconds)
            put(store, message())
        return store

    @pytest.mark.parametrize(
        ("time", "lower", "upper"),
        [
            (0, 0, 0),
            (999, 0, 0),
            (1000, 0, 0),
            (1001, 1, 0),
            (1999, 1, 0),
            (2000, 1, 3),
            (2001, 4, 3),
            (3000, 4, 4),
            (4000, 5, 4),
            (5000, 5, 5),
            (5001, 6, 5),
            (1 << 62, 6, 5),
        ],
    )
    def test_the_boundary_decides(
        self, time: int, lower: int, upper: int, store: MessageStore
    ) -> None:
        with store:
            assert store.offset_at_time(TOPIC, 0, time) == lower
            assert store.offset_at_time(TOPIC, 0, time, Boundary.LOWER) == lower
            assert store.offset_at_time(TOPIC, 0, time, Boundary.UPPER) == upper

    def test_it_is_the_same_after_a_restart(self, store: MessageStore, root: Path) -> None:
        store.close()

        with open_store(root) as store:
            found = [store.offset_at_time(TOPIC, 0, time) for time in (1500, 2000, 2500, 6000)]

            assert found == [1, 1, 4, 6]

    def test_there_is_no_such_queue(self, store: MessageStore) -> None:
        with store:
            for boundary in Boundary:
                assert store.offset_at_time("other", 0, 2000, boundary) == 0

    def test_times_of_several_queue_and_log_files_are_found(self, root: Path) -> None:
        clock = FakeClock(1000)
        with open_store(root, clock=clock) as store:
            for _ in range(100):
                put(store, message(b"b" * 50))
                clock.advance(1)

            found = [store.offset_at_time(TOPIC, 0, 1000 + 1000 * n) for n in range(101)]

            assert found == list(range(101))

    def test_only_what_is_there_is_found(self, root: Path) -> None:
        clock = FakeClock(FAR_FUTURE_MS)
        with open_store(root, clock=clock) as store:
            for _ in range(6):
                put(store, message(body_for(2000)))
                clock.advance(1)
            store.flush()
            store.clean(at_any_hour=True)

            assert store.min_offset(TOPIC, 0) == 4
            assert store.offset_at_time(TOPIC, 0, 0) == 4
            assert store.offset_at_time(TOPIC, 0, 0, Boundary.UPPER) == 4
            assert store.offset_at_time(TOPIC, 0, FAR_FUTURE_MS + 5000) == 5
