"""The C++ client: the library inside a Python binding, apart from our own packages."""

import platform
import sys
from pathlib import Path

from tests.interop import requirements
from tests.interop.cache import Cache
from tests.interop.commands import run

SOURCES = Path(__file__).parent / "programs" / "cpp"
PROGRAM = SOURCES / "client.py"
FEATURES = SOURCES / "features.py"
INSTALL_TIMEOUT_S = 180


def packages(cache: Cache) -> Path:
    """A folder for ``PYTHONPATH`` with the binding and its library.

    The library is built for Linux on x86-64; the binding around it runs on any Python 3.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        requirements.missing("Linux on x86_64", f"this is {sys.platform} on {platform.machine()}")
    locked = SOURCES / "requirements.txt"

    def install(folder: Path) -> None:
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        where = ["--target", str(folder), "-r", str(locked)]
        run([sys.executable, "-m", "pip", "install", *options, *where], timeout_s=INSTALL_TIMEOUT_S)

    with requirements.fetching("the package with the C++ client"):
        return cache.entry("cpp-client", {"requirements": locked.read_text()}, install)
