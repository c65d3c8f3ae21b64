"""Appending: what is taken and what is not, and the bytes that lie in the log afterwards."""

import errno
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from cometmq.codec import properties, record
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from cometmq.codec.sysflag import BORN_HOST_V6, STORE_HOST_V6, TransactionType
from cometmq.errors import RemoteProtocolError
from cometmq.store import NewMessage, PutResult, PutStatus
from cometmq.testing import CrashingDisk, FakeClock
from tests import oracle
from tests.unit.store.builders import (
    HOST,
    HOST_V6,
    LOG_FILE_BYTES,
    TOPIC,
    all_records,
    bodies,
    body_for,
    log_bytes,
    log_files,
    message,
    open_store,
    property_text,
    put,
    put_all,
    record_of,
    record_size,
)

FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
MIB = 1024 * 1024
RETRY = "%RETRY%"


class TestRecords:
    def test_every_field_lies_where_the_format_says(self, root: Path) -> None:
        clock = FakeClock()
        new = NewMessage(
            "orders",
            3,
            b"body",
            b"KEYS\x01k\x02",
            born_timestamp=1_699_999_999_000,
            born_host=record.pack_host("10.1.2.3", 54321),
            store_host=HOST,
            flag=-7,
            sys_flag=0x303,
            reconsume_times=2,
            prepared_transaction_offset=777,
        )
        with open_store(root, clock=clock) as store:
            put_all(store, b"first", queue_id=3)
            result = put(store, new)

        begin = record_size(b"first")
        assert oracle.read_record(log_bytes(root), begin) == {
            "size": record_size(b"body") + 7,
            "magic": MAGIC_V1,
            "body_crc": zlib.crc32(b"body") & 0x7FFFFFFF,
            "queue_id": 3,
            "flag": -7,
            "queue_offset": 1,
            "physical_offset": begin,
            "sys_flag": 0x303,
            "born_timestamp": 1_699_999_999_000,
            "born_host": bytes([10, 1, 2, 3]) + (54321).to_bytes(4, "big"),
            "store_timestamp": clock.now_ms(),
            "store_host": HOST,
            "reconsume_times": 2,
            "prepared_transaction_offset": 777,
            "body": b"body",
            "topic": b"orders",
            "properties": b"KEYS\x01k\x02",
        }
        assert result == PutResult(
            PutStatus.PUT_OK, begin, begin + record_size(b"body") + 7, 1, clock.now_ms()
        )

    def test_the_first_record_lies_at_position_0_of_queue_offset_0(self, root: Path) -> None:
        with open_store(root) as store:
            result = put(store, message())

            assert (result.physical_offset, result.queue_offset) == (0, 0)
            assert result.end == store.log_end == record_size(b"hello")
            assert store.log_begin == 0

    def test_each_queue_counts_for_itself(self, root: Path) -> None:
        places = [("a", 0), ("a", 1), ("b", 0), ("a", 0), ("b", 0), ("a", 0), ("a", 1)]
        with open_store(root) as store:
            offsets = [put(store, message(b"x", *place)).queue_offset for place in places]

            assert offsets == [0, 0, 0, 1, 1, 2, 1]
            assert [one.queue_offset for one in all_records(store, "a")] == [0, 1, 2]

    def test_queue_offsets_go_on_after_a_restart(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0", b"1")

        with open_store(root) as store:
            result = put(store, message(b"2"))

            assert result.queue_offset == 2
            assert bodies(store) == [b"0", b"1", b"2"]

    @pytest.mark.parametrize(
        ("sys_flag", "born", "stored", "extra"),
        [
            (0, HOST, HOST, 0),
            (BORN_HOST_V6, HOST_V6, HOST, 12),
            (STORE_HOST_V6, HOST, HOST_V6, 12),
            (BORN_HOST_V6 | STORE_HOST_V6, HOST_V6, HOST_V6, 24),
        ],
    )
    def test_hosts_may_be_ipv6(
        self, sys_flag: int, born: bytes, stored: bytes, extra: int, root: Path
    ) -> None:
        new = message(sys_flag=sys_flag, born_host=born, store_host=stored, tags="T")
        with open_store(root) as store:
            result = put(store, new)

            found = record_of(store, result)
            (read_back,) = all_records(store)

        assert (found.born_host, found.store_host) == (born, stored)
        assert found == read_back
        assert result.end == record_size(b"hello", text=new.properties) + extra

    @pytest.mark.parametrize(
        ("sys_flag", "host"), [(0, HOST_V6), (STORE_HOST_V6, HOST), (0, b""), (0, bytes(9))]
    )
    def test_hosts_that_contradict_the_flag_are_refused(
        self, sys_flag: int, host: bytes, root: Path
    ) -> None:
        with open_store(root) as store:
            result = store.put(message(sys_flag=sys_flag, store_host=host))
            put_all(store, b"next")

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert result.reason
            assert bodies(store) == [b"next"]

    def test_a_body_may_be_a_view_of_something_larger(self, root: Path) -> None:
        frame = bytearray(b"head|body|tail")
        with open_store(root) as store:
            put(store, message(memoryview(frame)[5:9]))  # type: ignore[arg-type]
            frame.clear()  # raises BufferError if the store kept the view

            assert bodies(store) == [b"body"]

    def test_an_empty_body_is_a_body(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"", b"x")

            assert bodies(store) == [b"", b"x"]

    def test_the_store_time_is_the_clocks(self, root: Path) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock) as store:
            stored = []
            for seconds in (0, 0.001, 5):
                clock.advance(seconds)
                stored.append((put(store, message()), clock.now_ms()))

            assert [result.store_timestamp for result, _ in stored] == [now for _, now in stored]
            for result, now in stored:
                assert record_of(store, result).store_timestamp == now

    def test_a_message_is_found_by_its_message_id(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
            result = put(store, message(b"1"))
            message_id = encode_offset_id(HOST, result.physical_offset)

            view = store.record_by_id(message_id)

            assert view is not None
            with view:
                found = record.parse(view)
        assert isinstance(found, record.Record)
        assert found.body == b"1"

    def test_what_is_no_message_id_is_said_to_be_none(self, root: Path) -> None:
        with open_store(root) as store, pytest.raises(RemoteProtocolError, match="message id"):
            store.record_by_id("nonsense")

    def test_there_is_no_record_where_none_begins(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(b"a" * 200))
            end = put(store, message(body_for(LOG_FILE_BYTES - 100))).end

            nowhere = [-1, 1, 100, record_size(b"a" * 200), end, end + 1, 1 << 40]

            assert [store.record_at(offset) for offset in nowhere] == [None] * len(nowhere)


class TestLimits:
    """Spec §2.6: body alone 4 MiB, the record 64 KiB more, properties 32,767."""

    def test_the_largest_message_of_all_is_taken(self, root: Path) -> None:
        topic = RETRY + "g" * 248
        new = message(b"b" * 4 * MIB, topic, properties=b"k\x01" + b"v" * 32_765)
        with open_store(root, log_file_bytes=5 * MIB) as store:
            result = put(store, new)

            assert result.end == 92 + 255 + 4 * MIB + 32_767
            assert record_of(store, result).body == new.body

    def test_a_larger_body_is_not(self, root: Path) -> None:
        with open_store(root, log_file_bytes=5 * MIB) as store:
            result = store.put(message(bytes(4 * MIB + 1)))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert "4194305 bytes" in result.reason
            assert store.log_end == 0

    def test_the_limit_of_bodies_is_a_setting(self, root: Path) -> None:
        with open_store(root, message_bytes_max=100) as store:
            statuses = [store.put(message(bytes(size))).status for size in (100, 101)]

            assert statuses == [PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL]

    @pytest.mark.parametrize(
        ("length", "status"),
        [(32_767, PutStatus.PUT_OK), (32_768, PutStatus.PROPERTIES_SIZE_EXCEEDED)],
    )
    def test_properties_have_a_limit_and_a_status_of_their_own(
        self, length: int, status: PutStatus, root: Path
    ) -> None:
        with open_store(root, log_file_bytes=MIB) as store:
            result = store.put(message(properties=b"k\x01" + b"v" * (length - 2)))

            assert result.status is status
            assert store.log_end == (record_size(b"hello") + length) * (status.is_stored)

    @pytest.mark.parametrize(
        ("topic", "status"),
        [
            ("t" * 127, PutStatus.PUT_OK),
            ("t" * 128, PutStatus.MESSAGE_ILLEGAL),
            ("é" * 63 + "t", PutStatus.PUT_OK),
            ("é" * 64, PutStatus.MESSAGE_ILLEGAL),
            (RETRY + "g" * 120, PutStatus.PUT_OK),
            (RETRY + "g" * 121, PutStatus.PUT_OK),
            (RETRY + "g" * 248, PutStatus.PUT_OK),
            (RETRY + "g" * 249, PutStatus.MESSAGE_ILLEGAL),
            ("x" + RETRY + "g" * 121, PutStatus.MESSAGE_ILLEGAL),
            ("%DLQ%" + "g" * 123, PutStatus.MESSAGE_ILLEGAL),
            ("", PutStatus.MESSAGE_ILLEGAL),
        ],
    )
    def test_only_retry_topics_may_be_longer_than_127_bytes(
        self, topic: str, status: PutStatus, root: Path
    ) -> None:
        with open_store(root) as store:
            result = store.put(message(topic=topic))

            assert result.status is status
            assert bool(result.reason) is not status.is_stored
            assert bodies(store, topic) == [b"hello"] * status.is_stored

    @pytest.mark.parametrize(
        ("length", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)]
    )
    def test_a_long_topic_makes_a_record_of_the_second_version(
        self, length: int, magic: int, root: Path
    ) -> None:
        topic = (RETRY + "g" * length)[:length]
        with open_store(root) as store:
            put(store, message(topic=topic))
            put_all(store, b"next")

        found = oracle.read_record(log_bytes(root))
        assert (found["magic"], found["topic"]) == (magic, topic.encode())
        with open_store(root) as store:
            assert bodies(store, topic) == [b"hello"]
            assert bodies(store) == [b"next"]

    @pytest.mark.parametrize("topic", ["a/b", "/", "..", ".", "a\0b", "half \ud800"])
    def test_a_topic_that_cannot_be_a_folder_is_refused(self, topic: str, root: Path) -> None:
        with open_store(root) as store:
            result = store.put(message(topic=topic))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert result.reason
            assert store.log_end == 0

    @pytest.mark.parametrize("queue_id", [-1, 1 << 31])
    def test_a_queue_id_that_is_none_is_refused(self, queue_id: int, root: Path) -> None:
        with open_store(root) as store:
            result = store.put(message(queue_id=queue_id))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert store.log_end == 0

    @pytest.mark.parametrize("field", ["flag", "reconsume_times", "born_timestamp"])
    def test_a_value_too_large_for_its_field_is_refused(self, field: str, root: Path) -> None:
        with open_store(root) as store:
            changes: dict[str, Any] = {field: 1 << 63}
            result = store.put(message(**changes))
            put_all(store, b"next")

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert bodies(store) == [b"next"]

    def test_a_record_larger_than_a_file_is_refused(self, root: Path) -> None:
        with open_store(root) as store:
            too_large = store.put(message(body_for(LOG_FILE_BYTES - 7)))
            put(store, message(body_for(LOG_FILE_BYTES - 8)))

            assert too_large.status is PutStatus.MESSAGE_ILLEGAL
            assert [len(body) for body in bodies(store)] == [len(body_for(LOG_FILE_BYTES - 8))]

    def test_a_refused_message_takes_no_queue_offset(self, root: Path) -> None:
        with open_store(root, message_bytes_max=100) as store:
            put_all(store, b"0")
            store.put(message(bytes(101)))
            store.put(message(properties=b"p" * 32_768))

            assert put(store, message(b"1")).queue_offset == 1
            assert bodies(store) == [b"0", b"1"]


