import pytest

from cometmq.admin.message import messages_in
from cometmq.codec.bodies.clients import (
    Connection,
    ConsumeDirectlyResult,
    ConsumerConnection,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from cometmq.codec.bodies.offsets import ConsumerStatusBody
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import NotFound, Refused
from cometmq.model.group import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    Asked,
    FakeCluster,
    body,
    record,
    refused,
)

MEMBERS = RequestCode.GET_CONSUMER_CONNECTION_LIST
INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECT = RequestCode.CONSUME_MESSAGE_DIRECTLY
OFFLINE = refused(ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[billing] not online")


def group(*clients: str, expression: str = "*") -> Answer:
    return body(
        ConsumerConnection(
            tuple(Connection(name, "10.0.2.1:5000", "JAVA", 513) for name in clients),
            {"orders": SubscriptionData("orders", expression)},
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        )
    )


def info(*subscriptions: tuple[str, str]) -> Answer:
    return body(
        ConsumerRunningInfo(
            {"PROP_CLIENT_VERSION": "V5_5_0"},
            tuple(SubscriptionData(topic, text) for topic, text in subscriptions),
            {MessageQueue("orders", "broker-a", 1): ProcessQueueInfo(7, cached_msg_count=3)},
            {"orders": ConsumeStatus(consume_ok_tps=2.5)},
        )
    )


async def test_a_group_where_nobody_is_connected_has_no_members() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, OFFLINE)

    membership = await cluster.admin.clients.consumers("billing")

    assert (membership.members, membership.subscriptions) == ((), ())
    assert (membership.consume_type, membership.problems) == ("", ())


async def test_a_member_is_one_however_many_brokers_see_it() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, group("one", "two"))

    membership = await cluster.admin.clients.consumers("billing")

    assert [(one.client_id, one.version, one.brokers) for one in membership.members] == [
        ("one", "5.5.0", ("broker-a", "broker-b")),
        ("two", "5.5.0", ("broker-a", "broker-b")),
    ]
    assert membership.message_model == "CLUSTERING"
    assert membership.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert [(one.topic, one.expression) for one in membership.subscriptions] == [("orders", "*")]
    assert membership.problems == ()


async def test_brokers_that_see_different_things_are_a_problem() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, group("one", "two", expression="A"), at=BROKER_A)
    cluster.on(MEMBERS, group("one", expression="B"), at=BROKER_B)

    membership = await cluster.admin.clients.consumers("billing")

    assert membership.problems == (
        "two is not connected with broker-b",
        "topic 'orders': broker-b wants 'B' but broker-a wants 'A'",
    )


async def test_members_that_contradict_each_other_are_found_by_asking_them() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, group("one", "two", "three"))

    def answer(asked: Asked) -> Answer:
        return {
            "one": info(("orders", "A")),
            "two": info(("orders", "B"), ("bills", "*")),
            "three": refused(ResponseCode.CONSUME_MSG_TIMEOUT, "time out"),
        }[asked.header.client_id]

    cluster.on(INFO, answer)

    problems = await cluster.admin.groups.inconsistencies("billing")

    assert problems == (
        "topic 'orders': two wants 'B' but one wants 'A'",
        "topic 'bills': one lacks it, two has it",
        "three does not say what it subscribes",
    )


async def test_members_that_agree_are_no_problem() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, group("one", "two"))
    cluster.on(INFO, info(("orders", "A")))

    assert await cluster.admin.groups.inconsistencies("billing") == ()


async def test_a_consumer_tells_what_it_is_doing() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, OFFLINE, at=BROKER_A)
    cluster.on(MEMBERS, group("one"), at=BROKER_B)
    cluster.on(INFO, info(("orders", "A")))

    said = await cluster.admin.clients.running_info("billing", "one")

    (asked,) = cluster.questions(INFO)
    assert asked.address == BROKER_B, "the broker it is connected with"
    assert said.properties == {"PROP_CLIENT_VERSION": "V5_5_0"}
    assert [(queue.queue_id, queue.commit_offset, queue.cached_count) for queue in said.queues] == [
        (1, 7, 3)
    ]
    assert [(rate.topic, rate.consume_ok_tps) for rate in said.rates] == [("orders", 2.5)]


