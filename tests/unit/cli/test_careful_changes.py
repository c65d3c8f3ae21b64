"""Commands that change a cluster do what they say, or say why not, before anything is changed."""

import json

import pytest
from click.testing import Result

from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.cli.kit import Run, runner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(cluster: BlockingCluster) -> Run:
    """Runs commands on a cluster with a topic of two messages and a group at its end."""
    run = runner(cluster)
    cluster.create_topic("orders", queues=2)
    assert run("produce", "orders", "one", "two").exit_code == 0
    assert run("consume", "orders", "--group", "billing", "--count", "2").exit_code == 0
    return run


def told(result: Result) -> tuple[int, list[str]]:
    return result.exit_code, result.stderr.splitlines()


# --- dead letters


@pytest.mark.parametrize("ways", [("--move", "--delete"), ("--delete", "--move")])
def test_dead_letters_are_not_moved_and_deleted_at_once(run: Run, ways: tuple[str, str]) -> None:
    result = run("dlq", "purge", "billing", *ways, "--yes")

    assert told(result) == (
        2,
        ["error: --move and --delete exclude each other", "  next: give one of them"],
    )


# --- settings of servers


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("server", "key", "meant"),
    [
        ("nameserver", "orderMessageEnabled", "orderMessageEnable"),
        ("broker", "fileReservedTimes", "fileReservedTime"),
    ],
)
def test_a_setting_that_a_server_does_not_have_is_not_changed(
    run: Run, server: str, key: str, meant: str, more: tuple[str, ...]
) -> None:
    before = run(server, "config", "get").stdout

    result = run(server, "config", "set", f"{key}=1", f"{meant}=7", *more)

    assert told(result) == (
        3,
        [f"error: no such setting: '{key}'", f"  next: did you mean '{meant}'?"],
    )
    assert run(server, "config", "get").stdout == before


# --- dry runs


@pytest.mark.parametrize(
    ("code", "command"),
    [
        (1, ("topic", "create", "new", "orders")),
        (3, ("topic", "create", "new", "--broker", "nosuch")),
        (3, ("topic", "create", "new", "--cluster", "nosuch")),
        (3, ("topic", "edit", "orders", "--perm", "r", "--broker", "nosuch")),
        (3, ("topic", "edit", "nosuch", "--perm", "r")),
        (3, ("topic", "delete", "orders", "--cluster", "nosuch")),
        (3, ("topic", "delete", "orders", "--cluster", "nosuch", "--if-exists")),
        (3, ("group", "delete", "billing", "--cluster", "nosuch")),
        (3, ("group", "delete", "billing", "--cluster", "nosuch", "--if-exists")),
        (3, ("broker", "config", "set", "fileReservedTime=9", "--broker", "nosuch")),
        (3, ("broker", "config", "set", "fileReservedTime=9", "--cluster", "nosuch")),
        (4, ("topic", "create", "new", "--namesrv", "127.0.0.1:1")),
        (4, ("broker", "config", "set", "fileReservedTime=9", "--namesrv", "127.0.0.1:1")),
    ],
)
def test_a_dry_run_fails_where_the_real_one_would(
    run: Run, code: int, command: tuple[str, ...]
) -> None:
    real = ("--yes",) if "delete" in command else ()

    planned = run(*command, "--dry-run")
    done = run(*command, *real)
    run("topic", "delete", "new", "--yes", "--if-exists")

    assert planned.exit_code == code
    assert planned.stdout == ""
    assert told(planned) == told(done)


