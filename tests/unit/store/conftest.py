"""Every store a test leaves behind is checked when the test is over."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.store.check import check


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Where a test has its store. It, and any other store beside it, must be consistent in the end.

    Copies of a store that a test made are found too: whatever has a commit log.
    """
    yield tmp_path / "store"
    for folder in sorted(tmp_path.iterdir()):
        if (folder / "commitlog").is_dir():
            report = check(folder)
            assert report.is_consistent, f"{folder.name}:\n{report}"
