"""The archive of Spark's classes, with shell scripts in the place of Spark."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from cometmq.spark import class_archive, spark_session
from cometmq.spark.class_archive import ClassArchive, State, archive_for, is_trusted, joined
from cometmq.spark.java import Java

WRITES = ("sh", "-c", 'f=${SPARK_SUBMIT_OPTS#*AtExit=}; echo classes > "${f%%\\"*}"')
FAILS = ("sh", "-c", "exit 3")


@pytest.fixture
def java(tmp_path: Path) -> Java:
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.2"\n')
    return Java(tmp_path / "java", 17)


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    folder = tmp_path / "site" / "pyspark"
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / "core.jar").write_text("core")
    return folder


@pytest.fixture
def archive(java: Java, spark: Path, tmp_path: Path) -> ClassArchive:
    return ClassArchive(java, spark, tmp_path / "my cache")


def test_an_archive_that_is_there_is_offered_to_a_jvm_and_to_nobody_later(
    archive: ClassArchive,
) -> None:
    environment = {"SPARK_SUBMIT_OPTS": "-Dmine=1"}

    state = archive.make(environment, warm_up=WRITES)
    with archive.offered(environment):
        offered = environment["SPARK_SUBMIT_OPTS"]

    assert state is State.READY
    assert archive.path.read_text() == "classes\n"
    assert offered == f'-Dmine=1 "-XX:SharedArchiveFile={archive.path}" -Xlog:cds*=off'
    assert environment == {"SPARK_SUBMIT_OPTS": "-Dmine=1"}


def test_without_an_archive_nothing_is_offered(archive: ClassArchive) -> None:
    environment: dict[str, str] = {}

    with archive.offered(environment):
        assert environment == {}

    assert environment == {}
    assert archive.state is State.MISSING


def test_a_java_that_writes_none_is_not_asked_again(archive: ClassArchive) -> None:
    environment: dict[str, str] = {}

    archive.make(environment, warm_up=("true",))
    archive.make(environment, warm_up=FAILS)

    assert archive.state is State.IMPOSSIBLE
    with archive.offered(environment):
        assert environment == {}


def test_when_spark_fails_it_may_be_tried_again(archive: ClassArchive) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        archive.make({}, warm_up=FAILS)

    assert archive.state is State.MISSING
    assert archive.make(os.environ, warm_up=WRITES) is State.READY


def test_an_archive_is_made_by_one_process_at_a_time(archive: ClassArchive) -> None:
    archive.path.parent.mkdir()

    with archive.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert archive.make({}, warm_up=FAILS) is State.BEING_MADE


def test_other_jars_or_another_java_have_another_archive_which_replaces_the_old(
    archive: ClassArchive, java: Java, spark: Path
) -> None:
    archive.make(os.environ, warm_up=WRITES)
    folder = archive.path.parent

    (spark / "jars" / "core.jar").write_text("newer core")
    newer = ClassArchive(java, spark, folder)
    (java.home / "release").write_text('JAVA_VERSION="17.0.3"\n')
    newest = ClassArchive(java, spark, folder)
    other = ClassArchive(Java(Path("/other/java"), 21), spark, folder)
    other.make(os.environ, warm_up=WRITES)
    newest.make(os.environ, warm_up=WRITES)

    assert len({archive.path, newer.path, newest.path, other.path}) == 4
    assert set(folder.glob("*.jsa")) == {newest.path, other.path}
    assert set(folder.glob("*.size")) == {newest.size_path, other.size_path}


def test_jars_that_were_packed_and_unpacked_are_the_same(
    archive: ClassArchive, java: Java, spark: Path
) -> None:
    """Layers of images and tar keep whole seconds, and Java compares no more."""
    jar = spark / "jars" / "core.jar"
    names = set()
    for nanoseconds in (1_700_000_000_123_456_789, 1_700_000_000_000_000_000):
        os.utime(jar, ns=(nanoseconds, nanoseconds))
        names.add(ClassArchive(java, spark, archive.path.parent).path)

    assert len(names) == 1


def test_an_archive_that_was_cut_short_is_not_used_and_made_anew(archive: ClassArchive) -> None:
    """Java does not look: it is killed by the first page that is not there."""
    environment = dict(os.environ)
    archive.make(environment, warm_up=WRITES)

    os.truncate(archive.path, 3)
    with archive.offered(environment):
        cut = archive.state, environment == os.environ
    made = archive.make(environment, warm_up=WRITES)

    assert cut == (State.MISSING, True)
    assert made is State.READY
    assert archive.path.read_text() == "classes\n"


def test_an_archive_without_its_size_is_not_used(archive: ClassArchive) -> None:
    archive.make(os.environ, warm_up=WRITES)
    archive.size_path.write_text("")

    assert archive.state is State.MISSING


@pytest.mark.parametrize("writable", ["file", "folder"])
def test_an_archive_that_others_may_write_to_is_not_used(
    archive: ClassArchive, writable: str
) -> None:
    environment = dict(os.environ)
    archive.make(environment, warm_up=WRITES)
    path = archive.path if writable == "file" else archive.path.parent
    path.chmod(path.stat().st_mode | 0o020)

    with archive.offered(environment):
        assert environment == os.environ

    assert archive.state is State.UNTRUSTED
    assert archive.make(environment, warm_up=WRITES) is State.READY


def test_what_one_makes_oneself_is_trusted_whatever_ones_group_may_write(
    archive: ClassArchive,
) -> None:
    before = os.umask(0o002)
    try:
        state = archive.make(os.environ, warm_up=WRITES)
    finally:
        os.umask(before)

    assert state is State.READY


@pytest.mark.parametrize(
    ("owner", "mode", "trusted"),
    [
        (1000, 0o100644, True),
        (0, 0o100444, True),
        (1001, 0o100644, False),
        (1000, 0o100664, False),
        (0, 0o041777, False),
    ],
)
def test_only_what_oneself_or_root_has_written_is_trusted(
    owner: int, mode: int, trusted: bool
) -> None:
    about = os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))

    assert is_trusted(about, 1000) is trusted


class Jvm:
    """Starts like Spark's JVM, but not with an archive, or never."""

    def __init__(self, environment: dict[str, str], *, is_ill: bool = False) -> None:
        self._errors = pytest.importorskip("pyspark.errors")
        self._environment = environment
        self._is_ill = is_ill
        self.options: list[str | None] = []

    def start(self) -> str:
        self.options.append(self._environment.get("SPARK_SUBMIT_OPTS"))
        if self._is_ill or self.options[-1] is not None:
            raise self._errors.PySparkRuntimeError(
                errorClass="JAVA_GATEWAY_EXITED", messageParameters={}
            )
        return "session"


