"""Queue files are mapped when they are needed; few are enough for many queues."""

import resource
import tempfile
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import Any

import pytest

from cometmq.store.check import check
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.files import DiskFile, DiskFiles
from cometmq.store.queue_mappings import MAPPINGS_MAX, MAPPINGS_MIN, QueueMappings, mappings_allowed
from tests.unit.store.builders import (
    QUEUE_ENTRIES,
    TOPIC,
    bodies,
    message,
    numbered,
    open_store,
    put,
    put_all,
    read,
)
from tests.unit.store.shut_disk import ShutDisk


def mapped_queue_files(root: Path) -> int:
    """How many mappings this process has of queue files below ``root``."""
    folder = f"{root}/consumequeue/"
    return Path("/proc/self/maps").read_text().count(folder)


class TestMappings:
    @pytest.fixture
    def paths(self, tmp_path: Path) -> list[str]:
        paths = [f"{tmp_path}/{name}" for name in "abcd"]
        for path in paths:
            DiskFiles().create(Path(path), 400)
        return paths

    @pytest.fixture
    def mappings(self) -> Iterator[QueueMappings]:
        mappings = QueueMappings(DiskFiles(), 2)
        yield mappings
        mappings.close()

    def owner(self, mappings: QueueMappings, path: str) -> ConsumeQueue:
        return ConsumeQueue(TOPIC, 0, path, mappings, 400)

    def test_a_file_is_mapped_once(self, mappings: QueueMappings, paths: list[str]) -> None:
        first = mappings.get(paths[0])

        assert mappings.get(paths[0]) is first
        assert len(mappings) == 1
        assert len(first) == 400

    def test_the_one_idle_longest_goes_first(
        self, mappings: QueueMappings, paths: list[str]
    ) -> None:
        a, b = mappings.get(paths[0]), mappings.get(paths[1])
        mappings.get(paths[0])

        mappings.get(paths[2])

        assert (is_mapped(a), is_mapped(b)) == (True, False)
        assert len(mappings) == 2

    def test_an_owner_is_told_and_maps_again_when_needed(
        self, mappings: QueueMappings, paths: list[str], tmp_path: Path
    ) -> None:
        queue = self.owner(mappings, f"{tmp_path}/queue")
        queue.append(0, 0, 100, 0)
        queue.is_hot = False
        for path in paths[:2]:
            mappings.get(path)

        queue.append(1, 100, 100, 0)

        assert [queue.entry(n)[0] for n in (0, 1)] == [0, 100]
        assert len(mappings) == 2

    def test_an_owner_that_was_busy_gets_a_second_chance(
        self, mappings: QueueMappings, paths: list[str], tmp_path: Path
    ) -> None:
        queue = self.owner(mappings, f"{tmp_path}/queue")
        queue.append(0, 0, 100, 0)
        idle = mappings.get(paths[0])
        buffer = queue.bytes_at(0)[0]

        mappings.get(paths[1])

        assert (is_mapped(buffer), is_mapped(idle)) == (True, False)

    def test_busy_owners_do_not_keep_others_out_for_ever(
        self, mappings: QueueMappings, paths: list[str], tmp_path: Path
    ) -> None:
        for name in "xy":
            self.owner(mappings, f"{tmp_path}/{name}").append(0, 0, 100, 0)

        mappings.get(paths[0])

        assert len(mappings) == 2

    def test_what_is_forgotten_is_unmapped(self, mappings: QueueMappings, paths: list[str]) -> None:
        a = mappings.get(paths[0])

        mappings.forget(paths[0])
        mappings.forget(paths[0])

        assert not is_mapped(a)
        assert len(mappings) == 0

    def test_a_file_that_is_not_there_leaves_no_trace(
        self, mappings: QueueMappings, tmp_path: Path
    ) -> None:
        with pytest.raises(FileNotFoundError):
            mappings.get(f"{tmp_path}/nothing")

        assert len(mappings) == 0


def is_mapped(buffer: mmap) -> bool:
    return not buffer.closed


def test_the_limit_on_open_files_decides_how_many_there_may_be() -> None:
    allowed = mappings_allowed()

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert MAPPINGS_MIN <= allowed <= MAPPINGS_MAX
    assert soft == hard or hard == resource.RLIM_INFINITY
    assert soft == resource.RLIM_INFINITY or allowed < soft


class QuickFile(DiskFile):
    """Does not wait for the disk: 100,000 syncs would take minutes and prove nothing here."""

    def sync(self) -> None:
        pass


