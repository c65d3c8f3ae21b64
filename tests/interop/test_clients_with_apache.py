"""Every real client sends and consumes through Apache's own servers: the kit works."""

from collections.abc import Callable

import pytest

from tests.interop.apache import ApacheCluster
from tests.interop.clients import Client, Event
from tests.interop.mqadmin import MqAdmin

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 10
PAIRS = [
    ("java-4.9.8", "4.9.7"),
    ("go", "4.9.7"),
    ("cpp", "4.9.7"),
    ("java-5.5.0", "5.5.0"),
    ("go", "5.5.0"),
    ("cpp", "5.5.0"),
]


@pytest.mark.parametrize(("name", "version"), PAIRS)
def test_a_client_gets_back_what_it_sent(
    name: str,
    version: str,
    topic: str,
    client: Callable[[str], Client],
    apache_cluster: Callable[[str], ApacheCluster],
) -> None:
    program = client(name)
    address = apache_cluster(version).namesrv.address

    sent = program.send(address, topic, count=COUNT)
    received = program.consume(address, topic, count=COUNT, group=f"G_{topic}")

    claim_same_messages(sent, received)


@pytest.mark.parametrize(("tool", "version"), [("4.9.8", "4.9.7"), ("5.5.0", "5.5.0")])
def test_node_gets_back_what_it_sent_to_a_topic_made_by_mqadmin(
    tool: str,
    version: str,
    topic: str,
    client: Callable[[str], Client],
    mqadmin: Callable[[str], MqAdmin],
    apache_cluster: Callable[[str], ApacheCluster],
) -> None:
    """ali-ons gives up on a topic the name server does not know, so the topic comes first."""
    program = client("node")
    address = apache_cluster(version).namesrv.address
    mqadmin(tool).create_topic(address, topic)

    sent = program.send(address, topic, count=COUNT)
    received = program.consume(address, topic, count=COUNT, group=f"G_{topic}")

    claim_same_messages(sent, received)


def test_mqadmin_tells_how_many_messages_a_topic_has(
    topic: str,
    client: Callable[[str], Client],
    mqadmin: Callable[[str], MqAdmin],
    apache_5: ApacheCluster,
) -> None:
    address = apache_5.namesrv.address
    client("go").send(address, topic, count=COUNT)

    status = mqadmin("5.5.0")("topicStatus", "-n", address, "-t", topic)

    header, *rows = status.splitlines()
    assert header.startswith("#Broker Name")
    assert sum(int(row.split()[3]) for row in rows if row.startswith("broker-a")) == COUNT


def claim_same_messages(sent: list[Event], received: list[Event]) -> None:
    """What was received is exactly what was sent, whatever the order."""
    by_body = {event["body"]: event for event in received}

    assert len(sent) == COUNT
    assert sorted(by_body) == sorted(f"message-{number}" for number in range(COUNT))
    for number, event in enumerate(sent):
        answer = by_body[event["body"]]
        assert answer["messageId"] == event["messageId"]
        assert answer["queueOffset"] == event["queueOffset"]
        assert (answer["tags"], answer["keys"]) == ("TagA", f"key-{number}")
