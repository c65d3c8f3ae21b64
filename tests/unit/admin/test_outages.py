"""What is asked and changed while ``broker-b`` takes connections and answers nothing."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from cometmq.admin import Admin, Earliest, Latest, Offset
from cometmq.admin.message import Message, messages_in
from cometmq.admin.messages import ConsumptionState
from cometmq.codec.bodies.clients import (
    Connection,
    ProducerConnection,
    ProducerTable,
)
from cometmq.codec.bodies.groups import GroupList, SubscriptionGroupTable
from cometmq.codec.bodies.nameserver import ClusterInfo
from cometmq.codec.bodies.offsets import ConsumeStats, ConsumeTimeSpans, OffsetWrapper
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import V5_5_0, RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.codec.headers.query import QueryMessageResponse
from cometmq.errors import NotFound, PartlyDone, RequestTimeout, Unreachable
from cometmq.model.group import SubscriptionGroupConfig
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
    Reply,
    body,
    broker_datas,
    record,
    refused,
    route,
)

MEMBERS = RequestCode.GET_CONSUMER_CONNECTION_LIST
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
QUERY = RequestCode.QUERY_MESSAGE
CHANGES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)
UNIQUE = "7F00000113B130946E094CD24EC60000"
NO_ROUTE = refused(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
OFFLINE = refused(ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online")

Call = Callable[[Admin], Awaitable[object]]


def name_of(asked: Asked) -> str:
    return {BROKER_A: "broker-a", BROKER_B: "broker-b"}[asked.address]


def stats_of(asked: Asked) -> Answer:
    queue = MessageQueue(asked.header.topic, name_of(asked), 0)
    return body(TopicStatsTable({queue: TopicOffset(0, 9)}))


def lag_of(asked: Asked) -> Answer:
    queue = MessageQueue("orders", name_of(asked), 0)
    return body(ConsumeStats({queue: OffsetWrapper(9, 5)}))


def full_cluster(version: int = V5_5_0) -> FakeCluster:
    """Both brokers have the topic ``orders`` with one queue, and the group ``billing`` at 5."""
    cluster = FakeCluster(version)
    cluster.on_route("orders", queues=1)
    for code in CHANGES:
        cluster.on(code, Answer())
    groups = {"billing": SubscriptionGroupConfig("billing")}
    answers: dict[RequestCode, Reply] = {
        RequestCode.GET_TOPIC_CONFIG: body(TopicConfig("orders", 1, 1, attributes={})),
        RequestCode.GET_TOPIC_STATS_INFO: stats_of,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: body(GroupList(("billing",))),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: body(SubscriptionGroupTable(None, groups)),
        RequestCode.GET_CONSUME_STATS: lag_of,
        RequestCode.QUERY_CONSUME_TIME_SPAN: body(ConsumeTimeSpans(())),
        RequestCode.QUERY_CONSUMER_OFFSET: Answer(header=OffsetResponse(5)),
        RequestCode.GET_BROKER_CONFIG: Answer(body=b"useServerSideResetOffset=true\n"),
        MEMBERS: OFFLINE,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: body(ProducerConnection((Connection("p"),))),
        RequestCode.GET_ALL_PRODUCER_INFO: body(ProducerTable()),
        QUERY: refused(ResponseCode.QUERY_NOT_FOUND, "can not find message"),
        RequestCode.PULL_MESSAGE: Answer(
            ResponseCode.PULL_NOT_FOUND, PullMessageResponse(0, 0, 0, 0)
        ),
    }
    for code, reply in answers.items():
        cluster.on(code, reply)
    return cluster


def changes(cluster: FakeCluster) -> list[RequestCode]:
    return [asked.code for asked in cluster.asked if asked.code in CHANGES]


async def browse(admin: Admin, broker: str | None = None) -> list[Message]:
    return [message async for message in admin.messages.browse("orders", broker=broker)]


CHANGE_CALLS: dict[str, Call] = {
    "offsets.plan": lambda admin: admin.offsets.plan("billing", "orders", Latest()),
    "offsets.reset": lambda admin: admin.offsets.reset("billing", "orders", Earliest()),
    "offsets.clone": lambda admin: admin.offsets.clone("billing", "copy"),
    "offsets.clone of a topic": lambda admin: admin.offsets.clone("billing", "copy", "orders"),
    "groups.create": lambda admin: admin.groups.create("new"),
    "groups.create or change": lambda admin: admin.groups.create("billing", is_new=False),
    "groups.update": lambda admin: admin.groups.update("billing", retry_max=3),
    "groups.delete": lambda admin: admin.groups.delete("billing"),
    "topics.create": lambda admin: admin.topics.create("orders", queues=1, is_new=False),
    "topics.update": lambda admin: admin.topics.update("orders", perm=4),
    "topics.delete": lambda admin: admin.topics.delete("orders"),
}


@pytest.mark.parametrize("name", CHANGE_CALLS)
async def test_nothing_is_changed_unless_all_who_hold_it_answer(name: str) -> None:
    cluster = full_cluster()
    cluster.hang(BROKER_B)

    with pytest.raises(Unreachable, match=f"cannot reach {BROKER_B}: broker-b: .*; nothing was"):
        await CHANGE_CALLS[name](cluster.admin)

    assert changes(cluster) == []


@pytest.mark.parametrize("name", CHANGE_CALLS)
async def test_the_same_is_done_when_all_answer(name: str) -> None:
    assert await CHANGE_CALLS[name](full_cluster().admin)


READ_CALLS: dict[str, Call] = {
    "topics.groups": lambda admin: admin.topics.groups("orders"),
    "topics.configs": lambda admin: admin.topics.configs("orders"),
    "groups.configs": lambda admin: admin.groups.configs("billing"),
    "groups.delay": lambda admin: admin.groups.delay("billing", "orders"),
    "groups.configs of nobody": lambda admin: admin.groups.configs("nobody"),
    "clients.producers": lambda admin: admin.clients.producers("PG", "orders"),
    "clients.all_producers": lambda admin: admin.clients.all_producers(),
    "clients.offsets": lambda admin: admin.clients.offsets("billing", "orders"),
    "clients.running_info": lambda admin: admin.clients.running_info("billing", "one"),
    "messages.get": lambda admin: admin.messages.get(UNIQUE, "orders"),
    "messages.by_key": lambda admin: admin.messages.by_key("orders", "k"),
    "messages.by_unique_key": lambda admin: admin.messages.by_unique_key("orders", UNIQUE),
    "messages.trace": lambda admin: admin.messages.trace(UNIQUE, topic="orders"),
    "messages.browse": browse,
}


@pytest.mark.parametrize("name", READ_CALLS)
async def test_an_answer_that_cannot_say_what_it_lacks_is_not_given(name: str) -> None:
    cluster = full_cluster()
    cluster.hang(BROKER_B)

    with pytest.raises(Unreachable, match=f"cannot reach {BROKER_B}: broker-b: .*would be missing"):
        await READ_CALLS[name](cluster.admin)


async def test_a_description_says_who_did_not_answer() -> None:
    cluster = full_cluster()
    cluster.hang(BROKER_B)
    admin = cluster.admin

    topic = await admin.topics.describe("orders")
    group = await admin.groups.describe("billing")

    assert [outage.broker_name for outage in topic.outages] == ["broker-b"]
    assert [outage.broker_name for outage in group.outages] == ["broker-b"]


async def test_a_description_names_an_outage_that_only_one_of_its_parts_met() -> None:
    cluster = full_cluster()
    timeout = RequestTimeout(BROKER_B, 5000)
    cluster.on(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, timeout, at=BROKER_B)
    cluster.on(RequestCode.GET_CONSUME_STATS, timeout, at=BROKER_B)
    admin = cluster.admin

    topic = await admin.topics.describe("orders")
    group = await admin.groups.describe("billing")

    assert [outage.address for outage in topic.outages] == [BROKER_B]
    assert [outage.address for outage in group.outages] == [BROKER_B]


async def test_a_group_is_not_called_unknown_while_a_broker_may_know_it() -> None:
    cluster = full_cluster()
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats()))
    cluster.hang(BROKER_B)

    with pytest.raises(Unreachable, match=BROKER_B):
        await cluster.admin.groups.describe("nobody")


async def test_contradictions_are_told_with_who_could_not_be_asked() -> None:
    cluster = full_cluster()
    cluster.hang(BROKER_B)

    (problem,) = await cluster.admin.groups.inconsistencies("billing")

    assert problem.startswith("broker-b cannot be asked: no answer")


async def test_what_names_another_broker_does_not_need_the_one_that_hangs() -> None:
    cluster = full_cluster()
    cluster.hang(BROKER_B)
    admin = cluster.admin

    done = await admin.offsets.reset("billing", "orders", Offset(7), broker="broker-a")
    (group,) = await admin.groups.update("billing", broker="broker-a", retry_max=3)
    (topic,) = await admin.topics.update("orders", broker="broker-a", perm=4)

    assert [(move.broker_name, move.after) for move in done.moves] == [("broker-a", 7)]
    assert (group.address, topic.address) == (BROKER_A, BROKER_A)
    assert await browse(admin, "broker-a") == []


async def test_a_clone_of_a_topic_needs_the_brokers_of_that_topic_only() -> None:
    cluster = full_cluster()
    cluster.on_route("orders", queues=1, brokers="a")
    cluster.hang(BROKER_B)

    done = await cluster.admin.offsets.clone("billing", "copy", "orders")

    assert [(move.broker_name, move.after) for move in done.moves] == [("broker-a", 5)]


async def test_a_message_that_is_found_is_given_whoever_else_hangs() -> None:
    cluster = full_cluster()
    found = Answer(header=QueryMessageResponse(0, 0), body=record(UNIQ_KEY=UNIQUE))
    cluster.on(QUERY, found)
    cluster.hang(BROKER_B)

    message = await cluster.admin.messages.get(UNIQUE, "orders")

    assert (message.unique_key, message.broker_name) == (UNIQUE, "broker-a")


@pytest.mark.parametrize(
    ("broker", "state"),
    [("broker-a", ConsumptionState.CONSUMED), ("broker-b", ConsumptionState.UNKNOWN)],
)
async def test_what_became_of_a_message_is_unknown_when_its_broker_hangs(
    broker: str, state: ConsumptionState
) -> None:
    cluster = full_cluster()
    cluster.hang(BROKER_B)
    (message,) = messages_in(record(queue_offset=4), broker)

    (consumption,) = await cluster.admin.messages.consumption(message)

    assert (consumption.group, consumption.state) == ("billing", state)
    assert len([asked for asked in cluster.asked if asked.address == BROKER_B]) == 1


async def test_what_became_of_a_message_is_unknown_when_its_broker_begins_to_hang() -> None:
    cluster = full_cluster()
    cluster.on(RequestCode.GET_CONSUME_STATS, RequestTimeout(BROKER_A, 15_000), at=BROKER_A)
    (message,) = messages_in(record(queue_offset=4), "broker-a")

    (consumption,) = await cluster.admin.messages.consumption(message)

    assert consumption.state is ConsumptionState.UNKNOWN


async def test_the_broker_of_a_message_without_its_name_is_known_by_its_address() -> None:
    (message,) = messages_in(record(queue_offset=4), "")

    (consumption,) = await full_cluster().admin.messages.consumption(message)

    assert consumption.state is ConsumptionState.CONSUMED


async def test_an_old_broker_that_may_have_members_is_not_given_offsets() -> None:
    cluster = full_cluster(V4_9_7)
    cluster.on(MEMBERS, RequestTimeout(BROKER_B, 5000), at=BROKER_B)

    with pytest.raises(PartlyDone, match=f"done by {BROKER_A} but not by {BROKER_B}"):
        await cluster.admin.offsets.reset("billing", "orders", Offset(7))

    stored = cluster.questions(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [asked.address for asked in stored] == [BROKER_A]


# --- masters that are gone


MASTER_CALLS = ("offsets.reset", "groups.update", "groups.delete", "topics.update", "topics.delete")


@pytest.mark.parametrize("name", MASTER_CALLS)
async def test_a_slave_without_master_is_no_place_for_a_change(name: str) -> None:
    cluster = full_cluster()
    first, second = broker_datas("ab")
    second = msgspec.structs.replace(second, broker_addrs={1: BROKER_B})
    info = ClusterInfo({data.broker_name: data for data in (first, second)})
    cluster.on(RequestCode.GET_BROKER_CLUSTER_INFO, body(info))
    known = msgspec.structs.replace(route(queues=1), broker_datas=(first, second))
    cluster.on(ROUTE, body(known))

    with pytest.raises(Unreachable, match="broker-b: its master is not there, only a slave"):
        await CHANGE_CALLS[name](cluster.admin)

    assert changes(cluster) == []


# --- again after a failure


async def test_a_group_whose_retries_were_left_behind_is_deleted_again() -> None:
    cluster = full_cluster()
    cluster.on_route("%RETRY%billing")
    failure = refused(ResponseCode.SYSTEM_ERROR, "disk is full")
    cluster.on(RequestCode.DELETE_TOPIC_IN_BROKER, failure, Answer(), at=BROKER_B)
    admin = cluster.admin
    with pytest.raises(PartlyDone, match="deleting topic '%RETRY%billing'"):
        await admin.groups.delete("billing")
    cluster.on(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, body(SubscriptionGroupTable(None, {})))

    brokers = await admin.groups.delete("billing")

    assert brokers == ("broker-a", "broker-b")
    cluster.on_route("orders")
    with pytest.raises(NotFound, match="no such group: 'billing'"):
        await admin.groups.delete("billing")


async def test_topics_that_are_kept_do_not_make_a_group() -> None:
    cluster = full_cluster()
    cluster.on_route("%RETRY%nobody")

    with pytest.raises(NotFound):
        await cluster.admin.groups.delete("nobody", keep_topics=True)


async def test_a_topic_that_one_name_server_still_has_is_deleted_again() -> None:
    cluster = full_cluster()
    cluster.on(ROUTE, NO_ROUTE, at=NAMESRV)
    cluster.on(ROUTE, body(route(queues=1)), at=OTHER_NAMESRV)

    assert await cluster.admin.topics.delete("orders") == ("broker-a", "broker-b")

    told = cluster.questions(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    assert [asked.address for asked in told] == [NAMESRV, OTHER_NAMESRV]


async def test_a_topic_is_forgotten_by_name_servers_last() -> None:
    """While they have it, a deletion that failed before can be found and done again."""
    cluster = full_cluster()

    await cluster.admin.topics.delete("orders")

    assert changes(cluster)[-1] == RequestCode.DELETE_TOPIC_IN_NAMESRV


async def test_where_a_topic_is_can_be_asked_while_one_name_server_hangs() -> None:
    cluster = full_cluster()
    cluster.hang(NAMESRV)
    admin = cluster.admin

    with pytest.raises(PartlyDone, match=f"not by {NAMESRV}"):
        await admin.topics.delete("orders")
    cluster.hang(OTHER_NAMESRV)
    with pytest.raises(Unreachable, match="any name server"):
        await admin.topics.delete("orders")
