"""Java programs of ours: compiled once per set of jars, run within a bound."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop import maven, requirements
from tests.interop.cache import Cache
from tests.interop.commands import run

SOURCES = Path(__file__).parent / "programs" / "java"
COMPILE_TIMEOUT_S = 120

# Apache's store pokes into the JDK's buffers and maps files; 17 closes those doors by default.
OPENED = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
)


def compiled(cache: Cache, jar_set: str, *folders: str, root: Path = SOURCES) -> str:
    """A class path with the classes of our source ``folders`` and the jars they were built with."""
    sources = [source for folder in folders for source in sorted((root / folder).glob("*.java"))]
    assert sources, folders
    jars = maven.jars(cache, jar_set)
    texts = {str(source.relative_to(root)): source.read_text() for source in sources}

    def compile_into(folder: Path) -> None:
        requirements.need("javac")
        options = ["-d", str(folder), "-cp", f"{jars}/*", "-encoding", "UTF-8", "-nowarn"]
        run(["javac", *options, *map(str, sources)], timeout_s=COMPILE_TIMEOUT_S)

    # A compiler error is ours, not the machine's: it is not turned into a skip.
    classes = cache.entry(f"classes-{jar_set}", {**texts, "jars": jars.parent.name}, compile_into)
    return f"{classes}:{jars}/*"


def command(
    class_path: str,
    main: str,
    arguments: Sequence[str],
    *,
    home: Path,
    heap_mb: int = 256,
    properties: Mapping[str, str] | None = None,
    is_short_lived: bool = True,
) -> list[str]:
    """The command line of a small JVM that keeps everything it writes below ``home``.

    One that is short-lived starts sooner and never gets as fast as it could.
    """
    home.mkdir(parents=True, exist_ok=True)
    settings = {"user.home": str(home), "java.io.tmpdir": str(home), **(properties or {})}
    return [
        "java",
        f"-Xmx{heap_mb}m",
        *(("-XX:TieredStopAtLevel=1",) if is_short_lived else ()),
        "-XX:+UseSerialGC",
        *OPENED,
        *(f"-D{name}={value}" for name, value in settings.items()),
        "-cp",
        class_path,
        main,
        *arguments,
    ]
