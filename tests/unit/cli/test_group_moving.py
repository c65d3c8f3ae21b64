"""Moving and deleting groups, with a cluster: what is touched, and what is left alone."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import Result

from cometmq import Client
from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.cli.kit import Run

pytestmark = pytest.mark.slow


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


def test_dead_letters_that_are_moved_back_are_sent_once_more_each(run: Run, letters: str) -> None:
    """Nobody consumes them, so a reset that waits for a member would wait for ever."""
    topic = f"%DLQ%{letters}"
    replay = ("dlq", "replay", letters, "--count", "2", "--to", "orders")

    done(run("group", "reset", letters, "--topic", topic, "--to-earliest", "--yes", "-o", "json"))
    sent = [run(*replay), run(*replay)]

    (left,) = done(run("dlq", "ls", "-o", "json"))
    values = run("consume", "orders", "--template", "{value}").stdout.split()
    assert [result.exit_code for result in sent] == [0, 0], sent[0].stderr
    assert values[-4:] == ["a", "b", "c", "d"]
    assert left["messages"] - left["pending"] == 4


# --- members


@contextmanager
def member(cluster: BlockingCluster, topic: str, group: str) -> Iterator[threading.Semaphore]:
    """A member of the group that has consumed a message, of which it has not told the broker.

    What is given can be acquired for each message that comes after that.
    """
    consumed = threading.Semaphore(0)
    with (
        Client(cluster.namesrv, persist_interval_ms=3_600_000) as mq,
        mq.consumer(group, start="first") as consumer,
    ):
        mq.producer().send(topic, b"value")
        consumer.subscribe(topic)
        consumer.start(lambda _: consumed.release())
        assert consumed.acquire(timeout=30)
        yield consumed


@pytest.mark.parametrize("more", ["--yes", "--dry-run"])
def test_a_group_whose_members_are_connected_is_not_deleted(
    run: Run, cluster: BlockingCluster, more: str
) -> None:
    """It would be back with their next heartbeat, and look as if nothing had happened."""
    cluster.create_topic("alive", queues=1)
    with member(cluster, "alive", "busy"):
        refused = run("group", "delete", "busy", more)

        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.splitlines() == [
            "error: group 'busy' has a connected member: it would be back with the next heartbeat",
            "  next: stop them first: see 'cometmq group connections busy'",
        ]
    (deleted,) = done(run("group", "delete", "busy", "--yes", "-o", "json"))

    assert (deleted["members"], deleted["is_deleted"]) == (0, True)


def test_a_group_that_has_just_begun_is_moved_on_what_its_members_read(
    run: Run, cluster: BlockingCluster
) -> None:
    """Brokers hear of its offsets some seconds later."""
    cluster.create_topic("fresh", queues=1)
    with member(cluster, "fresh", "newcomers") as consumed:
        described = done(run("group", "describe", "newcomers", "-o", "json"))
        shown = run("group", "describe", "newcomers").stdout
        reset = done(run("group", "reset", "newcomers", "--to-earliest", "--yes", "-o", "json"))

        assert (described["lag"], described["member_count"]) == (None, 1)
        assert "lag" not in shown.lower()
        assert [(move["topic"], move["before"]) for move in reset["moves"]] == [("fresh", None)]
        assert consumed.acquire(timeout=30)  # once more
