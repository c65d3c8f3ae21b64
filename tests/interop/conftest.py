"""Fixtures of the interop kit: shared Apache clusters, clients, and logs in the report."""

import itertools
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import variants
from tests.interop import apache, clients, fleet, processes
from tests.interop.admin_shell import AdminShell
from tests.interop.apache import ApacheCluster
from tests.interop.broker_fixtures import *  # noqa: F403
from tests.interop.cache import Cache, default_cache
from tests.interop.clients import Client
from tests.interop.commands import tail
from tests.interop.fleet import Fleet
from tests.interop.mqadmin import MqAdmin

_numbers = itertools.count(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    variants.choose(config, items, "tests/interop")


@pytest.fixture(scope="session")
def cache() -> Cache:
    """The machine's cache of jars and clients."""
    return default_cache()


@pytest.fixture(scope="session")
def apache_cluster(
    cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], ApacheCluster]]:
    """``apache_cluster("4.9.7")``: one shared cluster per release, started when first asked for.

    Topics and groups are created when used. Tests that need other settings start their own.
    """
    started: dict[str, ApacheCluster] = {}
    with ExitStack() as stack:

        def get(version: str) -> ApacheCluster:
            if version not in started:
                folder = tmp_path_factory.mktemp(f"apache-{version}")
                started[version] = stack.enter_context(apache.cluster(cache, version, folder))
            return started[version]

        yield get


@pytest.fixture(scope="session")
def apache_4(apache_cluster: Callable[[str], ApacheCluster]) -> ApacheCluster:
    return apache_cluster("4.9.7")


@pytest.fixture(scope="session")
def apache_5(apache_cluster: Callable[[str], ApacheCluster]) -> ApacheCluster:
    return apache_cluster("5.5.0")


@pytest.fixture(scope="session")
def apache_fleet(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A broker of each release, registered with our name servers and with Apache's."""
    with fleet.running(cache, tmp_path_factory.mktemp("fleet")) as started:
        yield started


@pytest.fixture(scope="session")
def admin_shell(
    cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], AdminShell]]:
    """``admin_shell("4.9.8")("topicList", "-n", address)``: as ``mqadmin``, one JVM per release."""
    started: dict[str, AdminShell] = {}
    with ExitStack() as stack:

        def get(version: str) -> AdminShell:
            if version not in started:
                folder = tmp_path_factory.mktemp(f"admin-{version}")
                started[version] = stack.enter_context(AdminShell(cache, version, folder))
            return started[version]

        yield get


@pytest.fixture(scope="session")
def client(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Client]:
    """``client("go")``: one of the real clients, by the names in ``clients.NAMES``."""
    folder = tmp_path_factory.mktemp("clients")
    return lambda name: clients.client(cache, name, folder)


@pytest.fixture(scope="session")
def mqadmin(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], MqAdmin]:
    """``mqadmin("4.9.8")("topicList", "-n", address)``: what the tool prints."""
    folder = tmp_path_factory.mktemp("mqadmin")
    return lambda version: MqAdmin(cache, version, Path(folder))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test uses, with the test's own in it."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", request.node.name)
    return f"{name[:90]}_{next(_numbers)}"


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