def test_a_dry_run_changes_nothing(run: Run) -> None:
    before = run("topic", "create", "orders", "--if-missing", "-o", "json").stdout

    created = run("topic", "create", "new", "--dry-run", "-o", "json")
    kept = run("topic", "create", "orders", "--if-missing", "--dry-run")
    edited = run("topic", "edit", "orders", "--perm", "r", "--dry-run", "-o", "json")
    of_topic = run("topic", "delete", "orders", "--dry-run", "-o", "json")
    of_group = run("group", "delete", "billing", "--dry-run", "-o", "json")

    assert json.loads(created.stdout)["settings"]["read_queues"] == 8
    assert kept.exit_code == 0
    assert json.loads(edited.stdout)["settings"] == {"perm": "r"}
    assert json.loads(of_topic.stdout) == [
        {
            "topic": "orders",
            "messages": 2,
            "groups": ["billing"],
            "brokers": ["broker-0"],
            "is_deleted": False,
        }
    ]
    (group,) = json.loads(of_group.stdout)
    assert (group["lag"], group["brokers"], group["is_deleted"]) == (0, ["broker-0"], False)
    assert run("topic", "create", "orders", "--if-missing", "-o", "json").stdout == before
    assert "billing" in run("group", "ls").stdout
    assert run("topic", "describe", "new").exit_code == 3


def test_what_would_be_lost_in_one_cluster_is_told_without_the_other() -> None:
    with LocalCluster(brokers=2) as cluster:
        cluster.brokers[1].restart({"brokerClusterName": "west"})
        run = runner(cluster)
        for place, values in (("DefaultCluster", ["1", "2", "3"]), ("west", ["4"])):
            made = run("topic", "create", "orders", "--queues", "1", "--cluster", place)
            assert made.exit_code == 0
            name = "broker-0" if place == "DefaultCluster" else "broker-1"
            assert run("produce", "orders", *values, "--queue", f"{name}/0").exit_code == 0
        assert run("consume", "orders", "--group", "billing", "--count", "4").exit_code == 0
        assert run("group", "reset", "billing", "--to-earliest", "--yes").exit_code == 0

        topic = run("topic", "delete", "orders", "--cluster", "west", "--dry-run", "-o", "json")
        group = run("group", "delete", "billing", "--cluster", "west", "--dry-run", "-o", "json")

        (of_topic,), (of_group,) = json.loads(topic.stdout), json.loads(group.stdout)
        assert (of_topic["messages"], of_topic["brokers"]) == (1, ["broker-1"])
        assert (of_group["lag"], of_group["brokers"]) == (1, ["broker-1"])


# --- queues that consumers read from


@pytest.fixture
def spread(run: Run, cluster: BlockingCluster) -> str:
    """A topic with three messages in the second of its two queues."""
    run("topic", "delete", "spread", "--yes", "--if-exists")
    cluster.create_topic("spread", queues=2)
    assert run("produce", "spread", "a", "b", "c", "--queue", "1").exit_code == 0
    return "spread"


def test_messages_do_not_get_out_of_reach_without_a_question(run: Run, spread: str) -> None:
    refused = run("topic", "edit", spread, "--read-queues", "1")
    planned = run("topic", "edit", spread, "--read-queues", "1", "--dry-run")
    still = run("consume", spread, "--template", "{value}")
    done = run("topic", "edit", spread, "--read-queues", "1", "--yes")
    after = run("consume", spread, "--template", "{value}")

    stake = "topic 'spread' has 3 messages in queues that nobody would read from any more"
    what = "take queues with 3 messages away from readers"
    doubt = f"error: not sure whether to {what}: nobody is here to ask"
    assert told(refused) == (2, [stake, doubt, "  next: add --yes to do it"])
    assert told(planned) == (0, [stake])
    assert still.stdout == "a\nb\nc\n"
    assert (done.exit_code, after.stdout) == (0, "")


@pytest.mark.parametrize(
    "change", [("--write-queues", "1"), ("--read-queues", "4"), ("--queues", "2"), ("--perm", "r")]
)
def test_what_takes_no_message_from_readers_needs_no_question(
    run: Run, spread: str, change: tuple[str, ...]
) -> None:
    result = run("topic", "edit", spread, *change)

    assert told(result) == (0, [])
