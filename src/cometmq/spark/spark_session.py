"""A Spark session that is set up right for topics: Java, Python workers, Arrow, the package itself.

Everything here can be said otherwise by ``conf``; what is done is listed in the guide "On a
cluster". A session that already runs is returned as it is; what comes in ``conf`` is set in it as
far as Spark can set it then.
"""

import atexit
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.errors import MissingDependency
from cometmq.spark import class_archive, java, worker_python
from cometmq.spark.errors import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_PYSPARK = (4, 2)
LOOPBACK = "127.0.0.1"
SHIPPED = ("cometmq", "pyspark_rocketmq")
ALWAYS: Mapping[str, str] = {
    # A quarter faster than TCP between the JVM and its Python workers, and nobody else can connect.
    "spark.python.unix.domain.socket.enabled": "true",
    # Off by default, and then a reader that could use filters makes queries fail.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Batches of 4 MB with messages of 1 KB: more rows are slower, in both directions.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}


def session(
    master: str = "local[*]",
    *,
    app_name: str = "cometmq",
    conf: Mapping[str, str] | None = None,
    ship_package: bool | None = None,
) -> "SparkSession":
    """A Spark session on ``master`` in which ``format("rocketmq")`` works, or the one that runs.

    ``conf`` goes to Spark as it is and comes before what is set here. ``ship_package`` sends this
    package to the executors; by default it is done where they are other processes than this one's,
    and need not be where the same version is installed on all of them. A session that runs already
    keeps its master, its name and its settings but those in ``conf``, and is sent the package only
    if ``ship_package`` says so.

    Raises SparkSetupError when there is no Java or PySpark is too old, MissingDependency when a
    package is not installed.
    """
    check_packages()
    from pyspark.sql import SparkSession

    running = SparkSession._instantiatedSession
    if running is not None and running.sparkContext._jsc is not None:
        given = _with_settings(SparkSession.builder, conf or {}).getOrCreate()
        is_shipped = bool(ship_package)
    else:
        builder = SparkSession.builder.master(master).appName(app_name)
        given = _started(builder, master, conf or {})
        is_shipped = not is_local(master) if ship_package is None else ship_package
    if is_shipped:
        ship(given)
    return given


def _started(
    builder: "SparkSession.Builder", master: str, conf: Mapping[str, str]
) -> "SparkSession":
    found = java.find(os.environ, bundled=java.bundled_home())
    python = sys.executable
    if is_local(master):  # on other machines there is no script of ours
        python = worker_python.quick_python(os.environ, spark_folder())
    prepare(os.environ, found, local=is_local(master), python=python)
    builder = _with_settings(builder, settings(master, conf))
    return started_quickly(os.environ, conf, found, builder.getOrCreate)


def _with_settings(
    builder: "SparkSession.Builder", chosen: Mapping[str, str]
) -> "SparkSession.Builder":
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder


def check_packages() -> None:
    """Raise unless the packages of the extra ``spark`` are here and new enough."""
    for package in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependency(package, "spark", "the Spark connector")
    check_version(importlib.import_module("pyspark").__version__)


def check_version(version: str) -> None:
    """Raise SparkSetupError unless PySpark ``version`` lets a Python source limit its batches."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_PYSPARK:
        wanted = ".".join(map(str, OLDEST_PYSPARK))
        raise SparkSetupError(
            f"PySpark {version} is too old: the connector needs {wanted} or newer",
            "install it with: pip install 'cometmq[spark]'",
        )


def prepare(
    environment: MutableMapping[str, str], found: java.Java, *, local: bool, python: str
) -> None:
    """Say in the environment what Spark reads from there before it starts."""
    environment["JAVA_HOME"] = str(found.home)
    # Otherwise workers run whatever 'python3' is, which need not have our packages.
    environment.setdefault("PYSPARK_PYTHON", python)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if local:
        environment.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def started_quickly(
    environment: MutableMapping[str, str],
    conf: Mapping[str, str],
    found: java.Java,
    start: Callable[[], "SparkSession"],
) -> "SparkSession":
    """What ``start`` makes; its JVM has its classes from an archive, if somebody made one."""
    try:
        archive = class_archive.archive_for(environment, conf, found, spark_folder())
    except OSError:  # nothing can be kept, and nothing is lost but time
        archive = None
    return start() if archive is None else archive.used_by(environment, start)


def spark_folder() -> Path:
    """Where PySpark is installed, with the jars of Spark."""
    return Path(str(importlib.import_module("pyspark").__file__)).resolve().parent


def settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """All of Spark's settings for ``master``; ``conf`` wins."""
    chosen = dict(ALWAYS)
    if importlib.util.find_spec("pandas") is None:
        # Plain Python UDFs would try Arrow, for which Spark wants pandas, and warn each time.
        chosen["spark.sql.execution.pythonUDF.arrow.enabled"] = "false"
    if is_local(master):
        chosen["spark.driver.host"] = LOOPBACK
        chosen["spark.driver.bindAddress"] = LOOPBACK
        # Spark's 200 are for clusters: here each costs a task in every batch of a stream.
        chosen["spark.sql.shuffle.partitions"] = str(threads(master))
    return {**chosen, **conf}


def is_local(master: str) -> bool:
    """Whether executors are threads of the driver's own JVM."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def threads(master: str) -> int:
    """How many tasks a local master runs at the same time."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    wanted = found[1] if found else "*"
    if wanted == "*":
        return os.cpu_count() or 1
    return int(wanted or 1)


def ship(started: "SparkSession") -> None:
    """Send this package to the executors, current and future ones of this session."""
    folder = Path(tempfile.mkdtemp(prefix="cometmq-spark-"))
    # Executors that come later fetch it from there too, so it stays as long as the driver.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = pack(folder / "cometmq-package.zip")
    started.sparkContext.addPyFile(str(archive))


def pack(target: Path) -> Path:
    """Write the package's Python files into a zip; compiled modules stay out, as they must."""
    root = Path(__file__).parents[2]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in SHIPPED:
            for path in sorted((root / package).rglob("*.py")):
                archive.write(path, path.relative_to(root))
    return target
