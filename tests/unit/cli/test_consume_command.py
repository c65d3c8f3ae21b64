"""``cometmq consume`` with a cluster whose settings are the usual ones."""

import os
import pty
import subprocess
import sys

import pytest

from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.cli.kit import Run

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    "command",
    [
        ("consume", "hostile", "--template", "{value}"),
        ("message", "get", "--topic", "hostile", "--queue", "0", "--offset", "0", "--raw"),
    ],
)
def test_no_terminal_obeys_what_a_message_contains(
    run: Run, cluster: BlockingCluster, command: tuple[str, ...]
) -> None:
    cluster.create_topic("hostile", queues=1)
    assert run("produce", "hostile", "\x1b[2Jgone").exit_code == 0

    piped = run(*command)
    shown = on_a_terminal(cluster, *command)

    assert piped.stdout.startswith("\x1b[2Jgone")
    assert shown.startswith("\\x1b[2Jgone")
    assert "\x1b" not in shown


def on_a_terminal(cluster: BlockingCluster, *arguments: str) -> str:
    """What the program prints where standard output is a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        subprocess.run(
            [sys.executable, "-m", "cometmq", *arguments],
            env={**os.environ, "NAMESRV_ADDR": cluster.namesrv, "COMETMQ_CONTEXT": ""},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            check=True,
            timeout=60,
        )
        os.close(theirs)
        return screen.read(65536).decode()
