"""Groups as administrators see them: settings, progress, what is forbidden; and deleting them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.groups import GroupTable
from cometmq.codec import bodies
from cometmq.codec.bodies.groups import (
    GroupForbidden,
    QuerySubscriptionAnswer,
    SubscriptionGroupTable,
)
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.bodies.offsets import ConsumeStats, ConsumeStatsList, OffsetWrapper
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.groups import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetSubscriptionGroupConfig,
    QuerySubscriptionByConsumer,
    QueryTopicsByConsumer,
    UpdateAndGetGroupForbidden,
)
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import TopicConfig
from cometmq.store.documents import ConfigDocuments
from cometmq.testing import FakeClock
from tests.unit.broker.client_kit import consuming
from tests.unit.broker.data_path import GROUP, TOPIC
from tests.unit.broker.fake_channel import Reply, request
from tests.unit.broker.services_kit import Services, opened
from tests.unit.broker.tables import (
    BROKER,
    add_topic,
    broker_settings,
    group_table,
    recorded_requests,
    save,
)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    yield from opened(tmp_path)


# --- deleting


def delete(services: Services, name: str = GROUP, /, **said: bool) -> Reply:
    header = DeleteSubscriptionGroup(name, **said)
    return services.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


def test_a_deleted_group_is_gone_and_its_offsets_stay(services: Services) -> None:
    services.groups.obtain(GROUP)
    services.offsets.commit(GROUP, TOPIC, 0, 7)

    reply = delete(services, clean_offset=False)

    assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, None)
    assert services.groups.get(GROUP) is None
    assert services.offsets.get(GROUP, TOPIC, 0) == 7
    assert services.settled == 1


@pytest.mark.parametrize("wish", ["clean_offset", "remove_offset"])
def test_offsets_go_with_the_group_if_asked_in_the_words_of_either_release(
    services: Services, wish: str
) -> None:
    services.groups.obtain(GROUP)
    for group in (GROUP, "other"):
        services.offsets.commit(group, TOPIC, 0, 7)

    delete(services, GROUP, **{wish: True})

    assert services.offsets.groups_of(TOPIC) == ["other"]


def test_topics_of_retries_are_for_somebody_else_to_delete(services: Services) -> None:
    """Apache's tool deletes them with requests of their own."""
    services.topics.create_retry(GROUP, 1, is_unit=False)
    services.topics.create_dead_letter(GROUP)
    services.groups.obtain(GROUP)

    delete(services, clean_offset=True)

    assert services.topics.get(f"%RETRY%{GROUP}") is not None
    assert services.topics.get(f"%DLQ%{GROUP}") is not None


def test_deleting_what_does_not_exist_is_a_success(services: Services) -> None:
    assert delete(services, "nothing", clean_offset=True).code == ResponseCode.SUCCESS


# --- settings


def all_configs(services: Services, *said: Any) -> tuple[SubscriptionGroupTable, str]:
    header = GetAllSubscriptionGroupConfig(*said)
    reply = services.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
    assert reply.code == ResponseCode.SUCCESS
    return bodies.decode(SubscriptionGroupTable, reply.body), reply.ext["totalGroupNum"]


def test_without_a_page_all_groups_are_told(services: Services) -> None:
    services.groups.set_may_read("nobody", TOPIC, False)

    table, total = all_configs(services)

    assert table.subscription_group_table.keys() == services.groups.by_name.keys()
    assert table.data_version == services.groups.data_version
    assert table.forbidden_table == {"nobody": {TOPIC: 1}}
    assert total == str(len(services.groups.by_name))


def test_a_page_has_what_is_forbidden_to_its_groups(services: Services) -> None:
    names = sorted(services.groups.by_name)
    for name in names[0], names[-1]:
        services.groups.set_may_read(name, TOPIC, False)

    table, total = all_configs(services, 0, "", 3)

    assert list(table.subscription_group_table) == names[:3]
    assert table.forbidden_table == {names[0]: {TOPIC: 1}}
    assert total == str(len(names))


@pytest.mark.slow
def test_many_groups_are_told(services: Services) -> None:
    for number in range(600):
        services.groups.obtain(f"G{number}")

    assert len(all_configs(services)[0].subscription_group_table) > 600


def test_one_group_is_told(services: Services) -> None:
    header = GetSubscriptionGroupConfig("TOOLS_CONSUMER")
    found = services.told(SubscriptionGroupConfig, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)

    assert found == SubscriptionGroupConfig.with_defaults("TOOLS_CONSUMER")


