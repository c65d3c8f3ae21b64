"""Ordered topics that the name servers know of, and the topic for traces."""

from collections.abc import Iterator

import pytest

from cometmq.codec import bodies, fastjson
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.model.route import TopicRoute
from cometmq.model.topic import TopicConfig
from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import Peer, bodies_of, connected, stored_at

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module")
def special() -> Iterator[BlockingCluster]:
    """A cluster whose name server tells clients of ordered topics and whose broker has traces."""
    with LocalCluster(
        settings={"traceTopicEnable": "true"}, nameserver_settings={"orderMessageEnable": "true"}
    ) as running:
        yield running


def config_of(peer: Peer, topic: str) -> TopicConfig | None:
    answer = peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    return bodies.decode(TopicConfigTable, answer.body).topic_config_table.get(topic)


def order(namesrv: Peer, topic: str, value: str) -> None:
    ext = {"namespace": ORDER_NAMESPACE, "key": topic, "value": value}
    assert namesrv.ask(RequestCode.PUT_KV_CONFIG, ext).code == ResponseCode.SUCCESS


def route(namesrv: Peer, topic: str) -> TopicRoute:
    answer = namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    assert answer.code == ResponseCode.SUCCESS
    return fastjson.decode(answer.body, TopicRoute)


def test_a_topic_is_ordered_from_the_next_registration_on(special: BlockingCluster) -> None:
    special.create_topic("bills")
    with connected(special.namesrv) as namesrv, connected(special.broker.address) as peer:
        before = config_of(peer, "bills")

        order(namesrv, "bills", "broker-0:2")
        special.create_topic("another")  # which is registered at once
        after = config_of(peer, "bills")

        assert before is not None
        assert after is not None
        assert (before.order, after.order) == (False, True)
        assert route(namesrv, "bills").order_topic_conf == "broker-0:2"
        assert route(namesrv, "another").order_topic_conf is None


def test_unless_told_to_a_name_server_does_not_tell_clients_of_it(cluster: BlockingCluster) -> None:
    cluster.create_topic("letters")
    with connected(cluster.namesrv) as namesrv:
        order(namesrv, "letters", "broker-0:2")

        assert route(namesrv, "letters").order_topic_conf is None


def test_a_broker_has_the_topic_for_traces_if_it_is_set_to(
    special: BlockingCluster, peer: Peer
) -> None:
    with connected(special.namesrv) as namesrv, connected(special.broker.address) as traced:
        known = config_of(traced, TRACE_TOPIC)
        assert known is not None
        assert (known.read_queue_nums, known.write_queue_nums, known.perm) == (1, 1, 6)
        assert len(route(namesrv, TRACE_TOPIC).queue_datas) == 1
    assert config_of(peer, TRACE_TOPIC) is None


def test_traces_are_stored_like_any_message(special: BlockingCluster) -> None:
    with connected(special.broker.address) as peer:
        offset = stored_at(peer.send(TRACE_TOPIC, b"Pub\x01\x02", i="KEYS\x01ID7 key\x02"))
        times = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1), "maxNum": "9"}
        found = peer.ask(RequestCode.QUERY_MESSAGE, {"topic": TRACE_TOPIC, "key": "ID7", **times})

    assert offset == 0
    assert bodies_of(found) == [b"Pub\x01\x02"]
