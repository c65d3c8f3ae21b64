"""Every byte of four store directories that Apache brokers wrote, read and written again."""

import base64
import hashlib
from collections.abc import Iterator
from functools import cache

import pytest

from cometmq.codec import (
    checkpoint,
    compression,
    index_entry,
    message_id,
    properties,
    queue_entry,
    record,
    sysflag,
    timer,
)
from cometmq.codec.java import index_hash, string_hash
from cometmq.codec.properties import Property
from cometmq.codec.record import Blank, Record
from cometmq.errors import RemoteProtocolError
from tests import oracle
from tests.golden.store_data import STORES, Store, facts, load, timer_wheel

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_PRECISION_MS = 1000
UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return load(request.param)


@pytest.fixture(params=[name for name in STORES if name.startswith("5.")])
def timer_store(request: pytest.FixtureRequest) -> Store:
    return load(request.param)


def test_the_archive_holds_the_files_of_its_manifest(store: Store) -> None:
    expected = {file["path"]: file["sha256"] for file in store.manifest["files"]}
    expected.pop("store/timerwheel", None)

    assert {f"store/{path}": sha256(data) for path, data in store.files.items()} == expected


def test_every_commit_log_file_is_records_and_then_a_blank_or_zeros(store: Store) -> None:
    segment = store.manifest["segmentSizes"]["commitLog"]
    ends: list[int] = []
    for path, data in store.below("commitlog/").items():
        assert len(data) == segment
        assert offset_of(path) == segment * len(ends)
        _, end = walk(data)
        assert not any(data[end:]) or record.parse(data, end) == Blank(segment - end)
        ends.append(end)

    last = max(number for number, end in enumerate(ends) if end)
    assert last * segment + ends[last] == int(store.manifest["brokerRuntime"]["commitLogMaxOffset"])
    assert len(ends) - 1 - last == (1 if store.is_killed else 0), "preallocated files"


def test_blanks_are_written_as_the_broker_wrote_them(store: Store) -> None:
    sizes = set()
    for data in store.below("commitlog/").values():
        _, end = walk(data)
        if any(data[end:]):
            blank = bytearray(len(data) - end)
            record.encode_blank_into(blank, 0, len(blank))
            assert blank == data[end:]
            sizes.add(len(blank))

    assert sizes >= {8, 9, 17}


def test_every_record_is_encoded_to_the_same_bytes(store: Store) -> None:
    for data in store.below("commitlog/").values():
        again = bytearray(len(data))
        for position, item in walk(data)[0]:
            stored = data[position : position + item.size]
            assert record.encode(item) == stored
            assert encode_into(again, position, item) == item.size
            assert again[position : position + item.size] == stored


def test_every_record_reads_as_the_oracle_reads_it(store: Store) -> None:
    for data in store.below("commitlog/").values():
        for position, item in walk(data)[0]:
            expected = oracle.read_record(data, position)
            topic = expected.pop("topic")
            assert item.topic.encode() == topic
            assert {name: getattr(item, name) for name in expected} == expected


def test_every_record_is_what_the_broker_reported(store: Store) -> None:
    records = records_of(store.name)
    messages = store.manifest["messages"]

    assert len(messages) == len(records)
    for message in messages:
        item = records[message["commitLogOffset"]]
        assert facts(item) == {name: message[name] for name in facts(item)}


def test_properties_ids_and_keys_are_what_the_client_showed(store: Store) -> None:
    records = records_of(store.name)
    for message in store.manifest["messages"]:
        item = records[message["commitLogOffset"]]
        found = properties.decode(item.properties)
        offset_id = message_id.encode_offset_id(item.store_host, item.physical_offset)

        assert found == message["properties"]
        assert properties.decode(properties.encode(found)) == found
        for name, value in found.items():
            assert properties.get(item.properties, name.encode()) == value
        assert found.get(Property.TAGS) == message["tags"]
        assert found.get(Property.KEYS) == message["keys"]
        assert found.get(Property.UNIQ_KEY) == message["uniqKey"]
        assert offset_id == message["offsetMsgId"]
        assert found.get(Property.UNIQ_KEY, offset_id) == message["msgId"]
        assert message_id.decode_offset_id(offset_id) == message_id.OffsetId(
            *record.unpack_host(item.store_host), item.physical_offset
        )