class TestEndOfFile:
    """Spec §2.6 step 5: a record that leaves fewer than 8 bytes goes to the next file."""

    @pytest.mark.parametrize("left", [8, 9, 17, 100, LOG_FILE_BYTES - 200])
    def test_what_is_left_of_a_file_becomes_a_blank(self, left: int, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(body_for(LOG_FILE_BYTES - left)))
            second = put(store, message(body_for(max(200, left - 7))))

        assert second.physical_offset == LOG_FILE_BYTES
        first_file = log_files(root)[0].read_bytes()
        assert struct.unpack_from(">ii", first_file, LOG_FILE_BYTES - left) == (left, MAGIC_BLANK)
        assert not any(first_file[LOG_FILE_BYTES - left + 8 :])

    def test_a_record_that_leaves_just_the_8_bytes_fits(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(body_for(1000)))
            fitting = put(store, message(body_for(LOG_FILE_BYTES - 1000 - 8)))
            third = put(store, message(body_for(200)))

            assert fitting.physical_offset == 1000
            assert third.physical_offset == LOG_FILE_BYTES
            assert len(bodies(store)) == 3

    def test_one_byte_more_does_not(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(body_for(1000)))
            second = put(store, message(body_for(LOG_FILE_BYTES - 1000 - 7)))

            assert second.physical_offset == LOG_FILE_BYTES
            assert len(bodies(store)) == 2

    def test_the_blank_is_written_after_a_restart_too(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(body_for(LOG_FILE_BYTES - 8)))

        with open_store(root) as store:
            assert store.log_end == LOG_FILE_BYTES - 8
            second = put(store, message(b"next"))

            assert second.physical_offset == LOG_FILE_BYTES
            assert bodies(store)[1:] == [b"next"]

    def test_files_are_whole_from_the_beginning_and_named_by_their_offset(self, root: Path) -> None:
        with open_store(root) as store:
            for _ in range(3):
                put(store, message(body_for(3000)))

            assert [path.name for path in log_files(root)] == [
                "00000000000000000000",
                "00000000000000004096",
                "00000000000000008192",
            ]
            assert {path.stat().st_size for path in log_files(root)} == {LOG_FILE_BYTES}

    def test_a_file_has_all_its_blocks_before_it_is_written_to(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            for _ in range(5):
                put(store, message(body_for(3000), keys="k"))
            store.flush()

            assert disk.unallocated_writes == []
            assert all(path.stat().st_blocks * 512 >= LOG_FILE_BYTES for path in log_files(root))

    def test_a_file_that_cannot_be_made_has_its_status(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            put_all(store, b"0")
            disk.fail_allocate(FULL_DISK)
            refused = [store.put(message(body_for(4000))) for _ in range(3)]
            small = put(store, message(b"1"))
            disk.heal()
            large = put(store, message(body_for(4000)))

            assert {result.status for result in refused} == {PutStatus.CREATE_MAPPED_FILE_FAILED}
            assert "No space left" in refused[0].reason
            assert small.physical_offset == record_size(b"0")
            assert (large.physical_offset, large.queue_offset) == (LOG_FILE_BYTES, 2)
            assert len(bodies(store)) == 3

    def test_the_very_first_file_may_fail_to_be_made(self, root: Path) -> None:
        disk = CrashingDisk(root)
        with open_store(root, files=disk) as store:
            disk.fail_allocate(FULL_DISK)
            refused = store.put(message())
            disk.heal()

            assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
            assert put(store, message()).physical_offset == 0

    def test_the_file_made_ahead_is_gone_after_closing(self, root: Path) -> None:
        with open_store(root, threads=True) as store:
            put(store, message(body_for(3000)))

        assert [path.name for path in log_files(root)] == ["00000000000000000000"]

    def test_the_file_made_ahead_is_used(self, root: Path) -> None:
        with open_store(root, threads=True) as store:
            for _ in range(8):
                put(store, message(body_for(3000)))

            assert len(bodies(store)) == 8
        assert len(log_files(root)) == 8


class TestTransactions:
    @pytest.mark.parametrize("kind", [TransactionType.PREPARED, TransactionType.ROLLBACK])
    def test_prepared_and_rolled_back_messages_are_in_no_queue(
        self, kind: TransactionType, root: Path
    ) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
            result = put(store, message(b"half", sys_flag=kind))
            after = put(store, message(b"1"))

            assert result.queue_offset == 0
            assert record_of(store, result).queue_offset == 0
            assert record_of(store, result).body == b"half"
            assert after.queue_offset == 1
            assert bodies(store) == [b"0", b"1"]
            assert store.max_offset(TOPIC, 0) == 2

    def test_committed_messages_are_queued(self, root: Path) -> None:
        new = message(b"1", sys_flag=TransactionType.COMMIT, prepared_transaction_offset=99)
        with open_store(root) as store:
            put_all(store, b"0")
            result = put(store, new)

            assert result.queue_offset == 1
            assert record_of(store, result).prepared_transaction_offset == 99
            assert bodies(store) == [b"0", b"1"]

    def test_all_but_rolled_back_messages_are_indexed(self, root: Path) -> None:
        with open_store(root) as store:
            results = {
                kind: put(store, message(sys_flag=kind, keys="k")) for kind in TransactionType
            }

            found = store.query(TOPIC, "k")

        assert found == [
            results[kind].physical_offset
            for kind in (TransactionType.NONE, TransactionType.PREPARED, TransactionType.COMMIT)
        ]

    def test_prepared_messages_at_the_end_survive_a_restart(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
            half = put(store, message(b"half", sys_flag=TransactionType.PREPARED, keys="k"))

        with open_store(root) as store:
            assert store.log_end == half.end
            assert record_of(store, half).body == b"half"
            assert store.query(TOPIC, "k") == [half.physical_offset]
            assert put(store, message(b"1")).physical_offset == half.end
            assert bodies(store) == [b"0", b"1"]


class TestRecordChecksum:
    """Spec §2.5, ``enabledAppendPropCRC``."""

    @pytest.mark.parametrize(
        ("text", "kept"),
        [
            (b"", b""),
            (b"KEYS\x01k\x02", b"KEYS\x01k\x02"),
            (b"KEYS\x01k", b"KEYS\x01k\x02"),
        ],
    )
    def test_it_is_the_last_property_and_covers_what_is_before(
        self, text: bytes, kept: bytes, root: Path
    ) -> None:
        with open_store(root, is_record_crc_appended=True) as store:
            put_all(store, b"first")
            result = put(store, message(b"body", properties=text))

        stored = log_bytes(root)[result.physical_offset : result.end]
        crc = zlib.crc32(stored[:-20]) & 0x7FFFFFFF
        tail = b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
        assert oracle.read_record(stored)["properties"] == kept + tail
        assert record.verify_property_crc(stored)

    def test_other_properties_still_count(self, root: Path) -> None:
        with open_store(root, is_record_crc_appended=True) as store:
            result = put(store, message(keys="k", tags="T"))

            assert store.query(TOPIC, "k") == [result.physical_offset]
            found = properties.decode(record_of(store, result).properties)
            assert (found["KEYS"], found["TAGS"]) == ("k", "T")

    @pytest.mark.parametrize(
        ("length", "status"),
        [(32_747, PutStatus.PUT_OK), (32_748, PutStatus.PROPERTIES_SIZE_EXCEEDED)],
    )
    def test_its_20_bytes_are_properties_like_others(
        self, length: int, status: PutStatus, root: Path
    ) -> None:
        text = b"k\x01" + b"v" * (length - 3) + b"\x02"
        with open_store(root, log_file_bytes=MIB, is_record_crc_appended=True) as store:
            assert store.put(message(properties=text)).status is status

    def test_records_with_and_without_lie_side_by_side(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
        with open_store(root, is_record_crc_appended=True) as store:
            put_all(store, b"1")
        with open_store(root) as store:
            put_all(store, b"2")

            assert bodies(store) == [b"0", b"1", b"2"]


def test_an_illegal_message_says_why_and_leaves_the_log_alone(root: Path) -> None:
    with open_store(root) as store:
        put(store, message(b"0", properties=property_text(KEYS="k")))
        before = store.log_end

        result = store.put(message(topic="t" * 200))

        assert result == PutResult(PutStatus.MESSAGE_ILLEGAL, reason=result.reason)
        assert "200 bytes" in result.reason
        assert store.log_end == before
