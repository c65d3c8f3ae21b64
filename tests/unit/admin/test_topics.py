import msgspec
import pytest

from cometmq.admin.kinds import TopicKind
from cometmq.codec.bodies.groups import GroupList
from cometmq.codec.bodies.nameserver import ClusterInfo, TopicList
from cometmq.codec.bodies.topics import TopicConfigTable, TopicOffset, TopicStatsTable
from cometmq.codec.codes import V5_5_0, RequestCode, ResponseCode
from cometmq.codec.headers.nameserver import GetKVConfigResponse
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import AlreadyExists, NotFound, PartlyDone, Unreachable, Unsupported
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import TopicConfig
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    NAMESRV,
    OTHER_NAMESRV,
    V4_9_7,
    Asked,
    FakeCluster,
    body,
    broker_datas,
    refused,
    route,
)

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
PUT = RequestCode.UPDATE_AND_CREATE_TOPIC
MISSING = refused(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
NOT_KEPT = refused(ResponseCode.QUERY_NOT_FOUND, "No config item")


def stats_of(asked: Asked) -> Answer:
    name = {BROKER_A: "broker-a", BROKER_B: "broker-b"}[asked.address]
    queues = {MessageQueue("orders", name, n): TopicOffset(1, 4 + n, 50) for n in range(2)}
    return body(TopicStatsTable(queues, 1.5))


def described_cluster(version: int = V5_5_0) -> FakeCluster:
    cluster = FakeCluster(version)
    cluster.on_route("orders")
    cluster.on(RequestCode.GET_TOPIC_CONFIG, body(TopicConfig("orders", 2, 2, attributes={})))
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, stats_of)
    cluster.on(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, body(GroupList(("billing",))))
    return cluster


async def test_topics_are_listed_with_what_they_are_for() -> None:
    cluster = FakeCluster()
    names = ("orders", "east", "%RETRY%billing", "broker-a", "orders")
    cluster.on(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, body(TopicList(names)))

    topics = await cluster.admin.topics.list()

    assert [(topic.name, topic.kind.value) for topic in topics] == [
        ("%RETRY%billing", "retry"),
        ("broker-a", "system"),
        ("east", "system"),
        ("orders", "normal"),
    ]


async def test_topics_of_a_cluster_that_does_not_exist_are_not_asked_for() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_TOPICS_BY_CLUSTER, body(TopicList(("orders",))))

    assert len(await cluster.admin.topics.list(cluster="east")) == 1
    with pytest.raises(NotFound, match="no such cluster: 'north'"):
        await cluster.admin.topics.list(cluster="north")


async def test_a_topic_is_described_from_all_its_brokers() -> None:
    cluster = described_cluster()

    topic = await cluster.admin.topics.describe("orders")

    assert topic.kind is TopicKind.NORMAL
    assert [(on.broker_name, on.read_queues, on.perm) for on in topic.brokers] == [
        ("broker-a", 2, 6),
        ("broker-b", 2, 6),
    ]
    assert [(q.broker_name, q.queue_id, q.message_count) for q in topic.stats.queues] == [
        ("broker-a", 0, 3),
        ("broker-a", 1, 4),
        ("broker-b", 0, 3),
        ("broker-b", 1, 4),
    ]
    assert (topic.stats.message_count, topic.stats.put_tps) == (14, 3.0)
    assert topic.groups == ("billing",)
    assert topic.route.brokers[0].addresses == {0: BROKER_A}


async def test_a_broker_that_is_down_is_an_outage_of_the_description() -> None:
    cluster = described_cluster()
    for code in (
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    ):
        cluster.on(code, Unreachable(BROKER_B, "refused"), at=BROKER_B)

    topic = await cluster.admin.topics.describe("orders")

    assert [on.broker_name for on in topic.brokers] == ["broker-a"]
    assert [outage.broker_name for outage in topic.outages] == ["broker-b"]
    assert topic.stats.outages == topic.outages


