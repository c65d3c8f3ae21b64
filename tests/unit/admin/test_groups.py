import pytest

from cometmq.codec import bodies
from cometmq.codec.bodies.clients import Connection, ConsumerConnection
from cometmq.codec.bodies.groups import SubscriptionGroupTable
from cometmq.codec.bodies.offsets import (
    ConsumeStats,
    ConsumeTimeSpans,
    OffsetWrapper,
    QueueTimeSpan,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import AlreadyExists, NotFound, Unreachable
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    Asked,
    FakeCluster,
    body,
    refused,
)

TABLE = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
PUT = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
OFFLINE = refused(ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group[billing] not online")


def table(*configs: SubscriptionGroupConfig) -> Answer:
    return body(SubscriptionGroupTable(None, {config.group_name: config for config in configs}))


def lag_of(asked: Asked) -> Answer:
    name = {BROKER_A: "broker-a", BROKER_B: "broker-b"}[asked.address]
    offsets = {MessageQueue("orders", name, 0): OffsetWrapper(100, 90, 50, 95)}
    return body(ConsumeStats(offsets, 2.0))


def group_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.on(TABLE, table(SubscriptionGroupConfig("billing"), SubscriptionGroupConfig("other")))
    cluster.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, OFFLINE)
    cluster.on(RequestCode.GET_CONSUME_STATS, lag_of)
    cluster.on_route("orders")
    return cluster


async def test_groups_are_listed_with_the_brokers_that_know_them() -> None:
    cluster = group_cluster()
    cluster.on(TABLE, table(SubscriptionGroupConfig("TOOLS_CONSUMER")), at=BROKER_B)

    found = await cluster.admin.groups.list()

    assert [(group.name, group.is_system, group.brokers) for group in found.groups] == [
        ("TOOLS_CONSUMER", True, ("broker-b",)),
        ("billing", False, ("broker-a",)),
        ("other", False, ("broker-a",)),
    ]


async def test_a_group_is_described_with_settings_members_and_lag() -> None:
    cluster = group_cluster()
    one = Connection("client-1", "10.0.2.1:5000", "JAVA", 407)
    cluster.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, body(ConsumerConnection((one,))))

    group = await cluster.admin.groups.describe("billing")

    assert [(on.broker_name, on.retry_max) for on in group.brokers] == [
        ("broker-a", 16),
        ("broker-b", 16),
    ]
    (member,) = group.membership.members
    assert (member.client_id, member.language, member.version) == ("client-1", "JAVA", "4.9.7")
    assert member.brokers == ("broker-a", "broker-b")
    assert (group.lag.lag, group.lag.consume_tps) == (20, 4.0)
    assert [(queue.lag, queue.in_flight) for queue in group.lag.queues] == [(10, 5), (10, 5)]


async def test_asking_about_a_group_does_not_make_it() -> None:
    """5.x makes a group that is asked for by its name, where groups make themselves."""
    cluster = group_cluster()

    await cluster.admin.groups.configs("billing")

    assert cluster.questions(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG) == []


async def test_a_group_nobody_knows_is_not_found() -> None:
    cluster = group_cluster()
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats()))
    admin = cluster.admin

    with pytest.raises(NotFound, match="no such group: 'nobody'"):
        await admin.groups.describe("nobody")
    with pytest.raises(NotFound):
        await admin.groups.configs("nobody")
    with pytest.raises(NotFound, match="make it first"):
        await admin.groups.update("nobody", retry_max=3)
    with pytest.raises(NotFound):
        await admin.groups.delete("nobody")


async def test_the_lag_of_a_broker_that_is_down_is_missing_and_said_so() -> None:
    cluster = group_cluster()
    cluster.on(RequestCode.GET_CONSUME_STATS, Unreachable(BROKER_B, "refused"), at=BROKER_B)

    lag = await cluster.admin.groups.lag("billing")

    assert lag.lag == 10
    assert [outage.broker_name for outage in lag.outages] == ["broker-b"]


async def test_dead_letters_that_are_dealt_with_are_no_lag_unless_they_are_named() -> None:
    """Who replays dead letters stores the group's offset on them; nobody consumes them."""
    cluster = group_cluster()
    offsets = {
        MessageQueue("orders", "broker-a", 0): OffsetWrapper(100, 90),
        MessageQueue("%DLQ%billing", "broker-a", 0): OffsetWrapper(4, 1),
        MessageQueue("%DLQ%other", "broker-a", 0): OffsetWrapper(7, 5),  # read as any topic
    }
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats(offsets)), at=BROKER_A)
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats()), at=BROKER_B)

    usual = await cluster.admin.groups.lag("billing")
    named = await cluster.admin.groups.lag("billing", "%DLQ%billing")

    assert [(queue.topic, queue.lag) for queue in usual.queues] == [
        ("%DLQ%other", 2),
        ("orders", 10),
    ]
    assert usual.lag == 12
    assert ("%DLQ%billing", 3) in [(queue.topic, queue.lag) for queue in named.queues]


