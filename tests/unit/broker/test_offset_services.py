"""Administrators at work on offsets: resets, questions to consumers, copies, comparisons."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.clients import Clients
from cometmq.broker.handlers import offset_services
from cometmq.broker.handlers.offset_services import (
    PENDING_SECONDS_MAX,
    STATUS_REQUESTS_MAX,
    STATUS_TIMEOUT_MS,
    OffsetServiceHandlers,
)
from cometmq.broker.handlers.offsets import OffsetHandlers
from cometmq.codec import bodies, fastjson
from cometmq.codec.bodies.offsets import (
    ConsumerOffsetTable,
    ConsumerStatusBody,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DelayOffsetTable,
    QueueTimeSpan,
    ResetOffsetBody,
)
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode, version_ordinal
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.clients import GetConsumerStatus
from cometmq.codec.headers.offsets import (
    CloneGroupOffset,
    QueryConsumerOffset,
    QueryCorrectionOffset,
    ResetOffset,
    UpdateConsumerOffset,
)
from cometmq.codec.headers.topics import QueryConsumeTimeSpan
from cometmq.errors import ConnectionLost, RequestTimeout
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import TopicConfig
from cometmq.remoting.routes import Routes
from cometmq.testing import FakeClock
from tests.unit.broker.answering_channel import AnsweringChannel
from tests.unit.broker.client_kit import consuming
from tests.unit.broker.fake_channel import FakeChannel, Notice, Reply, request
from tests.unit.broker.tables import (
    add_topic,
    broker_settings,
    consumer_offsets,
    group_table,
    recorded_requests,
    topic_table,
)
from tests.unit.store.builders import numbered, open_store, put_all

GROUP, TOPIC, BROKER = "readers", "orders", "broker-a"
RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
OLD, NEW = version_ordinal("4.9.8"), version_ordinal("5.5.0")
DELAYS = DelayOffsetTable({1: 5, 18: 0})


class Desk:
    """A store with one topic of two queues, its tables, and both handlers of offsets."""

    def __init__(self, folder: Path, *, offsets_max: int = 100, **settings: Any) -> None:
        self.clock = FakeClock()
        self.store = open_store(folder / "store", clock=self.clock)
        self.topics = topic_table(folder)
        self.groups = group_table(folder, **settings)
        self.offsets = consumer_offsets(folder, offsets_max=offsets_max)
        chosen = broker_settings(**settings)
        self.clients = Clients(self.groups, self.topics, chosen, self.clock)
        add_topic(self.topics, TOPIC, 2)
        self.groups.obtain(GROUP)
        self.routes = Routes()
        OffsetHandlers(self.offsets, self.topics, self.groups, self.store).add_to(self.routes)
        OffsetServiceHandlers(
            self.offsets,
            self.topics,
            self.groups,
            self.clients,
            self.store,
            broker_name=BROKER,
            settings=chosen,
            clock=self.clock,
            delay_table=lambda: DELAYS,
        ).add_to(self.routes)
        self.channel = FakeChannel()

    def ask_all(self, *commands: Command) -> list[Reply]:
        replies = self.channel.ask(self.routes, *commands)
        asyncio.run(self.channel.finish())
        replies, self.channel.replies = replies + self.channel.replies, []
        return replies

    def ask(self, code: RequestCode, header: Header | None = None) -> Reply:
        (reply,) = self.ask_all(request(code, header))
        return reply

    def reset(self, timestamp: int = -1, *, force: bool = True, **changes: Any) -> Reply:
        fields = {"topic": TOPIC, "group": GROUP, "timestamp": timestamp, **changes}
        return self.ask(RESET, ResetOffset(is_force=force, **fields))

    def status(self, client_id: str | None = None) -> Reply:
        return self.ask(STATUS, GetConsumerStatus(TOPIC, GROUP, client_id))

    def join(
        self,
        client_id: str = "c1",
        *,
        version: int = OLD,
        language: int = LanguageCode.JAVA,
        **answers: Any,
    ) -> AnsweringChannel:
        channel = AnsweringChannel(**answers)
        data = consuming(client_id, GROUP, {TOPIC: "*"})
        self.clients.heartbeat(channel, data, language=language, version=version)
        channel.notices.clear()
        return channel

    def scan_after(self, seconds: float) -> None:
        """What the broker does now and then, once these seconds have passed."""
        self.clock.advance(seconds)
        self.offsets.drop_expired_resets(self.clock.monotonic(), self.clients.may_pull)

    def three_a_second(self, seconds: int = 3) -> int:
        """Three messages to queue 0 in each second; when the first of them came."""
        begin_ms = self.clock.now_ms()
        for _ in range(seconds):
            put_all(self.store, *numbered(3))
            self.clock.advance(1)
        return begin_ms


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def table_of(reply: Reply) -> dict[int, int]:
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    table = bodies.decode(ResetOffsetBody, reply.body).offset_table
    assert {(queue.topic, queue.broker_name) for queue in table} == {(TOPIC, BROKER)}
    return {queue.queue_id: offset for queue, offset in table.items()}


def told(channel: FakeChannel) -> list[Notice]:
    return [
        notice
        for notice in channel.notices
        if notice.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    ]


class TestReset:
    def test_a_group_is_set_to_a_time(self, desk: Desk) -> None:
        begin_ms = desk.three_a_second()

        reply = desk.reset(begin_ms + 1000)

        assert reply.remark is None
        assert table_of(reply) == {0: 3, 1: 0}
        assert desk.offsets.get(GROUP, TOPIC, 0) == 3
        assert desk.offsets.is_reset(GROUP, TOPIC, 0)

    def test_or_to_the_end(self, desk: Desk) -> None:
        desk.three_a_second()

        assert table_of(desk.reset(-1)) == {0: 9, 1: 0}

    def test_or_one_queue_to_a_time_or_an_offset(self, desk: Desk) -> None:
        begin_ms = desk.three_a_second()

        assert table_of(desk.reset(begin_ms + 2000, queue_id=0, offset=-1)) == {0: 6}
        assert table_of(desk.reset(-1, queue_id=0, offset=4)) == {0: 4}
        assert table_of(desk.reset(-1, queue_id=0)) == {0: 9}
        assert not desk.offsets.is_reset(GROUP, TOPIC, 1)

    def test_all_readable_queues_are_meant(self, desk: Desk) -> None:
        desk.topics.put(TopicConfig(TOPIC, 3, 1, attributes={}))

        assert table_of(desk.reset()) == {0: 0, 1: 0, 2: 0}

    def test_an_offset_outside_of_the_queue_is_refused(self, desk: Desk) -> None:
        desk.three_a_second()

        for offset in (-2, 11):
            reply = desk.reset(queue_id=0, offset=offset)

            words = f"Target offset {offset} not in consume queue range [0-9]"
            assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)
        assert table_of(desk.reset(queue_id=0, offset=10)) == {0: 10}

    @pytest.mark.parametrize(
        ("place", "code", "remark"),
        [
            ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "Topic nowhere does not exist"),
            (
                {"group": "strangers"},
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                "Group strangers does not exist",
            ),
            (
                {"queue_id": 16_000_000},
                ResponseCode.INVALID_PARAMETER,
                "QueueId 16000000 not exist, topic is orders",
            ),
            (
                {"queue_id": 2, "offset": 0},
                ResponseCode.INVALID_PARAMETER,
                "QueueId 2 not exist, topic is orders",
            ),
        ],
    )
    def test_only_what_exists_is_reset(
        self, desk: Desk, place: dict[str, Any], code: int, remark: str
    ) -> None:
        reply = desk.reset(**place)

        assert (reply.code, reply.remark) == (code, remark)
        assert not desk.offsets.has_resets
        assert len(desk.offsets) == 0

    def test_a_queue_that_a_topic_had_before_it_shrank_is_reset(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.topics.put(TopicConfig(TOPIC, 0, 0, attributes={}))

        assert table_of(desk.reset(queue_id=0, offset=0)) == {0: 0}

    def test_a_topic_without_queues_to_read_has_nothing_to_reset(self, desk: Desk) -> None:
        desk.topics.put(TopicConfig(TOPIC, 0, 1, attributes={}))

        reply = desk.reset()

        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, "No queues to reset.")

    def test_a_full_table_says_so(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, offsets_max=1)

        reply = desk.reset()

        words = "the broker has 1 offsets: no new ones are kept"
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)
        desk.store.close()

    def test_many_queues_leave_others_time(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(offset_services, "QUEUES_AT_ONCE", 10)
        desk.topics.put(TopicConfig(TOPIC, 300, 300, attributes={}))
        desk.offsets._offsets_max = 1000
        turns = 0

        async def with_company() -> None:
            async def count_turns() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            company = asyncio.create_task(count_turns())
            desk.channel.ask(desk.routes, request(RESET, ResetOffset(TOPIC, GROUP, -1)))
            await desk.channel.finish()
            company.cancel()

        asyncio.run(with_company())

        assert len(table_of(desk.channel.replies[0])) == 300
        assert turns > 20


class TestPendingResets:
    def test_whoever_asks_is_told_the_new_offset(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.offsets.commit(GROUP, TOPIC, 0, 9)
        desk.reset(0)

        reply = desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(GROUP, TOPIC, 0))

        assert reply.ext == {"offset": "0"}

    def test_what_members_say_about_their_progress_does_not_count(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.reset(0)

        reply = desk.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(GROUP, TOPIC, 0, 9)
        )

        words = "Offset has been previously reset"
        assert (reply.code, reply.remark) == (ResponseCode.SUCCESS, words)
        assert desk.offsets.get(GROUP, TOPIC, 0) == 0

    def test_nor_after_any_time_while_a_member_may_come(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.join(version=NEW)
        desk.reset(0)

        desk.scan_after(10 * PENDING_SECONDS_MAX)

        header = UpdateConsumerOffset(GROUP, TOPIC, 0, 9)
        words = "Offset has been previously reset"
        assert desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).remark == words
        assert desk.offsets.take_reset(GROUP, TOPIC, 0, 9) == 0

    def test_they_are_not_kept_for_long_when_nobody_is_there(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.reset(0)

        desk.scan_after(PENDING_SECONDS_MAX - 1)
        assert desk.offsets.is_reset(GROUP, TOPIC, 0)
        desk.scan_after(1)
        assert not desk.offsets.has_resets
        assert desk.offsets.get(GROUP, TOPIC, 0) == 0

    def test_until_a_pull_was_told(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.reset(0)

        assert desk.offsets.take_reset(GROUP, TOPIC, 0, 9) == 0
        assert desk.offsets.take_reset(GROUP, TOPIC, 0, 9) is None
        header = UpdateConsumerOffset(GROUP, TOPIC, 0, 4)
        assert desk.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).remark is None
        assert desk.offsets.get(GROUP, TOPIC, 0) == 4

    def test_a_member_that_asked_and_begins_there_is_not_told(self, desk: Desk) -> None:
        desk.three_a_second()
        desk.reset(0)
        desk.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(GROUP, TOPIC, 0))

        assert desk.offsets.take_reset(GROUP, TOPIC, 0, 0) is None
        assert not desk.offsets.is_reset(GROUP, TOPIC, 0)
        assert desk.offsets.is_reset(GROUP, TOPIC, 1)


class TestTellingMembers:
    def test_old_clients_are_told_and_new_ones_notice_by_themselves(self, desk: Desk) -> None:
        begin_ms = desk.three_a_second()
        old, new = desk.join("old", version=OLD), desk.join("new", version=NEW)

        desk.reset(begin_ms + 1000)

        (notice,) = told(old)
        assert told(new) == []
        assert notice.header is not None
        assert notice.header.to_ext() == {
            "topic": TOPIC,
            "group": GROUP,
            "timestamp": str(begin_ms + 1000),
            "isForce": "false",
        }
        assert notice.body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:3,'
            b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}:0}}'
        )

    def test_cpp_clients_are_told_in_json_that_they_can_read(self, desk: Desk) -> None:
        desk.three_a_second()
        member = desk.join(language=LanguageCode.CPP, version=63)

        desk.reset(-1)

        (notice,) = told(member)
        queues = [
            {"brokerName": BROKER, "offset": offset, "queueId": queue, "topic": TOPIC}
            for queue, offset in ((0, 9), (1, 0))
        ]
        assert json.loads(notice.body) == {"offsetTable": queues}

    def test_many_cpp_clients_share_what_they_are_told(self, desk: Desk) -> None:
        desk.topics.put(TopicConfig(TOPIC, 300, 300, attributes={}))
        desk.offsets._offsets_max = 1000
        members = [desk.join(f"c{n}", language=LanguageCode.CPP, version=63) for n in range(3)]
        usual = desk.join("java")

        desk.reset()

        first, *others = [told(member)[0].body for member in members]
        assert len(json.loads(first)["offsetTable"]) == 300
        assert all(body is first for body in others)
        assert told(usual)[0].body != first

    def test_a_client_too_old_for_it_is_not_told(self, desk: Desk) -> None:
        member = desk.join(version=1)

        assert desk.reset().code == ResponseCode.SUCCESS
        assert told(member) == []

    def test_only_the_queue_that_was_reset_is_named(self, desk: Desk) -> None:
        desk.three_a_second()
        member = desk.join()

        desk.reset(queue_id=0, offset=2)

        (notice,) = told(member)
        assert bodies.decode(ResetOffsetBody, notice.body).offset_table == {
            MessageQueue(TOPIC, BROKER, 0): 2
        }


class TestResetByMembers:
    """As brokers before 5.2 do it."""

    @pytest.fixture
    def desk(self, tmp_path: Path) -> Iterator[Desk]:
        desk = Desk(tmp_path, use_server_side_reset_offset=False)
        yield desk
        desk.store.close()

    def commit_all(self, desk: Desk, offset: int) -> None:
        for queue_id in range(2):
            desk.offsets.commit(GROUP, TOPIC, queue_id, offset)

    def test_members_are_told_and_nothing_changes_here(self, desk: Desk) -> None:
        desk.three_a_second()
        self.commit_all(desk, 5)
        members = [desk.join("a"), desk.join("b", version=NEW)]

        assert table_of(desk.reset(-1)) == {0: 9, 1: 0}

        assert [len(told(member)) for member in members] == [1, 1]
        assert desk.offsets.get(GROUP, TOPIC, 0) == 5
        assert not desk.offsets.has_resets

    def test_without_force_a_group_only_goes_back(self, desk: Desk) -> None:
        begin_ms = desk.three_a_second()
        self.commit_all(desk, 5)
        desk.join()

        assert table_of(desk.reset(-1, force=False)) == {0: 5, 1: 0}
        assert table_of(desk.reset(begin_ms, force=False)) == {0: 0, 1: 0}

    def test_somebody_must_be_there(self, desk: Desk) -> None:
        self.commit_all(desk, 5)

        reply = desk.reset(-1)

        words = "Consumer not online, so can not reset offset, Group: readers Topic: orders"
        assert reply.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert reply.remark == f"{words} Timestamp: -1"

    def test_the_group_must_have_offsets(self, desk: Desk) -> None:
        desk.join()

        reply = desk.reset(-1)

        words = "THe consumer group <readers> not exist"
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)

    def test_the_topic_must_exist(self, desk: Desk) -> None:
        reply = desk.reset(topic="nowhere")

        words = "[reset-offset] reset offset failed, no topic in this broker. topic=nowhere"
        assert (reply.code, reply.remark) == (ResponseCode.TOPIC_NOT_EXIST, words)

    def test_a_client_too_old_for_it_is_named(self, desk: Desk) -> None:
        self.commit_all(desk, 5)
        desk.join(version=1)

        reply = desk.reset(-1)

        words = "the client does not support this feature. version=V3_0_0_ALPHA1"
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)


class TestStatus:
    HERE = MessageQueue(TOPIC, BROKER, 0)

    def said(self, offset: int) -> bytes:
        return bodies.encode(ConsumerStatusBody({self.HERE: offset}))

    def table(self, reply: Reply) -> dict[str, dict[MessageQueue, int]]:
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        return bodies.decode(ConsumerStatusBody, reply.body).consumer_table

    def test_every_member_is_asked(self, desk: Desk) -> None:
        one = desk.join("one", body=self.said(3))
        desk.join("two", body=self.said(4), version=NEW, language=LanguageCode.GO)

        reply = desk.status()

        assert self.table(reply) == {"one": {self.HERE: 3}, "two": {self.HERE: 4}}
        (asked,) = one.asked
        assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert asked.header == GetConsumerStatus(TOPIC, GROUP)
        assert one.timeout_ms == STATUS_TIMEOUT_MS < 5000

    def test_or_only_the_one_that_is_named(self, desk: Desk) -> None:
        one, two = desk.join("one", body=self.said(3)), desk.join("two", body=self.said(4))

        assert self.table(desk.status("two")) == {"two": {self.HERE: 4}}
        assert (len(one.asked), len(two.asked)) == (0, 1)
        assert len(self.table(desk.status(" "))) == 2

    def test_who_cannot_answer_is_left_out(self, desk: Desk) -> None:
        desk.join("silent", error=RequestTimeout("peer", STATUS_TIMEOUT_MS))
        desk.join("gone", error=ConnectionLost("peer", "gone"))
        desk.join("broken", body=b"no JSON")
        desk.join("refusing", code=1, body=self.said(1))
        desk.join("empty")
        desk.join("talking", body=self.said(3))
        mute = [
            desk.join(name, language=language, body=self.said(9))
            for name, language in (("cpp", LanguageCode.CPP), ("node", LanguageCode.NODE_JS))
        ]

        assert self.table(desk.status()) == {"talking": {self.HERE: 3}}
        assert [channel.asked for channel in mute] == [[], []]

    def test_somebody_must_be_there(self, desk: Desk) -> None:
        reply = desk.status()

        words = "No Any Consumer online in the consumer group: [readers]"
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)

    def test_only_so_many_may_ask_at_a_time(self, desk: Desk) -> None:
        desk.join(error=RequestTimeout("127.0.0.1:40001", STATUS_TIMEOUT_MS))
        asked = request(STATUS, GetConsumerStatus(TOPIC, GROUP))

        async def ask_many() -> list[Reply]:
            channels = [FakeChannel() for _ in range(STATUS_REQUESTS_MAX + 1)]
            for channel in channels:
                channel.ask(desk.routes, asked)
            await asyncio.gather(*(channel.finish() for channel in channels))
            return [channel.replies[0] for channel in channels]

        *served, refused = asyncio.run(ask_many())

        assert {reply.code for reply in served} == {ResponseCode.SUCCESS}
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == (
            "[REJECTREQUEST]consumers are being asked for 16 others at the moment, try later"
        )
        assert desk.status().code == ResponseCode.SUCCESS

    def test_long_tables_are_read_and_written_aside(self, desk: Desk) -> None:
        many = {MessageQueue(TOPIC, BROKER, number): number for number in range(600)}
        desk.join("one", body=bodies.encode(ConsumerStatusBody(many)))

        assert self.table(desk.status()) == {"one": many}


class TestTimeSpans:
    def spans(self, desk: Desk) -> tuple[QueueTimeSpan, ...]:
        reply = desk.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan(TOPIC, GROUP))
        return bodies.decode(ConsumeTimeSpans, reply.body).consume_time_span_set

    def test_they_tell_how_old_messages_are(self, desk: Desk) -> None:
        begin_ms = desk.three_a_second()
        desk.offsets.commit(GROUP, TOPIC, 0, 4)
        queues = [MessageQueue(TOPIC, BROKER, number) for number in range(2)]

        assert self.spans(desk) == (
            QueueTimeSpan(queues[0], begin_ms, begin_ms + 2000, begin_ms + 1000, 2000),
            QueueTimeSpan(queues[1], -1, -1, -1, 0),
        )

    def test_a_group_that_has_read_everything_is_not_late(self, desk: Desk) -> None:
        begin_ms = desk.three_a_second()
        desk.offsets.commit(GROUP, TOPIC, 0, 9)

        span = self.spans(desk)[0]

        assert (span.consume_time_stamp, span.delay_time) == (begin_ms + 2000, 0)

    def test_the_topic_must_exist(self, desk: Desk) -> None:
        reply = desk.ask(
            RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpan("nowhere", GROUP)
        )

        words = "topic[nowhere] not exist"
        assert (reply.code, reply.remark) == (ResponseCode.TOPIC_NOT_EXIST, words)


class TestCorrection:
    def offsets(self, desk: Desk, compared: str, left_out: str | None = None) -> dict[int, int]:
        header = QueryCorrectionOffset(TOPIC, compared, left_out)
        reply = desk.ask(RequestCode.QUERY_CORRECTION_OFFSET, header)
        assert reply.code == ResponseCode.SUCCESS
        return bodies.decode(CorrectionOffsets, reply.body).correction_offsets

    def test_the_slowest_group_counts(self, desk: Desk) -> None:
        for group, offset in (("fast", 9), ("slow", 2), ("middle", 5)):
            desk.offsets.commit(group, TOPIC, 0, offset)
        desk.offsets.commit("fast", TOPIC, 1, 3)
        desk.offsets.commit("slow", "bills", 0, 1)

        assert self.offsets(desk, "nobody") == {0: 2, 1: 3}
        assert self.offsets(desk, "nobody", "slow,middle") == {0: 9, 1: 3}
        assert desk.offsets.get("slow", TOPIC, 0) == 2

    def test_many_offsets_leave_others_time(self, desk: Desk) -> None:
        desk.offsets._offsets_max = 2000
        for queue_id in range(600):
            desk.offsets.commit(GROUP, TOPIC, queue_id, queue_id)
        turns = 0

        async def with_company() -> Reply:
            async def count_turns() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            company = asyncio.create_task(count_turns())
            header = QueryCorrectionOffset(TOPIC, "nobody")
            channel = FakeChannel()
            channel.ask(desk.routes, request(RequestCode.QUERY_CORRECTION_OFFSET, header))
            await channel.finish()
            company.cancel()
            return channel.replies[0]

        reply = asyncio.run(with_company())

        table = bodies.decode(CorrectionOffsets, reply.body).correction_offsets
        assert table == {queue_id: queue_id for queue_id in range(600)}
        assert turns >= 2

    def test_where_the_compared_group_is_slower_there_is_no_bound(self, desk: Desk) -> None:
        desk.offsets.commit("fast", TOPIC, 0, 9)
        desk.offsets.commit("fast", TOPIC, 1, 1)
        desk.offsets.commit("compared", TOPIC, 0, 3)
        desk.offsets.commit("compared", TOPIC, 1, 3)

        assert self.offsets(desk, "compared", "compared") == {0: (1 << 63) - 1, 1: 1}


class TestClone:
    def clone(self, desk: Desk, topic: str | None = None, *, offline: bool = False) -> Reply:
        header = CloneGroupOffset(GROUP, "copy", topic, offline=offline)
        return desk.ask(RequestCode.CLONE_GROUP_OFFSET, header)

    def test_the_offsets_of_a_topic_are_copied(self, desk: Desk) -> None:
        desk.offsets.commit(GROUP, TOPIC, 0, 5)
        desk.offsets.commit("copy", TOPIC, 1, 7)

        assert self.clone(desk, TOPIC).code == ResponseCode.SUCCESS
        assert desk.offsets.of("copy", TOPIC) == {0: 5}

    def test_or_of_all_topics_that_still_exist(self, desk: Desk) -> None:
        add_topic(desk.topics, "bills")
        for topic in (TOPIC, "bills", "gone"):
            desk.offsets.commit(GROUP, topic, 0, 5)

        self.clone(desk)

        assert desk.offsets.topics_of("copy") == ["bills", TOPIC]

    def test_only_of_topics_that_an_online_group_subscribes_to(self, desk: Desk) -> None:
        add_topic(desk.topics, "bills")
        for topic in (TOPIC, "bills"):
            desk.offsets.commit(GROUP, topic, 0, 5)
        desk.join()

        self.clone(desk)
        assert desk.offsets.topics_of("copy") == [TOPIC]
        self.clone(desk, offline=True)
        assert desk.offsets.topics_of("copy") == ["bills", TOPIC]

    def test_the_copy_is_a_group_from_now_on(self, desk: Desk) -> None:
        self.clone(desk)

        assert desk.groups.get("copy") is not None

    def test_which_must_be_allowed(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, auto_create_subscription_group=False)

        reply = self.clone(desk)

        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert reply.remark == "Group copy not exist!"
        desk.store.close()

    def test_a_full_table_says_so(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path, offsets_max=1)
        desk.offsets.commit(GROUP, TOPIC, 0, 5)

        reply = self.clone(desk)

        words = "the broker has 1 offsets: no new ones are kept"
        assert (reply.code, reply.remark) == (ResponseCode.SYSTEM_ERROR, words)
        desk.store.close()


class TestTables:
    def test_all_offsets_of_consumers_are_told(self, desk: Desk) -> None:
        desk.offsets.commit(GROUP, TOPIC, 1, 5)

        reply = desk.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)

        assert bodies.decode(ConsumerOffsetTable, reply.body).offset_table == {
            f"{TOPIC}@{GROUP}": {1: 5}
        }
        assert b"{1:5}" in reply.body
        assert desk.offsets.is_dirty, "they are still to be saved"

    def test_all_offsets_of_delay_levels_are_told(self, desk: Desk) -> None:
        reply = desk.ask(RequestCode.GET_ALL_DELAY_OFFSET)

        assert fastjson.loads(reply.body) == {"offsetTable": {1: 5, 18: 0}}


@pytest.mark.slow  # reads all recordings
def test_recorded_resets_are_answered_as_apache_did(desk: Desk) -> None:
    add_topic(desk.topics, "Wire", 4)
    for group in ("GID_bg", "GID_push"):
        desk.groups.obtain(group)

    replies = desk.ask_all(*recorded_requests(RESET))

    assert len(replies) == 5
    for reply in replies:
        assert reply.body == (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"Wire"}:0,'
            b'{"brokerName":"broker-a","queueId":1,"topic":"Wire"}:0,'
            b'{"brokerName":"broker-a","queueId":2,"topic":"Wire"}:0,'
            b'{"brokerName":"broker-a","queueId":3,"topic":"Wire"}:0}}'
        )
