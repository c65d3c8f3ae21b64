"""How a session is set up, without starting one."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cometmq.spark import spark_session
from cometmq.spark.errors import SparkSetupError
from cometmq.spark.java import Java


@pytest.mark.parametrize("version", ["3.5.1", "4.0.5", "4.1.4"])
def test_a_pyspark_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(SparkSetupError) as caught:
        spark_session.check_version(version)

    assert f"PySpark {version} is too old: the connector needs 4.2 or newer" in str(caught.value)
    assert "pip install 'cometmq[spark]'" in str(caught.value)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.0.dev1"])
def test_a_pyspark_that_is_new_enough_is_taken(version: str) -> None:
    spark_session.check_version(version)


def test_a_session_is_refused_before_an_old_pyspark_does_anything(tmp_path: Path) -> None:
    """This one would fail at once if anything but its version was asked for."""
    for package in ("numpy", "pyarrow"):
        pytest.importorskip(package)
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "4.1.4"\n')
    script = "import cometmq.spark\ncometmq.spark.session()"
    path = os.pathsep.join([str(tmp_path), *sys.path])

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 1
    assert "PySpark 4.1.4 is too old" in done.stderr


def test_a_local_session_stays_on_this_machine() -> None:
    environment: dict[str, str] = {}

    spark_session.prepare(environment, Java(Path("/java"), 17), local=True, python="/ours/python")
    settings = spark_session.settings("local[2]", {})

    assert environment == {
        "JAVA_HOME": "/java",
        "PYSPARK_PYTHON": "/ours/python",
        "PYSPARK_DRIVER_PYTHON": "/ours/python",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.shuffle.partitions"] == "2"


def test_a_session_on_a_cluster_may_be_reached() -> None:
    environment = {"PYSPARK_PYTHON": "/theirs/python"}

    spark_session.prepare(environment, Java(Path("/java"), 17), local=False, python="/ours/python")
    settings = spark_session.settings("spark://host:7077", {})

    assert environment["PYSPARK_PYTHON"] == "/theirs/python"
    assert "SPARK_LOCAL_IP" not in environment
    assert "spark.driver.host" not in settings
    assert "spark.sql.shuffle.partitions" not in settings
    assert settings["spark.sql.python.filterPushdown.enabled"] == "true"


def test_what_a_user_sets_counts_more() -> None:
    settings = spark_session.settings("local", {"spark.driver.host": "me", "mine": "1"})

    assert settings["spark.driver.host"] == "me"
    assert settings["mine"] == "1"
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"


def test_masters_are_told_apart() -> None:
    assert spark_session.is_local("local")
    assert spark_session.is_local("local[*]")
    assert not spark_session.is_local("local-cluster[2,1,1024]")
    assert not spark_session.is_local("spark://localhost:7077")
    assert spark_session.threads("local") == 1
    assert spark_session.threads("local[3]") == 3
    assert spark_session.threads("local[3,4]") == 3
    assert spark_session.threads("local[*]") == os.cpu_count()


@pytest.mark.slow
def test_the_package_that_is_shipped_works_from_its_zip(tmp_path: Path) -> None:
    archive = spark_session.pack(tmp_path / "package.zip")

    names = zipfile.ZipFile(archive).namelist()
    code = "from cometmq.codec import core, batch; print(core.active(), batch.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert {"cometmq/spark/sink.py", "pyspark_rocketmq/__init__.py"} <= set(names)
    assert not [name for name in names if not name.endswith(".py")]
    assert said.stdout.split() == ["plain", f"{archive}/cometmq/codec/batch.py"]
