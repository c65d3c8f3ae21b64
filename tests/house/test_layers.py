"""Nothing imports upwards or sideways; ARCHITECTURE.md draws the layers."""

import pytest
from importlinter.cli import lint_imports

from scripts import tree


def test_no_module_imports_upwards_or_sideways(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(tree.ROOT / "pyproject.toml"), no_cache=True)

    assert status == 0, capsys.readouterr().out


def test_every_package_has_a_place_in_the_layers() -> None:
    """A new package that nobody put into the contract would be free to import anything."""
    contract = (tree.ROOT / "pyproject.toml").read_text().split("layers = [")[1].split("]")[0]
    placed = set(contract.translate(str.maketrans('|,"()', "     ")).split())
    package = tree.ROOT / "src" / "cometmq"
    parts = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    entry_points = {"__init__", "__main__", "__pycache__", "aio"}

    assert parts - entry_points - placed == set()
