"""Consume queues: the entries on disk, their files, and where a queue begins and ends."""

import struct
from pathlib import Path

import pytest

from cometmq.codec import queue_extension
from cometmq.codec.java import string_hash
from cometmq.codec.queue_extension import ExtensionUnit
from cometmq.store import Boundary, GetStatus
from cometmq.testing import CrashingDisk, FakeClock
from tests.unit.store.builders import (
    FAR_FUTURE_MS,
    LOG_FILE_BYTES,
    QUEUE_ENTRIES,
    TOPIC,
    bodies,
    body_for,
    delayed,
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
    read,
    record_size,
)

FILLER = (0, 0x7FFFFFFF, 0)


def entries(root: Path, topic: str = TOPIC, queue_id: int = 0) -> list[tuple[int, int, int]]:
    """What lies in the files of a queue, up to the first byte that was never written."""
    data = b"".join(path.read_bytes() for path in queue_files(root, topic, queue_id))
    found = list(struct.iter_unpack(">qiq", data))
    return found[: next((n for n, entry in enumerate(found) if entry[1] <= 0), len(found))]


class TestEntries:
    def test_an_entry_has_place_size_and_hash_of_the_tag(self, root: Path) -> None:
        with open_store(root) as store:
            first = put(store, message(b"a", tags="TagA"))
            second = put(store, message(b"bb"))
            third = put(store, message(b"ccc", tags="an unpleasantly long tag"))

        code = string_hash("an unpleasantly long tag")
        assert code < 0, "a negative hash, so that its sign can be seen to be kept"
        assert entries(root) == [
            (0, first.end, 2598919),
            (first.end, second.end - first.end, 0),
            (second.end, third.end - second.end, code),
        ]

    def test_files_have_their_size_at_once_and_are_named_by_byte(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(2 * QUEUE_ENTRIES + 1))
            store.dispatch()

            files = queue_files(root)
            assert [path.name for path in files] == [f"{n * 400:020d}" for n in range(3)]
            assert {path.stat().st_size for path in files} == {400}
            assert bodies(store) == numbered(2 * QUEUE_ENTRIES + 1)

    def test_the_size_is_rounded_up_to_whole_entries(self, root: Path) -> None:
        with open_store(root, queue_file_bytes=41) as store:
            put_all(store, *numbered(4))

            assert bodies(store) == numbered(4)
        assert [path.stat().st_size for path in queue_files(root)] == [60, 60]

    def test_no_page_is_written_before_it_has_blocks(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk, queue_file_bytes=20_000, log_file_bytes=65_536) as store:
            put_all(store, *numbered(600))
            store.dispatch()
            blocks = queue_files(root)[0].stat().st_blocks * 512
            store.flush()

            assert disk.unallocated_writes == []
            assert 12_000 <= blocks <= 20_480

    def test_a_small_queue_takes_little_room(self, root: Path) -> None:
        """50,000 queues of 6 MB would be 300 GB if their files had all their blocks."""
        with open_store(root, queue_file_bytes=6_000_000) as store:
            put_all(store, *numbered(3))
            store.dispatch()

            (file,) = queue_files(root)
            assert file.stat().st_size == 6_000_000
            assert file.stat().st_blocks * 512 <= 64 * 1024


class TestDelayTopic:
    """Spec §3.1: in ``SCHEDULE_TOPIC_XXXX`` the tags code is the time of delivery."""

    @pytest.mark.parametrize(
        ("level", "delay_ms"),
        [(1, 1000), (3, 10_000), (18, 7_200_000), (19, 7_200_000), (1000, 7_200_000)],
    )
    def test_the_tags_code_is_the_time_of_delivery(
        self, level: int, delay_ms: int, root: Path
    ) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock) as store:
            put(store, delayed(level))

        ((_, _, tags_code),) = entries(root, "SCHEDULE_TOPIC_XXXX")
        assert tags_code == clock.now_ms() + delay_ms

    def test_the_levels_are_a_setting(self, root: Path) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock, delay_levels="2s 3d") as store:
            put(store, delayed(1))
            put(store, delayed(2))
            put(store, delayed(3))

        codes = [code - clock.now_ms() for _, _, code in entries(root, "SCHEDULE_TOPIC_XXXX")]
        assert codes == [2000, 3 * 86_400_000, 3 * 86_400_000]

    def test_without_levels_a_message_waits_a_second(self, root: Path) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock, delay_levels="") as store:
            put(store, delayed(1))

        ((_, _, tags_code),) = entries(root, "SCHEDULE_TOPIC_XXXX")
        assert tags_code == clock.now_ms() + 1000

    @pytest.mark.parametrize("level", [0, "soon", "-1"])
    def test_a_message_without_a_level_keeps_its_tag(self, level: int | str, root: Path) -> None:
        with open_store(root) as store:
            put(store, delayed(level))

        ((_, _, tags_code),) = entries(root, "SCHEDULE_TOPIC_XXXX")
        assert tags_code == string_hash("T")

    def test_elsewhere_a_delay_level_means_nothing(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(properties=b"DELAY\x013\x02TAGS\x01T\x02"))

        ((_, _, tags_code),) = entries(root)
        assert tags_code == string_hash("T")


