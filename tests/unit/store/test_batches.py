"""Batches: all of their messages are stored, one after the other, or none is."""

import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from cometmq.codec import batch, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.record import MAGIC_BLANK
from cometmq.codec.sysflag import BORN_HOST_V6, STORE_HOST_V6, TransactionType
from cometmq.store import NewMessage, PutStatus
from cometmq.testing import FakeClock
from tests import oracle
from tests.unit.store.builders import (
    HOST,
    HOST_V6,
    LOG_FILE_BYTES,
    TOPIC,
    all_records,
    batch_of,
    bodies,
    body_for,
    log_bytes,
    log_files,
    message,
    open_store,
    property_text,
    put,
    put_all,
    record_size,
)

MIB = 1024 * 1024


def new_batch(*items: BatchItem, **fields: Any) -> NewMessage:
    return message(batch.encode(items), **fields)


class TestWhatIsStored:
    def test_its_messages_have_consecutive_offsets_and_one_store_time(self, root: Path) -> None:
        clock = FakeClock()
        with open_store(root, clock=clock) as store:
            put_all(store, b"before")
            clock.advance(7)
            result = store.put_batch(batch_of(b"a", b"bb", b"ccc"))
            after = put(store, message(b"after"))

            assert result.status is PutStatus.PUT_OK
            assert (result.queue_offset, after.queue_offset) == (1, 4)
            assert result.store_timestamp == clock.now_ms()
            found = list(all_records(store))[1:4]
        assert [one.body for one in found] == [b"a", b"bb", b"ccc"]
        assert [one.queue_offset for one in found] == [1, 2, 3]
        assert {one.store_timestamp for one in found} == {clock.now_ms()}

    def test_the_result_says_where_each_message_lies(self, root: Path) -> None:
        with open_store(root) as store:
            begin = put(store, message()).end
            result = store.put_batch(batch_of(b"a", b"bb", b"ccc"))

            second = begin + record_size(b"a")
            third = second + record_size(b"bb")
            assert result.offsets == (begin, second, third)
            assert result.physical_offset == begin
            assert result.end == third + record_size(b"ccc") == store.log_end

    def test_each_message_keeps_its_own_flag_body_and_properties(self, root: Path) -> None:
        """As 5.5.0 does: what the batch as a whole has for properties is stored with none."""
        items = [
            BatchItem(1, b"one", b"TAGS\x01A\x02"),
            BatchItem(-2, b"", b""),
            BatchItem(3, b"three", b"KEYS\x01k"),
        ]
        with open_store(root) as store:
            store.put_batch(new_batch(*items, properties=property_text(CLUSTER="c")))

            found = list(all_records(store))
        assert [(one.flag, one.body, one.properties) for one in found] == [
            (item.flag, item.body, item.properties) for item in items
        ]

    def test_what_the_batch_says_counts_for_each_message(self, root: Path) -> None:
        new = batch_of(
            b"a",
            b"b",
            queue_id=5,
            born_timestamp=42,
            born_host=HOST_V6,
            store_host=HOST,
            sys_flag=BORN_HOST_V6 | 1,
            reconsume_times=3,
            prepared_transaction_offset=77,
        )
        with open_store(root) as store:
            result = store.put_batch(new)

        for offset in result.offsets:
            found = oracle.read_record(log_bytes(root), offset)
            assert (found["queue_id"], found["born_timestamp"]) == (5, 42)
            assert (found["born_host"], found["store_host"]) == (HOST_V6, HOST)
            assert (found["sys_flag"], found["reconsume_times"]) == (BORN_HOST_V6 | 1, 3)
            assert found["prepared_transaction_offset"] == 0

    def test_the_checksum_is_computed_here(self, root: Path) -> None:
        wire = bytearray(batch.encode([BatchItem(0, b"body", b"")]))
        wire[4:12] = b"\xff" * 8  # magic and checksum of the sender are not looked at
        with open_store(root) as store:
            store.put_batch(message(bytes(wire)))

        found = oracle.read_record(log_bytes(root))
        assert found["body_crc"] == zlib.crc32(b"body") & 0x7FFFFFFF

    def test_keys_and_tags_of_each_message_count(self, root: Path) -> None:
        items = [BatchItem(0, b"%d" % n, property_text(KEYS=f"k{n}", TAGS="T")) for n in range(3)]
        with open_store(root) as store:
            result = store.put_batch(new_batch(*items))

            assert [store.query(TOPIC, f"k{n}") for n in range(3)] == [[o] for o in result.offsets]

    def test_both_hosts_may_be_ipv6(self, root: Path) -> None:
        flags = BORN_HOST_V6 | STORE_HOST_V6
        new = batch_of(b"a", b"b", sys_flag=flags, born_host=HOST_V6, store_host=HOST_V6)
        with open_store(root) as store:
            result = store.put_batch(new)

            assert bodies(store) == [b"a", b"b"]
            assert result.end == 2 * (record_size(b"a") + 24)

    def test_a_record_checksum_is_added_to_each_message(self, root: Path) -> None:
        items = [BatchItem(0, b"a", b""), BatchItem(0, b"b", b"KEYS\x01k")]
        with open_store(root, is_record_crc_appended=True) as store:
            result = store.put_batch(new_batch(*items))

            assert bodies(store) == [b"a", b"b"]
        log = log_bytes(root)
        assert all(record.verify_property_crc(log, offset) for offset in result.offsets)
        assert oracle.read_record(log, result.offsets[1])["properties"][:8] == b"KEYS\x01k\x02_"  # type: ignore[index]

    def test_it_survives_a_restart(self, root: Path) -> None:
        with open_store(root) as store:
            store.put_batch(batch_of(b"a", b"b"))

        with open_store(root) as store:
            assert bodies(store) == [b"a", b"b"]
            assert store.put_batch(batch_of(b"c", b"d")).queue_offset == 2


