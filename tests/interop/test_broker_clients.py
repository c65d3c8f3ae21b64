"""Every real client does with our broker whatever it can do at all (``matrix.toml``).

A program per client runs through all features on one name server and one broker, each test with a
topic and a group of its own. ``COMETMQ_INTEROP_BROKER`` runs the same with Apache's broker.
"""

import hashlib
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from cometmq.testing.history import Rules
from tests.interop import requirements, sockets
from tests.interop.apache import VERSIONS
from tests.interop.asking import limit_retries, stored_count, wait_until
from tests.interop.broker_fixtures import (
    BROKER,
    LEVEL_DELAYS_S,
    OURS,
    NewProgram,
    Programs,
    Servers,
)
from tests.interop.clients import Event
from tests.interop.feature_kit import (
    AT_LEAST_ONCE,
    CONCURRENTLY,
    Message,
    Trial,
    bodies,
    claim_one_at_a_time,
    handled,
    in_file,
    numbered,
)
from tests.interop.feature_shell import Consumer
from tests.interop.matrix import CLIENTS, every_client, reason
from tests.interop.tls import Certificates

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

MIB = 1 << 20
LIMIT_BYTES = 4 * MIB
# So that a client does not refuse by itself what the broker should refuse.
BEYOND_LIMIT_BYTES = 8 * MIB
QUEUES = 4
# How much later than it should a delayed message may come on a busy machine.
LATENESS_S = 2.0
COMEBACK_S = 60.0
RETRY_PAUSE_S = 0.2
RETRIES = 2
# They cannot say how often a message may come again.
LEAVE_THE_LIMIT_TO_THE_GROUP = ("cpp",)
# They give up on a topic without a route before they would ask for the default one.
NEED_THE_TOPIC_FIRST = ("node",)
# Without the broker's notice a client looks at its group again only after 20 s.
TAKEOVER_S = 15.0
SHARING_ROUNDS = 60
SHARING_PAUSE_S = 0.5
LITE_POLL_MS = 20_000


@every_client("sync_send")
def test_a_sync_send_arrives_with_all_that_was_sent(trial: Trial) -> None:
    trial.create_topic()
    properties = {"colour": "blue", "é": "ü"}
    messages = numbered(12, tags="TagA", keys="key-1 key-2", properties=properties)

    sent = trial.send(messages)
    received = trial.consume().wait_for(bodies(messages))

    assert {event["status"] for event in sent} == {"SEND_OK"}
    for number, event in enumerate(sent):
        (arrived,) = handled(received, f"message-{number}")
        assert arrived["msgId"] == event["msgId"]
        assert (arrived["tags"], arrived["keys"]) == ("TagA", "key-1 key-2")
        assert arrived["properties"].items() >= properties.items()
    assert {event["queueId"] for event in received} == set(range(QUEUES))
    trial.claim(CONCURRENTLY, trial.consumers[0][1])


@every_client("async_send")
def test_async_sends_are_all_acknowledged_and_arrive(trial: Trial) -> None:
    trial.create_topic()
    messages = numbered(50)

    sent = trial.send(messages, mode="async")
    consumer = trial.consume()
    consumer.wait_for(bodies(messages))

    assert {event["status"] for event in sent} == {"SEND_OK"}
    assert len(sent) == len(messages)
    trial.claim(CONCURRENTLY, consumer)


@every_client("oneway_send")
def test_oneway_sends_arrive(trial: Trial) -> None:
    trial.create_topic()
    messages = numbered(20)

    trial.send(messages, mode="oneway")
    consumer = trial.consume()
    consumer.wait_for(bodies(messages))

    trial.claim(CONCURRENTLY, consumer)


@every_client("batch_send")
def test_a_batch_arrives_as_single_messages_of_one_queue(trial: Trial) -> None:
    trial.create_topic()
    messages = [{**message, "tags": "TagB", "keys": "k"} for message in numbered(10)]

    trial.send(messages, mode="batch")
    consumer = trial.consume()
    received = consumer.wait_for(bodies(messages))

    by_offset = sorted(received, key=lambda event: int(event["queueOffset"]))
    assert [event["body"] for event in by_offset] == bodies(messages)
    assert len({event["queueId"] for event in received}) == 1
    assert {(event["tags"], event["keys"]) for event in received} == {("TagB", "k")}
    trial.claim(CONCURRENTLY, consumer)