class TestQueuesThatDoNotBeginAtZero:
    @pytest.mark.parametrize("offset", [1, 19, 20, 25, 47])
    def test_what_is_missing_in_the_first_file_is_filled(self, offset: int, root: Path) -> None:
        with open_store(root) as store:
            store.append_raw(0, raw_record(0, offset, b"first"))
            store.dispatch()
            put_all(store, b"next")

            assert store.min_offset(TOPIC, 0) == offset
            assert store.max_offset(TOPIC, 0) == offset + 2
            assert bodies(store) == [b"first", b"next"]
            assert read(store, offset - 1) == (GetStatus.OFFSET_TOO_SMALL, [], offset)
        begin = offset - offset % QUEUE_ENTRIES
        assert queue_files(root)[0].name == f"{begin * 20:020d}"
        assert entries(root)[: offset - begin] == [FILLER] * (offset - begin)

    @pytest.mark.parametrize("offset", [1, 20, 25])
    def test_they_begin_there_after_a_restart_too(self, offset: int, root: Path) -> None:
        with open_store(root) as store:
            store.append_raw(0, raw_record(0, offset, b"first"))

        with open_store(root) as store:
            assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (offset, offset + 1)
            assert put(store, message(b"next")).queue_offset == offset + 1
            assert bodies(store) == [b"first", b"next"]

    def test_times_are_searched_from_where_they_begin(self, root: Path) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock) as store:
            store.append_raw(0, raw_record(0, 25, b"first", store_timestamp=clock.now_ms()))
            store.dispatch()
            clock.advance(5)
            put_all(store, b"next")

            assert store.offset_at_time(TOPIC, 0, 0) == 25
            assert store.offset_at_time(TOPIC, 0, clock.now_ms()) == 26
            assert store.offset_at_time(TOPIC, 0, 0, Boundary.UPPER) == 25


