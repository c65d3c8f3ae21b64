"""The cache: made once, whole or absent, never twice at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.cache import Cache, CacheBusyError, default_cache, key

REPOSITORY = Path(__file__).parents[2]


def test_an_entry_is_made_once_and_found_afterwards(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "file").write_text("content")

    first = cache.entry("thing", {"input": "1"}, make)
    second = cache.entry("thing", {"input": "1"}, make)

    assert first == second
    assert (first / "file").read_text() == "content"
    assert len(made) == 1


def test_another_input_is_another_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    one = cache.entry("thing", {"input": "1"}, lambda _: None)
    two = cache.entry("thing", {"input": "2"}, lambda _: None)

    assert one != two


def test_pieces_of_inputs_cannot_be_mistaken_for_each_other() -> None:
    assert key("n", {"a": "bc"}) != key("n", {"ab": "c"})
    assert key("n", {"a": "", "b": "c"}) == key("n", {"b": "c", "a": ""})


def test_a_failed_make_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no network")

    with pytest.raises(RuntimeError, match="no network"):
        cache.entry("thing", {}, fail)

    assert [path.name for path in tmp_path.iterdir()] == ["locks"]
    assert cache.entry("thing", {}, lambda _: None).is_dir()


MAKER = """
import sys, time
from pathlib import Path
from tests.interop.cache import Cache

root = Path(sys.argv[1])

def make(folder):
    with (root / "makers").open("a") as makers:
        makers.write("x")
    time.sleep(0.05)
    (folder / "file").write_text("whole")

entry = Cache(root).entry("thing", {}, make)
assert (entry / "file").read_text() == "whole"
"""


@pytest.mark.slow
def test_processes_that_want_the_same_entry_make_it_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", MAKER, str(tmp_path)]

    makers = [subprocess.Popen(argv, cwd=REPOSITORY) for _ in range(3)]

    assert [maker.wait(30) for maker in makers] == [0, 0, 0]
    assert (tmp_path / "makers").read_text() == "x"


@pytest.mark.slow
def test_waiting_for_another_maker_has_a_bound(tmp_path: Path) -> None:
    impatient = Cache(tmp_path, lock_wait_s=0.01)

    def make(_: Path) -> None:
        impatient.entry("thing", {}, lambda _: None)

    with pytest.raises(
        CacheBusyError, match=r"'thing-.*' is still being made elsewhere after 0.01 s"
    ):
        Cache(tmp_path).entry("thing", {}, make)


def test_the_environment_says_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COMETMQ_CACHE", str(tmp_path))

    assert default_cache().root == tmp_path


def test_without_a_word_the_cache_is_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COMETMQ_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert default_cache().root == tmp_path / ".cache" / "cometmq"
