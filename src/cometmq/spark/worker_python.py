"""The Python that Spark runs on this machine, so that it starts quickly.

Spark puts its own Python files in front of every process's path as a zip, which has no compiled
code: each process compiles hundreds of files again, for half a second and more. A batch query
starts four such processes one after the other. Where PySpark is installed for the same Python,
these files are there a second time, compiled. So Spark is given a small shell script to run, which
takes its zips and jars out of the path before it runs Python.
"""

import os
import shlex
import site
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from cometmq.spark import kept

SCRIPT = """\
#!/bin/sh
# Runs Python with the files of Spark that are installed and compiled, not with those in its zip.
rest=$PYTHONPATH: PYTHONPATH=
while [ -n "$rest" ]; do
    case ${{rest%%:*}} in
    {spark}/*) ;;
    *) PYTHONPATH=$PYTHONPATH:${{rest%%:*}} ;;
    esac
    rest=${{rest#*:}}
done
PYTHONPATH=${{PYTHONPATH#:}}
export PYTHONPATH
exec {python} "$@"
"""


def script_for(python: str, spark: Path, cache: Path) -> Path:
    """A program that runs ``python`` without the zips and jars below ``spark`` in its path."""
    script = cache / "python" / kept.name_of(Path(python)) / kept.name_of(spark) / "python"
    text = SCRIPT.format(python=shlex.quote(python), spark=shlex.quote(str(spark)))
    kept.keep_script(script, text)
    return script


def quick_python(environment: Mapping[str, str], spark: Path) -> str:
    """What Spark is to run as Python on this machine; ``spark`` is the folder of PySpark.

    It is this program's Python itself where a new process might not find the same PySpark without
    Spark's help, and where the script cannot be kept.
    """
    if os.name != "posix" or not is_found_by_itself(spark, environment, _site_folders()):
        return sys.executable
    try:
        return str(script_for(sys.executable, spark, kept.folder(environment)))
    except OSError:
        return sys.executable  # slower, and otherwise the same


def is_found_by_itself(
    spark: Path, environment: Mapping[str, str], site_folders: Collection[str]
) -> bool:
    """Whether a new Python imports PySpark from ``spark``, and Spark is started from there too."""
    named = environment.get("SPARK_HOME")
    if named and Path(named) != spark:
        return False
    searched = [*environment.get("PYTHONPATH", "").split(os.pathsep), *site_folders]
    return spark.parent in [Path(folder).resolve() for folder in searched if folder]


def _site_folders() -> list[str]:
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*site.getsitepackages(), *users]