async def test_a_4x_broker_is_asked_for_all_topics_at_once() -> None:
    cluster = described_cluster(version=V4_9_7)
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    cluster.on(RequestCode.GET_TOPIC_CONFIG, refused(code))
    table = TopicConfigTable(topic_config_table={"orders": TopicConfig("orders", 3, 2)})
    cluster.on(RequestCode.GET_ALL_TOPIC_CONFIG, body(table))

    configs = await cluster.admin.topics.configs("orders")

    assert [(on.read_queues, on.attributes) for on in configs] == [(3, None), (3, None)]


async def test_queues_that_can_only_be_read_are_counted_too() -> None:
    """4.9 leaves them out: a topic whose write queues were shrunk still has to be drained."""
    cluster = described_cluster()
    cluster.on(ROUTE, body(route(queues=3, brokers="a")))
    cluster.on(RequestCode.GET_MIN_OFFSET, Answer(header=OffsetResponse(5)))
    cluster.on(RequestCode.GET_MAX_OFFSET, Answer(header=OffsetResponse(9)))

    stats = await cluster.admin.topics.stats("orders")

    assert [(q.queue_id, q.min_offset, q.max_offset) for q in stats.queues] == [
        (0, 1, 4),
        (1, 1, 5),
        (2, 5, 9),
    ]


async def test_a_broker_that_has_lost_the_topic_meanwhile_has_no_queues() -> None:
    cluster = described_cluster()
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, MISSING, at=BROKER_B)

    stats = await cluster.admin.topics.stats("orders")

    assert {queue.broker_name for queue in stats.queues} == {"broker-a"}


async def test_a_topic_is_made_on_every_master_and_waited_for() -> None:
    cluster = described_cluster()
    cluster.on(ROUTE, MISSING, MISSING, body(route(brokers="a")), body(route()))
    cluster.on(PUT, Answer())

    made = await cluster.admin.topics.create("orders", queues=4, perm=4)

    asked = cluster.questions(PUT)
    assert [one.address for one in asked] == [BROKER_A, BROKER_B]
    header = asked[0].header
    assert (header.topic, header.read_queue_nums, header.write_queue_nums) == ("orders", 4, 4)
    assert (header.perm, header.order, header.default_topic) == (4, False, "TBW102")
    assert len(made) == 2


async def test_read_and_write_queues_may_differ() -> None:
    cluster = described_cluster()
    cluster.on(PUT, Answer())

    await cluster.admin.topics.create("orders", read_queues=8, write_queues=4, is_new=False)

    header = cluster.questions(PUT)[0].header
    assert (header.read_queue_nums, header.write_queue_nums) == (8, 4)


async def test_a_topic_that_is_there_is_not_made_again_by_mistake() -> None:
    cluster = described_cluster()

    with pytest.raises(AlreadyExists, match="there is a topic 'orders' already"):
        await cluster.admin.topics.create("orders")

    assert cluster.questions(PUT) == []


async def test_a_topic_may_be_made_on_a_broker_that_lacks_it() -> None:
    cluster = described_cluster()
    cluster.on(ROUTE, body(route(brokers="a")), body(route()))
    cluster.on(PUT, Answer())

    await cluster.admin.topics.create("orders", broker="broker-b")

    assert [one.address for one in cluster.questions(PUT)] == [BROKER_B]


async def test_an_ordered_topic_is_written_down_on_the_name_servers() -> None:
    cluster = described_cluster()
    cluster.on(PUT, Answer())
    before = GetKVConfigResponse("broker-a:2;broker-x:7")
    cluster.on(RequestCode.GET_KV_CONFIG, Answer(header=before))
    cluster.on(RequestCode.PUT_KV_CONFIG, Answer())

    await cluster.admin.topics.create("orders", queues=4, is_ordered=True, is_new=False)

    asked = cluster.questions(RequestCode.PUT_KV_CONFIG)
    assert [one.address for one in asked] == [NAMESRV, OTHER_NAMESRV]
    assert asked[0].header.namespace == "ORDER_TOPIC_CONFIG"
    assert asked[0].header.value == "broker-a:4;broker-b:4;broker-x:7"


