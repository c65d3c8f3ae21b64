"""Real clients and Apache's tool use the broker's services: replies, resets, copies, traces."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from cometmq.codec import bodies as json_bodies
from cometmq.codec.bodies.offsets import ConsumerOffsetTable, ConsumerStatusBody
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.clients import GetConsumerStatus
from cometmq.codec.headers.offsets import CloneGroupOffset
from tests.interop import asking
from tests.interop.admin_shell import AdminShell
from tests.interop.asking import wait_until
from tests.interop.broker import OurBroker
from tests.interop.broker_fixtures import SETTINGS, NewProgram, Programs, Servers
from tests.interop.clients import Event
from tests.interop.feature_kit import Trial, bodies, handled, numbered
from tests.interop.feature_shell import Consumer, FeatureProgram
from tests.interop.mqadmin import VERSIONS
from tests.interop.nameserver import OurNameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

JAVA = ("java-4.9.8", "java-5.5.0")
# C++ and Node consumers notice a reset as well; they have no part in the other services.
CONSUMING = (*JAVA, "go", "cpp", "node")
# A consumer that is told of a reset pauses for ten seconds and looks for its queues after twenty;
# one that is not told notices when its pull ends, which is after half a minute at the latest.
COMEBACK_S = 100.0
# How long Apache's tool waits for an answer.
TOOL_TIMEOUT_S = 5.0
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

Shells = Callable[[str], AdminShell]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """As everywhere, with the topic for traces, and clients are told which topics are ordered."""
    folder = tmp_path_factory.mktemp("service-servers")
    settings = {**SETTINGS, "traceTopicEnable": "true"}
    ordered = {"orderMessageEnable": "true"}
    with OurNameServer(folder / "namesrv", settings=ordered) as namesrv:
        broker = OurBroker(folder / "broker", namesrv=namesrv.address, settings=settings)
        with broker:
            yield Servers(namesrv.address, broker, lambda: broker)


@pytest.fixture
def topic(topic: str, servers: Servers) -> str:
    """A topic that exists."""
    servers.create_topic(topic)
    return topic


# --- request and reply


@pytest.mark.parametrize(
    ("name", "answering"),
    [("java-4.9.8", "java-5.5.0"), ("java-5.5.0", "go"), ("go", "java-4.9.8")],
)
def test_a_request_gets_its_reply(
    name: str, answering: str, servers: Servers, program: Programs, topic: str
) -> None:
    group = f"G_{topic}"
    servers.introduce_group(group)
    where = {"namesrv": servers.namesrv, "topic": topic}
    program(answering).call("answer", name=topic, group=group, **where)

    try:
        if name == "go":
            introduce_requester(program(name), where)
        for mode in ("sync", "async"):
            asked = [f"{mode}-{number}" for number in range(3)]
            events = program(name).call("request", mode=mode, bodies=asked, **where)

            replies = {event["index"]: event.get("body", event) for event in events}
            assert replies == {number: body.upper() for number, body in enumerate(asked)}
    finally:
        program(answering).call("stop", name=topic, inBackground=True)


def introduce_requester(requester: FeatureProgram, where: Mapping[str, str]) -> None:
    """Ask until there is a reply.

    A Go producer tells the broker of itself once a second after its start, if it has found out by
    then where the broker is, and otherwise half a minute later; until then nothing reaches it.
    """
    events: list[Event] = []
    while not events or events[-1]["event"] != "replied":
        assert len(events) < 3, events
        events += requester.call("request", mode="sync", bodies=["anybody?"], **where)


@pytest.mark.parametrize("name", JAVA)
def test_a_request_that_nobody_answers_ends(
    name: str, servers: Servers, program: Programs, topic: str
) -> None:
    where = {"namesrv": servers.namesrv, "topic": topic}

    (event,) = program(name).call("request", bodies=["hello?"], timeoutMs=2000, **where)

    assert event["event"] == "refused"
    assert "wait reply message timeout" in event["error"]


# --- resets


def test_consumers_of_every_kind_go_back_to_a_time(
    servers: Servers, program: Programs, admin_shell: Shells, topic: str
) -> None:
    members = {name: Trial(servers, program(name), topic) for name in CONSUMING}
    consumers = {name: consume(trial, name) for name, trial in members.items()}
    sender = members["java-5.5.0"]
    early, late = numbered(8, "early"), numbered(8, "late")
    sender.send(early)
    for consumer in consumers.values():
        consumer.wait_for(bodies(early))
    time.sleep(0.1)
    between = time.strftime("%Y-%m-%d#%H:%M:%S") + f":{int(time.time() * 1000) % 1000:03d}"
    time.sleep(0.1)
    sender.send(late)
    for consumer in consumers.values():
        consumer.wait_for(bodies(late))

    for number, name in enumerate(CONSUMING):
        tool = admin_shell(VERSIONS[number % len(VERSIONS)])
        where = ["-n", servers.namesrv, "-t", topic, "-g", group_of(topic, name)]
        said = tool("resetOffsetByTime", *where, "-s", between)
        assert said.count(servers.broker.name) == 4, said

    # Whoever waits for messages is answered now, and so notices the sooner.
    sender.send(numbered(8, "after"))
    for name, consumer in consumers.items():
        consumer.wait(lambda events: all_twice(events, bodies(late)), f"{name} again", COMEBACK_S)
        once = [len(handled(consumer.received, body)) for body in bodies(early)]
        assert once == [1] * len(early), name
    for trial in members.values():
        trial.close()


def test_a_consumer_that_was_away_during_a_reset_begins_there_at_once(
    servers: Servers, program: Programs, admin_shell: Shells, topic: str
) -> None:
    trial = Trial(servers, program("java-4.9.8"), topic)
    messages = numbered(8)
    trial.send(messages)
    first = consume(trial, "away")
    first.wait_for(bodies(messages))
    first.stop()

    where = ["-n", servers.namesrv, "-t", topic, "-g", group_of(topic, "away")]
    admin_shell("5.5.0")("resetOffsetByTime", *where, "-s", "0")
    again = trial.consume("again", group=group_of(topic, "away"))
    again.wait_for(bodies(messages), timeout_s=10.0)

    trial.close()


# --- copies and questions


def test_a_copied_group_goes_on_where_the_first_one_was(
    servers: Servers, program: Programs, topic: str
) -> None:
    trial = Trial(servers, program("java-5.5.0"), topic)
    old, new = numbered(8, "old"), numbered(8, "new")
    trial.send(old)
    first = consume(trial, "first")
    first.wait_for(bodies(old))
    first.stop()
    source, copy = group_of(topic, "first"), group_of(topic, "copy")
    wait_until(lambda: committed(servers, source, topic) == 8, "all offsets are committed")

    header = CloneGroupOffset(source, copy, topic)
    asking.ask_well(servers.broker.address, RequestCode.CLONE_GROUP_OFFSET, header)
    trial.send(new)
    second = consume(trial, "copy")
    received = second.wait_for(bodies(new))

    assert sorted(event["body"] for event in received) == sorted(bodies(new))
    trial.close()


def test_members_of_all_kinds_may_be_asked_for_their_offsets(
    servers: Servers, program: Programs, topic: str
) -> None:
    trials = {name: Trial(servers, program(name), topic) for name in CONSUMING}
    group = group_of(topic, "all")
    consumers = [
        trial.consume(name.replace(".", "-"), group=group) for name, trial in trials.items()
    ]
    sender = trials["java-5.5.0"]
    sender.send(numbered(40))
    wait_until(lambda: received_by_all(consumers) >= 40, "all messages are received")

    begin_s = time.monotonic()
    answer = asking.ask_well(
        servers.broker.address,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        GetConsumerStatus(topic, group),
    )
    took_s = time.monotonic() - begin_s

    table = json_bodies.decode(ConsumerStatusBody, answer.body).consumer_table
    # Three of the five answer at all. C++ is not even asked; Node says that it is Java.
    assert len(table) == 3, table
    assert took_s < TOOL_TIMEOUT_S
    told = {
        queue.queue_id: offset for offsets in table.values() for queue, offset in offsets.items()
    }
    assert all(0 <= offset <= 40 for offset in told.values())
    for trial in trials.values():
        trial.close()


# --- ordered topics


@pytest.mark.parametrize("name", JAVA)
def test_producers_keep_to_the_queues_of_an_ordered_topic(
    name: str, servers: Servers, new_program: NewProgram, admin_shell: Shells, topic: str
) -> None:
    where = ["-n", servers.namesrv, "-t", topic]
    said = admin_shell(name.removeprefix("java-"))(
        "updateOrderConf", *where, "-m", "put", "-v", f"{servers.broker.name}:2"
    )
    assert "success" in said

    trial = Trial(servers, new_program(name), topic)
    sent = trial.send(numbered(12))
    servers.create_topic(f"{topic}_next")  # and so the broker registers

    assert {event["queueId"] for event in sent} == {0, 1}
    assert is_ordered(servers, topic)
    assert not is_ordered(servers, f"{topic}_next")


# --- traces


@pytest.mark.parametrize("name", JAVA)
def test_traces_can_be_read_by_both_tools(
    name: str, servers: Servers, program: Programs, admin_shell: Shells, topic: str
) -> None:
    assert asking.route(servers.namesrv, TRACE_TOPIC) is not None
    groups = {"producerGroup": f"PG_{topic}", "group": f"G_{topic}"}

    (event,) = program(name).call("trace", namesrv=servers.namesrv, topic=topic, **groups)

    for version in VERSIONS:
        is_shown = partial(is_traced, admin_shell(version), servers, event, groups)
        wait_until(is_shown, f"{version} shows the trace")


def is_traced(tool: AdminShell, servers: Servers, event: Event, groups: dict[str, str]) -> bool:
    said = tool("queryMsgTraceById", "-n", servers.namesrv, "-i", event["msgId"])
    lines = [line.split() for line in said.splitlines()]
    return all(
        any(line[:2] == [kind, group] and "success" in line for line in lines)
        for kind, group in (("Pub", groups["producerGroup"]), ("Sub", groups["group"]))
    )


# --- helpers


def group_of(topic: str, name: str) -> str:
    return f"G_{topic}_{name.replace('.', '-')}"


def consume(trial: Trial, name: str) -> Consumer:
    return trial.consume(name.replace(".", "-"), group=group_of(trial.topic, name))


def all_twice(events: Sequence[Event], wanted: Sequence[str]) -> bool:
    return all(len(handled(events, body)) >= 2 for body in wanted)


def received_by_all(consumers: Sequence[Consumer]) -> int:
    return len({event["body"] for consumer in consumers for event in consumer.received})


def is_ordered(servers: Servers, topic: str) -> bool:
    answer = asking.ask_well(servers.broker.address, RequestCode.GET_ALL_TOPIC_CONFIG)
    table = json_bodies.decode(TopicConfigTable, answer.body).topic_config_table
    return table[topic].order


def committed(servers: Servers, group: str, topic: str) -> int:
    """How many messages a group has done with, in all four queues."""
    answer = asking.ask_well(servers.broker.address, RequestCode.GET_ALL_CONSUMER_OFFSET)
    table = json_bodies.decode(ConsumerOffsetTable, answer.body).offset_table
    return sum(table.get(f"{topic}@{group}", {}).values())
