import pytest

from cometmq.admin.servers import Servers
from cometmq.codec.bodies.nameserver import ClusterInfo, KVTable, TopicList
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.errors import (
    Ambiguous,
    NotFound,
    PartlyDone,
    Refused,
    RequestTimeout,
    Unreachable,
    Unsupported,
)
from cometmq.model.route import BrokerData
from cometmq.testing import FakeClock
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    NAMESRV,
    OTHER_NAMESRV,
    V4_9_7,
    FakeCluster,
    body,
    refused,
)

TOPICS = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO


def servers_on(cluster: FakeCluster) -> Servers:
    names = (NAMESRV, OTHER_NAMESRV)
    return Servers(names, cluster, clock=FakeClock(), timeout_ms=1000)


async def test_the_next_name_server_is_asked_when_one_is_not_there() -> None:
    cluster = FakeCluster()
    servers = servers_on(cluster)
    cluster.on(TOPICS, Unreachable(NAMESRV, "refused"), at=NAMESRV)
    cluster.on(TOPICS, body(TopicList(("orders",))), at=OTHER_NAMESRV)

    await servers.ask_name_server(TOPICS)
    await servers.ask_name_server(TOPICS)

    asked = [question.address for question in cluster.asked]
    assert asked == [NAMESRV, OTHER_NAMESRV, OTHER_NAMESRV], "the one that answered stays"


async def test_when_no_name_server_is_there_the_error_names_all() -> None:
    cluster = FakeCluster()
    cluster.on(TOPICS, Unreachable(NAMESRV, "refused"), at=NAMESRV)
    cluster.on(TOPICS, RequestTimeout(OTHER_NAMESRV, 1000), at=OTHER_NAMESRV)

    with pytest.raises(Unreachable) as caught:
        await servers_on(cluster).ask_name_server(TOPICS)

    assert str(caught.value) == (
        f"cannot reach {NAMESRV};{OTHER_NAMESRV}: {NAMESRV}: refused; {OTHER_NAMESRV}: "
        f"no answer from {OTHER_NAMESRV} within 1000 ms; "
        "is any name server running there, and is the address right?"
    )


async def test_a_refusal_is_no_reason_to_ask_another_name_server() -> None:
    cluster = FakeCluster()
    cluster.on(TOPICS, refused(ResponseCode.SYSTEM_ERROR, "disable"))

    with pytest.raises(Refused, match="refuses GET_ALL_TOPIC_LIST_FROM_NAMESERVER with code 1"):
        await servers_on(cluster).ask_name_server(TOPICS)

    assert len(cluster.asked) == 1


async def test_a_missing_topic_is_not_found_by_its_name() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders")

    with pytest.raises(NotFound, match="no such topic: 'other'"):
        await servers_on(cluster).route("other")

    assert await servers_on(cluster).find_route("other") is None


async def test_a_request_that_a_release_lacks_is_unsupported() -> None:
    cluster = FakeCluster(version=V4_9_7)
    cluster.on(RequestCode.GET_BROKER_HA_STATUS, refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))

    with pytest.raises(Unsupported) as caught:
        await servers_on(cluster).ask(BROKER_A, RequestCode.GET_BROKER_HA_STATUS)

    assert str(caught.value) == (
        f"RocketMQ 4.9.7 at {BROKER_A} lacks the state of replication; it came with release 5.0.0"
    )


async def test_a_code_nobody_has_a_word_for_is_refused() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, refused(ResponseCode.NO_PERMISSION, " "))

    with pytest.raises(Refused, match="code 16: no remark"):
        await servers_on(cluster).ask(BROKER_A, RUNTIME)


async def test_not_found_needs_a_name_in_the_request() -> None:
    """A broker that misses a topic nobody asked about has refused."""
    cluster = FakeCluster()
    cluster.on(RUNTIME, refused(ResponseCode.TOPIC_NOT_EXIST))

    with pytest.raises(Refused, match="code 17"):
        await servers_on(cluster).ask(BROKER_A, RUNTIME)


async def test_brokers_are_found_by_name_and_by_address() -> None:
    cluster = FakeCluster()
    servers = servers_on(cluster)

    by_name = await servers.broker("broker-b")
    by_address = await servers.broker(BROKER_B)
    unknown = await servers.broker("10.9.9.9:1")

    assert by_name == by_address
    assert by_name.address == BROKER_B
    assert (unknown.address, unknown.broker_name) == ("10.9.9.9:1", "")
    with pytest.raises(NotFound, match="the name server knows: broker-a, broker-b"):
        await servers.broker("broker-c")