def test_when_java_dies_of_an_archive_it_starts_without_it_and_the_archive_goes(
    archive: ClassArchive, caplog: pytest.LogCaptureFixture
) -> None:
    environment: dict[str, str] = {}
    archive.make(os.environ, warm_up=WRITES)
    jvm = Jvm(environment)

    started = archive.used_by(environment, jvm.start)

    assert started == "session"
    assert len(jvm.options) == 2
    assert jvm.options[1] is None
    assert list(archive.path.parent.glob("*.jsa")) == []
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(archive.path) in caplog.text


def test_an_archive_that_java_does_not_die_of_stays(archive: ClassArchive) -> None:
    archive.make(os.environ, warm_up=WRITES)
    jvm = Jvm({}, is_ill=True)

    with pytest.raises(Exception, match="JAVA_GATEWAY_EXITED"):
        archive.used_by({}, jvm.start)

    assert archive.state is State.READY


def test_other_errors_of_a_start_with_an_archive_are_not_tried_twice(
    archive: ClassArchive,
) -> None:
    errors = pytest.importorskip("pyspark.errors")
    archive.make(os.environ, warm_up=WRITES)
    calls = []

    def start() -> None:
        calls.append(1)
        raise errors.PySparkRuntimeError(errorClass="MASTER_URL_INVALID", messageParameters={})

    with pytest.raises(errors.PySparkRuntimeError):
        archive.used_by({}, start)

    assert len(calls) == 1
    assert archive.state is State.READY