def test_bodies_decompress_to_what_the_client_received(store: Store) -> None:
    records = records_of(store.name)
    kinds = set()
    for message in store.manifest["messages"]:
        item = records[message["commitLogOffset"]]
        kind = sysflag.compression_type(item.sys_flag)
        body = item.body
        if kind is not None:
            kinds.add(kind)
            body = compression.decompress(item.body, kind, message["bodyLength"])
            assert sha256(item.body) == message["storedBodySha256"]
            with pytest.raises(RemoteProtocolError):
                compression.decompress(item.body, kind, message["bodyLength"] - 1)
        assert len(body) == message["bodyLength"]
        assert sha256(body) == message["bodySha256"]
        if "bodyBase64" in message:
            assert body == base64.b64decode(message["bodyBase64"])

    assert kinds == set(compression.CompressionType)


def test_queue_entries_are_what_the_broker_reported(store: Store) -> None:
    reported = dict(store.manifest["consumeQueueUnits"])
    for queue, data in queues(store):
        matches, examined = queue_entry.scan(data, 0, len(data), None, len(data))
        entries = [queue_entry.unpack(data, number * 20) for number in range(examined)]

        assert reported.pop(queue) == {
            "from": 0,
            "units": [[e.physical_offset, e.size, e.tags_code] for e in entries],
        }
        assert matches == [(n, e.physical_offset, e.size) for n, e in enumerate(entries)]
        assert all(queue_entry.is_valid(entry) for entry in entries)
        again = b"".join(queue_entry.pack(e.physical_offset, e.size, e.tags_code) for e in entries)
        assert again.ljust(len(data), b"\0") == data

    assert not reported


def test_queue_entries_point_at_their_records(store: Store) -> None:
    records = records_of(store.name)
    pointed_at = set()
    for queue, data in queues(store):
        for number, offset, size in queue_entry.scan(data, 0, len(data), None, len(data))[0]:
            entry, item = queue_entry.unpack(data, number * 20), records[offset]
            pointed_at.add(offset)
            assert size == item.size
            assert (f"{item.topic}@{item.queue_id}", item.queue_offset) == (queue, number)
            assert entry.tags_code == expected_tags_code(store, item)

    assert pointed_at == set(records)


def test_scanning_by_tag_finds_the_messages_with_that_tag(store: Store) -> None:
    records = records_of(store.name)
    for queue, data in queues(store):
        if queue.startswith(SCHEDULE_TOPIC):
            continue
        for tag in ("TagA", "T0", "Aa", None):
            code = queue_entry.tags_code(tag)
            matches, _ = queue_entry.scan(data, 0, len(data), frozenset({code}), len(data))
            expected = [
                item.queue_offset
                for item in records.values()
                if f"{item.topic}@{item.queue_id}" == queue
                and queue_entry.tags_code(properties.get(item.properties, b"TAGS")) == code
            ]
            assert [number for number, _, _ in matches] == sorted(expected)


def test_index_files_are_decoded_and_encoded_to_the_same_bytes(store: Store) -> None:
    slots, entries = index_sizes(store)
    for data in store.below("index/").values():
        assert len(data) == index_entry.file_bytes(slots, entries)
        header = index_entry.unpack_header(data)
        numbers = [index_entry.unpack_slot(data, 40 + 4 * slot) for slot in range(slots)]
        found = [
            index_entry.unpack_entry(data, index_entry.entry_position(number, slots))
            for number in range(entries)
        ]

        again = index_entry.pack_header(header)
        again += b"".join(map(index_entry.pack_slot, numbers))
        again += b"".join(map(index_entry.pack_entry, found))
        assert again == data
        assert sum(number > 0 for number in numbers) == header.slot_count


@pytest.mark.slow
def test_every_index_entry_hangs_in_its_chain_and_is_explained_by_its_record(store: Store) -> None:
    slots, _ = index_sizes(store)
    records = records_of(store.name)
    for data in store.below("index/").values():
        header = index_entry.unpack_header(data)
        seen = []
        for slot in range(slots):
            for number, entry in chain(data, slot, slots):
                seen.append(number)
                item = records[entry.physical_offset]
                assert entry.key_hash % slots == slot
                assert entry.key_hash in {index_hash(key) for key in index_keys(store, item)}
                # The first entry counts from the end of the file before, if there is one.
                if number > 1:
                    assert entry.seconds == index_entry.seconds_since(
                        header.begin_timestamp, item.store_timestamp
                    )

        assert sorted(seen) == list(range(1, header.index_count))