def ordered_cluster(value: str | None) -> FakeCluster:
    """Name servers have ``value`` as the order of the topic."""
    cluster = described_cluster()
    answer = Answer(header=GetKVConfigResponse(value)) if value else NOT_KEPT
    cluster.on(RequestCode.GET_KV_CONFIG, answer)
    for code in (PUT, RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        cluster.on(code, Answer())
    return cluster


async def test_the_order_of_a_topic_ends_on_name_servers_before_brokers_ask_them_again() -> None:
    cluster = ordered_cluster("broker-a:2;broker-b:2;broker-gone:2")

    await cluster.admin.topics.update("orders", is_ordered=False)

    changing = (PUT, RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG)
    asked = [one for one in cluster.asked if one.code in changing]
    assert [(one.code, one.address) for one in asked] == [
        (RequestCode.DELETE_KV_CONFIG, NAMESRV),
        (RequestCode.DELETE_KV_CONFIG, OTHER_NAMESRV),
        (PUT, BROKER_A),
        (PUT, BROKER_B),
    ]
    assert (asked[0].header.namespace, asked[0].header.key) == ("ORDER_TOPIC_CONFIG", "orders")
    assert asked[2].header.order is False


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("broker-a:2;broker-b:2", "broker-a:2"),
        ("broker-b:2", None),
        ("broker-a:2", ...),
        (None, ...),
    ],
)
async def test_the_order_of_a_topic_stays_where_nobody_ended_it(
    before: str | None, after: object
) -> None:
    cluster = ordered_cluster(before)

    await cluster.admin.topics.update("orders", is_ordered=False, broker="broker-b")

    written = [one.header.value for one in cluster.questions(RequestCode.PUT_KV_CONFIG)]
    deleted = [None for _ in cluster.questions(RequestCode.DELETE_KV_CONFIG)]
    assert written + deleted == ([] if after is ... else [after] * 2)


async def test_only_who_ends_the_order_of_a_topic_asks_name_servers_about_it() -> None:
    cluster = ordered_cluster("broker-a:2;broker-b:2")

    await cluster.admin.topics.update("orders", perm=4)
    await cluster.admin.topics.create("orders", is_new=False)

    for code in ("GET_KV_CONFIG", "PUT_KV_CONFIG", "DELETE_KV_CONFIG"):
        assert cluster.questions(RequestCode[code]) == []


