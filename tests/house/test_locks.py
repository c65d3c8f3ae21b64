"""Locked versions: exact, hashed, installable from whichever registry a machine is set up for."""

import re
from pathlib import Path

import pytest

from scripts import tree

LOCKS = sorted((tree.ROOT / "locks").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_has_an_exact_version_and_hashes(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())

    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==[\w.]+", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_address_of_a_registry_is_locked_in(lock: Path) -> None:
    text = lock.read_text()

    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text


def test_every_declared_dependency_is_locked() -> None:
    declared = re.findall(r'^\s+"([A-Za-z0-9-]+)[>=;]', _table("dependencies = ["), re.MULTILINE)
    locked = (tree.ROOT / "locks/run.txt").read_text()

    assert declared == ["msgspec", "click", "uvloop"]
    assert all(f"{name}==" in locked for name in declared)


def _table(start: str) -> str:
    text = (tree.ROOT / "pyproject.toml").read_text()
    return text.split(start)[1].split("]")[0]