@every_client("big_body")
def test_a_big_body_arrives_unharmed(trial: Trial, tmp_path: Path) -> None:
    trial.create_topic(queues=1)
    body = random.Random(1).randbytes(MIB)

    trial.send([in_file(tmp_path / "body", body)], compressOver=BEYOND_LIMIT_BYTES)
    (received,) = trial.consume().wait(lambda events: bool(events), "the big message")

    assert (received["size"], received["sha256"]) == (MIB, hashlib.sha256(body).hexdigest())


@every_client("compressed_body")
def test_a_compressed_body_is_stored_small_and_arrives_whole(trial: Trial, tmp_path: Path) -> None:
    trial.create_topic(queues=1)
    body = b"the same words again and again; " * 8192

    trial.send([in_file(tmp_path / "body", body)], compressOver=4096)
    (received,) = trial.consume().wait(lambda events: bool(events), "the compressed message")

    assert received["sha256"] == hashlib.sha256(body).hexdigest()
    # Not every client tells what a message takes in the store.
    assert received.get("storeSize", 0) < len(body) // 10


@every_client("size_limit")
def test_a_body_beyond_the_limit_is_refused_and_one_at_it_is_not(
    trial: Trial, tmp_path: Path
) -> None:
    trial.create_topic(queues=1)
    body = random.Random(2).randbytes(LIMIT_BYTES + 1)
    too_big = in_file(tmp_path / "too big", body)
    biggest = in_file(tmp_path / "biggest", body[:-1])
    limits = {"maxMessageSize": BEYOND_LIMIT_BYTES, "compressOver": BEYOND_LIMIT_BYTES}

    refused, taken = trial.try_to_send([too_big, biggest], **limits)
    (received,) = trial.consume().wait(lambda events: bool(events), "the biggest message")

    assert refused["event"] == "refused"
    assert refused["error"]
    assert (taken["event"], taken["queueOffset"]) == ("sent", 0)
    assert received["sha256"] == hashlib.sha256(body[:-1]).hexdigest()


@every_client("push_concurrently")
def test_a_push_consumer_gets_everything_once_and_a_failed_one_again(trial: Trial) -> None:
    trial.create_topic()
    trial.servers.introduce_group(trial.group)
    messages = numbered(60)
    consumer = trial.consume(fail={"times": 1, "body": "message-7"})

    trial.send(messages)
    received = consumer.wait_for(bodies(messages))

    again = [
        (event["outcome"], event["reconsumeTimes"]) for event in handled(received, "message-7")
    ]
    assert again == [("later", 0), ("ok", 1)]
    assert {event["topic"] for event in received} == {trial.topic}
    trial.claim(CONCURRENTLY, consumer)


@every_client("push_orderly")
def test_an_orderly_consumer_keeps_the_order_of_each_queue(trial: Trial) -> None:
    trial.create_topic()
    messages = [
        {"body": f"{key}-{number}", "hashKey": key} for number in range(10) for key in "abcdefg"
    ]
    consumer = trial.consume(orderly=True, holdMs=2, fail={"times": 2, "body": "c-4"})

    trial.send(messages)
    received = consumer.wait_for(bodies(messages))

    for key in "abcdefg":
        own = [event for event in received if event["body"].startswith(key)]
        done = [event["body"] for event in own if event["outcome"] == "ok"]
        assert done == [f"{key}-{number}" for number in range(10)]
        assert len({event["queueId"] for event in own}) == 1
    assert [event["outcome"] for event in handled(received, "c-4")] == ["later", "later", "ok"]
    claim_one_at_a_time(received)
    trial.claim(Rules(), consumer)