async def test_a_change_is_for_the_only_cluster_or_the_one_that_is_named() -> None:
    cluster = FakeCluster()
    servers = servers_on(cluster)

    assert len(await servers.targets(cluster=None, broker=None)) == 2
    assert len(await servers.targets(cluster=None, broker="broker-a")) == 1
    with pytest.raises(NotFound, match="no such cluster: 'north'; the name server knows: east"):
        await servers.targets(cluster="north", broker=None)

    info = cluster.info()
    more = {**info.broker_addr_table, "broker-w": BrokerData("broker-w", {0: "w:1"}, "west")}
    cluster.on(RequestCode.GET_BROKER_CLUSTER_INFO, body(ClusterInfo(more)))
    with pytest.raises(Ambiguous, match="there are 2 clusters: east, west"):
        await servers.targets(cluster=None, broker=None)
    assert len(await servers.targets(cluster="west", broker=None)) == 1


async def test_without_a_broker_nothing_can_be_changed() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_BROKER_CLUSTER_INFO, body(ClusterInfo()))

    with pytest.raises(NotFound, match="is a broker registered"):
        await servers_on(cluster).targets(cluster=None, broker=None)


async def test_a_slave_answers_while_its_master_is_gone() -> None:
    cluster = FakeCluster()
    datas = {
        "broker-a": BrokerData("broker-a", {2: "s2:1", 1: "s1:1"}, "east"),
        "broker-b": BrokerData("broker-b", {0: BROKER_B, 1: "s3:1"}, "east"),
    }
    cluster.on(RequestCode.GET_BROKER_CLUSTER_INFO, body(ClusterInfo(datas)))

    fleet = await servers_on(cluster).fleet()

    assert [broker.address for broker in fleet.readers()] == ["s1:1", BROKER_B]
    assert [broker.address for broker in fleet.masters()] == [BROKER_B]


async def test_a_survey_names_those_who_are_not_there() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable()), at=BROKER_A)
    cluster.on(RUNTIME, Unreachable(BROKER_B, "refused"), at=BROKER_B)
    servers = servers_on(cluster)
    brokers = (await servers.fleet()).readers()

    survey = await servers.survey(brokers, lambda one: servers.ask(one.address, RUNTIME))

    assert [broker.broker_name for broker, _ in survey.answers] == ["broker-a"]
    assert [(o.broker_name, o.reason) for o in survey.outages] == [("broker-b", "refused")]


async def test_a_survey_that_reaches_nobody_fails() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, Unreachable("x", "refused"))
    servers = servers_on(cluster)
    brokers = (await servers.fleet()).readers()

    with pytest.raises(Unreachable):
        await servers.survey(brokers, lambda one: servers.ask(one.address, RUNTIME))


async def test_a_survey_does_not_hide_a_refusal() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable()), at=BROKER_A)
    cluster.on(RUNTIME, refused(ResponseCode.NO_PERMISSION), at=BROKER_B)
    servers = servers_on(cluster)
    brokers = (await servers.fleet()).readers()

    with pytest.raises(Refused):
        await servers.survey(brokers, lambda one: servers.ask(one.address, RUNTIME))


async def test_a_change_that_some_did_not_make_says_who_did() -> None:
    cluster = FakeCluster()
    code = RequestCode.CLEAN_UNUSED_TOPIC
    cluster.on(code, body(KVTable()), at=BROKER_A)
    cluster.on(code, refused(ResponseCode.SYSTEM_ERROR, "disk is full"), at=BROKER_B)

    with pytest.raises(PartlyDone) as caught:
        await cluster.admin.brokers.clean_unused_topics()

    assert caught.value.done == (BROKER_A,)
    ((who, why),) = caught.value.failed
    assert who == BROKER_B
    assert "disk is full" in why


async def test_a_change_that_nobody_made_is_the_first_failure() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.CLEAN_UNUSED_TOPIC, refused(ResponseCode.SYSTEM_ERROR, "no"))

    with pytest.raises(Refused):
        await cluster.admin.brokers.clean_unused_topics()


async def test_every_answer_tells_which_software_it_comes_from() -> None:
    apache = await servers_on(FakeCluster(version=V4_9_7)).release(BROKER_A)
    ours = await servers_on(FakeCluster(language=LanguageCode.PYTHON)).release(BROKER_A)

    assert (apache.name, apache.is_ours) == ("RocketMQ 4.9.7", False)
    assert (ours.name, ours.is_ours) == ("CometMQ (as RocketMQ 5.5.0)", True)


async def test_an_answer_may_be_accepted_although_it_is_no_success() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders")

    answer = await servers_on(cluster).ask_name_server(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfoByTopic("other"),
        accept=(ResponseCode.TOPIC_NOT_EXIST,),
    )

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
