"""What a person meets who tries commands on a small cluster: texts, next steps, exit codes."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.cli.kit import Run, runner

pytestmark = pytest.mark.slow

CHOOSING = (
    "CometMQ's brokers choose by tags (--tags); Apache's choose by SQL with "
    "enablePropertyFilter=true"
)


@pytest.fixture(scope="module")
def run(cluster: BlockingCluster) -> Run:
    """Runs commands on a cluster that has a topic with two messages and a group at its end."""

    run = runner(cluster)
    assert run("topic", "ls").stderr.startswith("there is no topic yet: 'produce' makes one;")
    assert run("group", "lag").stderr == "no group has consumed anything yet\n"
    cluster.create_topic("orders", queues=1)
    assert run("produce", "orders", "one", "two", "--key", "k").exit_code == 0
    assert run("consume", "orders", "--group", "billing", "--count", "2").exit_code == 0
    return run


def told(result: Result) -> tuple[int, list[str]]:
    return result.exit_code, result.stderr.splitlines()


def test_one_message_that_cannot_be_sent_is_told_with_what_helps(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text('{"value": 1, "kei": "7"}\n')

    wrong_queue = run("produce", "orders", "x", "--queue", "9")
    wrong_field = run("produce", "orders", "--format", "json", "--file", str(lines))

    assert told(wrong_queue) == (
        3,
        ["error: no such queue: '9'", "  next: topic 'orders' has broker-0/0"],
    )
    code, (fact, advice) = told(wrong_field)
    assert (code, fact) == (
        1,
        f"error: the message was not sent: file '{lines}' line 1: no such field: 'kei'",
    )
    assert advice.startswith("  next: did you mean 'key'? there are: value, ")


def test_a_file_that_is_not_there_is_not_found(run: Run, tmp_path: Path) -> None:
    missing, there = str(tmp_path / "missing"), tmp_path / "there"
    there.write_text("content")

    alone = run("produce", "orders", "--file", missing)
    both = run("produce", "orders", "--file", missing, f"{missing}-too")
    one_of_two = run("produce", "files", "--file", missing, str(there))

    advice = "  next: check the path given with --file"
    assert told(alone) == (3, [f"error: no such file: '{missing}'", advice])
    assert told(both) == (3, [f"error: no such file: '{missing}', '{missing}-too'", advice])
    assert one_of_two.exit_code == 1
    assert "1 of 2 messages were not sent" in one_of_two.stderr


@pytest.mark.parametrize("key", ["a b", " a", "", "\t"])
def test_a_key_with_blanks_in_it_is_not_taken_for_two(run: Run, key: str) -> None:
    for command in ("produce", "request"):
        result = run(command, "orders", "x", "--key", "good", "--key", key)

        assert result.exit_code == 2
        assert result.stderr.endswith(
            "is blank or has blanks in it\n  next: give one without any; repeat --key for several\n"
        )


def test_input_without_messages_is_told(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("\n\n")

    result = run("produce", "orders", "--format", "lines", "--file", str(lines))

    assert told(result) == (0, ["nothing was sent: the input had no message in it"])


def test_a_group_does_not_wait_for_a_topic_that_is_not_there(run: Run) -> None:
    result = run("consume", "nosuch", "--group", "billing")

    assert told(result) == (
        3,
        ["error: no such topic: 'nosuch'", "  next: see 'cometmq topic ls --all'"],
    )


def test_who_finds_no_messages_is_told_and_programs_are_not(run: Run) -> None:
    latest = run("consume", "orders", "--from", "latest")
    of_group = run("consume", "orders", "--group", "billing", "--idle", "10ms")
    as_json = run("consume", "orders", "--from", "latest", "-o", "json")
    as_text = run("consume", "orders", "--from", "latest", "--template", "{value}")

    assert told(latest) == (
        0,
        ["no such messages in topic 'orders'; --follow waits for the next ones"],
    )
    assert told(of_group) == (0, ["nothing in topic 'orders' for group 'billing' within 10 ms"])
    assert (as_json.stdout, as_json.stderr) == ("", "")
    assert (as_text.stdout, as_text.stderr) == ("", "")


def test_a_wrong_template_is_told_with_its_option(run: Run) -> None:
    result = run("consume", "orders", "--template", "{valu}")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: invalid value for '--template': no such field: 'valu'")


@pytest.mark.parametrize("more", [(), ("--group", "billing", "--ack", "none")])
def test_what_is_to_go_on_for_ever_has_no_end(run: Run, more: tuple[str, ...]) -> None:
    result = run("consume", "orders", "--follow", "--until", "1", *more)

    assert told(result) == (
        2,
        ["error: --follow and --until exclude each other", "  next: give one of them"],
    )


def test_names_that_cannot_be_are_refused_before_anything_is_done(run: Run) -> None:
    result = run("topic", "create", "fine", "not fine", "--dry-run")

    assert told(result) == (
        2,
        [
            "error: topic 'not fine' has characters that are not allowed",
            "  next: use letters, digits and the characters % | _ -",
        ],
    )


def test_a_servers_refusal_comes_with_a_next_step(run: Run) -> None:
    of_topic = run("topic", "delete", "TBW102", "--yes")
    of_setting = run("broker", "config", "set", "fileReservedTime=long")
    of_sql = run("consume", "orders", "--group", "sql", "--sql", "a = 1")

    advice = [told(one)[1][-1] for one in (of_topic, of_setting, of_sql)]

    assert [one.exit_code for one in (of_topic, of_setting, of_sql)] == [1, 1, 1]
    assert advice == [
        "  next: see 'cometmq topic ls' for those that are not RocketMQ's own",
        "  next: see 'cometmq broker config get' for keys and values",
        f"  next: {CHOOSING}",
    ]


def test_who_looks_for_a_clients_id_is_told_to_name_the_topic(run: Run) -> None:
    sent = run("produce", "orders", "three", "-o", "plain").stdout.split("\t")[0]

    without = run("message", "get", sent)
    within = run("message", "get", sent, "--topic", "orders", "--raw")

    assert told(without) == (
        3,
        [
            f"error: no such message: '{sent}'",
            "  next: name its topic with --topic: brokers look for a client's id in one topic",
        ],
    )
    assert within.stdout == "three"


def test_a_group_is_not_cloned_to_itself(run: Run) -> None:
    result = run("group", "clone", "billing", "billing", "--yes")

    assert told(result) == (
        2,
        [
            "error: 'billing' is where it is already",
            "  next: name another group as TARGET",
        ],
    )


def test_who_asks_too_much_of_a_message_is_told_what_to_do_at_the_command_line(run: Run) -> None:
    reserved = run("produce", "orders", "x", "--property", "KEYS=k")
    late = run("produce", "orders", "x", "--delay", "9999d")
    no_tag = run("consume", "orders", "--tags", "||")

    assert told(reserved) == (
        2,
        ["error: property 'KEYS' is RocketMQ's own", "  next: use --key for it"],
    )
    assert late.exit_code == 1
    assert told(late)[1][-1] == (
        "  next: delay it less: see 'cometmq broker config get timerMaxDelaySec'"
    )
    assert no_tag.exit_code == 2
    assert told(no_tag)[1][-1] == "  next: name the tags, or give '*' for every message"


def test_an_offset_alone_is_not_enough_where_there_are_several_queues(
    run: Run, cluster: BlockingCluster
) -> None:
    cluster.create_topic("wide", queues=3)

    several = run("message", "get", "--topic", "wide", "--offset", "0")
    one = run("message", "get", "--topic", "orders", "--offset", "0", "--raw")

    assert told(several) == (
        2,
        [
            "error: topic 'wide' has 3 queues",
            "  next: say which with --queue: broker-0/0 to broker-0/2",
        ],
    )
    assert one.stdout == "one"


def test_a_value_that_is_not_there_comes_with_the_way_to_those_that_are(run: Run) -> None:
    result = run("nameserver", "kv", "get", "APP", "colour")

    assert told(result) == (
        3,
        ["error: no such value: 'APP/colour'", "  next: see 'cometmq nameserver kv ls APP'"],
    )


def test_a_pattern_that_no_group_has_is_told(run: Run) -> None:
    result = run("group", "ls", "nosuch*")

    assert told(result) == (0, ["no group is like 'nosuch*'"])


@pytest.mark.parametrize("command", [("topic", "tail", "orders"), ("consume", "orders", "-f")])
def test_who_ends_what_follows_a_topic_did_nothing_wrong(
    command: tuple[str, ...], cluster: BlockingCluster, run: Run
) -> None:
    last = () if command[0] == "topic" else ("--from", "earliest")
    program = subprocess.Popen(
        [sys.executable, "-m", "cometmq", *command, *last, "-o", "plain"],
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() != ""

    program.send_signal(signal.SIGINT)
    _, complaints = program.communicate(timeout=30)

    assert (program.returncode, complaints) == (0, "")


def test_one_message_is_counted_as_one(run: Run, cluster: BlockingCluster) -> None:
    cluster.create_topic("single", queues=1)
    assert run("produce", "single", "x").exit_code == 0

    result = run("topic", "delete", "single")

    assert re.match(r"topic 'single' has 1 message$", result.stderr.splitlines()[0])


def test_who_interrupts_a_long_send_is_told_how_far_it_came(cluster: BlockingCluster) -> None:
    command = ["produce", "many", "x", "--count", "1000", "--rate", "50", "-o", "plain"]
    program = subprocess.Popen(
        [sys.executable, "-m", "cometmq", *command],
        env={**os.environ, "NAMESRV_ADDR": cluster.namesrv},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    first = program.stdout.readline()

    program.send_signal(signal.SIGINT)
    # Not with communicate: it passes over what came together with the first line.
    lines = [first, *program.stdout]
    _, complaints = program.communicate(timeout=30)

    assert program.returncode == 130
    assert complaints == (
        f"interrupted: the first {len(lines)} are stored, and perhaps some after them\n"
    )
