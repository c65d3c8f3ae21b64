"""Looking messages up: by key, by place in the log, by place in a queue."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.clients import Clients
from cometmq.broker.handlers import query
from cometmq.broker.handlers.query import ENTRIES_MAX, SEARCHES_MAX, QueryHandlers
from cometmq.codec import record
from cometmq.codec.bodies.clients import HeartbeatData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.query import QueryConsumeQueue, QueryMessage, ViewMessageById
from cometmq.codec.java import string_hash
from cometmq.remoting.routes import Routes
from cometmq.store.check import check
from cometmq.store.key_index import TIME_MS_MAX
from cometmq.testing import FakeClock
from tests.unit.broker.client_kit import consuming
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.tables import broker_settings, group_table, recorded_requests, topic_table
from tests.unit.store.builders import message, numbered, open_store, property_text, put, put_all

TOPIC = "orders"
NOTHING = "can not find message, maybe time range not correct"


class Desk:
    """A store, clients, and the handlers of queries."""

    def __init__(self, folder: Path, **store: Any) -> None:
        self.clock = FakeClock()
        self.store = open_store(folder / "store", clock=self.clock, **store)
        groups, topics = group_table(folder), topic_table(folder)
        self.clients = Clients(groups, topics, broker_settings(), self.clock)
        self.routes = Routes()
        QueryHandlers(self.store, self.clients).add_to(self.routes)
        self.channel = FakeChannel()

    def ask_all(self, *commands: Command) -> list[Reply]:
        replies = self.channel.ask(self.routes, *commands)
        asyncio.run(self.channel.finish())
        replies, self.channel.replies = replies + self.channel.replies, []
        return replies

    def ask(self, code: RequestCode, header: Header) -> Reply:
        (reply,) = self.ask_all(request(code, header))
        return reply

    def query(self, key: str, **changes: Any) -> Reply:
        fields = {"max_num": 32, "begin_timestamp": 0, "end_timestamp": TIME_MS_MAX, **changes}
        return self.ask(RequestCode.QUERY_MESSAGE, QueryMessage(TOPIC, key, **fields))

    def found(self, key: str, **changes: Any) -> list[bytes]:
        return bodies(self.query(key, **changes))

    def entries(self, **changes: Any) -> Reply:
        fields = {"topic": TOPIC, "queue_id": 0, "index": 0, "count": 10, **changes}
        return self.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueue(**fields))

    def join(self, data: HeartbeatData) -> None:
        self.clients.heartbeat(FakeChannel(), data, language=0, version=407)

    def close(self) -> None:
        self.store.close()
        report = check(self.store.root)
        assert report.is_consistent, report


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


def bodies(reply: Reply) -> list[bytes]:
    return [item.body for item in record.parse_all(reply.body)]


class TestByKey:
    def test_messages_are_found_oldest_first_with_the_state_of_the_index(self, desk: Desk) -> None:
        put(desk.store, message(b"one", keys="k1 k2"))
        put(desk.store, message(b"other", keys="k3"))
        put(desk.store, message(b"two", keys="k2"))
        desk.clock.advance(2)
        newest = put(desk.store, message(b"three", keys="k4"))

        reply = desk.query("k2")

        assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, None)
        assert bodies(reply) == [b"one", b"two"]
        assert reply.ext == {
            "indexLastUpdateTimestamp": str(desk.clock.now_ms()),
            "indexLastUpdatePhyoffset": str(newest.physical_offset),
        }

    def test_what_is_not_there_is_said_with_zeros(self, desk: Desk) -> None:
        put(desk.store, message(b"one", keys="k1"))

        reply = desk.query("nosuchkey")

        assert (reply.code, reply.remark) == (ResponseCode.QUERY_NOT_FOUND, NOTHING)
        assert set(reply.ext.values()) == {"0"}

    def test_a_store_without_an_index_finds_nothing(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, has_index=False)
        put(desk.store, message(b"one", keys="k1"))

        assert desk.query("k1").code == ResponseCode.QUERY_NOT_FOUND
        desk.close()

    def test_times_are_kept_to(self, desk: Desk) -> None:
        begin_ms = desk.clock.now_ms()
        for number in range(3):
            put(desk.store, message(b"%d" % number, keys="k"))
            desk.clock.advance(10)

        assert desk.found("k", begin_timestamp=begin_ms + 5_000) == [b"1", b"2"]
        assert desk.found("k", end_timestamp=begin_ms + 15_000) == [b"0", b"1"]

    def test_the_newest_are_found_when_there_are_too_many(self, desk: Desk) -> None:
        for number in range(40):
            put(desk.store, message(b"%02d" % number, keys="k"))

        assert desk.found("k", max_num=2) == [b"38", b"39"]
        assert desk.query("k", max_num=0).code == ResponseCode.QUERY_NOT_FOUND

    def test_a_unique_key_has_a_limit_of_its_own(self, desk: Desk) -> None:
        for number in range(40):
            text = property_text(UNIQ_KEY="id")
            put(desk.store, message(b"%02d" % number, properties=text))

        assert len(desk.found("id", max_num=1, unique_key_query=True)) == 32
        assert len(desk.found("id", max_num=1, unique_key_query=False)) == 1
        assert len(desk.found("id", max_num=3, index_type="U")) == 3

    def test_tags_are_found_only_if_tags_are_asked_for(self, desk: Desk) -> None:
        put(desk.store, message(b"key", keys="red"))
        put(desk.store, message(b"tag", tags="red"))

        assert desk.found("red", index_type="T") == [b"tag"]
        assert desk.found("red", index_type="K") == [b"key"]
        assert desk.found("red") == [b"key"]
        assert desk.found("red", index_type="unheard of") == [b"key"]

    def test_an_answer_is_not_larger_than_a_frame(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(query, "FOUND_BYTES_MAX", 1000)
        for number in range(4):
            put(desk.store, message(b"%d" % number * 300, keys="k"))

        assert [body[:1] for body in desk.found("k")] == [b"2", b"3"]
        monkeypatch.setattr(query, "FOUND_BYTES_MAX", 1)
        assert [body[:1] for body in desk.found("k")] == [b"3"]

    def test_an_index_file_that_goes_meanwhile_is_no_error(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(desk.store, message(b"one", keys="k"))
        search, calls = desk.store.query, []

        def unmapped_at_first(*args: Any, **options: Any) -> list[int]:
            calls.append(args)
            if len(calls) == 1:
                raise ValueError("mmap closed or invalid")
            return search(*args, **options)

        monkeypatch.setattr(desk.store, "query", unmapped_at_first)

        assert desk.found("k") == [b"one"]
        assert len(calls) == 2

    def test_long_searches_keep_nobody_waiting_but_further_searches(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(desk.store, message(b"one", keys="k"))
        desk.store.dispatch()
        search, may_end = desk.store.query, threading.Event()
        begun: list[str] = []

        def search_long(topic: str, key: str, **options: Any) -> list[int]:
            begun.append(key)
            assert may_end.wait(10)
            return search(topic, key, **options)

        monkeypatch.setattr(desk.store, "query", search_long)
        header = QueryMessage(TOPIC, "k", 32, 0, TIME_MS_MAX)
        channels = [FakeChannel() for _ in range(SEARCHES_MAX + 1)]

        async def ask_side_by_side() -> None:
            for channel in channels:
                channel.ask(desk.routes, request(RequestCode.QUERY_MESSAGE, header))
            pending = [asyncio.create_task(channel.finish()) for channel in channels]
            while len(begun) < SEARCHES_MAX:
                await asyncio.sleep(0.001)
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(begun) == SEARCHES_MAX
            may_end.set()
            await asyncio.gather(*pending)

        asyncio.run(ask_side_by_side())

        assert [bodies(channel.replies[0]) for channel in channels] == [[b"one"]] * len(channels)

    @pytest.mark.slow  # reads all recordings
    def test_what_was_recorded_is_understood(self, desk: Desk) -> None:
        asked = [
            *recorded_requests(RequestCode.QUERY_MESSAGE),
            *recorded_requests(RequestCode.VIEW_MESSAGE_BY_ID),
        ]

        replies = desk.ask_all(*asked)

        assert len(asked) > 10
        codes = {reply.code for reply in replies}
        assert codes == {ResponseCode.QUERY_NOT_FOUND, ResponseCode.SYSTEM_ERROR}
        assert all("can not find message" in (reply.remark or "") for reply in replies)


class TestByPlaceInTheLog:
    def test_the_record_is_the_body_of_the_answer(self, desk: Desk) -> None:
        put_all(desk.store, *numbered(2))
        third = put(desk.store, message(b"third"))

        reply = desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageById(third.physical_offset))

        assert (reply.code, reply.ext) == (ResponseCode.SUCCESS, {})
        assert bodies(reply) == [b"third"]

    @pytest.mark.parametrize("offset", [999999999, -1, 3])
    def test_where_no_record_begins_there_is_none(self, desk: Desk, offset: int) -> None:
        put_all(desk.store, *numbered(2))

        reply = desk.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageById(offset, TOPIC))

        words = f"can not find message by the offset, {offset}"
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)


class TestQueueEntries:
    def test_they_are_shown_as_apache_shows_them(self, desk: Desk) -> None:
        results = [put(desk.store, message(b"x", tags=tag)) for tag in ("red", "", "blue")]

        reply = desk.entries(index=1, count=5)

        assert reply.code == ResponseCode.SUCCESS
        assert json.loads(reply.body) == {
            "maxQueueIndex": 3,
            "minQueueIndex": 0,
            "queueData": [
                {
                    "eval": False,
                    "physicOffset": result.physical_offset,
                    "physicSize": result.end - result.physical_offset,
                    "tagsCode": code,
                }
                for result, code in zip(results[1:], (0, string_hash("blue")), strict=True)
            ],
        }

    def test_what_a_group_wants_is_shown_with_them(self, desk: Desk) -> None:
        put(desk.store, message(b"x", tags="red"))
        desk.join(consuming(group="G", topics={TOPIC: "red || blue"}))

        shown = json.loads(desk.entries(consumer_group="G").body)

        assert shown["subscriptionData"]["subString"] == "red || blue"
        assert shown["filterData"] == "null"

    def test_or_that_the_group_is_not_there(self, desk: Desk) -> None:
        put(desk.store, message(b"x"))
        desk.join(consuming(group="G", topics="T"))

        for group in ("G", "H"):
            shown = json.loads(desk.entries(consumer_group=group).body)
            assert shown["filterData"] == f"{group}@{TOPIC} is not online!"
            assert "subscriptionData" not in shown

    def test_of_a_queue_that_does_not_exist_there_are_none(self, desk: Desk) -> None:
        reply = desk.entries(queue_id=7)

        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "7@orders is not exist!")

    @pytest.mark.parametrize("index", [-1, 2, 99])
    def test_outside_of_the_queue_there_are_none(self, desk: Desk, index: int) -> None:
        put_all(desk.store, *numbered(2))

        reply = desk.entries(index=index)

        assert (reply.code, reply.body) == (ResponseCode.SUCCESS, b"")
        assert reply.remark == f"Index {index} of 0@orders is not exist!"

    def test_they_are_not_shown_without_end(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(query, "ENTRIES_MAX", 3)
        put_all(desk.store, *numbered(5))

        assert len(json.loads(desk.entries(count=2**31 - 1).body)["queueData"]) == 3
        assert ENTRIES_MAX < 10_000

    @pytest.mark.slow  # reads all recordings
    def test_what_was_recorded_is_understood(self, desk: Desk) -> None:
        put(desk.store, message(b"x", topic="Wire"))

        replies = desk.ask_all(*recorded_requests(RequestCode.QUERY_CONSUME_QUEUE))

        assert [reply.code for reply in replies] == [ResponseCode.SUCCESS] * 2
        assert all(len(json.loads(reply.body)["queueData"]) == 1 for reply in replies)
