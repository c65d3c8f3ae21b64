"""What commands say of a cluster in which a broker hangs: it has the connection, and is silent."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.cli_kit import Cli
from tests.unit.cli.test_up_brokers import up

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

WARNING = re.compile(
    r"warning: broker-[ab] at 127\.0\.0\.1:\d+ does not answer \(no answer from \S+ within "
    r"(?P<ms>\d+) ms\): what it holds is missing here\n"
)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """For a cluster with a topic and dead letters on two brokers, one of which hangs."""
    home: Path = tmp_path_factory.mktemp("outages")
    with up(home / "data") as started:
        cli = Cli(started.told["name_server"], home, {"COMETMQ_TIMEOUT": "500ms"})
        cli.ok("topic", "create", "copies", "--queues", "1")
        for topic in ("orders", "%DLQ%billing"):
            cli.ok("topic", "create", topic, "--queues", "1")
            sent = cli.run("produce", topic, "one", "two", "-o", "json")
            brokers = {json.loads(line)["broker_name"] for line in sent.stdout.splitlines()}
            assert brokers == {"broker-a", "broker-b"}
        assert cli.run("consume", "orders", "--group", "billing", "--count", "2").exit_code == 0
        os.kill(started.children[1], signal.SIGSTOP)
        try:
            yield cli
        finally:
            os.kill(started.children[1], signal.SIGCONT)


@pytest.mark.parametrize("form", ["table", "json", "yaml", "plain"])
@pytest.mark.parametrize(
    "command",
    [
        *("group ls", "group lag", "topic peek orders", "dlq ls", "dlq peek billing"),
        *("consume orders", "consume orders --until now", "consume orders --group new --ack none"),
    ],
)
def test_what_a_silent_broker_holds_is_never_missing_without_a_word(
    cli: Cli, command: str, form: str
) -> None:
    ran = cli.run(*command.split(), "-o", form)

    assert ran.exit_code == 0
    assert WARNING.fullmatch(ran.stderr), ran.stderr
    if command.startswith("consume"):
        assert ran.stdout.count("broker-a") == 1  # the one message there
    elif form == "json":
        assert isinstance(json.loads(ran.stdout), list)


@pytest.mark.parametrize(
    "command", ["group describe billing", "group lag billing", "topic describe orders"]
)
def test_slow_questions_wait_no_longer_than_was_said(cli: Cli, command: str) -> None:
    ran = cli.run(*command.split())

    told = WARNING.search(ran.stderr)
    assert told is not None, ran
    assert int(told["ms"]) <= 500


def test_a_member_that_was_given_nothing_says_who_does_not_answer(cli: Cli) -> None:
    ran = cli.run("consume", "orders", "--group", "shipping", "--idle", "100ms")

    assert ran.exit_code == 0
    assert WARNING.search(ran.stderr), ran.stderr


@pytest.mark.parametrize(("queue", "code", "count"), [("broker-a/0", 0, 1), ("broker-b/0", 4, 0)])
def test_a_queue_that_is_named_is_all_that_has_to_be_there(
    cli: Cli, queue: str, code: int, count: int
) -> None:
    ran = cli.run("consume", "orders", "--queue", queue, "--template", "x")

    assert (ran.exit_code, len(ran.stdout.splitlines())) == (code, count)
    assert "warning" not in ran.stderr


@pytest.mark.parametrize("more", [(), ("--queue", "broker-a/0")], ids=["all", "one queue"])
def test_following_begins_when_all_are_there(cli: Cli, more: tuple[str, ...]) -> None:
    ran = cli.run("consume", "orders", "--follow", *more, "-o", "json")

    assert (ran.exit_code, ran.error["kind"]) == (4, "Unreachable")
    assert ran.error["next"] == "without --follow what the others hold is printed"


def test_what_could_not_be_sent_is_told_without_lines_of_a_log(cli: Cli) -> None:
    ran = cli.run("produce", "copies", *map(str, range(8)))

    assert ran.exit_code == 1
    assert " WARNING " not in ran.stderr
    assert "of 8 messages were not sent" in ran.stderr


@pytest.mark.parametrize("way", ["--move", "--delete"])
def test_half_of_the_dead_letters_are_not_purged(cli: Cli, way: str) -> None:
    before = cli.run("dlq", "ls", "-o", "json").stdout

    ran = cli.run("dlq", "purge", "billing", way, "--yes", "-o", "json")

    assert (ran.exit_code, ran.error["kind"]) == (4, "Unreachable")
    assert ran.error["next"] == "nothing was changed; do it again once it is there"
    assert cli.run("dlq", "ls", "-o", "json").stdout == before


def test_several_brokers_are_not_one(cli: Cli) -> None:
    ran = cli.run("broker", "config", "get", "brokerName", "-o", "json")

    assert (ran.exit_code, ran.error["fact"]) == (2, "there are 2 brokers: broker-a, broker-b")
    assert ran.error["next"] == "say which broker is meant, with --broker"