class TestGaps:
    """Messages whose records are lost leave a gap; their place is taken by fillers."""

    def test_a_gap_is_filled_and_read_over(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0", b"1", b"2")
            store.append_raw(store.log_end, raw_record(store.log_end, 6, b"6"))
            store.dispatch()
            put_all(store, b"7")

            assert store.max_offset(TOPIC, 0) == 8
            assert bodies(store) == [b"0", b"1", b"2", b"6", b"7"]
            assert read(store, 3, count=1)[::2] == (GetStatus.FOUND, 7)
        assert entries(root)[3:6] == [FILLER] * 3

    def test_a_read_that_finds_fillers_only_goes_on_behind_them(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
            store.append_raw(store.log_end, raw_record(store.log_end, 30, b"30"))

            first, second = read(store, 1), read(store, QUEUE_ENTRIES)

            assert first == (GetStatus.NO_MATCHED_MESSAGE, [], QUEUE_ENTRIES)
            assert second == (GetStatus.FOUND, [b"30"], 31)

    def test_messages_before_a_gap_are_there_after_a_restart(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0", b"1", b"2")
            store.append_raw(store.log_end, raw_record(store.log_end, 6, b"6"))

        with open_store(root) as store:
            assert store.min_offset(TOPIC, 0) == 0
            assert bodies(store) == [b"0", b"1", b"2", b"6"]
            assert put(store, message()).queue_offset == 7

    def test_a_time_before_a_gap_is_found(self, root: Path) -> None:
        with open_store(root) as store:
            for queue_offset, timestamp in enumerate([100, 200, 300, 400]):
                number = queue_offset if queue_offset < 3 else 8
                store.append_raw(
                    store.log_end,
                    raw_record(store.log_end, number, store_timestamp=timestamp),
                )

            found = [store.offset_at_time(TOPIC, 0, time) for time in (50, 150, 250)]
            above = store.offset_at_time(TOPIC, 0, 350)

            assert found == [0, 1, 2]
            assert read(store, above).bodies == [b"hello"]

    def test_an_offset_that_was_there_already_is_not_entered_again(self, tmp_path: Path) -> None:
        with open_store(tmp_path) as store:
            put_all(store, b"0", b"1")
            store.append_raw(store.log_end, raw_record(store.log_end, 1, b"again"))
            put_all(store, b"2")

            assert store.max_offset(TOPIC, 0) == 3
            assert bodies(store) == [b"0", b"1", b"2"]

    def test_offset_0_again_says_that_the_topic_was_made_anew(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(QUEUE_ENTRIES + 5))
            for number in range(3):
                record = raw_record(store.log_end, number, b"new %d" % number)
                store.append_raw(store.log_end, record)

            assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, 3)
            assert bodies(store) == [b"new 0", b"new 1", b"new 2"]
        assert len(queue_files(root)) == 1
        with open_store(root) as store:
            assert bodies(store) == [b"new 0", b"new 1", b"new 2"]


class TestBounds:
    def test_a_queue_without_messages_is_empty(self, root: Path) -> None:
        with open_store(root) as store:
            assert store.min_offset(TOPIC, 0) == store.max_offset(TOPIC, 0) == 0
            assert store.queues() == []

    def test_queues_are_listed_in_order(self, root: Path) -> None:
        with open_store(root) as store:
            for place in [("b", 1), ("a", 10), ("a", 9), ("b", 0)]:
                put(store, message(b"x", *place))

            assert store.queues() == [("a", 9), ("a", 10), ("b", 0), ("b", 1)]
        with open_store(root) as store:
            assert store.queues() == [("a", 9), ("a", 10), ("b", 0), ("b", 1)]

    def test_the_minimum_follows_the_log_as_it_is_deleted(self, root: Path) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as store:
            for number in range(10):
                put(store, message(body_for(2000), queue_id=number % 2))
            store.flush()

            store.clean(at_any_hour=True)

            assert store.log_begin == 4 * LOG_FILE_BYTES
            assert [store.min_offset(TOPIC, queue_id) for queue_id in (0, 1)] == [4, 4]
            assert [store.max_offset(TOPIC, queue_id) for queue_id in (0, 1)] == [5, 5]
        with open_store(root) as store:
            assert [store.min_offset(TOPIC, queue_id) for queue_id in (0, 1)] == [4, 4]
            assert len(bodies(store)) == 1

    def test_a_queue_whose_messages_are_all_deleted_ends_where_it_begins(self, root: Path) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as store:
            put_all(store, *numbered(5), topic="old")
            for _ in range(3):
                put(store, message(body_for(3000)))
            store.flush()

            store.clean(at_any_hour=True)

            assert (store.min_offset("old", 0), store.max_offset("old", 0)) == (5, 5)
            assert read(store, 0, "old") == (GetStatus.OFFSET_TOO_SMALL, [], 5)
            assert put(store, message(topic="old")).queue_offset == 5
        with open_store(root) as store:
            assert (store.min_offset("old", 0), store.max_offset("old", 0)) == (5, 6)
            assert bodies(store, "old") == [b"hello"]

    def test_queue_files_go_when_their_last_message_has_gone(self, root: Path) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as store:
            put_all(store, *[body_for(180)] * 60)
            store.flush()
            per_file = LOG_FILE_BYTES // 180

            store.clean(at_any_hour=True)

            assert store.min_offset(TOPIC, 0) == 2 * per_file > 2 * QUEUE_ENTRIES
            assert [path.name for path in queue_files(root)] == [f"{800:020d}"]
            assert len(bodies(store)) == 60 - 2 * per_file
        with open_store(root) as store:
            assert len(bodies(store)) == 60 - 2 * per_file

    def test_the_last_queue_file_never_goes(self, root: Path) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as store:
            put_all(store, *numbered(QUEUE_ENTRIES), topic="old")
            for _ in range(3):
                put(store, message(body_for(3000)))
            store.flush()

            store.clean(at_any_hour=True)

            assert len(queue_files(root, "old")) == 1
            assert store.max_offset("old", 0) == QUEUE_ENTRIES

    def test_a_full_queue_file_is_followed_by_the_next_after_a_restart(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *numbered(QUEUE_ENTRIES))

        with open_store(root) as store:
            assert store.max_offset(TOPIC, 0) == QUEUE_ENTRIES
            put_all(store, b"next")

            assert bodies(store) == [*numbered(QUEUE_ENTRIES), b"next"]
        assert len(queue_files(root)) == 2


class TestExtension:
    """Spec §3.3: with extensions switched on an entry has an address in place of a tags code."""

    @staticmethod
    def extend(root: Path, tags: list[str]) -> None:
        """Give the messages of a closed store extension units, as Apache would have."""
        folder = root / "consumequeue_ext" / TOPIC / "0"
        folder.mkdir(parents=True)
        data = bytearray()
        (queue_file,) = queue_files(root)
        for number, tag in enumerate(tags):
            unit = ExtensionUnit(string_hash(tag), 1_700_000_000_000, b"\x01\x02")
            if len(data) % 64 + unit.size + queue_extension.END_BYTES_MIN > 64:
                data += queue_extension.END_MARKER
                data += bytes(-len(data) % 64)
            address = queue_extension.address_to_tags_code(len(data))
            patch(queue_file, number * 20 + 12, struct.pack(">q", address))
            data += queue_extension.encode(unit)
        data += queue_extension.END_MARKER
        data += bytes(-len(data) % 64)
        for begin in range(0, len(data), 64):
            (folder / f"{begin:020d}").write_bytes(data[begin : begin + 64])

    def test_tags_are_looked_up_in_the_extension(self, root: Path) -> None:
        tags = ["A", "B", "A", "C", "A", "B", "C"]
        with open_store(root) as store:
            for number, tag in enumerate(tags):
                put(store, message(b"%d" % number, tags=tag))
        self.extend(root, tags)

        with open_store(root, queue_extension_file_bytes=64) as store:
            assert bodies(store) == numbered(7)
            assert read(store, tags=frozenset({string_hash("A")})).bodies == [b"0", b"2", b"4"]
            assert read(store, 1, tags=frozenset({string_hash("B")})).bodies == [b"1", b"5"]
            assert read(store, tags=frozenset({string_hash("D")})) == (
                GetStatus.NO_MATCHED_MESSAGE,
                [],
                7,
            )

    def test_limits_count_what_is_wanted_only(self, root: Path) -> None:
        tags = ["A", "B", "A", "C", "A", "B", "C"]
        with open_store(root) as store:
            for number, tag in enumerate(tags):
                put(store, message(b"%d" % number, tags=tag))
        self.extend(root, tags)

        with open_store(root) as store:
            first = read(store, tags=frozenset({string_hash("A")}), count=2)
            rest = read(store, first.next_offset, tags=frozenset({string_hash("A")}))

            assert first.bodies + rest.bodies == [b"0", b"2", b"4"]
            assert first.bodies == [b"0", b"2"]

    def test_new_messages_need_no_extension(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(b"0", tags="A"))
        self.extend(root, ["A"])

        with open_store(root) as store:
            put(store, message(b"1", tags="B"))
            put(store, message(b"2", tags="A"))

            assert read(store, tags=frozenset({string_hash("A")})).bodies == [b"0", b"2"]

    def test_a_unit_that_is_gone_lets_its_message_through(self, tmp_path: Path) -> None:
        """Whoever pulls filters by the tag itself: better one too many than one lost."""
        with open_store(tmp_path) as store:
            put_all(store, *numbered(5), tags="A")
        self.extend(tmp_path, ["A"] * 5)
        max((tmp_path / "consumequeue_ext" / TOPIC / "0").iterdir()).unlink()

        with open_store(tmp_path) as store:
            assert read(store, tags=frozenset({string_hash("A")})).bodies == numbered(5)


def test_what_was_not_dispatched_before_a_kill_is_entered_on_opening(
    root: Path, tmp_path: Path
) -> None:
    with open_store(root) as store:
        put_all(store, *numbered(3))
        store.dispatch()
        put_all(store, b"3", b"4")
        copy = killed_copy(root, tmp_path / "copy")

    with open_store(copy) as store:
        assert bodies(store) == numbered(5)
        assert store.max_offset(TOPIC, 0) == 5


def test_entries_point_to_records_of_all_files(root: Path) -> None:
    with open_store(root) as store:
        results = put_all(store, *[body_for(1500)] * 7)

    assert [entry[:2] for entry in entries(root)] == [
        (result.physical_offset, record_size(body_for(1500))) for result in results
    ]
    assert len(log_files(root)) == 4
