"""Topics as administrators see them, and how they are taken away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.handlers.paging import PAGE_MAX
from cometmq.broker.handlers.writing import QUICK_ENTRIES
from cometmq.broker.removal import QUEUES_AT_ONCE
from cometmq.codec import bodies
from cometmq.codec.bodies.groups import GroupList
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.bodies.topics import TopicConfigAndMapping, TopicConfigTable, TopicStatsTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.topics import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
)
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.store import NewMessage
from tests.golden.wire_frames import frames
from tests.unit.broker.client_kit import consuming
from tests.unit.broker.data_path import GROUP, TOPIC
from tests.unit.broker.fake_channel import Reply, request
from tests.unit.broker.services_kit import Services, opened
from tests.unit.broker.tables import BROKER, add_topic, recorded_requests

DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    yield from opened(tmp_path)


def delete(services: Services, topic: str = TOPIC) -> Reply:
    return services.ask(DELETE, DeleteTopicInBroker(topic))


def store_into(services: Services, topic: str, queue_id: int = 0) -> None:
    services.store.put(NewMessage(topic, queue_id, b"body"))
    services.loop.turn()


# --- deleting


def test_a_deleted_topic_is_gone_with_its_queues_and_offsets(
    services: Services, tmp_path: Path
) -> None:
    services.send(queue_id=0)
    services.send(queue_id=3)
    services.offsets.commit(GROUP, TOPIC, 0, 1)
    services.offsets.commit(GROUP, "other", 0, 1)

    reply = delete(services)

    assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, None)
    assert services.topics.get(TOPIC) is None
    assert [queue for queue in services.store.queues() if queue[0] == TOPIC] == []
    assert not (tmp_path / "consumequeue" / TOPIC).exists()
    assert services.offsets.topics_of(GROUP) == ["other"]
    assert services.settled == 1


def test_other_topics_keep_everything(services: Services) -> None:
    add_topic(services.topics, "orders2")
    services.send(topic="orders2", body=b"kept")
    services.send()

    delete(services)

    assert [found.body for found in services.stored("orders2")] == [b"kept"]


def test_a_topic_made_again_begins_at_zero_without_the_former_messages(services: Services) -> None:
    services.send(b"old")
    delete(services)
    add_topic(services.topics, TOPIC)

    services.send(b"new")

    assert [(found.body, found.queue_offset) for found in services.stored()] == [(b"new", 0)]


def test_sends_to_a_deleted_topic_are_refused_where_none_is_made_for_them(tmp_path: Path) -> None:
    with Services(tmp_path, auto_create_topic_enable=False) as services:
        services.send()  # from here on the topic is sent to on the short way
        delete(services)

        assert services.send().code == ResponseCode.TOPIC_NOT_EXIST
        (pulled,) = services.pull()
        assert pulled.code == ResponseCode.TOPIC_NOT_EXIST


def test_deleting_what_does_not_exist_is_a_success(services: Services) -> None:
    assert delete(services, "nothing").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("name", ["..", "../..", "../config", "/", "orders/0", "a" * 300])
def test_no_name_leads_out_of_the_folder_of_queues(
    services: Services, tmp_path: Path, name: str
) -> None:
    services.send()
    (tmp_path / "config").mkdir()

    assert delete(services, name).code == ResponseCode.SUCCESS

    assert (tmp_path / "config").exists()
    assert len(services.stored()) == 1


@pytest.mark.parametrize("name", ["", "  "])
def test_a_blank_name_is_refused(services: Services, name: str) -> None:
    reply = delete(services, name)

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == "The specified topic is blank."


@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_anything", BROKER, "SCHEDULE_TOPIC_XXXX"])
def test_a_system_topic_is_left_alone(services: Services, name: str) -> None:
    reply = delete(services, name)

    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == f"The topic[{name}] is conflict with system topic."


def test_topics_of_pop_retries_go_with_the_topic_they_are_of(services: Services) -> None:
    services.offsets.commit(GROUP, TOPIC, 0, 1)
    names = [f"%RETRY%{GROUP}_{TOPIC}", f"%RETRY%{GROUP}+{TOPIC}", f"%RETRY%{GROUP}"]
    for name in names:
        services.topics.create_internal(name)
        store_into(services, name)

    delete(services)

    assert [name for name in names if services.topics.get(name) is not None] == names[2:]
    assert {topic for topic, _ in services.store.queues()} == {names[2]}


def widen(services: Services) -> int:
    """A topic with a message in each of many queues; how many."""
    count = 2 * QUEUES_AT_ONCE + 1
    add_topic(services.topics, "wide", count)
    for queue_id in range(count):
        store_into(services, "wide", queue_id)
    return count


async def begun(services: Services, count: int) -> asyncio.Task[Reply]:
    """The deletion of such a topic, when the first of its queues are gone."""
    command = request(DELETE, DeleteTopicInBroker("wide"))
    pending = asyncio.create_task(services.answer_to(command))
    while len(services.store.queues()) == count:
        await asyncio.sleep(0)
    return pending


@pytest.mark.slow
def test_until_the_last_queue_is_gone_no_topic_of_that_name_is_made(services: Services) -> None:
    """What it would get at once would be deleted with the rest."""
    count = widen(services)

    async def delete_and_interfere() -> Reply:
        pending = await begun(services, count)
        assert len(services.store.queues()) > 0
        assert services.send(topic="wide").code == ResponseCode.TOPIC_NOT_EXIST
        with pytest.raises(BrokerError, match="is being deleted: try again"):
            add_topic(services.topics, "wide")
        return await pending

    assert asyncio.run(delete_and_interfere()).code == ResponseCode.SUCCESS
    assert services.send(topic="wide").code == ResponseCode.SUCCESS
    assert len(services.stored("wide")) == 1


@pytest.mark.slow
def test_a_deletion_is_finished_though_whoever_asked_is_gone(services: Services) -> None:
    count = widen(services)

    async def ask_and_leave() -> None:
        pending = await begun(services, count)
        assert services.store.queues()
        pending.cancel()
        # The next one waits for its turn.
        await services.removal.remove("another")
        assert pending.cancelled()

    asyncio.run(ask_and_leave())

    assert services.store.queues() == []


@pytest.mark.slow
def test_a_deletion_ends_before_the_store_is_closed(services: Services) -> None:
    count = widen(services)

    async def ask_and_close() -> None:
        pending = await begun(services, count)
        services.removal.close()
        await pending

    asyncio.run(ask_and_close())

    assert 0 < len(services.store.queues()) < count


def test_pulls_that_wait_for_a_topic_can_be_ended(services: Services) -> None:
    add_topic(services.topics, "other")
    assert services.pull(queue_id=1) == []
    assert services.pull(queue_id=2) == []
    assert services.pull(topic="other") == []
    ended = []

    services.pulls.held.end_topic(TOPIC, lambda pull: ended.append(pull.header.queue_id))

    assert sorted(ended) == [1, 2]
    assert services.pulls.held.count == 1


def test_unused_queues_are_those_without_a_topic(services: Services) -> None:
    services.send()
    store_into(services, "forgotten")
    store_into(services, "SCHEDULE_TOPIC_XXXX")

    reply = services.ask(RequestCode.CLEAN_UNUSED_TOPIC)

    assert reply.code == ResponseCode.SUCCESS
    assert services.store.queues() == [("SCHEDULE_TOPIC_XXXX", 0), (TOPIC, 0)]


# --- telling


def all_configs(services: Services, *said: Any) -> tuple[list[str], str]:
    """The names of a page, and how many there are of all."""
    reply = services.ask(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfig(*said))
    assert reply.code == ResponseCode.SUCCESS
    table = bodies.decode(TopicConfigTable, reply.body)
    assert table.data_version == services.topics.data_version
    return list(table.topic_config_table), reply.ext["totalTopicNum"]


def test_without_a_page_all_topics_are_told(services: Services) -> None:
    names, total = all_configs(services)

    assert set(names) == services.topics.by_name.keys()
    assert total == str(len(names))


def test_pages_are_in_order_and_complete(services: Services) -> None:
    stamp = bodies.encode(services.topics.data_version).decode()
    wanted = sorted(services.topics.by_name)

    first, _ = all_configs(services, 0, "", 7)
    second, _ = all_configs(services, 7, stamp, 7)
    last, _ = all_configs(services, 14, stamp, PAGE_MAX)

    assert [*first, *second, *last] == wanted
    assert len(first) == len(second) == 7
    assert all_configs(services, 10_000, stamp, 7)[0] == []


@pytest.mark.parametrize("stamp", ["", "{}", "no JSON", "[" * 300])
def test_whoever_has_seen_another_table_begins_anew(services: Services, stamp: str) -> None:
    assert all_configs(services, 5, stamp, 3)[0] == sorted(services.topics.by_name)[:3]


def test_senseless_pages_have_at_least_one_topic(services: Services) -> None:
    assert len(all_configs(services, -3, "", -5)[0]) == 1


@pytest.mark.slow
def test_a_large_table_is_told_whole_or_in_pages(services: Services) -> None:
    for number in range(PAGE_MAX + QUICK_ENTRIES):
        add_topic(services.topics, f"T{number}", 1)

    assert len(all_configs(services)[0]) == len(services.topics.by_name)
    assert len(all_configs(services, 0, "", 100_000)[0]) == PAGE_MAX


def test_one_topic_is_told_as_recorded(services: Services) -> None:
    add_topic(services.topics, "Wire")

    reply = services.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig("Wire"))

    recorded = next(
        frame
        for frame in frames("mqadmin-5.5.0")
        if frame.request_code == RequestCode.GET_TOPIC_CONFIG and b'"Wire"' in frame.body
    )
    kind = TopicConfigAndMapping
    assert bodies.decode(kind, reply.body) == bodies.decode(kind, recorded.body)


def test_a_topic_that_is_not_here_is_told_with_the_code_that_tools_expect(
    services: Services,
) -> None:
    reply = services.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig("nothing"))

    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert reply.remark == "No topic in this broker. topic: nothing"


def stats(services: Services, topic: str = TOPIC) -> TopicStatsTable:
    code = RequestCode.GET_TOPIC_STATS_INFO
    return services.told(TopicStatsTable, code, GetTopicStatsInfo(topic))


def test_the_statistics_of_a_topic_are_the_bounds_of_its_queues(services: Services) -> None:
    services.rates["TOPIC_PUT_NUMS", TOPIC] = 1.5
    services.send(queue_id=1)
    services.clock.advance(2.0)
    services.send(queue_id=1)

    found = stats(services)

    assert found.topic_put_tps == 1.5
    assert len(found.offset_table) == 4
    bounds = found.offset_table[MessageQueue(TOPIC, BROKER, 1)]
    assert (bounds.min_offset, bounds.max_offset) == (0, 2)
    assert bounds.last_update_timestamp == services.clock.now_ms()
    empty = found.offset_table[MessageQueue(TOPIC, BROKER, 0)]
    assert (empty.min_offset, empty.max_offset, empty.last_update_timestamp) == (0, 0, 0)


@pytest.mark.parametrize(("read", "write"), [(2, 5), (5, 2)])
def test_queues_that_are_only_read_or_only_written_are_told_as_well(
    services: Services, read: int, write: int
) -> None:
    services.topics.put(TopicConfig(TOPIC, read, write, attributes={}))

    assert sorted(queue.queue_id for queue in stats(services).offset_table) == [0, 1, 2, 3, 4]


def test_the_statistics_of_a_wide_topic_leave_others_their_turn(services: Services) -> None:
    add_topic(services.topics, "wide", 600)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> Reply:
        counting = asyncio.create_task(count_turns())
        code = RequestCode.GET_TOPIC_STATS_INFO
        reply = await services.answer_to(request(code, GetTopicStatsInfo("wide")))
        counting.cancel()
        return reply

    reply = asyncio.run(ask())

    assert len(bodies.decode(TopicStatsTable, reply.body).offset_table) == 600
    assert turns >= 2


def test_statistics_are_told_to_as_many_at_a_time_as_there_is_room_for(tmp_path: Path) -> None:
    with Services(tmp_path, entries_max=700) as services:
        add_topic(services.topics, "wide", 600)
        asked = request(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo("wide"))

        first, second = services.ask_together(asked, asked)
        again = services.put_through(asked)

    words = "[REJECTREQUEST]answers with 600 queues are being made, try later"
    assert (second.code, second.remark) == (ResponseCode.SYSTEM_BUSY, words)
    assert first.code == again.code == ResponseCode.SUCCESS


def test_the_statistics_of_no_topic_are_refused(services: Services) -> None:
    reply = services.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo("nothing"))

    assert (reply.code, reply.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[nothing] not exist")


def test_who_consumes_a_topic_are_groups_online_and_groups_with_offsets(
    services: Services,
) -> None:
    services.beat(consuming("c1", "online", {TOPIC: "*"}))
    services.beat(consuming("c3", "elsewhere", {"other": "*"}))
    services.beat(consuming("c2", "both", {TOPIC: "*"}))
    services.offsets.commit("both", TOPIC, 0, 1)
    services.offsets.commit("away", TOPIC, 0, 1)
    services.offsets.commit("elsewhere", "other", 0, 1)

    header = QueryTopicConsumeByWho(TOPIC)
    found = services.told(GroupList, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)

    assert sorted(found.group_list) == ["away", "both", "online"]


def test_many_consumers_of_a_topic_are_told_to_all_who_ask(services: Services) -> None:
    names = [f"group-{number:03}" for number in range(600)]
    for name in names:
        services.offsets.commit(name, TOPIC, 0, 1)
    asked = request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWho(TOPIC))

    replies = services.ask_together(asked, asked, asked)

    for reply in replies:
        assert list(bodies.decode(GroupList, reply.body).group_list) == names


def test_system_topics_are_those_that_apache_has(services: Services) -> None:
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
    recorded = next(frame for frame in frames("mqadmin-5.5.0") if frame.request_code == code)

    found = services.told(TopicList, code)

    expected = bodies.decode(TopicList, recorded.body).topic_list
    assert sorted(found.topic_list) == sorted(expected)


@pytest.mark.parametrize(
    "code", [21, 202, 215, 300, 305, 316, 351], ids=lambda code: RequestCode(code).name
)
def test_recorded_requests_are_understood(services: Services, code: int) -> None:
    add_topic(services.topics, "Wire")
    requests = recorded_requests(RequestCode(code))

    codes = {services.put_through(command).code for command in requests}

    assert requests
    assert codes <= {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}
    assert ResponseCode.SUCCESS in codes


def test_a_page_stamp_is_compared_as_java_does(services: Services) -> None:
    """A release without state versions has the same table with none."""
    now = services.topics.data_version
    stamp = bodies.encode(DataVersion(now.counter, 0, now.timestamp)).decode()

    assert all_configs(services, 1, stamp, 2)[0] == sorted(services.topics.by_name)[1:3]
