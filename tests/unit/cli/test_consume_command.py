"""``cometmq consume`` with a cluster whose settings are the usual ones."""

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from cometmq.cli.app import app
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

pytestmark = pytest.mark.slow

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as started:
        yield started


@pytest.fixture(scope="module")
def run(cluster: BlockingCluster) -> Run:
    def run(*arguments: str) -> Result:
        environment = {"NAMESRV_ADDR": cluster.namesrv, "COMETMQ_CONTEXT": ""}
        return CliRunner().invoke(app, arguments, env=environment)

    return run


@pytest.mark.parametrize("place", ["latest", "now"])
def test_a_new_group_begins_where_it_is_told_in_a_young_topic_too(
    run: Run, cluster: BlockingCluster, place: str
) -> None:
    """Brokers answer 0 there for where a new group goes on, whatever its members are set to."""
    topic, group = f"young-{place}", f"late-{place}"
    cluster.create_topic(topic, queues=2)
    assert run("produce", topic, "old", "older", "oldest", "oldest of all").exit_code == 0
    reading = ("consume", topic, "--group", group, "--from", place, "--template", "{value}")

    before = run(*reading, "--idle", "1s")
    assert run("produce", topic, "new").exit_code == 0
    after = run(*reading, "--count", "1", "--idle", "20s")

    assert (before.exit_code, before.stdout) == (0, "")
    assert (after.exit_code, after.stdout) == (0, "new\n")


def test_a_group_that_has_begun_goes_on_where_it_is(run: Run, cluster: BlockingCluster) -> None:
    cluster.create_topic("begun", queues=1)
    assert run("produce", "begun", "one", "two").exit_code == 0
    reading = ("consume", "begun", "--group", "early", "--count", "1", "--template", "{value}")
    first = run(*reading)

    second = run(*reading, "--from", "latest")

    assert (first.stdout, second.stdout) == ("one\n", "two\n")
