"""The Go client: our programs around it, each built once into the cache."""

from collections.abc import Sequence
from pathlib import Path

from tests.interop import requirements
from tests.interop.cache import Cache
from tests.interop.commands import run

SOURCES = Path(__file__).parent / "programs" / "go"
MODULE = ("go.mod", "go.sum")
FILES = ("main.go", "tunnel.go")
FEATURES = tuple(
    f"features/{name}.go"
    for name in ("main", "options", "sending", "consuming", "pulling", "requests")
)
FETCH_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 300
PLAIN = {"CGO_ENABLED": "0"}


def program(cache: Cache) -> Path:
    """The program that runs one command."""
    return _built(cache, "go-client", ".", FILES)


def features(cache: Cache) -> Path:
    """The program that keeps running and takes commands from its standard input."""
    return _built(cache, "go-features", "./features", FEATURES)


def _built(cache: Cache, name: str, package: str, files: Sequence[str]) -> Path:
    """The built program; its modules are fetched only to build it."""
    texts = {name: (SOURCES / name).read_text() for name in (*MODULE, *files)}

    def build(folder: Path) -> None:
        requirements.need("go")
        with requirements.fetching("the Go modules of the Go client"):
            run(["go", "mod", "download"], cwd=SOURCES, timeout_s=FETCH_TIMEOUT_S)
        # A go.sum that does not fit the sources is an error here, never a changed file.
        options = ["-mod=readonly", "-trimpath", "-o", str(folder / "client")]
        run(["go", "build", *options, package], cwd=SOURCES, env=PLAIN, timeout_s=BUILD_TIMEOUT_S)

    return cache.entry(name, texts, build) / "client"
