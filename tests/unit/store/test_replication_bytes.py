"""The log as bytes: read from one store, appended to another, and the same in the end."""

from pathlib import Path

import pytest

from cometmq.errors import OffsetOutOfRange, StoreError
from cometmq.store import MessageStore, PutStatus
from cometmq.testing import CrashingDisk, FakeClock
from tests.unit.store.builders import (
    FAR_FUTURE_MS,
    LOG_FILE_BYTES,
    TOPIC,
    batch_of,
    bodies,
    body_for,
    killed_copy,
    log_bytes,
    log_files,
    message,
    numbered,
    open_store,
    put,
    put_all,
    raw_record,
    record_size,
)


def copy_log(source: MessageStore, sink: MessageStore, limit: int = 32 * 1024) -> None:
    """Bring the sink to where the source is, as a replica would."""
    offset = sink.log_end or source.log_begin
    while offset < source.watermarks.committed:
        with source.read_raw(offset, limit) as data:
            assert 0 < data.nbytes <= limit
            offset = sink.append_raw(offset, data)


@pytest.fixture
def other(root: Path) -> Path:
    """Where a second store goes."""
    return root.with_name("other")


class TestCopies:
    @pytest.mark.parametrize("limit", [1, 7, 100, 1000, 32 * 1024])
    def test_a_copied_log_is_equal_byte_by_byte(self, limit: int, root: Path, other: Path) -> None:
        with open_store(root) as source, open_store(other, is_slave=True) as sink:
            put_all(source, *[body_for(700)] * 8, keys="k", tags="A")
            source.put_batch(batch_of(b"a", b"b", queue_id=2))
            put(source, message(b"half", sys_flag=4))

            copy_log(source, sink, limit)

            assert sink.log_end == source.log_end
            assert bodies(sink) == bodies(source)
            assert bodies(sink, TOPIC, 2) == [b"a", b"b"]
            assert sink.query(TOPIC, "k") == source.query(TOPIC, "k")
        assert log_bytes(other) == log_bytes(root)

    def test_it_is_copied_on_after_a_restart_of_either(self, root: Path, other: Path) -> None:
        for round_number in range(4):
            with open_store(root) as source, open_store(other, is_slave=True) as sink:
                put_all(source, *[b"%d" % round_number + body_for(900)] * 3)
                copy_log(source, sink, 500)

                assert bodies(sink) == bodies(source)
        assert log_bytes(other) == log_bytes(root)

    def test_a_log_whose_beginning_is_deleted_is_copied_from_where_it_begins(
        self, root: Path, other: Path
    ) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as source:
            put_all(source, *[body_for(1500)] * 10)
            source.flush()
            source.clean(at_any_hour=True)
            with open_store(other, is_slave=True) as sink:
                copy_log(source, sink)

                assert sink.log_begin == source.log_begin > 0
                assert sink.min_offset(TOPIC, 0) == source.min_offset(TOPIC, 0) == 8
                assert bodies(sink) == bodies(source)
        with open_store(other, is_slave=True) as sink:
            assert len(bodies(sink)) == 2
        assert log_bytes(other) == log_bytes(root)

    def test_the_copy_survives_a_kill(self, root: Path, other: Path, tmp_path: Path) -> None:
        with open_store(root) as source, open_store(other, is_slave=True) as sink:
            put_all(source, *numbered(60))
            copy_log(source, sink)
            killed = killed_copy(other, tmp_path / "killed")

        with open_store(killed, is_slave=True) as sink:
            assert bodies(sink) == numbered(60)

    def test_a_record_cut_in_two_by_a_kill_is_asked_for_again(
        self, root: Path, other: Path, tmp_path: Path
    ) -> None:
        with open_store(root) as source:
            results = put_all(source, *numbered(10))
            with open_store(other, is_slave=True) as sink:
                with source.read_raw(0, results[6].end - 30) as data:
                    sink.append_raw(0, data)
                killed = killed_copy(other, tmp_path / "killed")
            with open_store(killed, is_slave=True) as sink:
                assert sink.log_end == results[5].end
                copy_log(source, sink)

                assert bodies(sink) == numbered(10)

    def test_a_replica_takes_no_messages_itself(self, root: Path) -> None:
        with open_store(root, is_slave=True) as sink:
            refused = sink.put(message())

            assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "slave" in refused.reason
            assert sink.log_end == 0

    def test_a_replica_that_becomes_a_master_counts_on(self, root: Path, other: Path) -> None:
        with open_store(root) as source, open_store(other, is_slave=True) as sink:
            put_all(source, *numbered(3))
            copy_log(source, sink)

        with open_store(other) as store:
            assert put(store, message(b"3")).queue_offset == 3
            assert bodies(store) == numbered(4)

    def test_a_message_put_right_after_replicated_ones_counts_on(self, tmp_path: Path) -> None:
        """Whether they have been dispatched in between is nobody's business."""
        with open_store(tmp_path) as store:
            store.append_raw(0, raw_record(0, 0, b"0"))

            result = put(store, message(b"1"))

            assert result.queue_offset == 1
            assert bodies(store) == [b"0", b"1"]

    def test_every_file_has_its_blocks_before_it_is_written(self, root: Path, other: Path) -> None:
        disk = CrashingDisk(other)
        with open_store(root) as source, open_store(other, is_slave=True, files=disk) as sink:
            put_all(source, *[body_for(3000)] * 4)
            copy_log(source, sink)
            sink.flush()

            assert disk.unallocated_writes == []