@every_client("cluster_members")
def test_the_survivor_takes_over_the_queues_of_a_killed_member(
    name: str, trial: Trial, new_program: NewProgram
) -> None:
    trial.create_topic()
    survivor = trial.consume("survivor")
    doomed_program = new_program(name)
    doomed = trial.consume("doomed", program=doomed_program)
    share_queues(trial, survivor, doomed)

    doomed_program.stop()
    after = send_to_each_queue(trial, "after")
    survivor.wait_for(after, timeout_s=TAKEOVER_S)

    last = [event for event in survivor.received if event["body"] in after]
    assert {event["queueId"] for event in last} == set(range(QUEUES))
    trial.claim(AT_LEAST_ONCE, survivor, doomed)


@every_client("broadcast")
def test_every_member_of_a_broadcast_gets_everything(trial: Trial) -> None:
    trial.create_topic(queues=1)
    members = [trial.consume(member, model="broadcasting") for member in ("a", "b")]
    wait_until_started(trial, members)
    messages = numbered(20)

    trial.send(messages)
    for member in members:
        member.wait_for(bodies(messages))

    for member in members:
        got = [event["body"] for event in member.received if "message" in event["body"]]
        assert sorted(got) == sorted(bodies(messages))


@every_client("lite_pull_subscribe")
def test_a_lite_pull_consumer_goes_on_where_it_committed(trial: Trial) -> None:
    trial.create_topic(queues=2)
    first, second = numbered(10, "first"), numbered(6, "second")
    lite = LiteConsumer(trial)

    trial.send(first)
    lite.open()
    polled = lite.poll(10)
    lite.call("lite-commit")
    lite.call("stop")
    trial.send(second)
    lite.open()
    polled_later = lite.poll(6)
    lite.call("stop")

    assert sorted(event["body"] for event in polled) == sorted(bodies(first))
    assert sorted(event["body"] for event in polled_later) == sorted(bodies(second))


@every_client("lite_pull_assign")
def test_a_lite_pull_consumer_with_assigned_queues_seeks(trial: Trial) -> None:
    trial.create_topic(queues=2)
    messages = [{"body": f"{queue}-{n}", "queueId": queue} for n in range(5) for queue in (0, 1)]
    lite = LiteConsumer(trial)

    trial.send(messages)
    lite.open(assign=True)
    polled = lite.poll(10)
    lite.call("lite-seek", queueId=1, offset=3)
    polled_again = lite.poll(2)
    lite.call("lite-commit")
    committed = lite.call("lite-committed")
    lite.call("stop")

    assert sorted(event["body"] for event in polled) == sorted(bodies(messages))
    assert [event["body"] for event in polled_again] == ["1-3", "1-4"]
    assert {event["queueId"]: event["offset"] for event in committed} == {0: 5, 1: 5}


@every_client("tags")
def test_only_the_tags_asked_for_arrive(trial: Trial) -> None:
    trial.create_topic(queues=1)
    consumer = trial.consume(expression="TagA || TagC", threads=1)
    tags = ["TagA", "TagB", "TagC", "TagD", "TagA", "", "TagB", "TagC"]
    messages = [{"body": f"{n}-{tag}", "tags": tag or None} for n, tag in enumerate(tags)]

    trial.send(messages)
    wanted = [body for body in bodies(messages) if body.endswith(("TagA", "TagC"))]
    received = consumer.wait_for(wanted)

    assert [event["body"] for event in received] == wanted


@every_client("delay_levels")
def test_delayed_messages_come_when_their_level_says(trial: Trial) -> None:
    trial.create_topic()
    consumer = trial.consume()
    levels = {"level-0": 0, "level-1": 1, "level-2": 2}
    delayed = [{"body": body, "delayLevel": n or None} for body, n in levels.items()]

    sent_s = time.time()
    trial.send(delayed)
    received = consumer.wait_for(list(levels))

    for body, level in levels.items():
        (arrived,) = handled(received, body)
        delay_s = LEVEL_DELAYS_S[level - 1] if level else 0
        assert delay_s <= arrived["beginUs"] / 1e6 - sent_s < delay_s + LATENESS_S, body
        assert arrived["topic"] == trial.topic
        # Apache leaves the level in the message, too; not every client shows it.
        assert arrived["properties"].get("DELAY") in (None, str(level))
        assert arrived["reconsumeTimes"] == 0


