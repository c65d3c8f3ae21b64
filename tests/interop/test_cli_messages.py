"""Commands about messages as their users run them, with our servers and both of Apache's.

Each is run in table and in JSON form; the lists of fields here are the promise that scripts rely
on.
"""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client
from cometmq.codec.codes import RequestCode
from cometmq.codec.recall_handle import RecallHandle, encode
from tests.interop import asking, client_clusters
from tests.interop.asking import wait_until
from tests.interop.cache import Cache
from tests.interop.cli_kit import Cli
from tests.interop.client_clusters import NEW, OLD, OURS, RELEASES, Cluster, Clusters, params_of

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

SENT_FIELDS = [
    *("input", "topic", "broker_name", "queue_id", "queue_offset", "message_id", "offset_id"),
    *("status", "recall_handle"),
]
MESSAGE_FIELDS = [
    *("topic", "broker_name", "queue_id", "queue_offset", "message_id", "offset_id"),
    *("stored", "born", "born_host", "store_host", "reconsume_times", "tag", "keys"),
    *("ordering_key", "properties", "system_properties"),
    *("value", "value_encoding", "value_bytes", "value_problem"),
]


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    with client_clusters.shared(request, cache, tmp_path_factory) as started:
        started.want(params_of(request, "cluster"))
        yield started


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture
def cli(cluster: Cluster, tmp_path: Path) -> Cli:
    return Cli(cluster.namesrv, tmp_path)


@pytest.fixture
def group(topic: str) -> str:
    return f"g_{topic}"[:120]


@pytest.fixture
def filled(cluster: Cluster, topic: str) -> str:
    """A topic with eight messages, two in each queue."""
    cluster.create_topic(topic)
    with Client(cluster.namesrv) as mq:
        producer = mq.producer()
        for number in range(8):
            tag = "even" if number % 2 == 0 else "odd"
            producer.send(topic, f"value {number}", tag=tag, keys=f"k{number}")
    return topic


