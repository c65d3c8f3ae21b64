"""The store directories that Apache brokers wrote, opened by our store: it reads what they said.

The files are days old whenever this runs; nothing runs in the background, so nothing is deleted.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cometmq.codec import compression, message_id, properties, queue_entry, record, sysflag
from cometmq.codec.java import string_hash
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.store import GetStatus, MessageStore, StoreSettings
from cometmq.store.check import Severity, check
from tests.golden.store_data import STORES, Store, facts, load

pytestmark = pytest.mark.slow

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
QUERY_COUNT_MAX = 64
ENTRIES_PER_FILE = 100


class Opened(NamedTuple):
    """A recorded directory, and our store on a copy of it."""

    golden: Store
    store: MessageStore


@pytest.fixture(params=STORES, scope="module")
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    """Open for all tests that only read."""
    golden = load(request.param)
    root = tmp_path_factory.mktemp(golden.name)
    with open_copy(golden, root) as store:
        yield Opened(golden, store)


def test_the_log_ends_where_the_broker_said(opened: Opened) -> None:
    runtime = opened.golden.manifest["brokerRuntime"]

    assert opened.store.log_begin == int(runtime["commitLogMinOffset"])
    assert opened.store.log_end == int(runtime["commitLogMaxOffset"])


def test_queues_begin_and_end_where_the_broker_said(opened: Opened) -> None:
    found = {queue: bounds(opened.store, *queue) for queue in queues_of(opened.golden)}

    assert found == {
        queue: (told["minOffset"], told["maxOffset"])
        for queue, told in queues_of(opened.golden).items()
    }


def test_every_message_is_read_from_its_queue_with_the_same_fields(opened: Opened) -> None:
    messages = {
        (item.topic, item.queue_id, item.queue_offset): item
        for queue in opened.store.queues()
        for item in read_queue(opened.store, *queue)
    }

    told = opened.golden.manifest["messages"]
    assert len(messages) == len(told)
    for message in told:
        item = messages[message["topic"], message["queueId"], message["queueOffset"]]
        found = all_facts(item, message["bodyLength"])
        assert found == {name: message[name] for name in found}


def test_every_message_is_found_at_its_offset_and_by_its_offset_id(opened: Opened) -> None:
    for message in opened.golden.manifest["messages"]:
        whole = opened.store.record_at(message["commitLogOffset"])
        same = opened.store.record_by_id(message["offsetMsgId"])

        assert whole is not None
        assert whole == same
        assert whole.nbytes == message["storeSize"]


def test_reading_by_tag_finds_the_messages_with_that_tag(opened: Opened) -> None:
    messages = opened.golden.manifest["messages"]
    wanted: dict[tuple[str, int, str], list[int]] = {}
    for message in messages:
        # What waits for its time has that in place of the tag's hash.
        if message["tags"] and message["topic"] != "SCHEDULE_TOPIC_XXXX":
            key = message["topic"], message["queueId"], message["tags"]
            wanted.setdefault(key, []).append(message["commitLogOffset"])
    assert wanted

    for (topic, queue_id, tag), offsets in wanted.items():
        tags = frozenset({string_hash(tag)})
        found = read_queue(opened.store, topic, queue_id, tags=tags)
        # Another tag may have the same hash; a client looks again.
        same_tag = [item for item in found if properties.get(item.properties, b"TAGS") == tag]
        assert [item.physical_offset for item in same_tag] == sorted(offsets)
        assert {string_hash(tag_of(item)) for item in found} == tags


def test_queries_by_key_find_what_the_broker_found(opened: Opened) -> None:
    for query in opened.golden.manifest["queryByKey"]:
        found = opened.store.query(query["topic"], query["key"], limit=query["maxNum"])

        assert found == query.get("brokerCommitLogOffsets", []), query["key"]


def test_every_message_is_found_by_its_unique_key(opened: Opened) -> None:
    for message in opened.golden.manifest["messages"]:
        if message["uniqKey"]:
            found = opened.store.query(message["topic"], message["uniqKey"], limit=QUERY_COUNT_MAX)
            assert message["commitLogOffset"] in found, message["uniqKey"]


def test_searches_by_time_find_what_the_broker_found(opened: Opened) -> None:
    """4.9.7 gives the message stored nearest to that time, of several any.

    It looks into one file only, which it chooses by the time when that was last modified: of
    queues with more files its answers mean little.
    """
    times = store_times(opened.golden)
    for search in opened.golden.manifest["searchOffset"]:
        queue = search["topic"], search["queueId"]
        found = opened.store.offset_at_time(*queue, search["timestamp"])

        expected = first_at(times[queue], search["timestamp"])
        assert found == expected, search
        if not opened.golden.is_4x:
            assert found == search["offset"], search
        elif len(times[queue]) <= ENTRIES_PER_FILE:
            away = [abs(time - search["timestamp"]) for time in times[queue]]
            assert away[search["offset"]] == min(away), search


def test_every_send_that_was_acknowledged_is_there(opened: Opened) -> None:
    """Also when the broker was killed while it was being sent to."""
    store = opened.store
    halves = {unique_key(item): item for item in read_queue(store, HALF_TOPIC, 0)}
    acknowledged = [send for send in opened.golden.manifest["sends"] if "msgId" in send]
    assert acknowledged

    for send in acknowledged:
        ids = send["msgId"].split(",")
        if "offsetMsgId" in send:
            items = [record_by_id(store, text) for text in send["offsetMsgId"].split(",")]
        else:
            items = [halves[name] for name in ids]
        assert [unique_key(item) or offset_id(item) for item in items] == ids


@pytest.mark.parametrize("name", STORES)
def test_queue_files_hold_the_same_entries_after_open_and_close(name: str, tmp_path: Path) -> None:
    golden = load(name)

    open_copy(golden, tmp_path).close()

    found = {}
    for folder in sorted((tmp_path / "consumequeue").glob("*/*")):
        data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
        _, examined = queue_entry.scan(data, 0, len(data), None, len(data))
        entries = [queue_entry.unpack(data, number * 20) for number in range(examined)]
        units = [[e.physical_offset, e.size, e.tags_code] for e in entries]
        found[f"{folder.parent.name}@{folder.name}"] = {"from": 0, "units": units}
    assert found == golden.manifest["consumeQueueUnits"]


@pytest.mark.parametrize("name", STORES)
def test_a_directory_is_consistent_after_open_and_close(name: str, tmp_path: Path) -> None:
    golden = load(name)

    open_copy(golden, tmp_path).close()

    report = check(tmp_path, settings_of(golden, tmp_path))
    assert report.count(Severity.ERROR) == 0, str(report)
    assert report.count(Severity.RECOVERABLE) == 0, str(report)
    assert report.records == len(golden.manifest["messages"])
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("name", [name for name in STORES if name.endswith("-clean")])
def test_opening_and_closing_changes_no_log_file(name: str, tmp_path: Path) -> None:
    golden = load(name)

    open_copy(golden, tmp_path).close()

    for path, data in golden.below("commitlog/").items():
        assert (tmp_path / path).read_bytes() == data, path


def open_copy(golden: Store, root: Path) -> MessageStore:
    for path, data in golden.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return MessageStore.open(root, settings_of(golden, root), threads=False)


def settings_of(golden: Store, root: Path) -> StoreSettings:
    """The sizes are the files' own; only the delays of its levels nobody can see in a store."""
    delay_levels = golden.manifest["brokerConf"]["messageDelayLevel"]
    return StoreSettings(root=root, delay_levels=delay_levels)


