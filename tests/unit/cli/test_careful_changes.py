"""Commands that change a cluster do what they say, or say why not, before anything is changed."""

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
    """Runs commands on a cluster with a topic of two messages and a group at its end."""

    def run(*arguments: str) -> Result:
        environment = {"NAMESRV_ADDR": cluster.namesrv, "COMETMQ_CONTEXT": ""}
        return CliRunner().invoke(app, arguments, env=environment)

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