def test_a_group_that_its_members_could_make_is_made_by_whoever_asks(services: Services) -> None:
    header = GetSubscriptionGroupConfig("new")

    assert services.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header).code == 0
    assert services.groups.get("new") is not None


def test_a_group_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with Services(tmp_path, auto_create_subscription_group=False) as services:
        header = GetSubscriptionGroupConfig("nothing")

        reply = services.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)

    assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert reply.remark == "No group in this broker"


# --- what is forbidden


def forbid(services: Services, *said: Any) -> GroupForbidden:
    header = UpdateAndGetGroupForbidden(*said)
    return services.told(GroupForbidden, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)


def test_reading_can_be_forbidden_and_allowed_again(services: Services) -> None:
    group = services.groups.obtain(GROUP)
    assert group is not None

    assert forbid(services, GROUP, TOPIC).readable is True
    assert forbid(services, GROUP, TOPIC, False) == GroupForbidden(TOPIC, GROUP, False)
    assert group.forbidden == {TOPIC}
    assert forbid(services, GROUP, TOPIC).readable is False
    assert forbid(services, GROUP, TOPIC, True).readable is True
    assert group.forbidden == frozenset()
    assert services.settled == 2


def test_a_group_that_is_forbidden_to_read_is_refused_when_it_pulls(services: Services) -> None:
    channel = services.beat(consuming("c1", GROUP, {TOPIC: "*"}), services.channel)
    services.send()
    forbid(services, GROUP, TOPIC, False)

    (reply,) = services.pull(sys_flag=0)

    assert channel is services.channel
    assert reply.code == ResponseCode.NO_PERMISSION
    assert reply.remark == f"the consumer group[{GROUP}] is forbidden for topic[{TOPIC}]"


def test_allowing_one_topic_leaves_the_others_forbidden(services: Services) -> None:
    forbid(services, GROUP, TOPIC, False)
    forbid(services, GROUP, "other", False)

    forbid(services, GROUP, TOPIC, True)

    assert forbid(services, GROUP, "other").readable is False


def test_what_is_forbidden_outlives_a_restart_also_of_a_group_yet_to_come(
    services: Services, tmp_path: Path
) -> None:
    forbid(services, "later", TOPIC, False)
    save(tmp_path, groups=services.groups)

    again = group_table(tmp_path)

    made = again.obtain("later")
    assert made is not None
    assert made.forbidden == {TOPIC}


def test_a_deleted_group_is_forbidden_nothing_afterwards(services: Services) -> None:
    forbid(services, "later", TOPIC, False)

    delete(services, "later")

    assert forbid(services, "later", TOPIC).readable is True


@pytest.mark.parametrize(("group", "topic"), [("", TOPIC), ("a b", TOPIC), (GROUP, "a b")])
def test_names_that_cannot_be_are_refused(services: Services, group: str, topic: str) -> None:
    header = UpdateAndGetGroupForbidden(group, topic, False)

    reply = services.ask(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)

    assert reply.code == ResponseCode.INVALID_PARAMETER


def test_not_more_is_forbidden_than_the_limit(tmp_path: Path) -> None:
    document = ConfigDocuments(tmp_path).groups
    groups = GroupTable(document, broker_settings(), FakeClock(), forbidden_max=2)
    groups.set_may_read(GROUP, "a", False)
    groups.set_may_read("other", "b", False)

    with pytest.raises(BrokerError, match="2 pairs of group and topic are forbidden"):
        groups.set_may_read(GROUP, "c", False)

    assert groups.may_read(GROUP, "c")


# --- progress


def progress(services: Services, *said: Any) -> ConsumeStats:
    return services.told(ConsumeStats, RequestCode.GET_CONSUME_STATS, GetConsumeStats(*said))


def queue(queue_id: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, BROKER, queue_id)


def topics_in(stats: ConsumeStats) -> set[str]:
    return {found.topic for found in stats.offset_table}