class TestEndOfFile:
    def test_a_batch_that_just_fits_stays_in_the_file(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(body_for(1000)))
            result = store.put_batch(batch_of(body_for(1000), body_for(LOG_FILE_BYTES - 2008)))

            assert result.offsets == (1000, 2000)
            assert result.end == LOG_FILE_BYTES - 8

    def test_one_byte_more_takes_the_whole_batch_to_the_next_file(self, root: Path) -> None:
        with open_store(root) as store:
            put(store, message(body_for(1000)))
            result = store.put_batch(batch_of(body_for(1000), body_for(LOG_FILE_BYTES - 2007)))

            assert result.offsets == (LOG_FILE_BYTES, LOG_FILE_BYTES + 1000)
            assert len(bodies(store)) == 3
        blank = struct.unpack_from(">ii", log_files(root)[0].read_bytes(), 1000)
        assert blank == (LOG_FILE_BYTES - 1000, MAGIC_BLANK)

    def test_a_batch_that_fits_no_file_is_refused(self, root: Path) -> None:
        with open_store(root) as store:
            put_all(store, b"0")
            fits = batch_of(body_for(2000), body_for(LOG_FILE_BYTES - 2008))
            does_not = batch_of(body_for(2000), body_for(LOG_FILE_BYTES - 2007))

            assert store.put_batch(does_not).status is PutStatus.MESSAGE_ILLEGAL
            assert store.log_end == record_size(b"0")
            assert store.put_batch(fits).status is PutStatus.PUT_OK


class TestRefusals:
    @pytest.mark.parametrize("kind", [kind for kind in TransactionType if kind])
    def test_a_batch_is_no_transaction(self, kind: TransactionType, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(batch_of(b"a", sys_flag=int(kind)))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert "transaction" in result.reason

    def test_a_batch_is_not_delayed(self, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(batch_of(b"a", properties=property_text(DELAY="3")))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert "delay" in result.reason

    def test_a_delay_level_of_0_is_none(self, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(batch_of(b"a", properties=property_text(DELAY="0")))

            assert result.status is PutStatus.PUT_OK

    def test_a_batch_is_no_retry(self, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(batch_of(b"a", topic="%RETRY%group"))

            assert result.status is PutStatus.MESSAGE_ILLEGAL

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"Hello, I am no batch at all, but quite long",
            batch_of(b"a", b"b").body[:-1],
            bytes(batch_of(b"a", b"b").body) + b"\0",
        ],
    )
    def test_what_is_no_batch_is_refused(self, body: bytes, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(message(body))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert result.reason
            assert store.log_end == 0
            assert put(store, message()).queue_offset == 0

    def test_the_limit_of_bodies_is_one_of_the_whole_batch(self, root: Path) -> None:
        def batch_bytes(size: int) -> NewMessage:
            return batch_of(bytes(size // 2 - 22), bytes(size - size // 2 - 22))

        with open_store(root, log_file_bytes=5 * MIB) as store:
            fitting, too_large = batch_bytes(4 * MIB), batch_bytes(4 * MIB + 1)
            assert len(fitting.body) == 4 * MIB

            assert store.put_batch(too_large).status is PutStatus.MESSAGE_ILLEGAL
            assert store.put_batch(fitting).status is PutStatus.PUT_OK

    def test_a_record_checksum_that_finds_no_room_makes_it_illegal(self, root: Path) -> None:
        item = BatchItem(0, b"a", b"k\x01" + b"v" * 32_764 + b"\x02")
        with open_store(root, log_file_bytes=MIB, is_record_crc_appended=True) as store:
            result = store.put_batch(new_batch(item))

            assert result.status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
            assert store.log_end == 0

    @pytest.mark.parametrize(
        ("topic", "queue_id"), [("t" * 128, 0), ("", 0), ("a/b", 0), ("T", -1)]
    )
    def test_topic_and_queue_must_be_possible(self, topic: str, queue_id: int, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(batch_of(b"a", topic=topic, queue_id=queue_id))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert store.log_end == 0

    def test_hosts_that_contradict_the_flag_leave_nothing_behind(self, root: Path) -> None:
        with open_store(root) as store:
            result = store.put_batch(batch_of(b"a", b"b", sys_flag=STORE_HOST_V6))
            after = store.put_batch(batch_of(b"c"))

            assert result.status is PutStatus.MESSAGE_ILLEGAL
            assert (after.physical_offset, after.queue_offset) == (0, 0)
            assert bodies(store) == [b"c"]

    def test_a_store_that_takes_nothing_takes_no_batch(self, root: Path) -> None:
        with open_store(root, is_slave=True) as store:
            result = store.put_batch(batch_of(b"a"))

            assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "slave" in result.reason