async def test_the_order_of_a_topic_stays_when_the_change_cannot_be_made() -> None:
    cluster = ordered_cluster("broker-a:2;broker-b:2")
    cluster.version = V4_9_7
    table = TopicConfigTable(topic_config_table={"orders": TopicConfig("orders", 3, 2)})
    cluster.on(RequestCode.GET_TOPIC_CONFIG, refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    cluster.on(RequestCode.GET_ALL_TOPIC_CONFIG, body(table))

    with pytest.raises(Unsupported):
        await cluster.admin.topics.update("orders", is_ordered=False, attributes={"a": "b"})

    assert cluster.questions(RequestCode.DELETE_KV_CONFIG) == []


async def test_attributes_go_as_changes_to_those_who_know_them() -> None:
    cluster = described_cluster()
    cluster.on(PUT, Answer())

    await cluster.admin.topics.update("orders", attributes={"message.type": "FIFO", "old": None})

    assert cluster.questions(PUT)[0].header.attributes == "+message.type=FIFO,-old"


async def test_attributes_are_not_lost_silently_on_a_4x_broker() -> None:
    cluster = described_cluster(version=V4_9_7)

    with pytest.raises(Unsupported, match=r"RocketMQ 4\.9\.7 at .* lacks attributes of topics"):
        await cluster.admin.topics.create("new", attributes={"message.type": "FIFO"})

    assert cluster.questions(PUT) == []


async def test_an_update_keeps_what_it_does_not_name() -> None:
    cluster = described_cluster()
    config = TopicConfig("orders", 8, 6, 6, order=False, attributes={})
    cluster.on(RequestCode.GET_TOPIC_CONFIG, body(config))
    cluster.on(PUT, Answer())

    await cluster.admin.topics.update("orders", write_queues=4, broker="broker-b")

    (asked,) = cluster.questions(PUT)
    assert asked.address == BROKER_B
    header = asked.header
    assert (header.read_queue_nums, header.write_queue_nums, header.perm) == (8, 4, 6)


async def test_an_update_where_the_topic_is_not_is_refused() -> None:
    with pytest.raises(NotFound, match="it is not on broker-x"):
        await described_cluster().admin.topics.update("orders", perm=4, broker="broker-x")


async def test_an_update_that_one_broker_did_not_take_says_so() -> None:
    cluster = described_cluster()
    cluster.on(PUT, Answer(), at=BROKER_A)
    cluster.on(PUT, Unreachable(BROKER_B, "refused"), at=BROKER_B)

    with pytest.raises(PartlyDone, match=f"done by {BROKER_A} but not by {BROKER_B}"):
        await cluster.admin.topics.update("orders", perm=4)


async def test_a_topic_is_deleted_from_brokers_first_and_then_from_name_servers() -> None:
    cluster = described_cluster()
    cluster.on(ROUTE, body(route()), MISSING)
    in_broker, in_namesrv = RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV
    for code in (in_broker, in_namesrv, RequestCode.DELETE_KV_CONFIG):
        cluster.on(code, Answer())

    brokers = await cluster.admin.topics.delete("orders")

    codes = [one.code for one in cluster.asked if one.code in (in_broker, in_namesrv)]
    assert codes == [in_broker, in_broker, in_namesrv, in_namesrv]
    assert len(cluster.questions(RequestCode.DELETE_KV_CONFIG)) == 2
    assert brokers == ("broker-a", "broker-b")


async def test_a_topic_that_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(NotFound, match="no such topic: 'other'"):
        await described_cluster().admin.topics.delete("other")


async def test_a_dry_run_says_what_would_be_there_and_changes_nothing() -> None:
    cluster = described_cluster()  # that nobody said how changes are answered
    topics = cluster.admin.topics

    created = await topics.create("new", queues=3, broker="broker-a", is_dry_run=True)
    updated = await topics.update("orders", perm=4, is_dry_run=True)
    deleted = await topics.delete("orders", is_dry_run=True)
    with pytest.raises(AlreadyExists):
        await topics.create("orders", is_dry_run=True)

    assert [(on.broker_name, on.read_queues) for on in created] == [("broker-a", 3)]
    assert [(on.perm, on.read_queues) for on in updated] == [(4, 2), (4, 2)]
    assert deleted == ("broker-a", "broker-b")


async def test_the_order_of_a_topic_stays_while_another_cluster_has_it() -> None:
    cluster = described_cluster()
    east, west = broker_datas("ab")
    west = msgspec.structs.replace(west, cluster="west")
    info = ClusterInfo({data.broker_name: data for data in (east, west)})
    cluster.on(RequestCode.GET_BROKER_CLUSTER_INFO, body(info))
    cluster.on(RequestCode.DELETE_TOPIC_IN_BROKER, Answer())
    cluster.on(RequestCode.DELETE_TOPIC_IN_NAMESRV, Answer())

    brokers = await cluster.admin.topics.delete("orders", cluster="east")

    assert brokers == ("broker-a",)
    assert cluster.questions(RequestCode.DELETE_TOPIC_IN_NAMESRV)[0].header.cluster_name == "east"
    assert cluster.questions(RequestCode.DELETE_KV_CONFIG) == []
