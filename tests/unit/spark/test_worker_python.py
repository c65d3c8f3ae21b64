"""The script that Spark runs as Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.spark import worker_python


def fake_python(folder: Path) -> Path:
    """A program that tells its path and its arguments."""
    folder.mkdir()
    program = folder / "python"
    program.write_text('#!/bin/sh\necho "[$PYTHONPATH]"\nfor one in "$@"; do echo "$one"; done\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (
            "{spark}/python/lib/pyspark.zip:{spark}/jars/core.jar:/mine:/also mine",
            "/mine:/also mine",
        ),
        ("/mine:{spark}/python/lib/py4j-src.zip:{spark}-not:/also", "/mine:{spark}-not:/also"),
        ("{spark}/python/lib/pyspark.zip", ""),
        ("", ""),
    ],
)
def test_only_what_is_sparks_is_taken_out_of_the_path(tmp_path: Path, path: str, left: str) -> None:
    spark = tmp_path / "it's here" / "pyspark"
    python = fake_python(tmp_path / "a b")

    script = worker_python.script_for(str(python), spark, tmp_path / "cache")
    said = subprocess.run(
        [script, "-m", "pyspark.daemon", "a b", ""],
        env={**os.environ, "PYTHONPATH": path.format(spark=spark)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.split("\n")[:-1] == [
        f"[{left.format(spark=spark)}]", "-m", "pyspark.daemon", "a b", ""
    ]  # fmt: skip


def test_the_script_runs_this_python(tmp_path: Path) -> None:
    script = worker_python.script_for(sys.executable, tmp_path / "pyspark", tmp_path / "cache")

    said = subprocess.run(
        [script, "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.strip() == sys.executable


def test_a_pyspark_that_a_new_process_finds_is_taken_from_there(tmp_path: Path) -> None:
    spark = tmp_path / "pyspark"
    found = worker_python.is_found_by_itself

    assert found(spark, {}, [str(tmp_path)])
    assert found(spark, {"PYTHONPATH": f"/other:{tmp_path}"}, [])
    assert found(spark, {"SPARK_HOME": str(spark)}, [str(tmp_path)])


def test_another_pyspark_is_left_to_spark(tmp_path: Path) -> None:
    spark = tmp_path / "pyspark"
    found = worker_python.is_found_by_itself

    assert not found(spark, {}, ["/elsewhere"])
    assert not found(spark, {"PYTHONPATH": ""}, [])
    assert not found(spark, {"SPARK_HOME": "/opt/spark"}, [str(tmp_path)])


def test_without_a_place_for_the_script_python_is_run_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"COMETMQ_CACHE": str(tmp_path / "file"), "PYTHONPATH": str(tmp_path)}

    python = worker_python.quick_python(environment, tmp_path / "pyspark")

    assert python == sys.executable


def test_without_a_home_python_is_run_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers often run a user that /etc/passwd does not know, with no HOME."""
    monkeypatch.setattr(Path, "home", homeless)

    python = worker_python.quick_python({"PYTHONPATH": str(tmp_path)}, tmp_path / "pyspark")

    assert python == sys.executable


def homeless() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_script_is_kept_and_used_again(tmp_path: Path) -> None:
    environment = {"COMETMQ_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}

    python = worker_python.quick_python(environment, tmp_path / "pyspark")
    written = Path(python).stat()

    assert worker_python.quick_python(environment, tmp_path / "pyspark") == python
    assert Path(python).stat().st_mtime_ns == written.st_mtime_ns
    assert python.startswith(str(tmp_path / "cache"))
