"""Spark's classes, parsed and verified once and kept in a file that later JVMs map into memory.

A JVM that runs Spark loads thousands of classes before its first row, which is 40 % of the CPU
until then. Java can keep them (class data sharing), but only in an archive of its own making for
exactly these jars and this Java. Nothing is gained in the run that makes it, which even takes
twice as long, so no program of a user does that on its way; who wants one asks for it:

    python -m cometmq.spark.class_archive

From then on every session uses it, unless ``COMETMQ_CLASS_ARCHIVE=off`` is set. A JVM that cannot
use an archive starts as if there was none.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

from cometmq.errors import CometError
from cometmq.spark import java, kept

SWITCH = "COMETMQ_CLASS_ARCHIVE"
JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Of the JVM with the driver; unlike ``JDK_JAVA_OPTIONS`` it is for no other, and says nothing."""

MAKING_SECONDS_MAX = 300
WARM_UP = (sys.executable, "-m", "cometmq.spark.class_warm_up")
QUIET = "-Xlog:cds*=off"
"""What an archive lacks, or why it is of no use, is nothing a user can do anything about."""

_OWN_ARCHIVE = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
_OPTIONS_READ = (JVM_OPTIONS, "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
_CONF_OPTIONS, _CONF_CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"


class ClassArchive:
    """The archive for one Java and one PySpark, whether it is there yet or not."""

    def __init__(self, found: java.Java, spark: Path, folder: Path) -> None:
        owner = _digest([str(found.home), str(spark)])
        self.path = folder / f"{owner}-{_digest(_contents(found, spark))}.jsa"
        self._same_owner = f"{owner}-*.jsa"

    @property
    def is_made(self) -> bool:
        """Whether nobody needs to make it: it is there, or is known to be impossible."""
        return self.path.exists()

    @contextlib.contextmanager
    def offered(self, environment: MutableMapping[str, str]) -> Iterator[None]:
        """A JVM that is started meanwhile uses the archive if it is there."""
        before = environment.get(JVM_OPTIONS)
        if self.is_made and self.path.stat().st_size:
            environment[JVM_OPTIONS] = joined(before, f"-XX:SharedArchiveFile={self.path}")
        try:
            yield
        finally:
            if before is not None:
                environment[JVM_OPTIONS] = before
            else:
                environment.pop(JVM_OPTIONS, None)

    def make(self, environment: Mapping[str, str], *, warm_up: Sequence[str] = WARM_UP) -> bool:
        """Make it unless it is there or another process is about to; whether it is there now.

        ``warm_up`` is the command that starts Spark, uses it and ends. Raises OSError or
        subprocess.SubprocessError when it did not run through; then it may be tried again. Where
        it did and Java wrote nothing, an empty file says so from then on.
        """
        import fcntl  # not on Windows, where ``archive_for`` finds none

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return self.is_made
            if not self.is_made:
                self._make(environment, warm_up)
        return self.is_made

    def _make(self, environment: Mapping[str, str], warm_up: Sequence[str]) -> None:
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.unlink(missing_ok=True)
        options = joined(environment.get(JVM_OPTIONS), f"-XX:ArchiveClassesAtExit={unfinished}")
        subprocess.run(  # noqa: S603  # our own module, in this Python
            warm_up,
            env={**environment, JVM_OPTIONS: options, SWITCH: "off"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAKING_SECONDS_MAX,
            check=True,
        )
        if not unfinished.exists():
            unfinished.touch()
        outdated = set(self.path.parent.glob(self._same_owner))
        unfinished.rename(self.path)
        for path in outdated - {self.path}:
            path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)


def archive_for(
    environment: Mapping[str, str], conf: Mapping[str, str], found: java.Java, spark: Path
) -> ClassArchive | None:
    """The archive for a session; None where none could be used, or somebody has chosen another."""
    said = [environment.get(name, "") for name in _OPTIONS_READ] + [conf.get(_CONF_OPTIONS, "")]
    if os.name != "posix" or environment.get(SWITCH, "").lower() in ("off", "0", "false"):
        return None
    if any(name in options for options in said for name in _OWN_ARCHIVE):
        return None
    if "PYSPARK_GATEWAY_PORT" in environment:  # spark-submit has started the JVM already
        return None
    if Path(environment.get("SPARK_HOME", spark)) != spark or _has_more_in_front(
        environment, conf, spark
    ):
        return None
    return ClassArchive(found, spark, kept.folder(environment) / "classes")


def joined(before: str | None, option: str) -> str:
    """Options for a JVM as Spark's launcher splits them: a path may have blanks."""
    quoted = option.replace("\\", "\\\\").replace('"', '\\"')
    return " ".join(filter(None, [before, f'"{quoted}"', QUIET]))


def main() -> int:
    from cometmq.spark import spark_session

    try:
        spark_session.check_packages()
        found = java.find(os.environ, bundled=java.bundled_home())
        archive = archive_for(os.environ, {}, found, spark_session.spark_folder())
        if archive is None:
            print("error: Spark cannot use a class archive with these settings", file=sys.stderr)
            return 1
        archive.make(os.environ)
    except (CometError, OSError, subprocess.SubprocessError) as failure:
        print(f"error: no class archive: {failure}", file=sys.stderr)
        return 1
    print(archive.path)
    return 0


def _has_more_in_front(
    environment: Mapping[str, str], conf: Mapping[str, str], spark: Path
) -> bool:
    """Whether something comes before Spark's jars; an archive is good for what begins like it."""
    settings = Path(environment.get("SPARK_CONF_DIR") or spark / "conf")
    return _CONF_CLASS_PATH in conf or (settings.is_dir() and any(settings.iterdir()))


def _contents(found: java.Java, spark: Path) -> Iterator[str]:
    """Everything that Java compares before it uses an archive."""
    for home in (found.home, java.bundled_home()):
        release = home / "release" if home else None
        yield release.read_text(errors="replace") if release and release.is_file() else ""
    for jar in sorted((spark / "jars").iterdir()):
        about = jar.stat()
        yield f"{jar.name} {about.st_size} {about.st_mtime_ns}"


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