async def test_a_consumer_that_is_not_connected_is_not_found() -> None:
    cluster = FakeCluster()
    cluster.on(MEMBERS, group("one"))

    with pytest.raises(
        NotFound, match="no such member of group 'billing': 'x'; connected are: one"
    ):
        await cluster.admin.clients.running_info("billing", "x")


async def test_consumers_tell_how_far_they_are() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", brokers="a")
    cluster.on(MEMBERS, group("one"))
    table = {"one": {MessageQueue("orders", "broker-a", 1): 42}}
    cluster.on(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, body(ConsumerStatusBody({}, table))
    )

    (offset,) = await cluster.admin.clients.offsets("billing", "orders")

    assert (offset.client_id, offset.queue_id, offset.offset) == ("one", 1, 42)


async def test_brokers_are_not_asked_about_consumers_that_are_not_there() -> None:
    """Apache's fail with a null pointer then."""
    cluster = FakeCluster()
    cluster.on(MEMBERS, OFFLINE)

    assert await cluster.admin.clients.offsets("billing", "orders") == ()


async def test_producers_of_a_group_are_those_of_all_brokers() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders")
    found = body(ProducerConnection((Connection("p", "10.0.2.1:1", "GO", 407),)))
    cluster.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, found, at=BROKER_A)
    nobody = refused(ResponseCode.SYSTEM_ERROR, "the producer group[PG] not exist")
    cluster.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, nobody, at=BROKER_B)

    (producer,) = await cluster.admin.clients.producers("PG", "orders")

    assert (producer.language, producer.version, producer.brokers) == ("GO", "4.9.7", ("broker-a",))
    cluster.on(RequestCode.GET_PRODUCER_CONNECTION_LIST, nobody, at=BROKER_A)
    with pytest.raises(NotFound, match="no such producer group: 'PG'"):
        await cluster.admin.clients.producers("PG", "orders")


async def test_all_producers_are_listed_by_group() -> None:
    cluster = FakeCluster()
    table = ProducerTable({"PG": (ProducerInfo("p", "/10.0.2.1:1", "JAVA", 407),)})
    cluster.on(RequestCode.GET_ALL_PRODUCER_INFO, body(table))

    groups = await cluster.admin.clients.all_producers()

    assert [(one.client_id, one.address) for one in groups["PG"]] == [("p", "10.0.2.1:1")]


async def test_a_consumer_is_given_one_message_and_never_asked_twice() -> None:
    cluster = FakeCluster()
    result = ConsumeDirectlyResult(consume_result=ConsumeResult.CR_LATER, spent_time_mills=5)
    cluster.on(DIRECT, body(result))
    (message,) = messages_in(record(physical_offset=700), "broker-a")

    done = await cluster.admin.messages.consume_directly(message, "billing", "one")

    (asked,) = cluster.questions(DIRECT)
    assert (asked.address, asked.is_repeatable) == (BROKER_A, False)
    assert asked.header.msg_id == message.offset_id
    assert (done.outcome, done.spent_ms, done.is_ordered) == ("CR_LATER", 5, False)


async def test_a_consumer_that_is_gone_cannot_be_given_a_message() -> None:
    cluster = FakeCluster()
    (message,) = messages_in(record(), "broker-a")
    gone = refused(ResponseCode.SYSTEM_ERROR, "The Consumer <billing> <one> not online")
    cluster.on(DIRECT, gone, refused(ResponseCode.CONSUME_MSG_TIMEOUT, "time out"))
    admin = cluster.admin

    with pytest.raises(NotFound, match="is it connected"):
        await admin.messages.consume_directly(message, "billing", "one")
    with pytest.raises(Refused, match="code 207"):
        await admin.messages.consume_directly(message, "billing", "one")