def objects(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


# --- produce


def test_a_value_is_sent_and_what_became_of_it_is_told(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(topic, queues=1)

    heading, rows = cli.table("produce", topic, "hello", "--key", "k1", "--tag", "paid")
    sent = cli.json("produce", topic, "again", "--property", "color=red", "--ordering-key", "c7")

    assert heading.split() == ["MESSAGE", "ID", "QUEUE", "OFFSET", "STATUS"]
    assert rows[0][1:] == ["broker-a/0", "0", "SEND_OK"]
    assert list(sent) == SENT_FIELDS
    assert (sent["queue_id"], sent["queue_offset"], sent["status"]) == (0, 1, "SEND_OK")
    first, second = objects(cli.ok("consume", topic, "-o", "json"))
    assert list(first) == MESSAGE_FIELDS
    assert (first["value"], first["keys"], first["tag"]) == ("hello", ["k1"], "paid")
    assert (second["properties"], second["ordering_key"]) == ({"color": "red"}, "c7")
    assert second["message_id"] == sent["message_id"]


def test_lines_are_messages_and_a_summary_goes_to_standard_error(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(topic, queues=1)
    lines = "".join(f"line {number}\n" for number in range(30))

    ran = cli.run("produce", topic, "--queue", "0", "-o", "plain", stdin=lines + "\n\nlast")

    assert ran.exit_code == 0
    assert len(ran.stdout.splitlines()) == 31
    assert re.fullmatch(r"sent 31 messages, \d+ B, in [\d.]+ s: \d+/s\n", ran.stderr)
    values = cli.lines("consume", topic, "--template", "{offset} {value}")
    assert values == [*(f"{number} line {number}" for number in range(30)), "30 last"]


def test_json_lines_that_cannot_be_sent_are_named_and_the_others_are_sent(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(topic)
    lines = [
        '{"value": {"id": 1}, "key": "one", "tag": "a", "properties": {"p": "1"}}',
        '{"valeu": "typo"}',
        '{"value": "AP8=", "value_encoding": "base64", "queue": "broker-a/2"}',
        '{"value": "nowhere", "queue": 99}',
    ]

    ran = cli.run("produce", topic, "--format", "json", "-o", "json", stdin="\n".join(lines))

    assert ran.exit_code == 1
    assert [sent["input"] for sent in objects(ran.stdout)] == ["line 1", "line 3"]
    fact = json.loads(ran.stderr[ran.stderr.index("{") :])["error"]["fact"]
    assert fact.startswith("2 of 4 messages were not sent: line 2: no such field")
    assert "line 4: no such queue: '99'" in fact
    # They went to different queues, so nobody says which was stored first.
    found = objects(cli.ok("consume", topic, "-o", "json"))
    second, first = sorted(found, key=lambda message: message["value"])
    assert (first["value"], first["keys"], first["properties"]) == (
        *('{"id": 1}', ["one"]),
        {"p": "1"},
    )
    assert (second["value"], second["value_encoding"], second["queue_id"]) == ("AP8=", "base64", 2)


def test_files_batches_and_repeats_are_sent(
    cli: Cli, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, queues=1)
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name} has\ntwo lines\n")
    paths = [str(tmp_path / name) for name in ("a", "b", "missing")]

    files = cli.run("produce", topic, "--file", *paths, "-q")
    batch = cli.run(
        "produce", topic, "n{n}", "--count", "5", "--batch", "2", "--in-flight", "1", "-o", "json"
    )
    lines = cli.run("produce", topic, "--file", paths[0], "--format", "lines", "--count", "1", "-q")

    assert files.exit_code == 1
    assert f"file '{paths[2]}': No such file or directory" in files.stderr
    assert (batch.exit_code, len({s["message_id"] for s in objects(batch.stdout)})) == (0, 5)
    assert [sent["queue_offset"] for sent in objects(batch.stdout)] == [2, 3, 4, 5, 6]
    assert lines.exit_code == 0
    values = [found["value"] for found in objects(cli.ok("consume", topic, "-o", "json"))]
    assert sorted(values[:2]) == ["a has\ntwo lines\n", "b has\ntwo lines\n"]
    assert values[2:] == ["n1", "n2", "n3", "n4", "n5", "a has"]


def test_what_cannot_be_sent_at_all_says_why(cli: Cli, tmp_path: Path) -> None:
    unreachable = Cli("127.0.0.1:1", tmp_path).run("produce", "orders", "x", "-o", "json")
    misuse = cli.run("produce", "orders", "x", "--delay", "1s", "--delay-level", "1")
    bad = cli.run("produce", "no topic", "x")

    assert (unreachable.exit_code, unreachable.error["kind"]) == (4, "Unreachable")
    assert "127.0.0.1:1" in unreachable.error["fact"]
    assert (misuse.exit_code, bad.exit_code) == (2, 2)
    assert "use letters, digits" in bad.stderr


# --- consume


def test_a_topic_is_printed_in_every_form(cli: Cli, filled: str) -> None:
    heading, *rows = cli.lines("consume", filled)
    plain = [line.split("\t") for line in cli.lines("consume", filled, "-o", "plain")]
    documents = cli.ok("consume", filled, "-o", "yaml").split("---\n")[1:]

    assert heading.split() == ["STORED", "QUEUE", "OFFSET", "TAG", "KEYS", "VALUE"]
    assert [row.split("  ")[-1] for row in rows] == [f"value {number}" for number in range(8)]
    assert [row[4] for row in plain] == [f"k{number}" for number in range(8)]
    assert ["value: value 3" in document for document in documents].count(True) == 1
    assert len(documents) == 8


def test_what_is_printed_can_be_chosen(cli: Cli, filled: str) -> None:
    def values(*options: str) -> list[str]:
        return sorted(cli.lines("consume", filled, "--template", "{value}", *options))

    everything = objects(cli.ok("consume", filled, "-o", "json"))
    third = everything[2]["stored"]

    assert values("--tags", "odd") == ["value 1", "value 3", "value 5", "value 7"]
    assert len(values("--count", "3")) == 3
    assert len(values("--from", "1")) == 4
    assert len(values("--until", "1")) == 4
    assert len(values("--queue", "broker-a/1")) == 2
    assert len(values("--queue", "1", "--from", "1")) == 1
    assert len(values("--queue", "1", "--until", "1h ago")) == 0
    assert values("--from", "latest") == []
    assert len(values("--from", third)) == len([m for m in everything if m["stored"] >= third])
    assert len(values("--until", third)) == len([m for m in everything if m["stored"] < third])


def test_a_new_group_begins_at_the_end_when_it_is_told_to(
    cli: Cli, filled: str, group: str
) -> None:
    """The topic is young: of itself a new group would begin with its first message."""
    reading = ("consume", filled, "--group", group, "--from", "latest", "--template", "{value}")

    before = cli.run(*reading, "--idle", "2s")
    cli.ok("produce", filled, "new")
    after = cli.run(*reading, "--count", "1", "--idle", "40s")

    assert (before.exit_code, before.stdout) == (0, "")
    assert (after.exit_code, after.stdout) == (0, "new\n")


def test_a_group_gets_each_message_once(
    cli: Cli, cluster: Cluster, filled: str, group: str
) -> None:
    cluster.introduce_group(group)
    as_group = ("consume", filled, "--group", group, "--template", "{key}")

    peeked = cli.lines(*as_group, "--ack", "none")
    first = cli.lines(*as_group, "--count", "3")
    wait_until(
        lambda: len(cli.lines(*as_group, "--ack", "none")) == 5, "the group has moved by three"
    )
    rest = cli.lines(*as_group, "--count", "5")
    nothing = cli.lines(*as_group, "--idle", "2s")

    keys = sorted(f"k{number}" for number in range(8))
    assert sorted(peeked) == keys
    assert sorted(first + rest) == keys
    assert nothing == []


@contextmanager
def following(cli: Cli, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        cli.command(*arguments),
        env=cli.variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)


def test_what_comes_is_printed_until_ctrl_c(cli: Cli, filled: str, cluster: Cluster) -> None:
    arguments = ("consume", filled, "-f", "--from", "earliest", "--template", "{value}")
    with following(cli, *arguments) as process:
        assert process.stdout is not None
        there = [process.stdout.readline() for _ in range(8)]
        with Client(cluster.namesrv) as mq:
            mq.producer().send(filled, "later")
        later = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, complaints = process.communicate(timeout=20)

    assert sorted(there) == [f"value {number}\n" for number in range(8)]
    assert (later, rest, complaints, process.returncode) == ("later\n", "", "", 0)


def test_a_reader_that_has_enough_ends_it_quietly(cli: Cli, filled: str) -> None:
    with following(cli, "consume", filled, "-f", "--from", "earliest") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        with Client(cli.namesrv) as mq:
            producer = mq.producer()

            def is_over() -> bool:
                producer.send(filled, "one more")
                return process.poll() is not None

            wait_until(is_over, "it has noticed that nobody reads")
        assert (process.returncode, process.stderr.read()) == (141, "")


def test_what_cannot_be_consumed_says_why(cli: Cli, filled: str) -> None:
    missing = cli.run("consume", "no-such-topic", "-o", "json")
    mistyped = cli.run("consume", filled, "--template", "{vlaue}")
    senseless = cli.run("consume", filled, "--group", "g", "--queue", "0")
    no_place = cli.run("consume", filled, "--from", "soon")
    endless = cli.run("consume", filled, "--follow", "--until", "5")

    assert (missing.exit_code, missing.error["fact"]) == (3, "no such topic: 'no-such-topic'")
    assert (mistyped.exit_code, senseless.exit_code, no_place.exit_code) == (2, 2, 2)
    assert "no such field: 'vlaue'" in mistyped.stderr
    assert "'soon' is no place in a topic" in no_place.stderr
    assert (endless.exit_code, endless.stderr) == (
        2,
        "error: --follow and --until exclude each other\n  next: give one of them\n",
    )


# --- request


def test_a_reply_is_printed(cli: Cli, cluster: Cluster, topic: str, group: str) -> None:
    cluster.create_topic(topic)
    cluster.introduce_group(group)
    with Client(cluster.namesrv) as mq:
        producer = mq.producer()
        consumer = mq.consumer(group, start="first")
        consumer.subscribe(topic)
        answering = threading.Thread(
            target=consumer.run,
            args=(lambda asked: producer.reply(asked, f"you said {asked.body.decode()}"),),
        )
        answering.start()
        try:
            text = cli.ok("request", topic, "hello", "--timeout", "30s")
            reply = cli.json("request", topic, "again", "--timeout", "30s", "--key", "k")
        finally:
            consumer.close()
            answering.join(20)

    assert text == "you said hello\n"
    assert list(reply) == MESSAGE_FIELDS
    assert reply["value"] == "you said again"


def test_a_request_that_nobody_answers_fails(cli: Cli, filled: str) -> None:
    ran = cli.run("request", filled, "hello", "--timeout", "500ms", "-o", "json")

    assert (ran.exit_code, ran.error["kind"]) == (1, "NoReply")
    assert "does a consumer of the topic reply?" in ran.error["next"]


# --- message


def test_a_message_is_found_by_id_key_and_place(cli: Cli, filled: str) -> None:
    wait_until(
        lambda: cli.run("message", "get", "--key", "k3", "--topic", filled).exit_code == 0,
        "the message is in the index",
    )
    (by_key,) = cli.json("message", "get", "--key", "k3", "--topic", filled)
    by_id = cli.json("message", "get", by_key["message_id"], "--topic", filled)
    by_offset_id = cli.json("message", "get", by_key["offset_id"])
    place = f"{by_key['broker_name']}/{by_key['queue_id']}"
    offset = str(by_key["queue_offset"])
    by_place = cli.json("message", "get", "--topic", filled, "--queue", place, "--offset", offset)
    table = cli.lines("message", "get", by_key["message_id"], "--topic", filled)
    raw = cli.ok("message", "get", by_key["message_id"], "--topic", filled, "--raw")

    assert list(by_key) == MESSAGE_FIELDS
    assert list(by_id) == [*MESSAGE_FIELDS, "groups"]
    assert by_id["value"] == "value 3"
    assert by_id == by_place == {**by_offset_id, "groups": by_id["groups"]}
    assert ["message_id", by_key["message_id"]] in [line.split() for line in table]
    assert raw == "value 3"


def test_a_message_says_who_has_consumed_it(
    cli: Cli, cluster: Cluster, filled: str, group: str
) -> None:
    cluster.introduce_group(group)
    cli.ok("consume", filled, "--group", group, "--count", "8")
    at = ("message", "get", "--topic", filled, "--queue", "0", "--offset", "0")

    def states() -> list[Any]:
        found: list[Any] = cli.json(*at)["groups"]
        return found

    wait_until(
        lambda: states() == [{"group": group, "state": "consumed", "is_online": False}],
        "the group has consumed it",
    )
    *_, heading, row = cli.lines(*at)
    assert (heading.split()[:2], row.split()[:2]) == (["GROUP", "STATE"], [group, "consumed"])


def test_a_message_that_there_is_not_is_not_found(cli: Cli, filled: str) -> None:
    by_key = cli.run("message", "get", "--key", "none", "--topic", filled, "-o", "json")
    by_place = cli.run("message", "get", "--topic", filled, "--queue", "0", "--offset", "99")
    without = cli.run("message", "get")

    assert (by_key.exit_code, by_key.error["kind"]) == (3, "NotFound")
    assert (by_place.exit_code, without.exit_code) == (3, 2)
    assert "the queue has 0 to 2" in by_place.stderr


def test_what_clients_reported_of_a_message_is_printed(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    cluster.create_topic(topic)
    reports = f"{topic}_reports"[-100:]
    cluster.create_topic(reports)
    with Client(cluster.namesrv) as mq:
        producer = mq.producer(is_traced=True, trace_topic=reports)
        message_id = producer.send(topic, "traced", keys="k").message_id
    trace = ("message", "trace", message_id, "--trace-topic", reports)
    wait_until(lambda: cli.run(*trace).exit_code == 0, "the report is in the index")

    heading, rows = cli.table(*trace)
    (record,) = cli.json(*trace)

    assert heading.split()[:3] == ["AT", "KIND", "GROUP"]
    assert rows[0][1] == "sent"
    assert (record["kind"], record["message_id"], record["success"]) == ("sent", message_id, True)


# --- dlq


@pytest.fixture
def dead(cluster: Cluster, filled: str, group: str) -> str:
    """A group that has given up all eight messages."""
    cluster.introduce_group(group)
    with Client(cluster.namesrv) as mq:
        consumer = mq.consumer(group, start="first")
        consumer.subscribe(filled)
        for number, message in enumerate(consumer, 1):
            message.dead_letter()
            if number == 8:
                break
        consumer.close()
    cluster.wait_until_known(f"%DLQ%{group}")
    return group


def counted(cli: Cli, group: str) -> tuple[int, int]:
    (found,) = [one for one in cli.json("dlq", "ls") if one["group"] == group]
    return found["messages"], found["pending"]


def test_dead_letters_are_listed_looked_at_and_sent_again(cli: Cli, dead: str, filled: str) -> None:
    wait_until(lambda: counted(cli, dead) == (8, 8), "all of them are dead")
    listed = next(one for one in cli.json("dlq", "ls") if one["group"] == dead)
    heading, rows = cli.table("dlq", "ls")
    peeked = cli.json("dlq", "peek", dead, "--count", "3")
    table, _ = cli.table("dlq", "peek", dead)

    assert list(listed) == ["group", "topic", "messages", "pending", "last", "queues"]
    assert heading.split() == ["GROUP", "PENDING", "MESSAGES", "LAST", "TOPIC"]
    assert dead in [row[0] for row in rows]
    assert table.split()[:3] == ["STORED", "ORIGIN", "TOPIC"]
    assert len(peeked) == 3
    assert list(peeked[0]) == [*MESSAGE_FIELDS, "origin_topic"]
    assert {one["origin_topic"] for one in peeked} == {filled}

    planned = cli.ok("dlq", "replay", dead, "--dry-run", "-o", "json")
    some = cli.run("dlq", "replay", dead, "--count", "3", "-o", "json")
    by_key = cli.run("dlq", "replay", dead, "--key", "k7", "-o", "json")

    assert [one["is_sent"] for one in objects(planned)] == [False] * 8
    assert objects(some.stdout) == [{**one, "is_sent": True} for one in objects(planned)[:3]]
    assert len(objects(by_key.stdout)) == (1 if "k7" not in str(objects(some.stdout)) else 0)
    assert counted(cli, dead) == (8, 5)

    rest = cli.run("dlq", "replay", dead)
    nothing = cli.run("dlq", "replay", dead)

    assert (rest.exit_code, rest.stderr) == (0, "sent 5 again\n")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "nothing to send\n")
    again = [m for m in objects(cli.ok("consume", filled, "-o", "json")) if m["properties"]]
    assert {m["properties"]["REPLAY_OF"] for m in again} == {
        one["message_id"] for one in objects(planned)
    }
    assert {m["properties"]["REPLAY_GROUP"] for m in again} == {dead}
    assert sorted({m["value"] for m in again}) == [f"value {number}" for number in range(8)]


def test_dead_letters_are_given_up_or_deleted(cli: Cli, dead: str) -> None:
    wait_until(lambda: counted(cli, dead) == (8, 8), "all of them are dead")

    unsaid = cli.run("dlq", "purge", dead)
    unsure = cli.run("dlq", "purge", dead, "--move")
    dry = cli.json("dlq", "purge", dead, "--delete", "--dry-run")
    assert counted(cli, dead) == (8, 8)
    moved = cli.json("dlq", "purge", dead, "--move", "--yes")
    assert counted(cli, dead) == (8, 0)
    shown = cli.json("dlq", "peek", dead, "--all")
    deleted = cli.lines("dlq", "purge", dead, "--delete", "--yes")
    gone = cli.run("dlq", "peek", dead, "-o", "json")

    assert (unsaid.exit_code, unsure.exit_code) == (2, 2)
    assert "--move or --delete" in unsaid.stderr
    assert "--yes" in unsure.stderr
    assert (dry["messages"], dry["is_done"]) == (8, False)
    assert (moved["pending"], moved["is_done"], len(shown)) == (8, True, 8)
    assert ["is_done", "true"] in [line.split() for line in deleted]
    assert (gone.exit_code, gone.error["kind"]) == (3, "NotFound")


# --- delay


def test_messages_that_wait_are_counted_by_level(cli: Cli, cluster: Cluster, filled: str) -> None:
    sent = cli.run("produce", filled, "later", "--delay-level", "2", "-o", "json")
    levels = [row for row in cli.json("delay", "ls", "--all") if row["kind"] == "level"]
    table = cli.lines("delay", "ls", "--all", "--broker", "broker-a")

    assert (sent.exit_code, json.loads(sent.stdout)["queue_offset"]) == (0, None)
    assert list(levels[0]) == ["broker_name", "kind", "level", "delay", "topic", "pending"]
    assert [row["level"] for row in levels] == list(range(1, 19))
    assert [row["delay"] for row in levels[:2]] == ["1s", "2s"]
    assert table[0].split()[:4] == ["BROKER", "NAME", "KIND", "LEVEL"]
    wait_until(
        lambda: "later" in cli.ok("consume", filled, "--template", "{value}"), "it is delivered"
    )
    rows = cli.json("delay", "ls", "--all", "--broker", cluster.broker.address)
    assert {row["broker_name"] for row in rows} == {"broker-a"}


@pytest.mark.parametrize("cluster", [OURS, NEW], indirect=True)
def test_a_timer_is_counted_and_taken_back(cli: Cli, filled: str) -> None:
    sent = json.loads(cli.run("produce", filled, "never", "--delay", "2m", "-o", "json").stdout)

    def timers() -> int:
        rows = cli.json("delay", "ls")
        return sum(row["pending"] for row in rows if row["kind"] == "timer")

    wait_until(lambda: timers() >= 1, "the timer is counted")
    cancelled = cli.json("delay", "cancel", sent["recall_handle"], "--yes")
    table = cli.lines("delay", "cancel", sent["recall_handle"], "--topic", filled, "--yes")

    assert list(cancelled) == ["message_id", "topic", "broker_name", "due", "cancelled"]
    assert (cancelled["message_id"], cancelled["topic"]) == (sent["message_id"], filled)
    assert ["cancelled", "true"] in [line.split() for line in table]


@pytest.mark.parametrize("cluster", [OLD, NEW], indirect=True)  # ours would have to be restarted
def test_a_broker_without_recall_says_so(cli: Cli, cluster: Cluster, filled: str) -> None:
    due_ms = int((time.time() + 60) * 1000)
    handle = encode(RecallHandle(filled, "broker-a", due_ms, "AB01"))
    code = RequestCode.UPDATE_BROKER_CONFIG
    asking.ask_well(cluster.broker.address, code, None, b"recallMessageEnable=false")
    try:
        ran = cli.run("delay", "cancel", handle, "--yes", "-o", "json")
    finally:
        asking.ask_well(cluster.broker.address, code, None, b"recallMessageEnable=true")

    assert ran.exit_code == 1
    if cluster.release == OLD:
        assert "lacks taking back messages" in ran.error["fact"]
        assert "5.3.2" in ran.error["next"]
    else:
        assert "recallMessageEnable=true" in ran.error["next"]


# --- doctor


def test_the_doctor_looks_at_the_cluster(cli: Cli, cluster: Cluster) -> None:
    port = cluster.broker.address.rpartition(":")[2]
    namesrv_port = cluster.namesrv.rpartition(":")[2]

    ran = cli.run("doctor", "--port", port, "--namesrv-port", namesrv_port, "-o", "json")

    checks = {one["check"]: one for one in json.loads(ran.stdout)}
    names = (f"port {port}", f"port {namesrv_port}", "name servers", "addresses", "clock")
    assert {checks[name]["status"] for name in names} == {"ok"}, checks
    who = "CometMQ" if cluster.release == OURS else f"RocketMQ {cluster.release}"
    assert who in checks[f"port {port}"]["detail"]
    assert f"broker-a as {cluster.broker.address}" in checks["addresses"]["detail"]


def test_the_doctor_finds_a_name_server_that_is_not_there(cli: Cli, cluster: Cluster) -> None:
    ran = cli.run("doctor", "--namesrv", f"{cluster.namesrv};127.0.0.1:1")

    (row,) = [line for line in ran.stdout.splitlines() if line.startswith("name servers")]
    assert ran.exit_code == 1
    assert "not there: 127.0.0.1:1" in row
