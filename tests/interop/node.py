"""The Node client ali-ons: installed once into the cache, driven by a program of ours."""

import shutil
from pathlib import Path

from tests.interop import requirements
from tests.interop.cache import Cache
from tests.interop.commands import run

SOURCES = Path(__file__).parent / "programs" / "node"
PROGRAM = SOURCES / "client.js"
FEATURES = SOURCES / "features.js"
LOCKED = ("package.json", "package-lock.json")
INSTALL_TIMEOUT_S = 300


def packages(cache: Cache) -> Path:
    """A folder for ``NODE_PATH`` with the locked packages."""
    texts = {name: (SOURCES / name).read_text() for name in LOCKED}

    def install(folder: Path) -> None:
        requirements.need("npm")
        for name in LOCKED:
            shutil.copy(SOURCES / name, folder)
        # "ci" takes exactly what the lock file names and checks its hashes.
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev"]
        run(["npm", "ci", *options], cwd=folder, timeout_s=INSTALL_TIMEOUT_S)

    with requirements.fetching("the npm packages of the Node client"):
        return cache.entry("node-client", texts, install) / "node_modules"
