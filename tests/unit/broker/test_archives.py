"""Archives of the log: how far they have got, and what is kept for them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.archives import (
    ARCHIVES_MAX,
    Archives,
    ArchivesFile,
    ArchiveTable,
    Watermark,
)
from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError, RemoteProtocolError
from cometmq.store import MessageStore, StoreSettings
from cometmq.store.results import NewMessage
from cometmq.store.retention import Hold
from cometmq.testing import FakeClock

ALL_HOURS = tuple(f"{hour:02d}" for hour in range(24))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    settings = StoreSettings(
        root=tmp_path, log_file_bytes=4096, retention_hours=0, deletion_hours=ALL_HOURS
    )
    clock = FakeClock(1 << 42)  # long after the files were made
    with MessageStore.open(tmp_path, settings, clock=clock, threads=False) as store:
        for _ in range(8):
            store.put(NewMessage("orders", 0, b"x" * 3000))
        store.flush()
        yield store


@pytest.fixture
def archives(store: MessageStore) -> Archives:
    return opened(store)


def opened(store: MessageStore) -> Archives:
    archives = Archives(ArchivesFile(store.root), store, FakeClock())
    store.retention.hold = archives.hold
    return archives


def test_without_archives_nothing_is_kept(store: MessageStore, archives: Archives) -> None:
    assert archives.hold() is None
    assert archives.behind_bytes == 0
    assert store.clean() == 7


def test_what_is_not_archived_is_kept(store: MessageStore, archives: Archives) -> None:
    archives.commit("lake", 2 * 4096 + 1)

    assert store.clean() == 2
    assert store.log_begin == 2 * 4096
    assert archives.behind_bytes == store.log_end - 2 * 4096 - 1


def test_the_archive_that_is_furthest_behind_counts(archives: Archives) -> None:
    archives.commit("lake", 4096)
    archives.commit("tape", 100)
    archives.commit("disk", 8192)

    assert archives.hold() == Hold("tape", 100)
    assert archives.count == 3


def test_a_watermark_never_moves_back(archives: Archives) -> None:
    assert archives.commit("lake", 200) == 200
    assert archives.commit("lake", 100) == 200
    assert archives.hold() == Hold("lake", 200)


def test_one_that_is_removed_keeps_nothing(store: MessageStore, archives: Archives) -> None:
    archives.commit("lake", 0)
    assert store.clean() == 0

    assert archives.remove("lake")
    assert not archives.remove("lake")

    assert store.clean() == 7


def test_only_what_is_on_disk_can_be_archived(store: MessageStore, archives: Archives) -> None:
    flushed = store.log_end
    store.put(NewMessage("orders", 0, b"not flushed"))

    assert archives.commit("lake", flushed) == flushed
    with pytest.raises(BrokerError) as refused:
        archives.commit("lake", flushed + 1)

    assert refused.value.response_code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("offset", [-1, 1 << 40])
def test_an_impossible_offset_is_refused(archives: Archives, offset: int) -> None:
    with pytest.raises(BrokerError):
        archives.commit("lake", offset)


@pytest.mark.parametrize("name", ["", "a b", "../lake", "lake\n", "l" * 65, "ä"])
def test_a_name_is_short_and_plain(archives: Archives, name: str) -> None:
    with pytest.raises(BrokerError):
        archives.commit(name, 0)


def test_there_are_not_too_many(archives: Archives) -> None:
    for number in range(ARCHIVES_MAX):
        archives.commit(f"archive-{number}", 0)

    with pytest.raises(BrokerError):
        archives.commit("one-more", 0)
    assert archives.commit("archive-0", 1) == 1


class TestFile:
    def test_what_was_saved_is_there_again(self, store: MessageStore, archives: Archives) -> None:
        calls = []
        archives.on_change = lambda: calls.append(1)
        archives.commit("lake", 100)
        archives.commit("lake", 100)
        ArchivesFile(store.root).save(archives.table())

        assert opened(store).hold() == Hold("lake", 100)
        assert len(calls) == 1

    def test_a_watermark_behind_the_end_of_the_log_is_of_another_one(
        self, store: MessageStore, archives: Archives, caplog: pytest.LogCaptureFixture
    ) -> None:
        archives.commit("lake", store.log_end)
        ArchivesFile(store.root).save(archives.table())
        with MessageStore.open(store.root / "other", threads=False) as empty:
            file = ArchivesFile(store.root)

            with caplog.at_level(logging.WARNING):
                found = Archives(file, empty, FakeClock())

            assert found.hold() == Hold("lake", 0)
            assert "archive=lake has got to" in caplog.text

    @pytest.mark.parametrize(
        "content",
        [
            b"hello",
            b"[]",
            b'{"format":"cometmq archives","version":2,"archives":{}}',
            b'{"format":"something else","version":1,"archives":{}}',
            b'{"format":"cometmq archives","version":1,"archives":{"lake":{"offset":"x"}}}',
        ],
    )
    def test_a_file_that_cannot_be_read_is_not_overwritten(
        self, store: MessageStore, content: bytes
    ) -> None:
        folder = store.root / "config"
        folder.mkdir()
        (folder / "cometArchives.json").write_bytes(content)

        with pytest.raises(RemoteProtocolError):
            opened(store)


def test_a_watermark_beyond_the_log_is_lowered_for_good(store: MessageStore) -> None:
    ArchivesFile(store.root).save(ArchiveTable({"lake": Watermark(1_000_000, 1)}))
    end = store.log_end

    opened(store)
    store.put(NewMessage("orders", 0, b"x" * 3000))

    assert opened(store).hold() == Hold("lake", end)