def queues_of(golden: Store) -> dict[tuple[str, int], dict[str, Any]]:
    """What the broker said of each queue it was asked for and could tell of."""
    return {
        (topic, int(queue_id)): told
        for topic, queues in golden.manifest["queues"].items()
        for queue_id, told in queues.items()
        if "maxOffset" in told
    }


def bounds(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int]:
    return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)


def read_queue(
    store: MessageStore, topic: str, queue_id: int, *, tags: frozenset[int] | None = None
) -> list[Record]:
    """Every message of a queue, or those with one of the tags."""
    found: list[Record] = []
    offset, end = bounds(store, topic, queue_id)
    while offset < end:
        with store.get(topic, queue_id, offset, tags=tags) as result:
            assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE), result.status
            assert result.next_offset > offset
            for piece in result.slices:
                found += record.parse_all(piece)
            offset = result.next_offset
    return found


def record_by_id(store: MessageStore, text: str) -> Record:
    view = store.record_by_id(text)
    assert view is not None, text
    with view:
        item = record.parse(view, check_crc=True)
    assert isinstance(item, Record)
    return item


def unique_key(item: Record) -> str | None:
    return properties.get(item.properties, Property.UNIQ_KEY.encode())


def tag_of(item: Record) -> str:
    return properties.get(item.properties, Property.TAGS.encode()) or ""


def offset_id(item: Record) -> str:
    return message_id.encode_offset_id(item.store_host, item.physical_offset)


def all_facts(item: Record, body_bytes: int) -> dict[str, Any]:
    """A record as the manifest describes it, with properties and body."""
    kind = sysflag.compression_type(item.sys_flag)
    body = item.body if kind is None else compression.decompress(item.body, kind, body_bytes)
    return {
        **facts(item),
        "properties": properties.decode(item.properties),
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def store_times(golden: Store) -> dict[tuple[str, int], list[int]]:
    """When the messages of each queue were stored, in order."""
    times: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for message in golden.manifest["messages"]:
        queue = message["topic"], message["queueId"]
        times.setdefault(queue, []).append((message["queueOffset"], message["storeTimestamp"]))
    return {queue: [time for _, time in sorted(found)] for queue, found in times.items()}


def first_at(times: list[int], timestamp_ms: int) -> int:
    """The offset of the first message stored then or later."""
    return next((n for n, time in enumerate(times) if time >= timestamp_ms), len(times))
