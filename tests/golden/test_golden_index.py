"""The index files of Apache brokers, asked, repaired and written again by ours."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.codec import checkpoint, properties, record
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.store.config import StoreSettings
from cometmq.store.key_index import KeyIndex, KeyKind
from cometmq.testing import CrashingDisk, FakeClock
from tests.golden.store_data import STORES, Store, load


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return load(request.param)


@pytest.fixture
def folder(tmp_path: Path, store: Store) -> Path:
    """The index files of the store."""
    folder = tmp_path / "index"
    folder.mkdir()
    for path, content in store.below("index/").items():
        (tmp_path / path).write_bytes(content)
    return folder


def settings_of(store: Store) -> StoreSettings:
    sizes = store.manifest["segmentSizes"]
    return StoreSettings(index_slots=sizes["maxHashSlotNum"], index_entries=sizes["maxIndexNum"])


def log_end_of(store: Store) -> int:
    return int(store.manifest["brokerRuntime"]["commitLogMaxOffset"])


def opened(store: Store, folder: Path, *, is_clean: bool | None = None) -> KeyIndex:
    return KeyIndex.open(
        folder,
        settings_of(store),
        files=CrashingDisk(folder.parent),
        clock=FakeClock(),
        is_clean=not store.is_killed if is_clean is None else is_clean,
        log_begin=0,
        log_end=log_end_of(store),
        index_timestamp=checkpoint.unpack(store.files["checkpoint"]).index_timestamp,
    )


def records_of(store: Store) -> Iterator[Record]:
    for data in store.below("commitlog/").values():
        position = 0
        while record.peek(data, position) != (0, 0):
            item = record.parse(data, position)
            if not isinstance(item, Record):
                break
            yield item
            position += item.size


def feed(index: KeyIndex, store: Store) -> None:
    """Enter all messages the index asks for, as the broker did: 4.9 does not know tags."""
    begin = index.resume_offset
    for item in records_of(store):
        if item.physical_offset >= begin:
            found = properties.decode(item.properties)
            index.add(
                item.topic,
                item.physical_offset,
                item.store_timestamp,
                found.get(Property.UNIQ_KEY),
                found.get(Property.KEYS),
                None if store.is_4x else found.get(Property.TAGS),
            )


def wrong_answers(index: KeyIndex, store: Store) -> list[str]:
    """The keys for which something else is found than the broker found."""
    return [
        query["key"]
        for query in store.manifest["queryByKey"]
        if index.query(query["topic"], query["key"], limit=query["maxNum"])
        != sorted(query.get("brokerCommitLogOffsets", []))
    ]


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def test_queries_find_what_the_broker_found(store: Store, folder: Path) -> None:
    index = opened(store, folder, is_clean=True)

    assert wrong_answers(index, store) == []
    assert contents(folder) == list(store.below("index/").values())


def test_the_newest_message_is_the_one_the_broker_reported(store: Store, folder: Path) -> None:
    index = opened(store, folder, is_clean=True)

    answers = [query for query in store.manifest["queryByKey"] if query["brokerCode"] == 0]
    assert {query["indexLastUpdatePhyoffset"] for query in answers} == {str(index.end_offset)}
    assert {query["indexLastUpdateTimestamp"] for query in answers} == {str(index.end_timestamp)}


@pytest.mark.slow
def test_messages_are_found_by_unique_key_and_tag(store: Store, folder: Path) -> None:
    index = opened(store, folder, is_clean=True)

    tagged = 0
    for item in list(records_of(store))[::25]:
        found = properties.decode(item.properties)
        if Property.UNIQ_KEY in found:
            key = found[Property.UNIQ_KEY]
            hits = index.query(item.topic, key, limit=64, kind=KeyKind.UNIQUE)
            assert item.physical_offset in hits
        if Property.TAGS in found and index.query(
            item.topic, found[Property.TAGS], limit=64, kind=KeyKind.TAG
        ):
            tagged += 1
    assert (tagged == 0) == store.is_4x


@pytest.mark.slow
def test_a_repaired_index_that_is_fed_again_has_the_same_files(store: Store, folder: Path) -> None:
    index = opened(store, folder, is_clean=False)
    assert contents(folder) != list(store.below("index/").values())

    feed(index, store)

    assert contents(folder) == list(store.below("index/").values())
    assert wrong_answers(index, store) == []


@pytest.mark.slow
def test_an_index_made_anew_has_the_same_files(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    index = opened(store, folder)

    feed(index, store)

    assert contents(folder) == list(store.below("index/").values())
