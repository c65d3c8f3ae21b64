"""One cluster serves most of the tests here: whatever they send, it must not mind."""

import itertools
from collections.abc import Iterator

import pytest

from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import Peer, connected

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as running:
        yield running


@pytest.fixture
def peer(cluster: BlockingCluster) -> Iterator[Peer]:
    with connected(cluster.broker.address) as found:
        yield found


@pytest.fixture
def topic(cluster: BlockingCluster) -> str:
    """A topic of the test's own, with four queues."""
    name = f"topic-{next(_numbers)}"
    cluster.create_topic(name)
    return name
