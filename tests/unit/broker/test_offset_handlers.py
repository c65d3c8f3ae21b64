"""What consumers ask and say about positions: exact answers, also to nonsense."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.handlers.offsets import OffsetHandlers
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.offsets import (
    BoundaryType,
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from cometmq.model.topic import TopicConfig
from cometmq.remoting.routes import Routes
from cometmq.store.check import check
from cometmq.testing import FakeClock
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.tables import (
    add_topic,
    consumer_offsets,
    group_table,
    recorded_requests,
    topic_table,
)
from tests.unit.store.builders import FAR_FUTURE_MS, numbered, open_store, put_all

GROUP, TOPIC = "readers", "orders"
NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


class Desk:
    """A store with one topic of two queues, its tables, and the handlers of offsets."""

    def __init__(self, folder: Path, *, offsets_max: int = 100, **store: Any) -> None:
        self.clock = FakeClock()
        self.store = open_store(folder / "store", clock=store.pop("clock", self.clock), **store)
        self.topics = topic_table(folder)
        self.groups = group_table(folder)
        self.offsets = consumer_offsets(folder, offsets_max=offsets_max)
        add_topic(self.topics, TOPIC, 2)
        self.groups.obtain(GROUP)
        self.routes = Routes()
        OffsetHandlers(self.offsets, self.topics, self.groups, self.store).add_to(self.routes)
        self.channel = FakeChannel()

    def ask(self, code: RequestCode, header: Header) -> Reply:
        (reply,) = self.channel.ask(self.routes, request(code, header))
        return reply

    def query(self, queue_id: int = 0, *, zero: bool | None = None) -> Reply:
        header = QueryConsumerOffset(GROUP, TOPIC, queue_id, zero)
        return self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)

    def update(
        self, offset: int, *, group: str = GROUP, topic: str = TOPIC, queue_id: int = 0
    ) -> Reply:
        header = UpdateConsumerOffset(group, topic, queue_id, offset)
        return self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    def search(self, time_ms: int, boundary: BoundaryType | None = None) -> str:
        header = SearchOffsetByTimestamp(TOPIC, 0, time_ms, boundary)
        return self.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header).ext["offset"]

    def bounds(self, topic: str = TOPIC, queue_id: int = 0) -> tuple[str, str]:
        least = self.ask(RequestCode.GET_MIN_OFFSET, GetMinOffset(topic, queue_id))
        most = self.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, queue_id))
        return least.ext["offset"], most.ext["offset"]

    def earliest(self, topic: str = TOPIC, queue_id: int = 0) -> str:
        header = GetEarliestMsgStoretime(topic, queue_id)
        return self.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, header).ext["timestamp"]

    def close(self) -> None:
        self.store.close()
        report = check(self.store.root)
        assert report.is_consistent, report


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


class TestQuery:
    def test_a_stored_offset_is_answered(self, desk: Desk) -> None:
        desk.offsets.commit(GROUP, TOPIC, 1, 17)

        reply = desk.query(1)

        assert (reply.code, reply.ext) == (ResponseCode.SUCCESS, {"offset": "17"})

    def test_an_empty_queue_has_no_offset(self, desk: Desk) -> None:
        reply = desk.query()

        assert (reply.code, reply.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)

    def test_a_new_group_begins_at_the_first_message_of_a_young_queue(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(3))

        reply = desk.query()

        assert (reply.code, reply.ext) == (ResponseCode.SUCCESS, {"offset": "0"})
        assert desk.offsets.get(GROUP, TOPIC, 0) == -1

    def test_unless_it_does_not_want_to(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(3))

        reply = desk.query(zero=False)

        words = "Not found, do not set to zero, maybe this group boot first"
        assert (reply.code, reply.remark) == (ResponseCode.QUERY_NOT_FOUND, words)
        assert desk.query(zero=True).code == ResponseCode.SUCCESS

    def test_a_queue_whose_first_messages_are_gone_is_not_young(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, clock=FakeClock(FAR_FUTURE_MS))
        put_all(desk.store, *([b"x" * 1000] * 10))
        desk.store.flush()
        desk.store.clean(at_any_hour=True)
        assert desk.store.min_offset(TOPIC, 0) > 0

        assert desk.query().code == ResponseCode.QUERY_NOT_FOUND
        desk.close()

    def test_a_queue_whose_first_message_left_memory_is_not_young(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, memory_percent=0)
        put_all(desk.store, *numbered(3))

        assert desk.query().code == ResponseCode.QUERY_NOT_FOUND
        desk.close()


class TestUpdate:
    def test_an_offset_is_stored_back_and_forth(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(9))

        assert desk.update(9).code == ResponseCode.SUCCESS
        assert desk.offsets.get(GROUP, TOPIC, 0) == 9

        assert desk.update(4).code == ResponseCode.SUCCESS
        assert desk.offsets.get(GROUP, TOPIC, 0) == 4

    def test_one_beyond_the_end_of_the_queue_is_not(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(9))
        desk.update(4)

        reply = desk.update(10)

        assert reply.code == ResponseCode.SUCCESS
        assert reply.remark == "Offset 10 is not noted, the queue ends at 9"
        assert desk.offsets.get(GROUP, TOPIC, 0) == 4

    def test_one_way_it_gets_no_answer(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(9))
        header = UpdateConsumerOffset(GROUP, TOPIC, 0, 9)
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header, is_oneway=True)

        assert desk.channel.ask(desk.routes, command) == []
        assert desk.offsets.get(GROUP, TOPIC, 0) == 9

    def test_a_negative_offset_is_ignored(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(9))
        desk.update(9)

        assert desk.update(-1).code == ResponseCode.SUCCESS
        assert desk.offsets.get(GROUP, TOPIC, 0) == 9

    @pytest.mark.parametrize(
        ("place", "code", "remark"),
        [
            ({"group": "strangers"}, 26, "Group strangers not exist!"),
            ({"topic": "nowhere"}, 17, "Topic nowhere not exist!"),
            ({"queue_id": 2}, 29, "QueueId 2 not exist, topic is orders"),
            ({"queue_id": -1}, 29, "QueueId -1 not exist, topic is orders"),
        ],
    )
    def test_only_what_exists_has_offsets(
        self, desk: Desk, place: dict[str, Any], code: int, remark: str
    ) -> None:
        reply = desk.update(1, **place)

        assert (reply.code, reply.remark) == (code, remark)
        assert len(desk.offsets) == 0

    def test_a_queue_that_is_being_drained_has_offsets(self, desk: Desk) -> None:
        put_all(desk.store, b"last", queue_id=1)
        desk.topics.put(TopicConfig(TOPIC, 1, 1, attributes={}))

        assert desk.update(1, queue_id=1).code == ResponseCode.SUCCESS
        assert desk.offsets.get(GROUP, TOPIC, 1) == 1

    def test_a_full_table_says_so(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, offsets_max=1)
        desk.update(0, queue_id=0)

        reply = desk.update(0, queue_id=1)

        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert reply.remark == "the broker has 1 offsets: no new ones are kept"
        desk.close()

    @pytest.mark.slow  # reads all recordings
    def test_what_was_recorded_is_understood(self, desk: Desk) -> None:
        asked = [
            *recorded_requests(RequestCode.UPDATE_CONSUMER_OFFSET),
            *recorded_requests(RequestCode.QUERY_CONSUMER_OFFSET),
        ]

        replies = desk.channel.ask(desk.routes, *asked)

        assert len(asked) > 10
        # Nothing of it exists here, but every field of it was read.
        possible = {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND}
        assert {reply.code for reply in replies} == possible


class TestBounds:
    def test_they_are_those_of_the_store(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(3))

        assert desk.bounds() == ("0", "3")

    @pytest.mark.parametrize(("topic", "queue_id"), [("nowhere", 0), (TOPIC, 9), (TOPIC, -1)])
    def test_an_unknown_queue_has_none(self, desk: Desk, topic: str, queue_id: int) -> None:
        assert desk.bounds(topic, queue_id) == ("0", "0")
        assert desk.earliest(topic, queue_id) == "-1"

    def test_the_earliest_time_is_that_of_the_first_message(self, desk: Desk) -> None:
        assert desk.earliest() == "-1"
        first_ms = desk.clock.now_ms()

        put_all(desk.store, b"first")
        desk.clock.advance(1)
        put_all(desk.store, b"second")

        assert desk.earliest() == str(first_ms)

    def test_the_earliest_time_moves_with_the_first_message(self, tmp_path: Path) -> None:
        clock = FakeClock(FAR_FUTURE_MS)
        desk = Desk(tmp_path, clock=clock)
        put_all(desk.store, *([b"x" * 1000] * 4))
        clock.advance(1)
        put_all(desk.store, *([b"x" * 1000] * 4))
        desk.store.flush()

        desk.store.clean(at_any_hour=True)

        assert desk.store.min_offset(TOPIC, 0) > 3
        assert desk.earliest() == str(clock.now_ms())
        desk.close()

    def test_an_offset_is_found_by_time(self, desk: Desk) -> None:
        begin_ms = desk.clock.now_ms()
        for _ in range(3):
            put_all(desk.store, *numbered(2))
            desk.clock.advance(1)

        assert desk.search(begin_ms - 1) == "0"
        assert desk.search(begin_ms + 1000) == "2"
        assert desk.search(begin_ms + 1001, BoundaryType.LOWER) == "4"
        assert desk.search(begin_ms + 1001, BoundaryType.UPPER) == "3"
        assert desk.search(begin_ms + 9000) == "6"

    @pytest.mark.slow  # reads all recordings
    def test_what_was_recorded_is_understood(self, desk: Desk) -> None:
        asked = [
            command
            for code in (
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                RequestCode.GET_MAX_OFFSET,
                RequestCode.GET_MIN_OFFSET,
                RequestCode.GET_EARLIEST_MSG_STORETIME,
            )
            for command in recorded_requests(code)
        ]

        replies = desk.channel.ask(desk.routes, *asked)

        assert len(asked) > 10
        assert {reply.code for reply in replies} == {ResponseCode.SUCCESS}


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    ],
)
def test_a_missing_field_is_named(desk: Desk, code: RequestCode) -> None:
    (reply,) = desk.channel.ask(desk.routes, request(code))

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark is not None
    assert "consumerGroup" in reply.remark or "topic" in reply.remark