class TestReading:
    def test_bytes_come_from_one_file_at_a_time(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *[body_for(3000)] * 3)

            pieces = [(0, 10_000), (4000, 10_000), (LOG_FILE_BYTES, 10), (8192, 10_000)]
            lengths = []
            for offset, limit in pieces:
                with store.read_raw(offset, limit) as data:
                    lengths.append(data.nbytes)
                    assert data == log_bytes(root)[offset : offset + data.nbytes]

            assert lengths == [4096, 96, 10, 3000]

    def test_the_blank_belongs_to_the_log(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, *[body_for(4000)] * 2)

            with store.read_raw(4000, 1000) as data:
                assert data == (96).to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(88)

    def test_there_is_nothing_at_the_end(self, root: Path) -> None:
        with open_store(root) as store:
            empty = store.read_raw(0, 100)
            put_all(store, b"0")

            assert empty.nbytes == 0
            assert store.read_raw(store.log_end, 100).nbytes == 0

    @pytest.mark.parametrize("offset", [-1, 1, 1 << 40])
    def test_outside_the_log_is_an_error(self, offset: int, root: Path) -> None:
        with open_store(root) as store:
            offset += store.log_end if offset > 0 else 0

            with pytest.raises(OffsetOutOfRange) as caught:
                store.read_raw(offset, 100)

            assert caught.value.offset == offset
            assert (caught.value.begin, caught.value.end) == (store.log_begin, store.log_end)

    def test_what_is_deleted_is_outside_the_log(self, root: Path) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as store:
            put_all(store, *[body_for(3000)] * 3)
            store.flush()
            store.clean(at_any_hour=True)

            with pytest.raises(OffsetOutOfRange):
                store.read_raw(0, 100)

    def test_a_slice_keeps_its_file(self, root: Path) -> None:
        with open_store(root, clock=FakeClock(FAR_FUTURE_MS)) as store:
            put_all(store, *[body_for(3000)] * 3)
            store.flush()
            data = store.read_raw(0, 100)

            store.clean(at_any_hour=True)
            with data:
                assert data[:4] == (3000).to_bytes(4, "big")
            store.clean()

            assert store.state.files_condemned == 0


class TestAppending:
    def test_a_gap_is_refused(self, root: Path) -> None:
        with open_store(root, is_slave=True) as store:
            end = store.append_raw(0, raw_record(0, 0))

            with pytest.raises(OffsetOutOfRange, match=f"has 0 to {end}") as caught:
                store.append_raw(end + 1, raw_record(end + 1, 1))

            assert caught.value.offset == end + 1
            assert store.log_end == end
            assert bodies(store) == [b"hello"]

    def test_what_is_there_is_not_written_again(self, root: Path) -> None:
        with open_store(root, is_slave=True) as store:
            end = store.append_raw(0, raw_record(0, 0))

            for offset in (0, end - 1):
                with pytest.raises(OffsetOutOfRange):
                    store.append_raw(offset, raw_record(offset, 0))

            assert store.log_end == end

    def test_it_tells_the_new_end(self, root: Path) -> None:
        with open_store(root, is_slave=True) as store:
            whole = raw_record(0, 0)

            assert store.append_raw(0, whole[:10]) == 10
            assert store.append_raw(10, whole[10:]) == len(whole) == store.log_end
            assert store.append_raw(len(whole), b"") == len(whole)

    def test_an_empty_log_begins_with_the_file_it_is_told_to(self, root: Path) -> None:
        begin = 5 * LOG_FILE_BYTES
        with open_store(root, is_slave=True) as store:
            end = store.append_raw(begin, raw_record(begin, 77, b"first"))

            assert (store.log_begin, store.log_end) == (begin, end)
            assert bodies(store) == [b"first"]
            assert store.min_offset(TOPIC, 0) == 77
        with open_store(root, is_slave=True) as store:
            assert (store.log_begin, store.log_end) == (begin, end)
            assert bodies(store) == [b"first"]

    def test_a_log_that_begins_within_a_file_is_refused_or_kept(
        self, root: Path, tmp_path: Path
    ) -> None:
        """Recovery looks for the first record where the first file begins."""
        begin = 5 * LOG_FILE_BYTES + 100
        with open_store(root, is_slave=True) as store:
            try:
                store.append_raw(begin, raw_record(begin, 0, b"first"))
            except OffsetOutOfRange:
                assert store.log_end == 0
                return
            store.flush()
            killed = killed_copy(root, tmp_path / "killed")
        with open_store(killed, is_slave=True) as store:
            assert bodies(store) == [b"first"]

    def test_nothing_is_appended_to_a_closed_store(self, root: Path) -> None:
        store = open_store(root, is_slave=True)
        end = store.append_raw(0, raw_record(0, 0))
        store.close()

        with pytest.raises((StoreError, ValueError)):
            store.append_raw(end, raw_record(end, 1))

        assert len(log_files(root)) == 1
        assert not any(log_bytes(root)[record_size(b"hello") :])

    def test_what_is_no_record_stops_dispatching_and_is_told(self, root: Path) -> None:
        with open_store(root, is_slave=True) as store:
            end = store.append_raw(0, raw_record(0, 0))
            store.append_raw(end, b"\xff" * 200)
            store.dispatch()

            assert bodies(store) == [b"hello"]
            assert store.watermarks.dispatched == end
            assert str(end) in store.state.refusal or "slave" in store.state.refusal
        with open_store(root, is_slave=True) as store:
            assert store.log_end == end

    def test_any_buffer_will_do(self, root: Path) -> None:
        whole = raw_record(0, 0)
        with open_store(root, is_slave=True) as store:
            store.append_raw(0, bytearray(whole[:50]))
            store.append_raw(50, memoryview(whole)[50:])

            assert bodies(store) == [b"hello"]
