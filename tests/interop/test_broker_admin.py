"""Administration of our broker while real clients are at work on it.

Apache's own tool does what is done; Java and Go clients must lose nothing that they were promised.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cometmq.codec import bodies as json_bodies
from cometmq.codec.bodies.clients import ConsumerConnection
from cometmq.codec.bodies.offsets import ConsumeStats
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.clients import GetConsumerConnectionList
from cometmq.codec.headers.groups import GetConsumeStats
from tests.interop import asking, mqadmin_fields
from tests.interop.admin_shell import AdminShell
from tests.interop.apache import CLUSTER
from tests.interop.broker import OurBroker
from tests.interop.broker_fixtures import Programs, Servers
from tests.interop.clients import Event
from tests.interop.feature_kit import CONCURRENTLY, Trial, bodies, handled, numbered
from tests.interop.nameserver import OurNameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOOLS = ("4.9.8", "5.5.0")
CLIENTS = ("java-4.9.8", "java-5.5.0", "go")
QUEUES, QUEUES_LEFT = 8, 4
# Clients look for routes every 30 s.
ROUTE_KNOWN_S = 45.0
# Consumers tell their offsets every 5 s.
DRAINED_S = 30.0
SYSTEM_ERROR, TOPIC_NOT_EXIST, CONSUMER_NOT_ONLINE = 1, 17, 206

AdminShells = Callable[[str], AdminShell]


@pytest.fixture(scope="module")
def strict_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that make no topic for senders: what is deleted must not come back by itself."""
    folder = tmp_path_factory.mktemp("strict-servers")
    settings = {"autoCreateTopicEnable": "false"}
    with OurNameServer(folder / "namesrv") as namesrv:
        broker = OurBroker(folder / "broker", namesrv=namesrv.address, settings=settings)
        try:
            yield Servers(namesrv.address, broker, lambda: broker)
        finally:
            broker.kill()


@pytest.fixture
def started() -> Iterator[list[Trial]]:
    """Trials that are to be closed in the end."""
    trials: list[Trial] = []
    yield trials
    for trial in trials:
        trial.close()