@every_client("retry_dead_letter")
def test_what_fails_too_often_ends_among_the_dead_letters(
    name: str, trial: Trial, servers: Servers
) -> None:
    if name == "cpp" and BROKER == "5.5.0":
        pytest.skip("Apache's 5.5.0 fails on dead letters of clients that do not name the topic")
    trial.create_topic()
    own_limit: int | None = RETRIES
    if name in LEAVE_THE_LIMIT_TO_THE_GROUP:
        own_limit = None
        limit_retries(servers.broker.address, trial.group, RETRIES)
    trial.servers.introduce_group(trial.group)
    consumer = trial.consume(maxReconsumeTimes=own_limit, fail={"times": -1, "body": "doomed"})

    trial.send([{"body": "doomed", "keys": "k-1", "tags": "TagA"}, {"body": "well"}])
    servers.wait_until_known(f"%DLQ%{trial.group}")
    graveyard = trial.consume("graveyard", group=f"D_{trial.topic}", topic=f"%DLQ%{trial.group}")
    (dead,) = graveyard.wait_for(["doomed"])

    attempts = handled(consumer.received, "doomed")
    assert [event["reconsumeTimes"] for event in attempts] == list(range(RETRIES + 1))
    assert {event["topic"] for event in attempts} == {trial.topic}
    assert {event["msgId"] for event in attempts} == {dead["msgId"]}
    assert (dead["keys"], dead["tags"]) == ("k-1", "TagA")
    assert [event["outcome"] for event in handled(consumer.received, "well")] == ["ok"]


@every_client("reconnect")
def test_clients_go_on_by_themselves_after_the_broker_came_back(
    trial: Trial, servers: Servers
) -> None:
    trial.create_topic()
    consumer = trial.consume()
    before = numbered(20, "before")
    trial.send(before)
    consumer.wait_for(bodies(before))

    servers.stop_broker()
    (while_away,) = trial.try_to_send([{"body": "while away"}], timeoutMs=1000)
    servers.start_broker()
    after = send_until_taken(trial, numbered(20, "after"))
    consumer.wait_for(bodies(after), timeout_s=COMEBACK_S)

    assert while_away["event"] == "refused"
    trial.claim(AT_LEAST_ONCE, consumer)


@pytest.mark.parametrize("name", ["java-5.5.0"])
def test_what_a_killed_broker_acknowledged_is_not_lost(trial: Trial, servers: Servers) -> None:
    trial.create_topic()
    consumer = trial.consume(holdMs=20, threads=1)

    trial.send(numbered(200, "before"), mode="async")
    servers.broker.kill()
    servers.start_broker()
    send_until_taken(trial, numbered(20, "after"))

    consumer.wait_for([sent.key for sent in trial.sent], timeout_s=COMEBACK_S)
    trial.claim(AT_LEAST_ONCE, consumer)


@every_client("binary_headers")
def test_binary_headers_do_all_that_json_headers_do(
    name: str, trial: Trial, new_program: NewProgram
) -> None:
    with new_program(name, variant="binary") as binary:
        converse(replace(trial, program=binary), name)


@every_client("tls")
def test_clients_may_speak_tls(
    name: str,
    trial: Trial,
    new_program: NewProgram,
    feature_certificates: Certificates | None,
) -> None:
    requirements.need("openssl")
    with new_program(name, certificates=feature_certificates) as secret:
        converse(replace(trial, program=secret), name)


@every_client("vip_port")
def test_clients_may_use_the_vip_port(name: str, trial: Trial, servers: Servers) -> None:
    vip_port = servers.broker.port - 2

    converse(trial, name, vip=True)

    assert sockets.established_to(vip_port)
    trial.program.call("stop", name="vip")


