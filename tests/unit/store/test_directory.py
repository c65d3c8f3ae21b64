"""What a survey of a store directory finds, and what it refuses."""

import tarfile
from pathlib import Path

import pytest

from cometmq.errors import DamagedStore
from cometmq.store.config import StoreSettings
from cometmq.store.directory import (
    Damage,
    Layout,
    offset_name,
)
from cometmq.store.files import DiskFiles, Entry
from tests.golden.store_data import STORES, load
from tests.unit.store.raw_store import RawStore, index_file

DATA = Path(__file__).parents[2] / "data" / "store"
SETTINGS = StoreSettings(log_file_bytes=4096, queue_file_bytes=400)


def survey(root: Path, settings: StoreSettings = SETTINGS) -> Layout:
    return Layout.survey(root, settings, DiskFiles())


def make(folder: Path, size: int, *offsets: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / offset_name(offset) for offset in offsets]
    for path in paths:
        path.write_bytes(bytes(size))
    return paths


def queue(root: Path, topic: str = "T", queue_id: str = "0") -> Path:
    return root / "consumequeue" / topic / queue_id


def damages(root: Path) -> list[tuple[Damage, str]]:
    """All damage of a directory, where a survey that refuses would stop at the first."""
    found: list[tuple[Damage, str]] = []
    Layout.survey(
        root, SETTINGS, DiskFiles(), on_damage=lambda kind, error: found.append((kind, error.path))
    )
    return found


def test_a_directory_that_does_not_exist_has_the_sizes_of_the_settings(tmp_path: Path) -> None:
    root = tmp_path / "store"

    layout = survey(root)

    assert not root.exists()
    assert (layout.log_files, layout.queue_files, layout.extension_files) == ([], {}, {})
    assert (layout.log_file_bytes, layout.queue_file_bytes) == (4096, 400)
    assert layout.log_folders == [root / "commitlog"]
    assert (layout.index_slots, layout.index_entries) == (5_000_000, 20_000_000)


def test_a_configured_queue_size_is_rounded_up_to_entries(tmp_path: Path) -> None:
    assert survey(tmp_path, StoreSettings(queue_file_bytes=401)).queue_file_bytes == 420


def test_every_file_has_its_place(tmp_path: Path) -> None:
    layout = survey(tmp_path)

    assert layout.checkpoint == tmp_path / "checkpoint"
    assert layout.abort == tmp_path / "abort"
    assert layout.lock == tmp_path / "lock"
    assert layout.index_folder == tmp_path / "index"
    assert layout.config_folder == tmp_path / "config"
    assert layout.queue_folder("T", 3) == tmp_path / "consumequeue/T/3"
    assert layout.extension_folder("T", 3) == tmp_path / "consumequeue_ext/T/3"
    assert layout.log_path(8192) == tmp_path / "commitlog/00000000000000008192"


def test_existing_files_decide_the_sizes(tmp_path: Path) -> None:
    log = make(tmp_path / "commitlog", 8192, 8192, 16384)
    entries = make(queue(tmp_path), 60, 0, 60, 120)
    units = make(tmp_path / "consumequeue_ext/T/0", 100, 0)

    layout = survey(tmp_path)

    assert (layout.log_files, layout.log_file_bytes) == (log, 8192)
    assert (layout.queue_files, layout.queue_file_bytes) == ({("T", 0): entries}, 60)
    assert (layout.extension_files, layout.extension_file_bytes) == ({("T", 0): units}, 100)


def test_a_queue_without_files_is_a_queue(tmp_path: Path) -> None:
    queue(tmp_path, "T", "7").mkdir(parents=True)

    assert survey(tmp_path).queue_files == {("T", 7): []}


def test_folders_that_are_no_queue_are_passed_over(tmp_path: Path) -> None:
    for name in ("one", "-1", "007", "\u0663"):
        queue(tmp_path, "T", name).mkdir(parents=True)
    (tmp_path / "consumequeue/notes").write_text("")

    layout = survey(tmp_path)

    assert layout.queue_files == {}
    assert len(layout.strays) == 5


def test_folders_and_hidden_files_among_log_files_are_passed_over(tmp_path: Path) -> None:
    (log,) = make(tmp_path / "commitlog", 4096, 0)
    (tmp_path / "commitlog/lost+found").mkdir()
    (tmp_path / "commitlog/.nfs0001").write_text("deleted while it was open")

    layout = survey(tmp_path)

    assert layout.log_files == [log]
    assert layout.strays == [
        tmp_path / "commitlog/.nfs0001",
        tmp_path / "commitlog/lost+found",
    ]


def test_the_log_of_several_paths_is_ordered_by_offset(tmp_path: Path) -> None:
    a, b, old = (tmp_path / name for name in ("a", "b", "old"))
    second = make(b, 4096, 4096, 12288)
    third = make(a, 4096, 8192)
    first = make(old, 4096, 0)
    settings = StoreSettings(
        log_paths=(str(b), str(a), str(old)), log_paths_read_only=(str(old),), log_file_bytes=4096
    )

    layout = survey(tmp_path, settings)

    assert layout.log_files == [first[0], second[0], third[0], second[1]]
    assert layout.log_folders == [a, b]
    assert layout.log_path(16384) == a / offset_name(16384)
    assert layout.log_path(20480) == b / offset_name(20480)


def test_a_file_that_lies_on_two_paths_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", 4096, 0)
    make(tmp_path / "b", 4096, 0)
    settings = StoreSettings(log_paths=(str(tmp_path / "a"), str(tmp_path / "b")))

    with pytest.raises(DamagedStore, match=r"exists twice, also as .*/a/0"):
        survey(tmp_path, settings)