@pytest.fixture
def command(java: Java, tmp_path: Path) -> dict[str, str]:
    """The environment of a command that makes an archive of this machine's PySpark."""
    pytest.importorskip("pyspark")
    (java.home / "bin").mkdir()
    (java.home / "bin" / "java").touch()
    cache = str(tmp_path / "cache")
    return {"JAVA_HOME": str(java.home), "COMETMQ_CACHE": cache, "PATH": os.environ["PATH"]}


def test_the_command_says_where_the_archive_is(
    command: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = class_archive.main(command, warm_up=WRITES)

    made = Path(capsys.readouterr().out.strip())
    assert status == 0
    assert made.parent == Path(command["COMETMQ_CACHE"]) / "classes"
    assert made.read_text() == "classes\n"


@pytest.mark.parametrize(
    ("warm_up", "words"),
    [(("true",), "this Java has written none"), (FAILS, "exit status 3")],
)
def test_the_command_fails_when_there_is_no_archive_in_the_end(
    command: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    warm_up: tuple[str, ...],
    words: str,
) -> None:
    status = class_archive.main(command, warm_up=warm_up)

    said = capsys.readouterr()
    assert status == 1
    assert said.out == ""
    assert words in said.err


def test_the_command_says_when_another_process_makes_the_archive(
    command: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    class_archive.main(command, warm_up=WRITES)
    made = Path(capsys.readouterr().out.strip())
    made.unlink()

    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = class_archive.main(command, warm_up=WRITES)

    assert status == 1
    assert "another process is making it" in capsys.readouterr().err


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_the_command_says_when_there_is_no_folder_for_an_archive(
    command: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "home", homeless)
    del command["COMETMQ_CACHE"]

    status = class_archive.main(command, warm_up=WRITES)

    assert status == 1
    assert "COMETMQ_CACHE" in capsys.readouterr().err


def test_a_session_starts_where_there_is_no_home(
    java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(Path, "home", homeless)

    assert spark_session.started_quickly({}, {}, java, lambda: "session") == "session"


def test_a_session_starts_where_the_cache_cannot_be_looked_at(java: Java) -> None:
    """As with a home that belongs to somebody else; nobody has a folder with such a name."""
    pytest.importorskip("pyspark")
    environment = {"COMETMQ_CACHE": "/" + "x" * 300}

    assert spark_session.started_quickly(environment, {}, java, lambda: "session") == "session"


def test_a_path_may_have_anything_in_it() -> None:
    assert joined(None, '-Xa=/b "c"\\d') == '"-Xa=/b \\"c\\"\\\\d" -Xlog:cds*=off'


@pytest.mark.parametrize(
    ("environment", "conf"),
    [
        ({"COMETMQ_CLASS_ARCHIVE": "off"}, {}),
        ({"JDK_JAVA_OPTIONS": "-XX:SharedArchiveFile=/theirs"}, {}),
        ({"SPARK_SUBMIT_OPTS": "-Xshare:off"}, {}),
        ({"PYSPARK_GATEWAY_PORT": "1234"}, {}),
        ({"SPARK_HOME": "/opt/spark"}, {}),
        ({}, {"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=/theirs"}),
        ({}, {"spark.driver.extraClassPath": "/my.jar"}),
    ],
)
def test_there_is_none_where_it_is_not_wanted_or_of_no_use(
    environment: dict[str, str], conf: dict[str, str], java: Java, spark: Path
) -> None:
    assert archive_for(environment, conf, java, spark) is None


def test_settings_of_spark_in_files_come_before_its_jars(java: Java, spark: Path) -> None:
    """Java refuses archives then: folders on the class path must be empty."""
    environment = {"COMETMQ_CACHE": "/cache"}
    without = archive_for(environment, {}, java, spark)
    (spark / "conf").mkdir()
    empty = archive_for(environment, {}, java, spark)
    (spark / "conf" / "spark-defaults.conf").touch()

    assert without is not None
    assert empty is not None
    assert archive_for(environment, {}, java, spark) is None
    assert without.path.parent == Path("/cache/classes")