@pytest.mark.slow
def test_indexing_all_records_again_gives_the_same_files(store: Store) -> None:
    slots, entries = index_sizes(store)
    files = [oracle.IndexFile(slots, entries)]
    for offset, item in sorted(records_of(store.name).items()):
        if offset < files[-1].end_offset:
            continue
        for key in index_keys(store, item):
            if files[-1].is_full:
                files.append(oracle.IndexFile(slots, entries, seed=files[-1]))
            files[-1].put(key, offset, item.store_timestamp)

    assert [bytes(file.data) for file in files] == list(store.below("index/").values())


def test_queries_by_key_find_what_the_broker_found(store: Store) -> None:
    slots, _ = index_sizes(store)
    for query in store.manifest["queryByKey"]:
        key_hash = index_hash(index_entry.key_text(query["topic"], query["key"]))
        offsets = {
            entry.physical_offset
            for data in store.below("index/").values()
            for _, entry in chain(data, key_hash % slots, slots)
            if entry.key_hash == key_hash
        }
        assert sorted(offsets) == sorted(query.get("brokerCommitLogOffsets", []))


def test_the_checkpoint_is_encoded_to_the_same_page(store: Store) -> None:
    page = store.files["checkpoint"]

    found = checkpoint.unpack(page)

    assert checkpoint.pack(found) == page
    stored = {item.store_timestamp for item in records_of(store.name).values()}
    assert {found.log_timestamp, found.index_timestamp} <= stored
    assert found.queue_timestamp in (stored if store.is_4x else {0})


def test_marker_files_hold_what_they_should(store: Store) -> None:
    assert store.files["lock"] == b"lock"
    assert ("abort" in store.files) == store.is_killed
    if store.is_killed:
        assert store.files["abort"].isdigit() != store.is_4x


def test_the_timer_log_is_encoded_to_the_same_bytes(timer_store: Store) -> None:
    records = records_of(timer_store.name)
    (data,) = timer_store.below("timerlog/").values()
    units = timer_units(data)

    again = b"".join(timer.encode_unit(unit) for unit in units.values())
    assert again.ljust(len(data), b"\0") == data
    for unit in units.values():
        item = records[unit.physical_offset]
        real_topic = properties.get(item.properties, b"REAL_TOPIC")
        assert item.topic == TIMER_TOPIC
        assert unit.message_size == item.size
        assert real_topic is not None
        assert unit.topic_hash == string_hash(real_topic)


@pytest.mark.slow
def test_the_timer_wheel_holds_the_units_of_the_log(timer_store: Store) -> None:
    (data,) = timer_store.below("timerlog/").values()
    units = timer_units(data)
    wheel = timer_wheel(timer_store.name)
    assert len(wheel) == timer.WHEEL_BYTES

    reached = []
    for position in used_slots(wheel):
        slot = timer.unpack_slot(wheel, position)
        assert timer.pack_slot(slot) == wheel[position : position + timer.SLOT_BYTES]
        assert timer.slot_position(slot.time * TIMER_PRECISION_MS, TIMER_PRECISION_MS) == position
        chained = []
        log_position = slot.last_position
        while log_position != timer.NO_POSITION:
            unit = units[log_position]
            assert unit.enqueue_timestamp + unit.delay_ms == slot.time * TIMER_PRECISION_MS
            chained.append(log_position)
            log_position = unit.previous
        assert chained[-1] == slot.first_position
        assert len(chained) == slot.count
        reached += chained
    assert sorted(reached) == list(units)


def test_the_timer_check_page_is_encoded_to_the_same_bytes(timer_store: Store) -> None:
    page = timer_store.files["config/timercheck"]
    (log,) = timer_store.below("timerlog/").values()

    found = timer.unpack_check(page)

    assert timer.pack_check(found) == page
    assert found.log_flush_position == len(timer_units(log)) * timer.UNIT_BYTES


