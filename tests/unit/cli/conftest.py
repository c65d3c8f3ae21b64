import socket
from collections.abc import Callable, Iterator

import pytest

from cometmq import logs
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.cli.kit import Run, runner
from tests.unit.coroutines import pytest_pyfunc_call as pytest_pyfunc_call


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Every command sets up logging; other tests must not notice."""
    yield
    logs.reset()


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    """One for each module that asks for it."""
    with LocalCluster() as started:
        yield started


@pytest.fixture(scope="module")
def run(cluster: BlockingCluster) -> Run:
    """Runs commands on it; modules that need something in it have a ``run`` of their own."""
    return runner(cluster)


@pytest.fixture
def unused_port() -> Callable[[], int]:
    """A port of this machine on which nobody listens."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return find
