"""Moving and deleting groups, with a cluster: what is touched, and what is left alone."""

import json
from collections.abc import Callable, Iterator
from typing import Any

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


def done(result: Result) -> Any:
    """What a command that succeeded told."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# --- dead letters


@pytest.fixture
def letters(run: Run, cluster: BlockingCluster) -> str:
    """A group that has consumed a topic and has four dead letters, one of which was sent again."""
    cluster.create_topic("orders", queues=1)
    cluster.create_topic("%DLQ%billing", queues=1)
    done(run("produce", "orders", "one", "-o", "json"))
    assert run("consume", "orders", "--group", "billing", "--count", "1").exit_code == 0
    assert run("produce", "%DLQ%billing", "a", "b", "c", "d").exit_code == 0
    assert run("dlq", "replay", "billing", "--count", "1", "--to", "orders").exit_code == 0
    return "billing"


def test_dead_letters_stay_pending_wherever_their_group_goes(run: Run, letters: str) -> None:
    reset = done(run("group", "reset", letters, "--to-latest", "--yes", "-o", "json"))
    cloned = done(run("group", "clone", letters, "copy", "--yes", "-o", "json"))

    topic = f"%DLQ%{letters}"
    (left,) = done(run("dlq", "ls", "-o", "json"))
    lag = done(run("group", "lag", letters, "-o", "json"))
    described = done(run("group", "describe", letters, "-o", "json"))
    seen = done(run("top", "--once", "-o", "json"))
    assert {move["topic"] for move in (*reset["moves"], *cloned["moves"])} == {"orders"}
    assert left["pending"] == 3
    assert (lag["lag"], topic in {row["topic"] for row in lag["queues"]}) == (0, False)
    assert described["lag"] == 0
    assert topic not in {row["topic"] for row in described["topics"]}
    assert {group["group"]: group["lag"] for group in seen["groups"]}[letters] == 0


def test_dead_letters_that_are_named_are_moved(run: Run, letters: str) -> None:
    topic = f"%DLQ%{letters}"

    lag = done(run("group", "lag", letters, "--topic", topic, "-o", "json"))
    done(run("group", "reset", letters, "--topic", topic, "--to-latest", "--yes", "-o", "json"))

    (left,) = done(run("dlq", "ls", "-o", "json"))
    assert lag["lag"] > 0
    assert left["pending"] == 0
