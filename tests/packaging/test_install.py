"""The package installs into an empty environment, with a compiler and without one."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts import tree

pytestmark = pytest.mark.slow

PACKAGE_FILES = ("src/", "README", "LICENSE", "CHANGELOG", "MANIFEST", "pyproject", "setup")
TEMPLATE = ("--template", "{value}")
STOP_SECONDS_MAX = 60
BUILD = (sys.executable, "-m", "build", "--no-isolation")
QUICK_BUILD = {"CFLAGS": f"{os.environ.get('CFLAGS', '')} -O0"}
"""What is built here need not be fast."""

PROBE = """
from cometmq.codec import core, message_id, record
host = record.pack_host("10.0.0.7", 10911)
room = bytearray(256)
size = core.encode_record_into(
    room, 0, b"orders", b"hello", b"TAGS\\x01new\\x02", 3, 9, 4096, 2, 1, host, host, 0, 0, 0, 0
)
got = record.parse(room, check_crc=True)
print(core.active(), got.topic, got.body.decode(), size, message_id.encode_offset_id(host, 4096))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree as a fresh clone has it: nothing built in it yet."""
    copy = tmp_path_factory.mktemp("source")
    for path in tree.tracked_files():
        if (name := tree.relative(path)).startswith(PACKAGE_FILES):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return copy


@pytest.fixture(scope="module")
def dependencies() -> Path:
    """Wheels of the locked run-time dependencies, fetched once and kept for the next run."""
    cache = Path(os.environ.get("COMETMQ_CACHE", Path.home() / ".cache" / "cometmq"))
    lock = tree.ROOT / "locks" / "run.txt"
    wheels = cache / "wheels" / f"{sys.implementation.cache_tag}"
    if not (wheels / "run.txt").exists() or (wheels / "run.txt").read_text() != lock.read_text():
        options = ("--require-hashes", "--no-deps", "-r", str(lock), "-d", str(wheels))
        pip(sys.executable, "download", *options)
        shutil.copy(lock, wheels / "run.txt")
    return wheels


@pytest.fixture
def empty_environment(tmp_path: Path) -> Path:
    run(sys.executable, "-m", "venv", str(tmp_path / "env"))
    return tmp_path / "env" / "bin" / "python"


def pip(python: Path | str, *arguments: str, **environment: str) -> None:
    run(
        str(python),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        *arguments,
        **environment,
    )


def build_wheel(source: Path, target: Path, **environment: str) -> Path:
    options = ("--no-deps", "--no-build-isolation", "-w", str(target), str(source))
    pip(sys.executable, "wheel", *options, **environment)
    (wheel,) = target.glob("*.whl")
    return wheel


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **QUICK_BUILD, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def up(program: str, home: Path) -> Iterator[str]:
    """``cometmq up`` as it was installed, on ports of its own; the name server's address."""
    home.mkdir()
    process = subprocess.Popen(
        [program, "up", "--port", "0", "--namesrv-port", "0", "-o", "json"],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            lines = iter(process.stdout)
            told = "".join(
                itertools.chain(itertools.takewhile(lambda line: line != "}\n", lines), "}")
            )
            yield json.loads(told)["name_server"]
        finally:
            process.terminate()
            process.wait(STOP_SECONDS_MAX)
    assert process.returncode == 0


def install(python: Path, wheel: Path, dependencies: Path) -> None:
    pip(python, "install", "--no-index", "--find-links", str(dependencies), str(wheel))


@pytest.mark.timeout(600)
def test_the_wheel_works_in_an_empty_environment(
    source: Path, dependencies: Path, empty_environment: Path, tmp_path: Path
) -> None:
    run(*BUILD, "--outdir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("*.whl")
    (sdist,) = tmp_path.glob("*.tar.gz")
    install(empty_environment, wheel, dependencies)

    printed = run(str(empty_environment), "-c", PROBE, PYTHONPATH="").split()
    program = str(empty_environment.parent / "cometmq")
    version = run(program, "--version").split()
    with up(program, tmp_path / "home") as namesrv:
        run(program, "produce", "orders", "hello", "--namesrv", namesrv, PYTHONPATH="")
        found = run(program, "consume", "orders", *TEMPLATE, "--namesrv", namesrv, PYTHONPATH="")

    assert printed == ["compiled", "orders", "hello", "111", "0A00000700002A9F0000000000001000"]
    assert version[-1] in wheel.name
    assert version[-1] in sdist.name
    assert found == "hello\n"


@pytest.mark.timeout(600)
def test_an_install_without_a_compiler_gives_the_plain_core(
    source: Path, dependencies: Path, empty_environment: Path, tmp_path: Path
) -> None:
    """No compiler is a reason to be slower, never a reason to fail."""
    wheel = build_wheel(source, tmp_path, CC="no-such-compiler")
    install(empty_environment, wheel, dependencies)

    printed = run(str(empty_environment), "-c", PROBE, PYTHONPATH="").split()

    assert printed == ["plain", "orders", "hello", "111", "0A00000700002A9F0000000000001000"]


@pytest.mark.timeout(600)
def test_the_sdist_holds_what_a_build_needs(source: Path, tmp_path: Path) -> None:
    run(*BUILD, "--sdist", "--outdir", str(tmp_path), str(source))
    (sdist,) = tmp_path.glob("*.tar.gz")

    wheel = build_wheel(sdist, tmp_path)

    assert "cp3" in wheel.name, "the extension was not built from the sdist"


@pytest.mark.timeout(600)
def test_an_editable_install_of_a_fresh_clone_gets_the_compiled_core(
    source: Path, tmp_path: Path
) -> None:
    """What ``make setup`` does: the extensions must end up beside their sources."""
    clone = tmp_path / "clone"
    shutil.copytree(source, clone, ignore=shutil.ignore_patterns("*.so", "*.c", "build"))
    target = str(tmp_path / "target")
    pip(sys.executable, "install", "--no-deps", "--no-build-isolation", "--target", target,
        "-e", str(clone))  # fmt: skip

    printed = run(sys.executable, "-c", PROBE, PYTHONPATH=str(clone / "src")).split()

    assert printed[0] == "compiled"
