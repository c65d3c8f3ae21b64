"""The Go client: our program around it, built once into the cache."""

from pathlib import Path

from tests.interop import requirements
from tests.interop.cache import Cache
from tests.interop.commands import run

SOURCES = Path(__file__).parent / "programs" / "go"
FILES = ("go.mod", "go.sum", "main.go", "tunnel.go")
FETCH_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 300
PLAIN = {"CGO_ENABLED": "0"}


def program(cache: Cache) -> Path:
    """The built program; its modules are fetched only to build it."""
    texts = {name: (SOURCES / name).read_text() for name in FILES}

    def build(folder: Path) -> None:
        requirements.need("go")
        with requirements.fetching("the Go modules of the Go client"):
            run(["go", "mod", "download"], cwd=SOURCES, timeout_s=FETCH_TIMEOUT_S)
        # A go.sum that does not fit the sources is an error here, never a changed file.
        options = ["-mod=readonly", "-trimpath", "-o", str(folder / "client")]
        run(["go", "build", *options, "."], cwd=SOURCES, env=PLAIN, timeout_s=BUILD_TIMEOUT_S)

    return cache.entry("go-client", texts, build) / "client"