def test_the_progress_of_a_group_is_told_queue_by_queue(services: Services) -> None:
    services.rates["GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"] = 2.5
    services.rates["GROUP_GET_NUMS", f"%RETRY%{GROUP}@{GROUP}"] = 0.5
    services.topics.create_retry(GROUP, 1, is_unit=False)
    services.send(queue_id=1)
    first_ms = services.clock.now_ms()
    services.clock.advance(3.0)
    services.send(queue_id=1)
    services.offsets.commit(GROUP, TOPIC, 1, 1)
    services.offsets.commit(GROUP, f"%RETRY%{GROUP}", 0, 0)

    stats = progress(services, GROUP)

    assert stats.consume_tps == 3.0
    assert stats.offset_table == {
        queue(0): OffsetWrapper(0, 0, 0, 0),
        queue(1): OffsetWrapper(2, 1, first_ms, 1),
        queue(2): OffsetWrapper(0, 0, 0, 0),
        queue(3): OffsetWrapper(0, 0, 0, 0),
        queue(0, f"%RETRY%{GROUP}"): OffsetWrapper(0, 0, 0, 0),
    }


def test_what_was_handed_out_and_is_not_committed_is_told(services: Services) -> None:
    for _ in range(5):
        services.send(queue_id=1)
    services.offsets.commit(GROUP, TOPIC, 1, 1)

    services.offsets.pulled(GROUP, TOPIC)[1] = 4

    found = progress(services, GROUP).offset_table[queue(1)]
    assert (found.consumer_offset, found.pull_offset, found.broker_offset) == (1, 4, 5)


def test_a_group_without_offsets_has_no_progress(services: Services) -> None:
    assert progress(services, "nothing").offset_table == {}


def test_topics_that_the_members_do_not_want_any_more_are_left_out(services: Services) -> None:
    add_topic(services.topics, "former")
    for topic in (TOPIC, "former"):
        services.offsets.commit(GROUP, topic, 0, 0)
    assert topics_in(progress(services, GROUP)) == {TOPIC, "former"}

    services.beat(consuming("c1", GROUP, {TOPIC: "*"}))

    assert topics_in(progress(services, GROUP)) == {TOPIC}
    assert topics_in(progress(services, GROUP, "former")) == set()
    assert topics_in(progress(services, GROUP, None, f"former;{TOPIC}; ")) == {TOPIC, "former"}


def test_deleted_topics_have_no_progress(services: Services) -> None:
    services.offsets.commit(GROUP, "deleted", 0, 5)

    assert progress(services, GROUP).offset_table == {}
    assert progress(services, GROUP, None, "deleted").offset_table == {}


def test_queues_that_can_be_read_are_told_and_no_others(services: Services) -> None:
    services.topics.put(TopicConfig(TOPIC, 2, 4, attributes={}))
    services.offsets.commit(GROUP, TOPIC, 0, 0)

    assert sorted(found.queue_id for found in progress(services, GROUP).offset_table) == [0, 1]


def broker_stats(services: Services, *, is_order: bool) -> ConsumeStatsList:
    code = RequestCode.GET_BROKER_CONSUME_STATS
    return services.told(ConsumeStatsList, code, GetBrokerConsumeStats(is_order))


def test_the_progress_of_all_groups_is_told_topic_by_topic(services: Services) -> None:
    add_topic(services.topics, "ordered", 1, order=True)
    services.groups.obtain(GROUP)
    for _ in range(3):
        services.send()
        services.send(topic="ordered")
    services.offsets.commit(GROUP, TOPIC, 0, 1)
    services.offsets.commit(GROUP, "ordered", 0, 3)

    found = broker_stats(services, is_order=False)
    ordered = broker_stats(services, is_order=True)

    by_group = {name: stats for entry in found.consume_stats_list for name, stats in entry.items()}
    assert by_group.keys() == services.groups.by_name.keys()
    assert sorted(map(topics_in, by_group[GROUP]), key=str) == [{"ordered"}, {TOPIC}]
    assert (found.total_diff, found.total_inflight_diff) == (2, 0)
    assert found.broker_addr == services.identity.address
    (only,) = (stats for entry in ordered.consume_stats_list for stats in entry.get(GROUP, ()))
    assert topics_in(only) == {"ordered"}
    assert ordered.total_diff == 0


