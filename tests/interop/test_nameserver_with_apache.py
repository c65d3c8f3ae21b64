"""Apache's own brokers live with our name server, and the real clients find them through it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from tests.interop import asking, clients, mqadmin_fields
from tests.interop.admin_shell import AdminShell
from tests.interop.apache import CLUSTER, VERSIONS, ApacheBroker
from tests.interop.asking import wait_until
from tests.interop.cache import Cache
from tests.interop.clients import Client
from tests.interop.fleet import Fleet
from tests.interop.nameserver import OurNameServer
from tests.interop.ports import free_port_triple

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 8
QUEUES = 2
BODIES = sorted(f"message-{number}" for number in range(COUNT))

# A closed connection is noticed at once; the rest is a busy machine.
GONE_TIMEOUT_S = 5.0
# A broker that stops has other things to do before it says goodbye.
GOODBYE_TIMEOUT_S = 30.0


@pytest.fixture
def topic_on_both(apache_fleet: Fleet, topic: str) -> str:
    """A topic with some queues on the broker of each release."""
    for broker in apache_fleet.brokers:
        asking.create_topic(broker.address, topic, queues=QUEUES)
    names = {broker.name for broker in apache_fleet.brokers}
    wait_until(
        lambda: asking.broker_names(apache_fleet.shared.address, topic) == names,
        f"{topic} is known with its brokers {names}",
    )
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_of_apaches_registers_with_our_name_server(
    apache_fleet: Fleet, version: str
) -> None:
    twins = apache_fleet.twins[version]

    info = asking.cluster_info(twins.ours.address)

    assert info.cluster_addr_table == {CLUSTER: (twins.broker.name,)}
    (broker,) = info.broker_addr_table.values()
    assert (broker.cluster, broker.broker_name) == (CLUSTER, twins.broker.name)
    assert broker.broker_addrs == {0: twins.broker.address}
    assert asking.topics(twins.ours.address) >= {"TBW102", CLUSTER, twins.broker.name}


def test_brokers_of_both_releases_share_a_name_server(
    apache_fleet: Fleet, admin_shell: Callable[[str], AdminShell]
) -> None:
    """Asked with the newer tool: 4.9's stumbles over figures that a 5.x broker calls otherwise."""
    text = admin_shell("5.5.0")("clusterList", "-n", apache_fleet.shared.address)

    rows = mqadmin_fields.table(text)
    names = ("Cluster Name", "Broker Name", "BID", "Addr", "Version")
    assert sorted(tuple(row[name] for name in names) for row in rows) == [
        (CLUSTER, broker.name, "0", broker.address, f"V{broker.version.replace('.', '_')}")
        for broker in apache_fleet.brokers
    ]


@pytest.mark.parametrize("name", clients.NAMES)
def test_a_client_sends_to_both_releases_and_consumes_from_both(
    apache_fleet: Fleet, topic_on_both: str, client: Callable[[str], Client], name: str
) -> None:
    namesrv = apache_fleet.shared.address
    program = client(name)

    sent = program.send(namesrv, topic_on_both, count=COUNT)
    received = program.consume(namesrv, topic_on_both, count=COUNT, group=f"G_{topic_on_both}")

    assert sorted(event["body"] for event in sent) == BODIES
    assert sorted(event["body"] for event in received) == BODIES
    assert {event["messageId"] for event in received} == {event["messageId"] for event in sent}
    stored = [
        asking.stored_count(broker.address, topic_on_both, queues=QUEUES)
        for broker in apache_fleet.brokers
    ]
    assert sum(stored) == COUNT
    assert all(stored), stored


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["java-4.9.8", "java-5.5.0", "go", "cpp"])
def test_the_first_send_to_an_unknown_topic_creates_it(
    apache_fleet: Fleet, topic: str, client: Callable[[str], Client], name: str, version: str
) -> None:
    """Told that there is no such topic, the client goes where TBW102 is and the broker creates."""
    twins = apache_fleet.twins[version]
    assert asking.route(twins.ours.address, topic) is None

    client(name).send(twins.ours.address, topic, count=1)

    wait_until(
        lambda: asking.broker_names(twins.ours.address, topic) == {twins.broker.name},
        f"our name server knows {topic}",
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_two_name_servers_of_one_broker_tell_the_same(
    apache_fleet: Fleet, topic: str, version: str
) -> None:
    """Every topic and every route is the same value in ours and in Apache's of that release."""
    twins = apache_fleet.twins[version]
    asking.create_topic(twins.broker.address, topic, queues=3)
    asking.wait_until_known(twins.namesrvs, topic)
    twins.wait_until_alike()

    ours, apaches = twins.routes()

    assert ours == apaches
    assert ours[topic]["queueDatas"][0]["readQueueNums"] == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_routes_go_and_come_with_their_broker(
    cache: Cache, tmp_path: Path, topic: str, client: Callable[[str], Client], version: str
) -> None:
    """Killed: gone at once. Back: known again and used. Stopped politely: it says goodbye."""
    port = {"listenPort": str(free_port_triple())}
    with OurNameServer(tmp_path / "namesrv") as namesrv:

        def start() -> ApacheBroker:
            home = tmp_path / "broker"
            return ApacheBroker(cache, version, home, namesrv=namesrv.address, settings=port)

        broker = start()
        try:
            asking.create_topic(broker.address, topic)
            wait_until(lambda: asking.route(namesrv.address, topic) is not None, "a route")
            client("go").send(namesrv.address, topic, count=1)

            broker.kill()
            claim_gone(namesrv, topic, "its connection ended")

            broker = start()
            client("go").send(namesrv.address, topic, count=1, prefix="again-")
            assert asking.stored_count(broker.address, topic, queues=4) == 2

            os.killpg(broker.process.pid, signal.SIGTERM)
            claim_gone(namesrv, topic, "it unregistered", timeout_s=GOODBYE_TIMEOUT_S)
        finally:
            broker.kill()


def claim_gone(
    namesrv: OurNameServer, topic: str, reason: str, timeout_s: float = GONE_TIMEOUT_S
) -> None:
    """The broker left for that reason; topic, cluster and topic list went with it."""
    namesrv.process.wait_until_printed(f"broker=broker-a .* is gone: {reason}", timeout_s=timeout_s)
    header = GetRouteInfoByTopic(topic)
    answer = asking.ask(namesrv.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert topic in answer.remark
    assert asking.topics(namesrv.address) == set()
    assert asking.cluster_info(namesrv.address).broker_addr_table == {}