@pytest.mark.skipif(BROKER != OURS, reason="is about our broker")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CLIENTS)
def test_our_broker_serves_clients_of_apaches_name_server(
    name: str, version: str, topic: str, behind_apaches: Mapping[str, Servers], program: Programs
) -> None:
    """The route to ours comes from what Apache's was told, also of a topic made by the send."""
    servers = behind_apaches[version]
    messages = numbered(10)

    with closing(Trial(servers, program(name), topic)) as trial:
        if name in NEED_THE_TOPIC_FIRST:
            trial.create_topic(queues=QUEUES)
        trial.send(messages)
        servers.wait_until_known(topic)
        consumer = trial.consume()
        consumer.wait_for(bodies(messages))

        trial.claim(CONCURRENTLY, consumer)
        assert stored_count(servers.broker.address, topic, queues=QUEUES) == len(messages)


def converse(trial: Trial, name: str, *, vip: bool = False) -> None:
    """A bit of everything: all ways to send and to consume, locks, offsets and retries."""
    trial.create_topic()
    producer = "vip" if vip else "main"
    for mode in ("sync", "async", "oneway", "batch"):
        if reason(name, f"{mode}_send") is None:
            trial.send(numbered(6, mode), mode=mode, vip=vip, producer=producer)
    everything = [sent.key for sent in trial.sent]

    trial.servers.introduce_group(trial.group)
    concurrent = trial.consume(vip=vip, fail={"times": 1, "body": "sync-3"})
    concurrent.wait_for(everything)

    assert [event["reconsumeTimes"] for event in handled(concurrent.received, "sync-3")] == [0, 1]
    trial.claim(CONCURRENTLY, concurrent)
    if reason(name, "push_orderly") is None:
        orderly = trial.consume("orderly", group=f"O_{trial.topic}", orderly=True, vip=vip)
        claim_one_at_a_time(orderly.wait_for(everything))
        trial.claim(Rules(), orderly)


class LiteConsumer:
    """A lite pull consumer of a trial's topic and group."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._name = f"{trial.topic}_lite"

    def open(self, **options: object) -> None:
        trial = self._trial
        target = {"namesrv": trial.servers.namesrv, "topic": trial.topic, "group": trial.group}
        self.call("lite-open", **target, **options)

    def poll(self, count: int) -> list[Event]:
        """So many messages; fewer if they do not come."""
        return self.call("lite-poll", count=count, timeoutMs=LITE_POLL_MS)

    def call(self, verb: str, **options: object) -> list[Event]:
        return self._trial.program.call(verb, name=self._name, **options)


def wait_until_started(trial: Trial, members: Sequence[Consumer]) -> None:
    """Send until each has received: not every client can start at the beginning of a queue."""
    probe = replace(trial, sent=[])

    def have_received() -> bool:
        probe.send([{"body": f"probe-{len(probe.sent)}"}])
        return all(member.received for member in members)

    wait_until(have_received, "every member receives")


def share_queues(trial: Trial, *members: Consumer) -> None:
    """Send until each member works on some of the queues and none on those of another."""
    for number in range(SHARING_ROUNDS):
        expected = send_to_each_queue(trial, f"round-{number}")
        wait_until(partial(have_all, members, expected), f"round {number} is received")
        shares = [share(member, expected) for member in members]
        if all(shares) and sum(map(len, shares)) == QUEUES:
            return
        time.sleep(SHARING_PAUSE_S)
    raise AssertionError(f"the members do not share the queues after {SHARING_ROUNDS} rounds")


def have_all(members: Sequence[Consumer], expected: Sequence[str]) -> bool:
    received = {event["body"] for member in members for event in member.received}
    return received.issuperset(expected)


def share(member: Consumer, expected: Sequence[str]) -> set[int]:
    """The queues from which the member got some of the messages."""
    return {event["queueId"] for event in member.received if event["body"] in expected}


def send_to_each_queue(trial: Trial, prefix: str) -> list[str]:
    """One message for each queue; round robin is what every client does."""
    messages = numbered(QUEUES * 2, prefix)
    trial.send(messages)
    return bodies(messages)


def send_until_taken(trial: Trial, messages: Sequence[Message]) -> list[Message]:
    """Send each message until the broker takes it; a client may need a while to find it again."""
    deadline = time.monotonic() + COMEBACK_S
    for message in messages:
        while trial.try_to_send([message])[0]["event"] != "sent":
            assert time.monotonic() < deadline, f"{message} is still refused"
            time.sleep(RETRY_PAUSE_S)
    return list(messages)