def walk(data: bytes) -> tuple[list[tuple[int, Record]], int]:
    """The records of a commit log file with their positions, and where the last one ends."""
    found = []
    position = 0
    while record.peek(data, position) != (0, 0):
        item = record.parse(data, position, check_crc=True)
        if isinstance(item, Blank):
            break
        found.append((position, item))
        position += item.size
    return found, position


@cache
def records_of(name: str) -> dict[int, Record]:
    found = {}
    for path, data in load(name).below("commitlog/").items():
        for position, item in walk(data)[0]:
            offset = offset_of(path) + position
            assert item.physical_offset == offset
            found[offset] = item
    return found


def encode_into(target: bytearray, position: int, item: Record) -> int:
    return record.encode_into(
        target,
        position,
        item.topic.encode(),
        item.body,
        item.properties,
        item.queue_id,
        item.queue_offset,
        item.physical_offset,
        item.store_timestamp,
        item.born_timestamp,
        item.born_host,
        item.store_host,
        item.flag,
        item.sys_flag,
        item.reconsume_times,
        item.prepared_transaction_offset,
    )


def queues(store: Store) -> Iterator[tuple[str, bytes]]:
    """Each consume queue as ``topic@queue id``, its files joined."""
    joined: dict[str, bytes] = {}
    for path, data in store.below("consumequeue/").items():
        _, topic, queue_id, name = path.split("/")
        queue = f"{topic}@{queue_id}"
        assert len(data) == store.manifest["segmentSizes"]["consumeQueue"]
        assert int(name) == len(joined.get(queue, b""))
        joined[queue] = joined.get(queue, b"") + data
    yield from joined.items()


def expected_tags_code(store: Store, item: Record) -> int:
    found = properties.decode(item.properties)
    if item.topic != SCHEDULE_TOPIC:
        return queue_entry.tags_code(found.get(Property.TAGS))
    delays = store.manifest["brokerConf"]["messageDelayLevel"].split()
    delay = delays[min(int(found[Property.DELAY]), len(delays)) - 1]
    delay_ms = int(delay[:-1]) * UNIT_MS[delay[-1]]
    return queue_entry.delay_tags_code(item.store_timestamp, delay_ms)


def index_sizes(store: Store) -> tuple[int, int]:
    sizes = store.manifest["segmentSizes"]
    return sizes["maxHashSlotNum"], sizes["maxIndexNum"]


def index_keys(store: Store, item: Record) -> list[str]:
    """What the broker indexes of a record, in its order."""
    found = properties.decode(item.properties)
    keys = [found[Property.UNIQ_KEY]] if Property.UNIQ_KEY in found else []
    keys += found.get(Property.KEYS, "").split(" ")
    texts = [index_entry.key_text(item.topic, key) for key in keys if key]
    if not store.is_4x and Property.TAGS in found:
        texts.append(index_entry.tag_text(item.topic, found[Property.TAGS]))
    return texts


def chain(data: bytes, slot: int, slots: int) -> Iterator[tuple[int, index_entry.IndexEntry]]:
    header = index_entry.unpack_header(data)
    number = index_entry.unpack_slot(data, index_entry.slot_position(slot, slots))
    while index_entry.is_linked(number, header.index_count):
        position = index_entry.entry_position(number, slots)
        entry = index_entry.unpack_entry(data, position)
        yield number, entry
        number = entry.previous


def timer_units(data: bytes) -> dict[int, timer.TimerUnit]:
    units = {}
    position = 0
    while any(data[position : position + timer.UNIT_BYTES]):
        unit = timer.parse_log(data, position)
        assert isinstance(unit, timer.TimerUnit)
        units[position] = unit
        position += timer.UNIT_BYTES
    return units


def used_slots(wheel: bytes) -> Iterator[int]:
    """Positions of the slots that are not all zero; most of the wheel is."""
    page_bytes = 128 * timer.SLOT_BYTES
    zeros = bytes(page_bytes)
    for page in range(0, len(wheel), page_bytes):
        if wheel[page : page + page_bytes] != zeros[: len(wheel) - page]:
            for position in range(page, min(page + page_bytes, len(wheel)), timer.SLOT_BYTES):
                if any(wheel[position : position + timer.SLOT_BYTES]):
                    yield position


def offset_of(path: str) -> int:
    return int(path.rpartition("/")[2])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
