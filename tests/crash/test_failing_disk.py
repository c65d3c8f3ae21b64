"""A disk that fails or is full, seen from within: no promise without the disk, and no pretence."""

import errno
import os
from pathlib import Path

import pytest

from cometmq.store import FlushMode, MessageStore, PutStatus
from cometmq.testing import CrashingDisk
from cometmq.testing.durable_image import PAGE_BYTES
from tests.crash import messages
from tests.crash.ledger import claim_consistent
from tests.crash.reading import read_all
from tests.crash.sizes import small

slow = pytest.mark.slow


def test_a_failed_sync_makes_the_store_read_only_and_says_why(tmp_path: Path) -> None:
    disk = CrashingDisk(tmp_path)
    store = MessageStore.open(tmp_path, small(), files=disk, threads=False)
    store.put(messages.message(0))
    store.flush()

    disk.fail_sync(OSError(errno.EIO, os.strerror(errno.EIO)))
    store.put(messages.message(1))
    store.flush()
    disk.heal()
    refused = store.put(messages.message(2))

    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in refused.reason
    assert refused.reason == store.state.refusal
    assert not store.state.is_writable
    assert [messages.number_of(found) for found in read_all(store)] == [0, 1]
    store.close()
    assert (tmp_path / "abort").exists()


def test_a_waiting_sender_learns_of_a_failed_sync(tmp_path: Path) -> None:
    disk = CrashingDisk(tmp_path)
    disk.fail_sync(OSError(errno.EIO, os.strerror(errno.EIO)))
    with MessageStore.open(tmp_path, small(is_sync=True), files=disk) as store:
        result = store.wait_flushed(store.put(messages.message(0)))

        assert result.status is PutStatus.FLUSH_DISK_TIMEOUT
        assert "Input/output error" in result.reason
        assert store.put(messages.message(1)).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("mode", FlushMode)
def test_a_store_that_failed_takes_nothing_even_if_nobody_reads(
    tmp_path: Path, mode: FlushMode
) -> None:
    """The failure happens on the flusher's thread; the next put must know."""
    disk = CrashingDisk(tmp_path)
    disk.fail_sync(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with MessageStore.open(
        tmp_path, small(is_sync=mode is FlushMode.SYNC_FLUSH), files=disk
    ) as store:
        first = store.put(messages.message(0))
        store.wait_flushed(first)

        assert store.put(messages.message(1)).status is PutStatus.SERVICE_NOT_AVAILABLE


@slow
def test_what_was_promised_before_a_failed_sync_outlives_a_power_cut(tmp_path: Path) -> None:
    for seed in range(10):
        root = tmp_path / str(seed)
        disk = CrashingDisk(root)
        store = MessageStore.open(root, small(), files=disk, threads=False)
        store.put(messages.message(0))
        store.flush()
        disk.fail_sync(OSError(errno.EIO, os.strerror(errno.EIO)))
        store.put(messages.message(1))
        store.flush()

        disk.crash(seed)
        disk.heal()

        with MessageStore.open(root, small(), files=disk, threads=False) as store:
            assert [messages.number_of(found) for found in read_all(store)] in ([0], [0, 1])
        claim_consistent(root, small())


@slow
@pytest.mark.parametrize("free_pages", [0, 1, 15, 16, 17, 18, 20, 25, 30, 31, 32, 33, 45, 60])
def test_a_full_disk_refuses_messages_and_takes_them_again_when_there_is_room(
    tmp_path: Path, free_pages: int
) -> None:
    """Whatever it was that found no room: log, queue, index or checkpoint."""
    disk = CrashingDisk(tmp_path)
    with MessageStore.open(tmp_path, small(), files=disk, threads=False) as store:
        number = 0
        disk.fill_after(free_pages * PAGE_BYTES)
        while (result := store.put(messages.message(number))).status.is_stored:
            store.dispatch()
            number += 1

        assert result.status in (
            PutStatus.CREATE_MAPPED_FILE_FAILED,
            PutStatus.SERVICE_NOT_AVAILABLE,
        )
        assert os.strerror(errno.ENOSPC) in result.reason
        assert len(list(read_all(store))) <= number
        disk.heal()
        store.clean()
        assert store.put(messages.message(number)).status is PutStatus.PUT_OK
        found = sorted(messages.number_of(record) for record in read_all(store))
        assert found == list(range(number + 1))
        assert store.state.index_failure == ""
        for each in found:
            topic, _ = messages.place(each)
            assert len(store.query(topic, messages.unique_key(each))) == 1, each

    assert disk.unallocated_writes == []
    claim_consistent(tmp_path, small())
