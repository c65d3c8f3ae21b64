"""Files that are damaged, missing, stale or of the wrong size: mended, or refused with a reason."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.codec import checkpoint, record
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.errors import DamagedStore
from cometmq.store import MessageStore, PutResult
from cometmq.testing import CrashingDisk, FakeClock
from tests.crash import messages
from tests.crash.ledger import claim_consistent
from tests.crash.reading import read_all, read_queue
from tests.crash.sizes import LOG_FILE_BYTES, small

COUNT = 250
"""Messages of a damaged store: enough for three log files and several index files."""


class Damaged:
    """A directory with messages, closed or left by a kill, and where they were put."""

    def __init__(self, root: Path, clock: FakeClock, results: list[PutResult]) -> None:
        self.root = root
        self.clock = clock
        self.results = results

    @classmethod
    def make(cls, root: Path, *, is_clean: bool) -> "Damaged":
        disk = CrashingDisk(root)
        clock = FakeClock()
        results: list[PutResult] = []
        store = MessageStore.open(root, small(), clock=clock, files=disk, threads=False)
        for number in range(COUNT):
            results.append(store.put(messages.message(number)))
            clock.advance(1)
        store.flush()
        if is_clean:
            store.close()
        else:
            disk.abandon()
        return cls(root, clock, results)

    def copy(self, root: Path) -> "Damaged":
        shutil.copytree(self.root, root)
        return Damaged(root, self.clock, self.results)

    def open(self) -> MessageStore:
        disk = CrashingDisk(self.root)  # which never waits for the real one
        return MessageStore.open(self.root, small(), clock=self.clock, files=disk, threads=False)

    def files(self, pattern: str) -> list[Path]:
        return sorted(path for path in self.root.glob(pattern) if path.is_file())

    @property
    def log_files(self) -> list[Path]:
        return self.files("commitlog/*")

    @property
    def newest_queue_file(self) -> Path:
        topic, queue_id = messages.place(COUNT - 1)
        return max((self.root / "consumequeue" / topic / str(queue_id)).iterdir())

    def change(self, position: int, change: Callable[[bytearray], None]) -> None:
        """Change bytes of the log from a position on."""
        path = self.root / "commitlog" / f"{position // LOG_FILE_BYTES * LOG_FILE_BYTES:020d}"
        content = bytearray(path.read_bytes())
        begin = position % LOG_FILE_BYTES
        part = content[begin:]
        change(part)
        path.write_bytes(content[:begin] + part)

    def forget_entry(self, number: int) -> None:
        """Make the queue entry of a message one that was never written."""
        topic, queue_id = messages.place(number)
        path = self.root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
        content = bytearray(path.read_bytes())
        begin = self.results[number].queue_offset * ENTRY_BYTES
        content[begin : begin + ENTRY_BYTES] = bytes(ENTRY_BYTES)
        path.write_bytes(content)

    def found(self) -> list[int]:
        """Open the store, read it, close it and check it; the numbers of its messages."""
        with self.open() as store:
            numbers = sorted(messages.number_of(found) for found in read_all(store))
            for number in numbers:
                topic, _ = messages.place(number)
                hits = store.query(topic, messages.unique_key(number))
                assert hits == [self.results[number].physical_offset], number
            assert store.put(messages.message(numbers[-1] + 1)).status.is_stored
        claim_consistent(self.root, small())
        return numbers


@pytest.fixture(scope="module")
def closed_store(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged.make(tmp_path_factory.mktemp("closed"), is_clean=True)


@pytest.fixture(scope="module")
def killed_store(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged.make(tmp_path_factory.mktemp("killed"), is_clean=False)


@pytest.fixture
def closed(closed_store: Damaged, tmp_path: Path) -> Damaged:
    """To be damaged after it was closed."""
    return closed_store.copy(tmp_path / "store")


@pytest.fixture
def killed(killed_store: Damaged, tmp_path: Path) -> Damaged:
    """To be damaged after its process was killed."""
    return killed_store.copy(tmp_path / "store")


@pytest.fixture(params=["closed", "killed"])
def damaged(request: pytest.FixtureRequest) -> Damaged:
    """Both of them."""
    found: Damaged = request.getfixturevalue(request.param)
    return found


def all_of_them() -> list[int]:
    return list(range(COUNT))


def message_at(store: MessageStore, physical_offset: int) -> int:
    view = store.record_at(physical_offset)
    assert view is not None, physical_offset
    with view:
        found = record.parse(view)
    assert isinstance(found, record.Record)
    return messages.number_of(found)


pytestmark = pytest.mark.slow


def test_a_store_without_damage_has_everything(damaged: Damaged) -> None:
    assert damaged.found() == all_of_them()


# --- the log ---


@pytest.mark.parametrize("where", [-1, -2, -10])
def test_a_flipped_bit_in_a_body_ends_the_log_there_after_a_kill(
    killed: Damaged, where: int
) -> None:
    """The checkpoint does not vouch for the last seconds, so their checksums are looked at."""
    (killed.root / "checkpoint").unlink()
    number = COUNT + where
    size = len(messages.body(number))

    def flip(content: bytearray) -> None:
        content[88 + size - 1] ^= 0x10

    killed.change(killed.results[number].physical_offset, flip)

    assert killed.found() == list(range(number))


@pytest.mark.timeout(10)
@pytest.mark.parametrize("has_entry", [True, False], ids=["in its queue", "not in its queue"])
@pytest.mark.parametrize("position", range(0, 88, 4))
def test_a_flipped_bit_in_the_head_of_the_last_record_harms_no_other(
    killed: Damaged, position: int, has_entry: bool
) -> None:
    """Fields without a checksum may be believed, but not so that anything else breaks."""
    (killed.root / "checkpoint").unlink()
    last = killed.results[-1]

    def flip(content: bytearray) -> None:
        content[position + 3] ^= 0x04

    killed.change(last.physical_offset, flip)
    if not has_entry:
        killed.forget_entry(COUNT - 1)

    with killed.open() as store:
        for number in range(COUNT - 1):
            place = killed.results[number].physical_offset
            assert message_at(store, place) == number
        for topic, queue_id in store.queues():
            if (topic, queue_id) != messages.place(COUNT - 1):
                assert len(list(read_queue(store, topic, queue_id))) > 0
        assert store.put(messages.message(COUNT)).status.is_stored
    assert sum(path.stat().st_size for path in killed.files("**/*")) < 10 * COUNT * LOG_FILE_BYTES


@pytest.mark.parametrize("magic", [0, 0x7FFFFFFF, -1])
def test_a_wrong_magic_ends_the_log_there_after_a_kill(killed: Damaged, magic: int) -> None:
    (killed.root / "checkpoint").unlink()

    def overwrite(content: bytearray) -> None:
        content[4:8] = struct.pack(">i", magic)

    killed.change(killed.results[-5].physical_offset, overwrite)

    assert killed.found() == list(range(COUNT - 5))


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
@pytest.mark.parametrize("size", [1, LOG_FILE_BYTES - 1, LOG_FILE_BYTES + 1])
def test_a_log_file_of_the_wrong_size_is_refused_by_name(
    damaged: Damaged, is_first: bool, size: int
) -> None:
    path = damaged.log_files[0 if is_first else -1]
    content = path.read_bytes()
    path.write_bytes(content[:size].ljust(size, b"\0"))

    with pytest.raises(DamagedStore) as refusal:
        damaged.open()

    assert str(path) in str(refusal.value) or str(damaged.log_files[0].parent) in str(refusal.value)
    assert "bytes" in refusal.value.problem
    assert refusal.value.next_step
    path.write_bytes(content)
    assert damaged.found() == all_of_them()


def test_an_empty_last_log_file_is_a_creation_that_was_cut_short(damaged: Damaged) -> None:
    last = damaged.log_files[-1]
    last.with_name(f"{int(last.name) + LOG_FILE_BYTES:020d}").touch()

    assert damaged.found() == all_of_them()


def test_a_log_file_prepared_in_vain_is_no_harm(damaged: Damaged) -> None:
    last = damaged.log_files[-1]
    last.with_name(f"{int(last.name) + LOG_FILE_BYTES:020d}").write_bytes(bytes(LOG_FILE_BYTES))

    assert damaged.found() == all_of_them()


def test_a_missing_log_file_in_the_middle_is_refused_by_name(damaged: Damaged) -> None:
    middle = damaged.log_files[1]
    assert len(damaged.log_files) > 2
    middle.unlink()

    with pytest.raises(DamagedStore, match=middle.name):
        damaged.open()


# --- the index ---


def test_a_missing_index_is_built_again(damaged: Damaged) -> None:
    shutil.rmtree(damaged.root / "index")

    assert damaged.found() == all_of_them()


def test_the_newest_index_file_is_built_again_after_a_kill(killed: Damaged) -> None:
    assert len(killed.files("index/*")) > 2
    killed.files("index/*")[-1].unlink()

    assert killed.found() == all_of_them()


def test_an_index_of_zeros_is_built_again_after_a_kill(killed: Damaged) -> None:
    for path in killed.files("index/*"):
        path.write_bytes(bytes(path.stat().st_size))

    assert killed.found() == all_of_them()


# --- the checkpoint ---


@pytest.mark.parametrize("content", [None, b"", b"\0", bytes(4096), b"\xff" * 4096])
def test_a_missing_or_broken_checkpoint_only_costs_time(
    damaged: Damaged, content: bytes | None
) -> None:
    path = damaged.root / "checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    assert damaged.found() == all_of_them()


def test_a_stale_checkpoint_only_costs_time(damaged: Damaged) -> None:
    early = damaged.results[10].store_timestamp
    stale = Checkpoint(log_timestamp=early, queue_timestamp=early, index_timestamp=early)
    (damaged.root / "checkpoint").write_bytes(checkpoint.pack(stale))

    assert damaged.found() == all_of_them()


# --- the queues ---


def test_missing_queues_are_built_again(damaged: Damaged) -> None:
    shutil.rmtree(damaged.root / "consumequeue")

    assert damaged.found() == all_of_them()


@pytest.mark.parametrize("size", [20, 1999])
def test_a_truncated_queue_file_is_refused_by_name(damaged: Damaged, size: int) -> None:
    path = damaged.newest_queue_file
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(DamagedStore) as refusal:
        damaged.open()

    assert str(path) in str(refusal.value)
    assert f"{size} bytes" in refusal.value.problem
    assert refusal.value.next_step


def test_a_queue_file_of_no_bytes_is_built_again_after_a_clean_stop(closed: Damaged) -> None:
    """After a kill it would be taken for a creation that was cut short."""
    closed.newest_queue_file.write_bytes(b"")

    assert closed.found() == all_of_them()


def test_queues_that_lost_their_newest_entries_get_them_back_after_a_kill(
    killed: Damaged,
) -> None:
    for path in killed.files("consumequeue/*/*/*"):
        content = path.read_bytes()
        path.write_bytes(content[: 5 * 20].ljust(len(content), b"\0"))
    (killed.root / "checkpoint").unlink()

    assert killed.found() == all_of_them()


# --- around them ---


@pytest.mark.parametrize("name", ["abort.tmp", "checkpoint.tmp"])
def test_a_temporary_file_of_a_kill_is_no_harm(damaged: Damaged, name: str) -> None:
    (damaged.root / name).write_bytes(b"half")

    assert damaged.found() == all_of_them()