def test_a_log_file_of_another_size_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "commitlog", 4096, 0, 8192)
    make(tmp_path / "commitlog", 4000, 4096)

    with pytest.raises(DamagedStore) as refusal:
        survey(tmp_path)

    assert refusal.value.path == str(tmp_path / "commitlog" / offset_name(4096))
    assert "has 4000 bytes, others of its kind have 4096" in refusal.value.problem


def test_of_two_sizes_the_configured_one_is_right(tmp_path: Path) -> None:
    make(tmp_path / "commitlog", 1000, 0)
    make(tmp_path / "commitlog", 4096, 4096)

    assert damages(tmp_path) == [(Damage.SIZE, str(tmp_path / "commitlog" / offset_name(0)))]


def test_a_queue_file_of_another_size_is_refused(tmp_path: Path) -> None:
    make(queue(tmp_path), 400, 0, 400)
    make(queue(tmp_path, "T", "1"), 399, 0)

    assert damages(tmp_path) == [(Damage.SIZE, str(queue(tmp_path, "T", "1") / offset_name(0)))]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    make(tmp_path / "commitlog", 4096, 0, 8192)

    with pytest.raises(DamagedStore, match=f"{offset_name(4096)}: file is missing"):
        survey(tmp_path)


def test_a_missing_queue_file_is_named(tmp_path: Path) -> None:
    make(queue(tmp_path), 400, 400, 1200)

    assert damages(tmp_path) == [(Damage.GAP, str(queue(tmp_path) / offset_name(800)))]


def test_a_file_that_begins_between_files_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "commitlog", 4096, 0, 4096, 5000)

    assert damages(tmp_path) == [(Damage.NAME, str(tmp_path / "commitlog" / offset_name(5000)))]


@pytest.mark.parametrize("name", ["0", "0" * 21, "\u0660" * 20, "00000000000000004096.bak"])
def test_a_file_that_is_not_named_by_an_offset_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path / "commitlog", 4096, 0)
    (tmp_path / "commitlog" / name).write_bytes(bytes(4096))

    assert damages(tmp_path) == [(Damage.NAME, str(tmp_path / "commitlog" / name))]


def test_an_empty_last_file_counts_as_absent(tmp_path: Path) -> None:
    log = make(tmp_path / "commitlog", 4096, 0)
    cut_short = make(tmp_path / "commitlog", 0, 4096) + make(queue(tmp_path), 0, 0)

    layout = survey(tmp_path)

    assert layout.log_files == log
    assert layout.queue_files == {("T", 0): []}
    assert layout.removable == cut_short


def test_an_empty_file_before_others_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "commitlog", 0, 0)
    make(tmp_path / "commitlog", 4096, 4096)

    assert damages(tmp_path) == [(Damage.SIZE, str(tmp_path / "commitlog" / offset_name(0)))]


# The index


def test_existing_index_files_decide_their_shape(tmp_path: Path) -> None:
    store = RawStore(tmp_path, index_slots=30, index_entries=11)
    for number in range(40):
        store.put(KEYS=f"k{number}")
    store.write()

    layout = survey(tmp_path)

    assert (layout.index_slots, layout.index_entries) == (30, 11)
    assert layout.index_files == sorted((tmp_path / "index").iterdir())
    assert len(layout.index_files) == 4


def test_an_index_of_the_configured_shape_need_not_have_entries(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    path = tmp_path / "index/20231114221320000"
    path.write_bytes(index_file(10, 40, 0).data)

    layout = survey(tmp_path, StoreSettings(index_slots=10, index_entries=40))

    assert layout.index_files == [path]


def test_an_index_without_entries_is_no_loss_whatever_its_shape(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    path = tmp_path / "index/20231114221320000"
    path.write_bytes(index_file(10, 40, 0).data)

    layout = survey(tmp_path)

    assert (layout.index_files, layout.removable) == ([], [path])
    assert layout.index_slots == SETTINGS.index_slots


def test_an_index_of_no_known_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    index = index_file(10, 40, 5)
    index.set("i", 32, 20)
    (tmp_path / "index/20231114221320000").write_bytes(index.data)

    with pytest.raises(DamagedStore, match="no number of slots fits") as refusal:
        survey(tmp_path)

    assert "maxHashSlotNum" in refusal.value.next_step


def test_an_index_file_of_another_size_is_refused(tmp_path: Path) -> None:
    store = RawStore(tmp_path)
    for number in range(100):
        store.put(KEYS=f"k{number}")
    store.write()
    odd = max((tmp_path / "index").iterdir())
    odd.write_bytes(odd.read_bytes()[:-1])

    assert damages(tmp_path) == [(Damage.SIZE, str(odd))]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_stores_of_apaches_brokers_show_their_sizes(name: str, tmp_path: Path) -> None:
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    sizes = load(name).manifest["segmentSizes"]

    layout = survey(tmp_path / "store", StoreSettings())

    assert layout.log_file_bytes == sizes["commitLog"]
    assert layout.queue_file_bytes == sizes["consumeQueue"]
    assert layout.index_slots == sizes["maxHashSlotNum"]
    assert layout.index_entries == sizes["maxIndexNum"]
    assert (layout.removable, layout.strays) == ([], [])


@pytest.mark.slow
def test_many_queues_are_surveyed_quickly(tmp_path: Path) -> None:
    """Each folder is listed once: three calls of the system per queue, not one per entry."""
    for number in range(2000):
        make(queue(tmp_path, f"topic-{number % 50}", str(number // 50)), 400, 0)
    files = CountingFiles()

    layout = Layout.survey(tmp_path, SETTINGS, files)

    assert len(layout.queue_files) == 2000
    assert files.count <= 2000 + 50 + 10


class CountingFiles(DiskFiles):
    def __init__(self) -> None:
        self.count = 0

    def entries(self, folder: Path) -> list[Entry]:
        self.count += 1
        return super().entries(folder)
