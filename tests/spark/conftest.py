"""Fixtures for tests with Spark: the one session of the run, servers that can be killed, topics."""

import importlib.util
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop import processes, requirements
from tests.interop.cache import Cache, default_cache
from tests.interop.commands import tail
from tests.spark import class_archive
from tests.spark.servers import Servers, start_servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEST_SECONDS_MAX = 300
"""The first test of a run also waits for the session, and on a new machine for the archive."""

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


@pytest.fixture(scope="session")
def cache() -> Cache:
    """The machine's cache of jars, clients and class archives."""
    return default_cache()


@pytest.fixture(scope="session")
def spark_environment(cache: Cache) -> dict[str, str]:
    """What a process that starts Spark gets in its environment, so that it starts quickly."""
    requirements.need("java")
    for package in ("pyspark", "pyarrow", "numpy"):
        if importlib.util.find_spec(package) is None:
            requirements.missing(package, "not installed; 'make setup SPARK=1' installs it")
    import pyspark

    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    options = class_archive.options(cache, said.stderr, pyspark.__version__)
    return {"JDK_JAVA_OPTIONS": options}


@pytest.fixture(scope="session")
def spark(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[SparkSession]":
    """The one Spark session of the run: two threads, and a task that fails fails its job."""
    import cometmq.spark

    os.environ.update(spark_environment)
    folder = tmp_path_factory.mktemp("spark")
    (folder / "events").mkdir()
    conf = {
        **CONF,
        # A report of each look at a topic, also when nothing is new.
        "spark.sql.streaming.noDataProgressEventInterval": "0",
        # What the UI would show, to be searched for what it must not.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file:{folder / 'events'}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    started = cometmq.spark.session("local[2]", conf=conf)
    process = started.sparkContext._gateway.proc
    yield started
    started.stop()
    process.stdin.close()  # what tells the JVM to end
    process.wait(30)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A name server and a broker of ours for all tests; those that kill take ``own_servers``."""
    with start_servers(tmp_path_factory.mktemp("servers")) as started:
        yield started


@pytest.fixture
def own_servers(tmp_path: Path) -> Iterator[Callable[..., Servers]]:
    """``own_servers(brokers=2)``: servers that no other test uses, to be killed and restarted."""
    started: list[Servers] = []

    def start(**arguments: object) -> Servers:
        folder = tmp_path / f"servers-{len(started)}"
        started.append(start_servers(folder, **arguments))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for servers in started:
        servers.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses, with the test's own in it."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", request.node.name)
    return f"{name[:80]}_{next(_numbers)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the running servers last said below a test that failed."""
    report = yield
    if report.failed:
        for process in processes.running:
            report.sections.append((f"last lines of {process.log_path}", tail(process.log())))
    return report
