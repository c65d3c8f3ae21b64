"""Spark's classes, parsed and verified once and kept in a file that later JVMs map into memory.

A JVM that runs Spark loads thousands of classes before its first row, which is 40 % of the CPU
until then. Java can keep them (class data sharing), but only in an archive of its own making for
exactly these jars and this Java. Nothing is gained in the run that makes it, which even takes
twice as long, so no program of a user does that on its way; who wants one asks for it:

    python -m cometmq.spark.class_archive

From then on every session uses it, unless ``COMETMQ_CLASS_ARCHIVE=off`` is set. A JVM that cannot
use an archive starts as if there was none.

Java takes an archive for what it was when it was made: of one that was cut short it maps pages that
are not there, and is killed by the first of them. So the size is noted beside it, and both are on
the disk before it has its name. To look at every byte would cost what the archive saves. It is also
code: one that other users may write to is not used.
"""

import contextlib
import enum
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TypeVar

from cometmq import logs
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
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_log = logs.get_logger("cometmq.spark")

Started = TypeVar("Started")


class State(enum.Enum):
    """What there is of an archive, in words."""

    READY = "it is there"
    IMPOSSIBLE = "this Java has written none"
    MISSING = "there is none"
    UNTRUSTED = "it, or its folder, is another user's or may be written by others"
    BEING_MADE = "another process is making it"


_SETTLED = (State.READY, State.IMPOSSIBLE)


class ClassArchive:
    """The archive for one Java and one PySpark, whether it is there yet or not."""

    def __init__(self, found: java.Java, spark: Path, folder: Path) -> None:
        owner = _digest([str(found.home), str(spark)])
        self.path = folder / f"{owner}-{_digest(_contents(found, spark))}.jsa"
        self.size_path = self.path.with_suffix(".size")
        self._same_owner = f"{owner}-*.jsa"

    @property
    def state(self) -> State:
        """What there is; one that is not as long as it was made is as good as none."""
        try:
            file, folder = self.path.lstat(), self.path.parent.stat()
            size = int(self.size_path.read_text())
        except (OSError, ValueError):
            return State.MISSING
        user = os.geteuid()
        if not (is_trusted(file, user) and is_trusted(folder, user)):
            return State.UNTRUSTED
        if not stat.S_ISREG(file.st_mode) or file.st_size != size:
            return State.MISSING
        return State.READY if size else State.IMPOSSIBLE

    def used_by(
        self, environment: MutableMapping[str, str], start: Callable[[], Started]
    ) -> Started:
        """What ``start`` returns, which starts a JVM with this archive if it is there.

        When that JVM ends at once, ``start`` is called again without it. If that helps, the archive
        was the reason, and is deleted.
        """
        from pyspark.errors import PySparkException

        if self.state is not State.READY:
            return start()
        try:
            with self.offered(environment):
                return start()
        except PySparkException as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
        started = start()
        self._delete()
        _log.warning("Java ended at once with the class archive %s, which is deleted", self.path)
        return started

    @contextlib.contextmanager
    def offered(self, environment: MutableMapping[str, str]) -> Iterator[None]:
        """A JVM that is started meanwhile uses the archive if it is there."""
        before = environment.get(JVM_OPTIONS)
        if self.state is State.READY:
            environment[JVM_OPTIONS] = joined(before, f"-XX:SharedArchiveFile={self.path}")
        try:
            yield
        finally:
            if before is not None:
                environment[JVM_OPTIONS] = before
            else:
                environment.pop(JVM_OPTIONS, None)

    def make(self, environment: Mapping[str, str], *, warm_up: Sequence[str] = WARM_UP) -> State:
        """Make it unless it is there or another process is about to; what there is now.

        ``warm_up`` is the command that starts Spark, uses it and ends. Raises OSError or
        subprocess.SubprocessError when it did not run through; then it may be tried again. Where
        it did and Java wrote nothing, an empty file says so from then on.
        """
        import fcntl  # not on Windows, where ``archive_for`` finds none

        self.path.parent.mkdir(parents=True, exist_ok=True)
        _close_to_others(self.path.parent)
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return self.state if self.state in _SETTLED else State.BEING_MADE
            if self.state not in _SETTLED:
                self._make(environment, warm_up)
        return self.state

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
        self._keep(unfinished)
        for path in outdated - {self.path}:
            for suffix in (".jsa", ".size", ".lock"):
                path.with_suffix(suffix).unlink(missing_ok=True)

    def _keep(self, unfinished: Path) -> None:
        """Give it its name when all of it is on the disk, and its size is noted there."""
        _close_to_others(unfinished)
        self.size_path.write_text(str(unfinished.stat().st_size))
        for path in (unfinished, self.size_path):
            _sync(path)
        unfinished.rename(self.path)
        _sync(self.path.parent)

    def _delete(self) -> None:
        with contextlib.suppress(OSError):  # then it is found to be bad once more
            self.path.unlink(missing_ok=True)
            self.size_path.unlink(missing_ok=True)


def archive_for(
    environment: Mapping[str, str], conf: Mapping[str, str], found: java.Java, spark: Path
) -> ClassArchive | None:
    """The archive for a session; None where none could be used, or somebody has chosen another.

    Raises OSError where nothing can be kept.
    """
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


def is_trusted(about: os.stat_result, user: int) -> bool:
    """Whether only ``user`` and root could have put there what a file or folder has."""
    return about.st_uid in (user, 0) and not about.st_mode & _WRITABLE_BY_OTHERS


def main(environment: Mapping[str, str] = os.environ, *, warm_up: Sequence[str] = WARM_UP) -> int:
    """Make the archive for this Java and this PySpark; 0 if it is there at the end."""
    from cometmq.spark import spark_session

    try:
        spark_session.check_packages()
        found = java.find(environment, bundled=java.bundled_home())
        archive = archive_for(environment, {}, found, spark_session.spark_folder())
        if archive is None:
            print("error: Spark cannot use a class archive with these settings", file=sys.stderr)
            return 1
        state = archive.make(environment, warm_up=warm_up)
    except (CometError, OSError, subprocess.SubprocessError) as failure:
        print(f"error: no class archive: {failure}", file=sys.stderr)
        return 1
    if state is not State.READY:
        print(f"error: no class archive: {state.value}: {archive.path}", file=sys.stderr)
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
        # Whole seconds, as Java compares them: images and archives keep no more.
        yield f"{jar.name} {about.st_size} {about.st_mtime_ns // 10**9}"


def _close_to_others(path: Path) -> None:
    """Take from all others the right to write, which some machines give to a user's group."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _WRITABLE_BY_OTHERS:
        path.chmod(mode & ~_WRITABLE_BY_OTHERS)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
