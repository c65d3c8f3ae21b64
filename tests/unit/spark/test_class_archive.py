"""The archive of Spark's classes, with shell scripts in the place of Spark."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from cometmq.spark.class_archive import ClassArchive, archive_for, joined
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

    made = archive.make(environment, warm_up=WRITES)
    with archive.offered(environment):
        offered = environment["SPARK_SUBMIT_OPTS"]

    assert made
    assert archive.path.read_text() == "classes\n"
    assert offered == f'-Dmine=1 "-XX:SharedArchiveFile={archive.path}" -Xlog:cds*=off'
    assert environment == {"SPARK_SUBMIT_OPTS": "-Dmine=1"}


def test_without_an_archive_nothing_is_offered(archive: ClassArchive) -> None:
    environment: dict[str, str] = {}

    with archive.offered(environment):
        assert environment == {}

    assert environment == {}
    assert not archive.is_made


def test_a_java_that_writes_none_is_not_asked_again(archive: ClassArchive) -> None:
    environment: dict[str, str] = {}

    archive.make(environment, warm_up=("true",))
    archive.make(environment, warm_up=FAILS)

    assert archive.is_made
    with archive.offered(environment):
        assert environment == {}


def test_when_spark_fails_it_may_be_tried_again(archive: ClassArchive) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        archive.make({}, warm_up=FAILS)

    assert not archive.is_made
    assert archive.make(os.environ, warm_up=WRITES)


def test_an_archive_is_made_by_one_process_at_a_time(archive: ClassArchive) -> None:
    archive.path.parent.mkdir()

    with archive.path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        assert not archive.make({}, warm_up=FAILS)


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
