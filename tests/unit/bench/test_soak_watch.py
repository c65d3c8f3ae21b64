"""What is seen of a process, and of its log."""

import mmap
import os
from pathlib import Path

import pytest

from bench.soak_watch import Life, read_log, sample


def test_files_of_the_store_are_told_from_others_and_from_sockets(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    before = sample(os.getpid(), 1.0, store)

    with (store / "a").open("wb"), (store / "b").open("wb"), (tmp_path / "c").open("wb"):
        after = sample(os.getpid(), 2.0, store)

    assert (before.age_s, after.age_s) == (1.0, 2.0)
    assert after.store_files == before.store_files + 2
    assert after.other_files == before.other_files + 1
    assert after.sockets == before.sockets
    assert before.anonymous_mb > 1


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_file_without_a_name_is_seen(tmp_path: Path, how: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(4096))
    before = sample(os.getpid(), 0.0, tmp_path).deleted

    with path.open("r+b") as file:
        path.unlink()
        if how == "open":
            held = sample(os.getpid(), 0.0, tmp_path).deleted
        else:
            with mmap.mmap(file.fileno(), 4096):
                file.close()
                held = sample(os.getpid(), 0.0, tmp_path).deleted

    assert [name for name in held if name not in before] == [f"{path} (deleted)"]
    assert sample(os.getpid(), 0.0, tmp_path).deleted == before


def test_a_process_that_has_ended_cannot_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        sample(2**22 + 1, 0.0, tmp_path)  # above what Linux gives


def test_complaints_are_found_in_a_log() -> None:
    life = Life(1, 1, 0.0)

    read_log(
        life,
        "2026-03-01T09:30:00.250Z INFO    cometmq.broker broker listens\n"
        "2026-03-01T09:30:01.250Z WARNING cometmq.store file=a is kept\n"
        "2026-03-01T09:30:02.250Z ERROR   cometmq.store flush failed\n"
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "ValueError: ERROR in a value\n",
    )

    assert life.warnings == ["cometmq.store file=a is kept"]
    assert [line.split()[0] for line in life.errors] == ["2026-03-01T09:30:02.250Z", "Traceback"]
