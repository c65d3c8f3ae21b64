"""Routes for old and new clients."""

import msgspec
import pytest

from cometmq.codec import bodies, route_json
from cometmq.model.route import BrokerData, QueueData, TopicRoute

ROUTE = TopicRoute(
    (BrokerData("b", {0: "10.0.0.1:10911", 10: "h:1", 2: "h:2"}, "clu/é", False),),
    (QueueData("b", 4, 4, 6),),
    order_topic_conf="b:4",
)


@pytest.mark.parametrize("version", [1, 63, 121, 317, 400])
def test_older_clients_get_bare_ids_and_no_booleans(version: int) -> None:
    assert (
        route_json.encode(ROUTE, version)
        == (
            '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",10:"h:1",2:"h:2"},"brokerName":"b",'
            '"cluster":"clu/é"}],"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[{'
            '"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
        ).encode()
    )


@pytest.mark.parametrize(("version", "standard_only"), [(401, False), (513, False), (1, True)])
def test_newer_clients_get_standard_json(version: int, *, standard_only: bool) -> None:
    written = route_json.encode(ROUTE, version, standard_only=standard_only)

    assert written == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","2":"h:2","10":"h:1"},'
        b'"brokerName":"b","cluster":"clu\\/\\u00E9","enableActingMaster":false}],'
        b'"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[{'
        b'"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert msgspec.json.decode(written)["brokerDatas"][0]["cluster"] == "clu/é"


@pytest.mark.parametrize("version", [317, 401])
def test_no_member_that_some_client_needs_is_left_out(version: int) -> None:
    assert route_json.encode(TopicRoute((BrokerData("b"),)), version) == (
        b'{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b"}],"filterServerTable":{},'
        b'"queueDatas":[]}'
    )


@pytest.mark.parametrize("version", [317, 401])
def test_both_dialects_are_read_back(version: int) -> None:
    route = msgspec.structs.replace(ROUTE, broker_datas=(BrokerData("b", {0: "x", 1: "y"}, "c"),))

    assert bodies.decode(TopicRoute, route_json.encode(route, version)) == route


def test_null_tables_of_an_odd_name_server_are_read_as_empty() -> None:
    data = b'{"brokerDatas":null,"filterServerTable":null,"queueDatas":[{"brokerName":"b"}]}'

    assert bodies.decode(TopicRoute, data) == TopicRoute(queue_datas=(QueueData("b"),))