def test_the_progress_of_many_queues_leaves_others_their_turn(services: Services) -> None:
    add_topic(services.topics, "wide", 600)
    services.offsets.commit(GROUP, "wide", 0, 0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> Reply:
        counting = asyncio.create_task(count_turns())
        reply = await services.answer_to(
            request(RequestCode.GET_CONSUME_STATS, GetConsumeStats(GROUP))
        )
        counting.cancel()
        return reply

    reply = asyncio.run(ask())

    assert len(bodies.decode(ConsumeStats, reply.body).offset_table) == 600
    assert turns >= 2


@pytest.mark.parametrize(
    ("code", "header", "advice"),
    [
        (RequestCode.GET_CONSUME_STATS, GetConsumeStats(GROUP), "ask topic by topic"),
        (
            RequestCode.GET_BROKER_CONSUME_STATS,
            GetBrokerConsumeStats(False),
            "ask group by group",
        ),
    ],
    ids=["of one group", "of all groups"],
)
def test_more_progress_than_fits_into_an_answer_is_refused(
    tmp_path: Path, code: RequestCode, header: Header, advice: str
) -> None:
    with Services(tmp_path, entries_max=7) as services:
        add_topic(services.topics, "other", 3)
        services.groups.obtain(GROUP)
        services.offsets.commit(GROUP, TOPIC, 0, 0)
        services.offsets.commit(GROUP, "other", 0, 0)
        assert services.ask(code, header).code == ResponseCode.SUCCESS

        add_topic(services.topics, "another", 1)
        services.offsets.commit(GROUP, "another", 0, 0)
        reply = services.ask(code, header)

    words = f"the answer would have 8 queues, more than the 7 that fit into one: {advice}"
    assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)


def test_progress_is_told_to_as_many_at_a_time_as_there_is_room_for(tmp_path: Path) -> None:
    with Services(tmp_path, entries_max=700) as services:
        add_topic(services.topics, "wide", 600)
        services.offsets.commit(GROUP, "wide", 0, 0)
        asked = request(RequestCode.GET_CONSUME_STATS, GetConsumeStats(GROUP))
        narrow = request(RequestCode.GET_CONSUME_STATS, GetConsumeStats(GROUP, TOPIC))

        first, second, third = services.ask_together(asked, asked, narrow)
        again = services.put_through(asked)

    words = "[REJECTREQUEST]answers with 600 queues are being made, try later"
    assert (second.code, second.remark) == (ResponseCode.SYSTEM_BUSY, words)
    assert first.code == third.code == again.code == ResponseCode.SUCCESS


def test_the_progress_of_all_groups_is_told_to_one_at_a_time(services: Services) -> None:
    add_topic(services.topics, "wide", 600)
    services.groups.obtain(GROUP)
    services.offsets.commit(GROUP, "wide", 0, 0)
    asked = request(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStats(False))

    first, second = services.ask_together(asked, asked)
    again = services.put_through(asked)

    words = "[REJECTREQUEST]somebody else is being told of all groups, try later"
    assert (second.code, second.remark) == (ResponseCode.SYSTEM_BUSY, words)
    assert first.code == again.code == ResponseCode.SUCCESS


# --- what groups consume


def test_the_topics_of_a_group_are_those_it_has_offsets_of(services: Services) -> None:
    for topic in (TOPIC, "deleted"):
        services.offsets.commit(GROUP, topic, 0, 1)

    header = QueryTopicsByConsumer(GROUP)
    found = services.told(TopicList, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)

    assert sorted(found.topic_list) == sorted([TOPIC, "deleted"])
    assert found.broker_addr == services.identity.address


def test_what_a_group_wants_of_a_topic_is_what_its_members_said(services: Services) -> None:
    services.beat(consuming("c1", GROUP, {TOPIC: "red || blue"}))
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    def wanted(header: Header) -> QuerySubscriptionAnswer:
        return services.told(QuerySubscriptionAnswer, code, header)

    found = wanted(QuerySubscriptionByConsumer(GROUP, TOPIC))
    assert (found.group, found.topic) == (GROUP, TOPIC)
    assert found.subscription_data is not None
    assert found.subscription_data.sub_string == "red || blue"
    assert wanted(QuerySubscriptionByConsumer(GROUP, "other")).subscription_data is None
    assert wanted(QuerySubscriptionByConsumer("nothing", TOPIC)).subscription_data is None


@pytest.mark.parametrize("code", [201, 207, 208, 317], ids=lambda code: RequestCode(code).name)
def test_recorded_requests_are_understood(services: Services, code: int) -> None:
    requests = recorded_requests(RequestCode(code))

    codes = {services.put_through(command).code for command in requests}

    assert requests
    assert codes == {ResponseCode.SUCCESS}