def client_id(trial: Trial, broker: str) -> str:
    """The only member of the group."""
    header = GetConsumerConnectionList(trial.group)
    answer = asking.ask_well(broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
    (connection,) = json_bodies.decode(ConsumerConnection, answer.body).connection_set
    assert connection.client_id is not None
    return connection.client_id


def behind(trial: Trial, broker: str) -> int:
    """How many messages of its topic the group has not consumed yet, as far as it has told."""
    header = GetConsumeStats(trial.group, trial.topic)
    answer = asking.ask_well(broker, RequestCode.GET_CONSUME_STATS, header)
    table = json_bodies.decode(ConsumeStats, answer.body).offset_table
    return sum(found.broker_offset - found.consumer_offset for found in table.values())


# --- questions to consumers


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_consumer_tells_what_it_is_doing(
    name: str,
    tool: str,
    servers: Servers,
    program: Programs,
    admin_shell: AdminShells,
    topic: str,
    started: list[Trial],
) -> None:
    trial = Trial(servers, program(name), topic)
    started.append(trial)
    trial.create_topic()
    servers.introduce_group(trial.group)
    messages = numbered(4)
    trial.send(messages)
    trial.consume().wait_for(bodies(messages))
    who = client_id(trial, servers.broker.address)

    where = ("-n", servers.namesrv, "-g", trial.group)
    told = admin_shell(tool)("consumerStatus", *where, "-i", who)

    assert mqadmin_fields.failure(told) is None, told
    assert "#Consumer Properties#" in told
    subscriptions = told.partition("#Consumer Subscription#")[2].partition("#Consumer Offset#")[0]
    assert topic in subscriptions
    offsets = told.partition("#Consumer Offset#")[2].partition("#Consumer MQ Detail#")[0]
    assert len(re.findall(rf"^{topic} ", offsets, re.MULTILINE)) == 4, told


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_message_is_consumed_directly(
    name: str,
    tool: str,
    servers: Servers,
    program: Programs,
    admin_shell: AdminShells,
    topic: str,
    started: list[Trial],
) -> None:
    trial = Trial(servers, program(name), topic)
    started.append(trial)
    trial.create_topic()
    servers.introduce_group(trial.group)
    (sent,) = trial.send(numbered(1))
    consumer = trial.consume()
    consumer.wait_for(["message-0"])
    who = client_id(trial, servers.broker.address)

    argv = ["-n", servers.namesrv, "-i", sent["offsetMsgId"], "-g", trial.group, "-d", who]
    told = admin_shell(tool)("queryMsgById", *argv, *(["-t", topic] if tool == "5.5.0" else []))

    assert "consumeResult=CR_SUCCESS" in told, told
    received = consumer.wait(lambda events: len(events) == 2, "the message once more")
    assert len(handled(received, "message-0")) == 2


@pytest.mark.parametrize("tool", TOOLS)
def test_a_consumer_that_is_not_there_is_told_not_to_be_online(
    tool: str,
    servers: Servers,
    program: Programs,
    admin_shell: AdminShells,
    topic: str,
    started: list[Trial],
) -> None:
    trial = Trial(servers, program("java-5.5.0"), topic)
    started.append(trial)
    trial.create_topic()
    servers.introduce_group(trial.group)
    where = ("-n", servers.namesrv, "-g", trial.group)

    no_group = mqadmin_fields.failure(admin_shell(tool)("consumerStatus", *where, "-i", "nobody"))
    trial.consume()
    nobody = mqadmin_fields.failure(admin_shell(tool)("consumerStatus", *where, "-i", "nobody"))

    assert no_group is not None
    assert no_group.code == CONSUMER_NOT_ONLINE
    assert no_group.description.startswith(f"the consumer group[{trial.group}] not online")
    assert nobody is not None
    assert nobody.code == SYSTEM_ERROR
    assert nobody.description.startswith(f"The Consumer <{trial.group}> <nobody> not online")


# --- deleting under traffic


@pytest.mark.parametrize("name", ["java-4.9.8", "java-5.5.0"])
def test_a_topic_is_deleted_with_its_data_under_traffic(
    name: str,
    strict_servers: Servers,
    program: Programs,
    admin_shell: AdminShells,
    topic: str,
    started: list[Trial],
) -> None:
    servers, admin = strict_servers, admin_shell("5.5.0")
    before = Trial(servers, program(name), topic)
    started.append(before)
    before.create_topic()
    servers.introduce_group(before.group)
    consumer = before.consume()
    outcomes: list[Event] = []

    def send_on() -> None:
        while all(event["event"] == "sent" for event in outcomes):
            outcomes.extend(before.try_to_send(numbered(50, f"old-{len(outcomes)}")))

    sending = threading.Thread(target=send_on)
    sending.start()
    consumer.wait(lambda events: len(events) >= 100, "a hundred messages")
    told = admin("deleteTopic", "-n", servers.namesrv, "-c", CLUSTER, "-t", topic)
    sending.join(60)
    consumer.stop()

    assert mqadmin_fields.failure(told) is None, told
    refusals = [event for event in outcomes if event["event"] == "refused"]
    assert {event["code"] for event in refusals} == {TOPIC_NOT_EXIST}
    assert not (servers.broker.store_path / "consumequeue" / topic).exists()
    assert asking.stored_count(servers.broker.address, topic, queues=4) == 0
    # The same topic, made anew, is another one.
    after = Trial(servers, program(name), topic)
    started.append(after)
    after.create_topic()
    messages = numbered(40, "new")
    sent = after.send(messages)
    again = after.consume("b")
    again.wait_for(bodies(messages))
    assert min(event["queueOffset"] for event in sent) == 0
    after.claim(CONCURRENTLY, again)


# --- narrowing a topic


@pytest.mark.parametrize("name", ["java-4.9.8", "java-5.5.0"])
def test_a_topic_is_narrowed_under_traffic_without_losing_anything(
    name: str,
    servers: Servers,
    program: Programs,
    admin_shell: AdminShells,
    topic: str,
    started: list[Trial],
) -> None:
    """Nobody writes to the last queues any more, they are drained, nobody reads them any more."""
    admin, broker = admin_shell("5.5.0"), servers.broker.address
    trial = Trial(servers, program(name), topic)
    started.append(trial)
    trial.create_topic(queues=QUEUES)
    servers.introduce_group(trial.group)
    consumer = trial.consume()
    rounds = iter(range(1_000_000))

    def change(read: int, write: int) -> None:
        counts = ("-r", str(read), "-w", str(write))
        told = admin("updateTopic", "-n", servers.namesrv, "-b", broker, "-t", topic, *counts)
        assert "success" in told, told

    def queues_sent_to() -> set[int]:
        sent = trial.send(numbered(2 * QUEUES, f"round-{next(rounds)}"))
        return {event["queueId"] for event in sent}

    assert queues_sent_to() == set(range(QUEUES))
    change(QUEUES, QUEUES_LEFT)
    deadline = time.monotonic() + ROUTE_KNOWN_S
    while queues_sent_to() != set(range(QUEUES_LEFT)):
        assert time.monotonic() < deadline, "the producer goes on with the queues it knew"
        time.sleep(0.5)
    asking.wait_until(
        lambda: behind(trial, broker) == 0, "the queues are drained", timeout_s=DRAINED_S
    )
    change(QUEUES_LEFT, QUEUES_LEFT)
    for _ in range(5):
        assert queues_sent_to() == set(range(QUEUES_LEFT))

    consumer.wait_for([sent.key for sent in trial.sent])
    trial.claim(CONCURRENTLY, consumer)