class QuickFiles(DiskFiles):
    """The real file system, except that nothing is waited for."""

    def create(self, path: Path, size: int, *, durable: bool = True) -> None:
        super().create(path, size, durable=False)

    def settle(self, path: Path) -> None:
        pass

    def open(self, path: Path) -> QuickFile:
        return QuickFile(path)


LOG: dict[str, Any] = {"log_file_bytes": 16 << 20, "has_index": False}


class TestManyQueues:
    def test_200_queues_work_with_16_mappings(self, root: Path) -> None:
        with open_store(root, files=QuickFiles(), mapped_queue_files_max=16, **LOG) as store:
            for body in numbered(2):
                for queue_id in range(200):
                    put(store, message(body, queue_id=queue_id))
                store.dispatch()
            found = [bodies(store, TOPIC, queue_id) for queue_id in range(200)]
            count = mapped_queue_files(root)
            store.flush()

            assert found == [numbered(2)] * 200
            assert count <= 16
        with open_store(root, files=QuickFiles(), mapped_queue_files_max=16) as store:
            assert mapped_queue_files(root) <= 16
            assert [bodies(store, TOPIC, queue_id) for queue_id in range(200)] == found
        assert mapped_queue_files(root) == 0

    def test_one_mapping_is_enough(self, root: Path) -> None:
        with open_store(root, mapped_queue_files_max=1) as store:
            for number in range(30):
                put(store, message(b"%d" % number, queue_id=number % 3))
            put_all(store, *numbered(2 * QUEUE_ENTRIES), queue_id=7)
            store.dispatch()

            assert mapped_queue_files(root) == 1
            assert bodies(store, TOPIC, 7) == numbered(2 * QUEUE_ENTRIES)
            assert [bodies(store, TOPIC, n) for n in range(3)] == [
                numbered(30)[n::3] for n in range(3)
            ]
            assert store.offset_at_time(TOPIC, 7, 1 << 60) == 2 * QUEUE_ENTRIES

    def test_a_queue_that_was_unmapped_is_written_on(self, root: Path) -> None:
        with open_store(root, mapped_queue_files_max=2) as store:
            for round_number in range(5):
                for queue_id in range(6):
                    put(store, message(b"%d" % round_number, queue_id=queue_id))
                store.dispatch()

            assert [bodies(store, TOPIC, n) for n in range(6)] == [numbered(5)] * 6

    def test_a_queue_can_be_read_whose_next_file_cannot_be_opened(self, root: Path) -> None:
        """The file before it was unmapped to make room."""
        disk = ShutDisk()
        with open_store(root, files=disk, mapped_queue_files_max=1) as store:
            put_all(store, *numbered(QUEUE_ENTRIES))
            store.dispatch()
            disk.shut = root / "consumequeue" / TOPIC / "0" / f"{QUEUE_ENTRIES * 20:020d}"
            put(store, message(b"next"))
            store.dispatch()

            meanwhile = bodies(store)
            disk.shut = None
            store.dispatch()

            assert meanwhile == numbered(QUEUE_ENTRIES)
            assert bodies(store) == [*numbered(QUEUE_ENTRIES), b"next"]


@pytest.fixture
def folder_in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder that takes 100,000 names quickly, where the system has one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_50000_queues_work(folder_in_memory: Path) -> None:
    root = folder_in_memory / "store"
    topics = [f"topic-{number}" for number in range(500)]
    with open_store(root, files=QuickFiles(), queue_file_bytes=4000, **LOG) as store:
        for some in (topics, topics[::10]):
            for topic in some:
                for queue_id in range(100):
                    put(store, message(b"x", topic, queue_id))
                store.dispatch()

        assert len(store.queues()) == 50_000
        assert mapped_queue_files(root) <= mappings_allowed()
        for topic in topics[::50]:
            found = [read(store, 0, topic, queue_id).bodies for queue_id in range(0, 100, 9)]
            assert found == [[b"x", b"x"]] * 12
        assert bodies(store, topics[1], 99) == [b"x"]
    with open_store(root, files=QuickFiles(), **LOG) as store:
        assert len(store.queues()) == 50_000
        assert {store.max_offset(topic, 99) for topic in topics[::10]} == {2}
        assert put(store, message(b"y", topics[-1], 99)).queue_offset == 1
        assert bodies(store, topics[-1], 99) == [b"x", b"y"]
    assert check(root).is_clean
