"""A clone in an empty home sets itself up and runs the main job, as the README promises."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from scripts import tree
from tests.interop import requirements

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MAKE_SECONDS_MAX = 800
KEPT = ("PATH", "LANG", "JAVA_HOME", "PYENV_ROOT", "SSL_CERT_FILE", "COMETMQ_REQUIRE_ALL")
"""What a stranger's shell has, too. How pip is set up here is kept: the network is no subject."""

NOBODY = "http://127.0.0.1:1"
OFFLINE = {
    **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "PIP_PROXY"), NOBODY),
    "PIP_INDEX_URL": f"{NOBODY}/simple",
    "PIP_FIND_LINKS": "",
    "PIP_NO_INDEX": "1",
    "PIP_CONFIG_FILE": os.devnull,
}
"""With these nothing is to be had from the network."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What git knows of the tree: nothing that was made in it."""
    folder = tmp_path / "clone"
    for path in tree.tracked_files():
        target = folder / tree.relative(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(path.stat().st_mode)
    return folder


def environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name in KEPT}
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    cache = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    )
    return {**kept, "PIP_CACHE_DIR": cache.stdout.strip(), **pip, "HOME": str(home)}


def make(clone: Path, home: Path, *words: str, changes: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        ["make", *words],
        cwd=clone,
        env={**environment(home), **(changes or {})},
        capture_output=True,
        text=True,
        timeout=MAKE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_clone_in_an_empty_home_runs_the_main_job_and_then_needs_neither_set_up_nor_network(
    clone: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"

    first = make(clone, home, "run", "ONCE=1")
    again = make(clone, home, "setup", changes=OFFLINE)

    assert "set-up: done, compiled core" in first
    for word in ("sent", "billed", "shipped", "delayed", "dead letters", "spark", "Try next"):
        assert word in first
    assert ("left out" if requirements.lack("java") else "as a plain sum has it") in first
    assert "set-up" not in again
