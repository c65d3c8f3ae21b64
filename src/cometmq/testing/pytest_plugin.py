"""Fixtures for tests of programs that use CometMQ; say so in the top ``conftest.py``::

    pytest_plugins = ["cometmq.testing.pytest_plugin"]

Then a test asks for what it needs::

    def test_orders_are_paid(cometmq_client, cometmq_topic):
        cometmq_client.producer().send(cometmq_topic, b"one")

One cluster serves all tests of a run, in the same process. What each test may rely on is a topic of
its own; groups are free to be named by a test, ``cometmq_group`` is a name that nobody else has.
To have other settings, override ``cometmq_cluster_settings`` in your own ``conftest.py``.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from cometmq import aio
    from cometmq.blocking.client import Client
    from cometmq.testing.local_cluster import BlockingCluster

NAME_CHARACTERS_MAX = 80
"""Of a test's name in the names of topics and groups; there is a limit of 127 in all."""


@pytest.fixture(scope="session")
def cometmq_cluster_settings() -> Mapping[str, object]:
    """What the broker is set to beyond the usual, by the keys of its file: to be overridden."""
    return {}


@pytest.fixture(scope="session")
def cometmq_cluster(
    cometmq_cluster_settings: Mapping[str, object],
) -> "Iterator[BlockingCluster]":
    """A name server and a broker, for all tests of the run."""
    from cometmq.testing import LocalCluster

    with LocalCluster(settings=cometmq_cluster_settings) as cluster:
        yield cluster


@pytest.fixture
def cometmq_topic(cometmq_cluster: "BlockingCluster", request: pytest.FixtureRequest) -> str:
    """A new topic with four queues, named after the test."""
    name = unique_name(request.node.name)
    cometmq_cluster.create_topic(name)
    return name


@pytest.fixture
def cometmq_group(request: pytest.FixtureRequest) -> str:
    """The name of a group that nobody else uses."""
    return unique_name(request.node.name)


@pytest.fixture
def cometmq_client(cometmq_cluster: "BlockingCluster") -> "Iterator[Client]":
    """A client, open for as long as the test."""
    from cometmq import Client

    with Client(cometmq_cluster.namesrv) as client:
        yield client


@pytest.fixture
def cometmq_aio_client(cometmq_cluster: "BlockingCluster") -> "aio.Client":
    """A client for asyncio, which the test enters: ``async with cometmq_aio_client as mq``.

    So it runs on the test's own loop, whichever plugin made that.
    """
    from cometmq import aio

    return aio.Client(cometmq_cluster.namesrv)


def unique_name(test: str) -> str:
    """A name for a topic or group, after a test, that nobody else has."""
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in test)
    return f"{name[:NAME_CHARACTERS_MAX]}-{uuid4().hex[:8]}"