async def test_before_5x_nothing_is_known_of_what_is_in_flight() -> None:
    cluster = group_cluster()
    offsets = {MessageQueue("orders", "broker-a", 0): OffsetWrapper(100, 90, 50)}
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats(offsets)))

    lag = await cluster.admin.groups.lag("billing", "orders")

    assert lag.queues[0].in_flight is None


async def test_delay_is_told_in_time() -> None:
    cluster = group_cluster()
    cluster.on_route("orders", brokers="a")
    span = QueueTimeSpan(MessageQueue("orders", "broker-a", 1), 10, 90, 40, 50)
    cluster.on(RequestCode.QUERY_CONSUME_TIME_SPAN, body(ConsumeTimeSpans((span,))))

    (delay,) = await cluster.admin.groups.delay("billing", "orders")

    assert (delay.queue_id, delay.first_ms, delay.last_ms) == (1, 10, 90)
    assert (delay.next_ms, delay.delay_ms) == (40, 50)


async def test_a_group_is_made_with_defaults_and_what_is_named() -> None:
    cluster = group_cluster()
    cluster.on(PUT, Answer())

    made = await cluster.admin.groups.create("new", retry_max=3, is_broadcast_enabled=False)

    asked = cluster.questions(PUT)
    assert [one.address for one in asked] == [BROKER_A, BROKER_B]
    config = bodies.decode(SubscriptionGroupConfig, asked[0].body)
    assert (config.group_name, config.retry_max_times) == ("new", 3)
    assert not config.consume_broadcast_enable
    assert config.consume_enable
    assert [on.retry_max for on in made] == [3, 3]


async def test_a_group_that_is_there_is_not_made_again_by_mistake() -> None:
    cluster = group_cluster()

    with pytest.raises(AlreadyExists, match="there is a group 'billing' already"):
        await cluster.admin.groups.create("billing")

    assert cluster.questions(PUT) == []


async def test_an_update_keeps_what_it_does_not_name_where_the_group_is() -> None:
    cluster = group_cluster()
    before = SubscriptionGroupConfig("billing", retry_max_times=9, consume_timeout_minute=7)
    cluster.on(TABLE, table(before), at=BROKER_A)
    cluster.on(TABLE, table(), at=BROKER_B)
    cluster.on(PUT, Answer())

    await cluster.admin.groups.update("billing", is_consume_enabled=False)

    (asked,) = cluster.questions(PUT)
    assert asked.address == BROKER_A
    config = bodies.decode(SubscriptionGroupConfig, asked.body)
    assert (config.consume_enable, config.retry_max_times) == (False, 9)
    assert config.consume_timeout_minute == 7


async def test_a_setting_that_groups_do_not_have_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="a group has no setting 'retries'"):
        await group_cluster().admin.groups.update("billing", retries=3)  # type: ignore[call-arg]


async def test_a_group_goes_with_its_offsets_and_topics() -> None:
    cluster = group_cluster()
    codes = (
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.DELETE_KV_CONFIG,
    )
    for code in codes:
        cluster.on(code, Answer())

    brokers = await cluster.admin.groups.delete("billing")

    assert brokers == ("broker-a", "broker-b")
    header = cluster.questions(RequestCode.DELETE_SUBSCRIPTIONGROUP)[0].header
    assert (header.group_name, header.clean_offset, header.remove_offset) == ("billing", True, True)
    topics = [one.header.topic for one in cluster.questions(RequestCode.DELETE_TOPIC_IN_BROKER)]
    assert sorted(set(topics)) == ["%DLQ%billing", "%RETRY%billing"]


async def test_what_would_be_deleted_of_a_group_is_looked_up_only() -> None:
    cluster = group_cluster()  # that nobody said how changes are answered

    assert await cluster.admin.groups.delete("billing", is_dry_run=True) == ("broker-a", "broker-b")


async def test_a_group_may_leave_its_offsets_and_topics_behind() -> None:
    cluster = group_cluster()
    cluster.on(RequestCode.DELETE_SUBSCRIPTIONGROUP, Answer())

    await cluster.admin.groups.delete("billing", keep_offsets=True, keep_topics=True)

    header = cluster.questions(RequestCode.DELETE_SUBSCRIPTIONGROUP)[0].header
    assert (header.clean_offset, header.remove_offset) == (False, False)
    assert cluster.questions(RequestCode.DELETE_TOPIC_IN_BROKER) == []
