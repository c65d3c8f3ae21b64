"""The administrative commands as their users run them, with our servers and both of Apache's.

Each command is run in table and in JSON form; the lists of fields here are the promise that
scripts rely on.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq import Client
from tests.interop import asking, client_clusters
from tests.interop.cache import Cache
from tests.interop.cli_kit import Cli
from tests.interop.client_clusters import OLD, OURS, RELEASES, Cluster, Clusters, params_of

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

QUEUE_FIELDS = [
    *("broker_name", "queue_id", "min_offset", "max_offset", "messages", "last_update"),
]
TOPIC_BROKER_FIELDS = [
    *("broker_name", "address", "read_queues", "write_queues", "perm", "is_ordered"),
    *("filter_type", "sys_flag", "attributes"),
]
MEMBER_FIELDS = ["client_id", "address", "language", "version", "brokers"]
LAG_FIELDS = [
    *("topic", "broker_name", "queue_id", "offset", "max_offset", "lag"),
    *("in_flight", "last_consumed"),
]
MOVE_FIELDS = [
    *("topic", "broker_name", "queue_id", "min_offset", "max_offset"),
    *("before", "after", "change"),
]
BROKER_FIELDS = [
    *("cluster", "broker_name", "broker_id", "role", "address", "version", "is_active"),
    *("put_tps", "get_tps", "put_today", "get_today", "put_yesterday", "get_yesterday"),
    *("disk_percent", "log_min_offset", "log_max_offset", "dispatch_behind_bytes"),
    *("unflushed_bytes", "booted", "earliest_message", "problem"),
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


def send(cluster: Cluster, topic: str, count: int, *, tag: str = "paid") -> None:
    with Client(cluster.namesrv) as mq:
        producer = mq.producer()
        for number in range(count):
            producer.send(topic, f"order {number}", tag=tag, keys=[f"k{number}"])
    asking.wait_until(
        lambda: asking.stored_count(cluster.broker.address, topic, queues=4) >= count,
        "all messages are in their queues",
    )


def filled(cluster: Cluster, topic: str, count: int = 12) -> None:
    """A topic of four queues with some messages in each."""
    cluster.create_topic(topic)
    send(cluster, topic, count)


@contextmanager
def consuming(
    cluster: Cluster, topic: str, group: str, *, tags: str | None = None, instance: str = "one"
) -> Iterator[list[str]]:
    """A member of the group, and the values it has got."""
    seen: list[str] = []

    def handle(message: object) -> None:
        seen.append(message.body.decode())  # type: ignore[attr-defined]

    with (
        Client(cluster.namesrv, instance_name=instance) as mq,
        mq.consumer(group, start="first") as consumer,
    ):
        consumer.subscribe(topic, tags=tags)
        consumer.start(handle)
        yield seen


def consumed(cluster: Cluster, topic: str, group: str, count: int) -> None:
    """A group that has consumed so many messages of a topic and is gone."""
    with consuming(cluster, topic, group) as seen:
        until(lambda: len(seen) >= count, "all are consumed")


def until(is_so: Callable[[], bool], what: str, timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# --- topics


def test_a_topic_is_made_listed_described_changed_and_deleted(cli: Cli, topic: str) -> None:
    (made,) = cli.json("topic", "create", topic, "--queues", "3", "--perm", "rw")
    assert list(made) == ["topic", *TOPIC_BROKER_FIELDS]
    assert (made["topic"], made["read_queues"], made["perm"]) == (topic, 3, "rw")

    assert cli.json("topic", "ls", topic) == [{"name": topic, "kind": "normal"}]
    assert cli.lines("topic", "ls", topic)[1].split() == [topic, "normal"]

    heading, rows = cli.table("topic", "edit", topic, "--write-queues", "2", "--perm", "r")
    assert heading.split()[:2] == ["TOPIC", "BROKER"]
    assert rows[0][:5] == [topic, "broker-a", "3", "2", "r"]

    planned = cli.json("topic", "delete", topic, "--dry-run")
    refused = cli.run("topic", "delete", topic, "-o", "json")
    assert planned == [
        {
            "topic": topic,
            "messages": 0,
            "groups": [],
            "brokers": ["broker-a"],
            "is_deleted": False,
        }
    ]
    assert (refused.exit_code, refused.error["next"]) == (2, "add --yes to do it")
    assert cli.json("topic", "ls", topic) != []

    (gone,) = cli.json("topic", "delete", topic, "--yes")
    missing = cli.run("topic", "delete", topic, "--yes")
    assert gone["is_deleted"]
    assert missing.exit_code == 3
    assert missing.stderr == f"error: no such topic: '{topic}'\n  next: {SEE_TOPICS}\n"
    assert cli.json("topic", "delete", topic, "--yes", "--if-exists") == []


SEE_TOPICS = "see 'cometmq topic ls --all'"


def test_a_topic_that_is_there_is_made_once(cli: Cli, topic: str) -> None:
    cli.ok("topic", "create", topic, "--queues", "2")

    again = cli.run("topic", "create", topic, "-o", "json")
    (kept,) = cli.json("topic", "create", topic, "--if-missing", "--queues", "9")

    assert (again.exit_code, again.error["kind"]) == (1, "AlreadyExists")
    assert kept["read_queues"] == 2


def test_all_settings_of_a_topic_have_an_option(cluster: Cluster, cli: Cli, topic: str) -> None:
    options = [
        *("--read-queues", "5", "--write-queues", "4", "--order", "--filter-type", "multi-tag"),
        *("--unit", "--unit-sub", "--broker", "broker-a"),
    ]
    (made,) = cli.json("topic", "create", topic, *options)

    # Brokers of 4.9 leave it to the name servers to know which topics are ordered, and ask now
    # and then.
    said = [made["is_ordered"]]
    assert (made["read_queues"], made["write_queues"]) == (5, 4)
    assert (made["filter_type"], made["sys_flag"]) == ("MULTI_TAG", 3)

    (changed,) = cli.json("topic", "edit", topic, "--no-unit", "--filter-type", "single-tag")
    assert (changed["filter_type"], changed["sys_flag"]) == ("SINGLE_TAG", 2)
    said.append(changed["is_ordered"])
    assert changed["read_queues"] == 5
    assert cluster.release == OLD or said == [True, True]
    asked = cli.json("nameserver", "kv", "get", "ORDER_TOPIC_CONFIG", topic)
    assert asked["value"] == "broker-a:4"


def test_attributes_are_set_and_removed_where_there_are_any(
    cluster: Cluster, cli: Cli, topic: str
) -> None:
    made = cli.run("topic", "create", topic, "--message-type", "fifo", "-o", "json")
    if cluster.release == OLD:
        assert made.exit_code == 1
        assert "RocketMQ 4.9.7" in made.error["fact"]
        assert "attributes came with release 5.0" in made.error["next"]
        return
    assert made.exit_code == 0, made

    (plain,) = cli.json("topic", "edit", topic, "--remove-attribute", "message.type")
    (typed,) = cli.json("topic", "edit", topic, "--attribute", "message.type=DELAY")

    assert plain["attributes"] == {}
    assert typed["attributes"] == {"message.type": "DELAY"}


def test_what_would_be_done_is_shown_and_not_done(cli: Cli, topic: str) -> None:
    planned = cli.json("topic", "create", topic, "--dry-run", "--perm", "w")

    assert list(planned) == ["action", "topics", "settings", "is_done"]
    assert (planned["action"], planned["topics"], planned["is_done"]) == ("create", [topic], False)
    assert planned["settings"]["perm"] == "w"
    assert cli.run("topic", "describe", topic).exit_code == 3


def test_a_topic_is_described_with_queues_brokers_and_groups(
    cluster: Cluster, cli: Cli, topic: str, group: str
) -> None:
    filled(cluster, topic)
    consumed(cluster, topic, group, 12)
    until(lambda: group in cli.json("topic", "describe", topic)["groups"], "its offsets are known")

    found = cli.json("topic", "describe", topic)
    lines = cli.lines("topic", "describe", topic)

    assert list(found) == [
        *("name", "kind", "messages", "put_tps", "last_update", "read_queues", "write_queues"),
        *("order_config", "groups", "brokers", "queues", "outages"),
    ]
    assert [list(row) for row in found["queues"]] == [QUEUE_FIELDS] * 4
    assert list(found["brokers"][0]) == ["cluster", *TOPIC_BROKER_FIELDS, "addresses"]
    assert (found["messages"], found["groups"]) == (12, [group])
    assert sum(queue["messages"] for queue in found["queues"]) == 12
    assert lines[0].split() == ["name", topic]
    assert "brokers (1)" in lines
    assert "queues (4)" in lines


def test_topics_have_statistics(cluster: Cluster, cli: Cli, topic: str) -> None:
    filled(cluster, topic)

    (stats,) = cli.json("topic", "stats", topic)
    everything = cli.json("topic", "stats")

    assert list(stats) == ["topic", "queues", "messages", "put_tps", "last_update", "outages"]
    assert (stats["topic"], stats["queues"], stats["messages"]) == (topic, 4, 12)
    assert (stats["put_tps"] is None) == (cluster.release == OLD)
    assert topic in [row["topic"] for row in everything]
    assert cli.table("topic", "stats", topic)[1][0][:3] == [topic, "4", "12"]
    assert cli.run("topic", "stats", f"{topic}_not").exit_code == 3


def test_messages_are_peeked_at(cluster: Cluster, cli: Cli, topic: str) -> None:
    filled(cluster, topic)

    newest = cli.json("topic", "peek", topic, "--count", "3")
    oldest = cli.json("topic", "peek", topic, "--oldest", "--count", "2")
    since = cli.json("topic", "peek", topic, "--since", "1h ago", "--count", "99")
    one = cli.json("topic", "peek", topic, "--queue", "0", "--broker", "broker-a", "--count", "1")

    assert [list(message) for message in newest] == [MESSAGE_FIELDS] * 3
    assert [message["value"] for message in newest] == ["order 9", "order 10", "order 11"]
    assert [message["value"] for message in oldest] == ["order 0", "order 1"]
    assert len(since) == 12
    assert one[0]["queue_id"] == 0
    heading, rows = cli.table("topic", "peek", topic, "--count", "1")
    assert heading.split() == ["STORED", "QUEUE", "OFFSET", "TAG", "KEYS", "VALUE"]
    assert rows[0][-3:] == ["k11", "order", "11"]
    assert cli.run("topic", "peek", topic, "--queue", "77").exit_code == 3


def test_a_topic_is_followed(cluster: Cluster, cli: Cli, topic: str) -> None:
    import json
    import subprocess

    filled(cluster, topic, 4)
    command = cli.command("topic", "tail", topic, "--last", "2", "--count", "4", "-o", "json")
    with subprocess.Popen(
        command, env=cli.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        first = [json.loads(tail.stdout.readline()) for _ in range(2)]
        send(cluster, topic, 2, tag="late")
        output, errors = tail.communicate(timeout=60)

    later = [json.loads(line) for line in output.splitlines()]
    assert (tail.returncode, errors) == (0, "")
    assert [list(message) for message in (*first, *later)] == [MESSAGE_FIELDS] * 4
    assert [message["value"] for message in first] == ["order 2", "order 3"]
    assert [(m["value"], m["tag"]) for m in later] == [("order 0", "late"), ("order 1", "late")]
    heading, rows = cli.table("topic", "tail", topic, "--last", "1", "--count", "1")
    assert heading.split()[0] == "STORED"
    assert rows[0][-2:] == ["order", "1"]


def test_names_of_the_cluster_are_completed(cluster: Cluster, cli: Cli, topic: str) -> None:
    cluster.create_topic(topic)
    typed = topic[:-1]
    asking_shell = Cli(
        cli.namesrv,
        cli.home,
        {
            "_COMETMQ_COMPLETE": "bash_complete",
            "COMP_WORDS": f"cometmq topic describe {typed}",
            "COMP_CWORD": "3",
        },
    )

    assert f"plain,{topic}" in asking_shell.ok().splitlines()


# --- groups


def test_groups_are_listed_described_and_measured(
    cluster: Cluster, cli: Cli, topic: str, group: str
) -> None:
    filled(cluster, topic)
    consumed(cluster, topic, group, 12)
    until(lambda: _lag(cli, group) == 0, "its offsets are known")
    send(cluster, topic, 4)
    until(lambda: _lag(cli, group) == 4, "its lag is known")

    found = cli.json("group", "describe", group)
    lag = cli.json("group", "lag", group, "--topic", topic)
    every = [row for row in cli.json("group", "lag") if row["group"] == group]

    assert cli.json("group", "ls", group) == [
        {"name": group, "kind": "normal", "brokers": ["broker-a"]}
    ]
    assert list(found) == [
        *("name", "kind", "consume_type", "message_model", "consume_from_where"),
        *("member_count", "lag", "consume_tps", "problems"),
        *("members", "subscriptions", "topics", "queues", "brokers", "outages"),
    ]
    assert (found["lag"], found["member_count"], found["problems"]) == (4, 0, [])
    assert list(lag) == ["group", "lag", "consume_tps", "queues", "outages"]
    assert [list(row) for row in lag["queues"]] == [LAG_FIELDS] * 4
    assert {row["topic"]: row["lag"] for row in every}[topic] == 4
    assert list(every[0]) == ["group", "topic", "queues", "lag", "last_consumed", "consume_tps"]
    assert cli.table("group", "ls", group)[1] == [[group, "normal", "broker-a"]]
    assert cli.table("group", "lag", group, "--topic", topic)[0].split()[:2] == ["TOPIC", "BROKER"]
    assert cli.lines("group", "describe", group)[0].split() == ["name", group]
    assert any(line.startswith(group) for line in cli.lines("group", "lag"))


def _lag(cli: Cli, group: str) -> int | None:
    ran = cli.run("group", "describe", group, "-o", "json")
    if ran.exit_code:
        return None
    import json

    found = json.loads(ran.stdout)
    lag: int = found["lag"]
    return lag if found["queues"] else None


def test_members_that_contradict_each_other_are_shown(
    cluster: Cluster, cli: Cli, topic: str, group: str
) -> None:
    filled(cluster, topic, 4)
    with (
        consuming(cluster, topic, group),
        consuming(cluster, topic, group, tags="other", instance="two"),
    ):
        until(lambda: len(cli.json("group", "connections", group)) == 2, "both are connected")
        members = cli.json("group", "connections", group)
        found = cli.json("group", "describe", group)
        shown = cli.run("group", "describe", group)
        heading, rows = cli.table("group", "connections", group)

    assert [list(member) for member in members] == [MEMBER_FIELDS] * 2
    assert heading.split() == ["CLIENT", "ID", "ADDRESS", "LANGUAGE", "VERSION", "BROKERS"]
    assert len(rows) == 2
    assert found["member_count"] == 2
    assert any(f"topic '{topic}'" in p and "'other'" in p for p in found["problems"])
    assert f"warning: topic '{topic}'" in shown.stderr
    assert shown.exit_code == 0


def test_a_group_is_moved_every_way(cluster: Cluster, cli: Cli, topic: str, group: str) -> None:
    filled(cluster, topic)
    consumed(cluster, topic, group, 12)
    until(lambda: _lag(cli, group) == 0, "its offsets are known")

    def after(*options: str) -> list[int]:
        moved = cli.json("group", "reset", group, "--topic", topic, "--yes", *options)
        assert list(moved) == ["group", "is_done", "moves"]
        assert moved["is_done"]
        assert [list(move) for move in moved["moves"]] == [MOVE_FIELDS] * len(moved["moves"])
        return [move["after"] for move in moved["moves"]]

    planned = cli.json("group", "reset", group, "--to-earliest", "--dry-run")
    assert not planned["is_done"]
    assert [(m["before"], m["after"], m["change"]) for m in planned["moves"]] == [(3, 0, -3)] * 4
    assert _lag(cli, group) == 0

    assert after("--to-earliest") == [0, 0, 0, 0]
    assert _lag(cli, group) == 12
    assert after("--to-latest") == [3, 3, 3, 3]
    assert after("--shift", "-2") == [1, 1, 1, 1]
    assert after("--to-offset", "2", "--queue", "1") == [2]
    assert after("--to-time", "1h ago") == [0, 0, 0, 0]
    assert _lag(cli, group) == 12
    heading, rows = cli.table("group", "reset", group, "--topic", topic, "--to-latest", "--yes")
    assert heading.split()[-3:] == ["BEFORE", "AFTER", "CHANGE"]
    assert [row[-3:] for row in rows] == [["0", "3", "3"]] * 4


def test_a_move_needs_one_place_and_a_yes(cli: Cli) -> None:
    nowhere = cli.run("group", "reset", "any", "--topic", "t")
    twice = cli.run("group", "reset", "any", "--to-latest", "--to-earliest")
    unknown = cli.run("group", "reset", "any_not_there", "--to-latest", "--yes")

    assert (nowhere.exit_code, twice.exit_code, unknown.exit_code) == (2, 2, 3)
    assert "give one of --to-earliest" in nowhere.stderr
    assert "no such group: 'any_not_there'" in unknown.stderr


def test_a_group_goes_to_where_another_one_is_and_is_deleted(
    cluster: Cluster, cli: Cli, topic: str, group: str
) -> None:
    filled(cluster, topic)
    consumed(cluster, topic, group, 12)
    until(lambda: _lag(cli, group) == 0, "its offsets are known")
    other = f"{group}_2"

    planned = cli.json("group", "clone", group, other, "--dry-run")
    asked = cli.run("group", "clone", group, other)
    cloned = cli.json("group", "clone", group, other, "--topic", topic, "--yes")

    assert [move["before"] for move in planned["moves"]] == [None] * 4
    assert (asked.exit_code, "add --yes to do it" in asked.stderr) == (2, True)
    assert [(m["topic"], m["after"]) for m in cloned["moves"]] == [(topic, 3)] * 4
    assert _lag(cli, other) == 0

    lost = cli.json("group", "delete", other, "--dry-run")
    assert list(lost[0]) == ["group", "members", "lag", "dead_letters", "brokers", "is_deleted"]
    assert cli.run("group", "delete", other).exit_code == 2
    deleted = cli.run("group", "delete", other, "--yes")
    assert deleted.exit_code == 0
    assert deleted.stdout.splitlines()[1].split() == [other, "0", "0", "0", "broker-a", "true"]
    assert cli.run("group", "delete", other, "--yes").exit_code == 3
    assert cli.json("group", "delete", other, "--yes", "--if-exists") == []
    assert cli.json("group", "ls", group) != []


def test_old_brokers_say_what_they_lack(cluster: Cluster, cli: Cli, topic: str, group: str) -> None:
    filled(cluster, topic)
    with consuming(cluster, topic, group) as seen:
        until(lambda: len(seen) == 12, "all are consumed")
        until(lambda: _lag(cli, group) == 0, "its offsets are known")
        moved = cli.run(
            "group", "reset", group, "--topic", topic, "--to-offset", "1", "--yes", "-o", "json"
        )

    if cluster.release == OLD:
        assert moved.exit_code == 1
        assert "RocketMQ 4.9.7" in moved.error["fact"]
        assert "lacks moving connected members to exact offsets" in moved.error["fact"]
    else:
        assert moved.exit_code == 0, moved


# --- servers


def test_the_cluster_is_listed_and_described(cluster: Cluster, cli: Cli) -> None:
    (listed,) = cli.json("cluster", "ls")
    found = cli.json("cluster", "describe", listed["name"])

    assert list(listed) == ["name", "broker_names", "masters", "slaves"]
    assert (listed["masters"], listed["slaves"]) == (1, 0)
    assert list(found) == ["clusters", "name_servers", "brokers"]
    assert [list(row) for row in found["brokers"]] == [[*BROKER_FIELDS, "values"]]
    assert found["brokers"][0]["values"]["brokerVersionDesc"]
    version = {OURS: "5.5.0"}.get(cluster.release, cluster.release)
    assert found["brokers"][0]["version"] == version
    assert cli.table("cluster", "ls")[1] == [[listed["name"], "1", "1", "0"]]
    assert "brokers (1)" in cli.lines("cluster", "describe")
    assert cli.run("cluster", "describe", "none").exit_code == 3


def test_the_status_is_one_look(cluster: Cluster, cli: Cli) -> None:
    found = cli.json("status")
    shown = cli.lines("status")

    assert list(found) == [
        *("status", "findings", "namesrv", "source", "clusters", "topics", "groups"),
        *("put_tps", "get_tps", "name_servers", "brokers"),
    ]
    assert found["status"] in ("ok", "warn")  # a test machine's disk may be rather full
    assert (found["namesrv"], found["source"]) == (cluster.namesrv, "NAMESRV_ADDR")
    assert found["name_servers"] == [{"address": cluster.namesrv, "brokers": 1, "problem": None}]
    assert [list(row) for row in found["brokers"]] == [BROKER_FIELDS]
    assert shown[0].split() == ["status", found["status"]]


def test_settings_of_brokers_are_read_and_changed(cluster: Cluster, cli: Cli) -> None:
    (name,) = cli.json("broker", "config", "get", "brokerName")
    planned = cli.json("broker", "config", "set", "fileReservedTime=100", "--dry-run")
    (changed,) = cli.json("broker", "config", "set", "fileReservedTime=99")
    (after,) = cli.json("broker", "config", "get", "fileReservedTime", "--broker", "broker-a")

    assert list(name) == ["key", "value", "server"]
    assert (name["value"], name["server"]) == ("broker-a", cluster.broker.address)
    assert list(changed) == ["key", "before", "after", "server", "is_done", "remark"]
    assert (planned[0]["is_done"], changed["is_done"]) == (False, True)
    assert (changed["before"], changed["after"], after["value"]) != ("100", "99", "99")
    assert after["value"] == "99"
    assert cli.table("broker", "config", "get", "brokerName")[1] == [["brokerName", "broker-a"]]
    assert len(cli.lines("broker", "config", "get")) > 100
    assert cli.run("broker", "config", "get", "noSuchKey").exit_code == 3
    assert cli.run("broker", "config", "set", "noValue").exit_code == 2
    assert cli.run("broker", "config", "set", "noSuchKey=1").exit_code == 3
    assert cli.run("broker", "config", "get", "--broker", "nobody").exit_code == 3
    senseless = cli.run("broker", "config", "set", "fileReservedTime=long")
    (kept,) = cli.json("broker", "config", "get", "fileReservedTime")
    assert senseless.exit_code == (1 if cluster.release == OURS else 0)
    assert kept["value"] == "99"


def test_settings_of_name_servers_are_read_and_changed(cluster: Cluster, cli: Cli) -> None:
    key = "orderMessageEnable"
    planned = cli.json("nameserver", "config", "set", f"{key}=true", "--dry-run")
    (changed,) = cli.json("nameserver", "config", "set", f"{key}=true", "--server", cluster.namesrv)
    (after,) = cli.json("nameserver", "config", "get", key)
    cli.ok("nameserver", "config", "set", f"{key}={changed['before']}")

    assert list(changed) == ["key", "before", "after", "server", "is_done"]
    assert (planned[0]["is_done"], changed["is_done"]) == (False, True)
    assert after == {"key": key, "value": "true", "server": cluster.namesrv}
    assert cli.table("nameserver", "config", "get", key)[1] == [[key, changed["before"]]]
    assert cli.run("nameserver", "config", "get", "noSuchKey").exit_code == 3
    assert cli.run("nameserver", "config", "set", "noSuchKey=1").exit_code == 3


def test_name_servers_keep_values(cli: Cli, topic: str) -> None:
    space = f"space_{topic}"
    assert cli.json("nameserver", "kv", "ls", space) == []
    planned = cli.json("nameserver", "kv", "set", space, "colour", "red", "--dry-run")
    cli.ok("nameserver", "kv", "set", space, "colour", "red")
    changed = cli.json("nameserver", "kv", "set", space, "colour", "blue")

    fields = ["namespace", "key", "before", "after", "is_done"]
    assert (list(planned), planned["before"], planned["is_done"]) == (fields, None, False)
    assert (list(changed), changed["before"], changed["after"]) == (fields, "red", "blue")
    value = {"namespace": space, "key": "colour", "value": "blue"}
    assert cli.json("nameserver", "kv", "ls", space) == [value]
    assert cli.json("nameserver", "kv", "get", space, "colour") == value
    assert cli.table("nameserver", "kv", "ls", space) == ("KEY     VALUE", [["colour", "blue"]])

    assert cli.run("nameserver", "kv", "delete", space, "colour").exit_code == 2
    assert not cli.json("nameserver", "kv", "delete", space, "colour", "--dry-run")["is_deleted"]
    assert cli.json("nameserver", "kv", "delete", space, "colour", "--yes")["is_deleted"]
    assert cli.run("nameserver", "kv", "get", space, "colour").exit_code == 3
