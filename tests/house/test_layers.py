"""Nothing imports upwards or sideways; ARCHITECTURE.md draws the layers."""

import subprocess
import sys
from pathlib import Path

from scripts import tree


def test_no_module_imports_upwards_or_sideways() -> None:
    """In a process of its own: import-linter turns off every logger there is."""
    lint_imports = Path(sys.executable).parent / "lint-imports"

    done = subprocess.run(
        [lint_imports, "--no-cache"], cwd=tree.ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_a_place_in_the_layers() -> None:
    """A new package that nobody put into the contract would be free to import anything."""
    contract = (tree.ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    placed = set(contract.translate(str.maketrans('|,"()', "     ")).split())
    package = tree.ROOT / "src" / "cometmq"
    parts = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    entry_points = {"__init__", "__main__", "__pycache__", "aio"}

    assert parts - entry_points - placed == set()
