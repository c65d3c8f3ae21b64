"""Sending: what is stored, and what the producer is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.codec import batch, properties, record, sysflag
from cometmq.codec.batch import BatchItem
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessage
from cometmq.codec.message_id import decode_offset_id
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import SCHEDULE_TOPIC, TopicConfig, TopicFilterType
from cometmq.store.config import FlushMode
from tests.unit.broker import tables
from tests.unit.broker.data_path import PROPERTIES, TOPIC, WAITING_MAX, DataPath, sending
from tests.unit.broker.fake_channel import FakeChannel, request

ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
SENDER = record.pack_host("127.0.0.1", 40001)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[DataPath]:
    with DataPath(tmp_path) as path:
        yield path


class TestAnswer:
    def test_it_says_where_the_message_lies(self, path: DataPath) -> None:
        path.send()
        reply = path.send(queue_id=0)

        (_, second) = path.stored()
        assert reply.code == ResponseCode.SUCCESS
        assert reply.ext["queueId"] == "0"
        assert reply.ext["queueOffset"] == "1"
        found = decode_offset_id(reply.ext["msgId"])
        assert (found.ip, found.port) == ("127.0.0.1", 10911)
        assert found.physical_offset == second.physical_offset

    def test_it_has_what_producers_look_for(self, path: DataPath) -> None:
        reply = path.send()

        assert reply.ext["transactionId"] == PROPERTIES["UNIQ_KEY"]
        assert reply.ext["MSG_REGION"] == "DefaultRegion"
        assert reply.ext["TRACE_ON"] == "true"

    def test_sends_of_one_read_are_answered_in_order(self, path: DataPath) -> None:
        replies = path.send_frames(*(sending(b"%d" % n, queue_id=n % 4) for n in range(8)))

        assert [reply.opaque for reply in replies] == list(range(8))
        assert [reply.ext["queueOffset"] for reply in replies] == ["0"] * 4 + ["1"] * 4

    def test_one_bad_send_does_not_spoil_the_others_of_its_read(self, path: DataPath) -> None:
        replies = path.send_frames(sending(b"a"), sending(b"b", queue_id=9), sending(b"c"))

        codes = [reply.code for reply in replies]
        assert codes == [0, ResponseCode.INVALID_PARAMETER, 0]
        assert [item.body for item in path.stored()] == [b"a", b"c"]

    def test_a_one_way_send_is_stored_and_not_answered(self, path: DataPath) -> None:
        header, body = sending()
        command = request(RequestCode.SEND_MESSAGE_V2, header, body, is_oneway=True)

        assert path.channel.ask(path.routes, command) == []
        path.loop.turn()
        assert len(path.stored()) == 1

    def test_long_and_short_names_mean_the_same(self, path: DataPath) -> None:
        path.send(b"short")
        path.send(b"long", kind=SendMessage)

        assert [item.body for item in path.stored()] == [b"short", b"long"]


class TestRecord:
    def test_it_is_what_was_sent_and_what_the_broker_adds(self, path: DataPath) -> None:
        path.send(b"body", flag=7, born_timestamp=5, reconsume_times=2)

        (item,) = path.stored()
        assert (item.topic, item.queue_id, item.body, item.flag) == (TOPIC, 0, b"body", 7)
        assert (item.born_timestamp, item.reconsume_times) == (5, 2)
        assert (item.born_host, item.store_host) == (SENDER, record.pack_host("127.0.0.1", 10911))
        assert properties.decode(item.properties) == {**PROPERTIES, **ADDED}

    def test_a_compressed_body_is_stored_as_it_came(self, path: DataPath) -> None:
        path.send(b"\x78\x9c\x03", sys_flag=sysflag.COMPRESSED | 0x300)

        (item,) = path.stored()
        assert item.body == b"\x78\x9c\x03"
        assert item.sys_flag == sysflag.COMPRESSED | 0x300

    def test_a_property_string_may_lack_its_last_separator(self, path: DataPath) -> None:
        path.send(text="UNIQ_KEY\x01A\x02TAGS\x01red")

        (item,) = path.stored()
        assert properties.decode(item.properties) == {"UNIQ_KEY": "A", "TAGS": "red", **ADDED}

    def test_a_message_without_unique_key_gets_one(self, path: DataPath) -> None:
        reply = path.send(text="TAGS\x01red\x02")

        (item,) = path.stored()
        assert properties.decode(item.properties)["UNIQ_KEY"] == reply.ext["transactionId"]
        assert len(reply.ext["transactionId"]) == 32

    def test_what_the_broker_sets_is_not_taken_from_the_sender(self, path: DataPath) -> None:
        asked = {"CLUSTER": "mine", "POP_CK": "x", "__RMQ.TRANSIENT.a": "b", "colour": "red"}

        path.send(asked=asked)

        (item,) = path.stored()
        text = item.properties.decode()
        assert properties.decode(text) == {**PROPERTIES, "colour": "red", **ADDED}
        assert text.count("CLUSTER") == 1

    def test_flags_that_only_a_broker_sets_are_taken_off(self, path: DataPath) -> None:
        """A record that says its hosts are IPv6 and has IPv4 ones could not be read."""
        path.send(sys_flag=0x10 | 0x20 | 0x40 | 0x80)

        (item,) = path.stored()
        assert item.sys_flag == 0
        assert item.born_host == SENDER

    def test_a_sender_with_an_ipv6_address_is_kept_as_such(self, path: DataPath) -> None:
        path.channel = FakeChannel("[2001:db8::7]:40001")

        path.send()

        (item,) = path.stored()
        assert item.sys_flag == sysflag.BORN_HOST_V6
        assert item.born_host == record.pack_host("2001:db8::7", 40001)

    def test_messages_of_topics_with_several_tags_say_so(self, path: DataPath) -> None:
        path.topics.put(
            TopicConfig("many", 1, 1, topic_filter_type=TopicFilterType.MULTI_TAG, attributes={})
        )

        path.send(topic="many")

        (item,) = path.stored("many")
        assert item.sys_flag == sysflag.MULTI_TAGS


class TestTopics:
    def test_a_new_one_is_made_after_the_default_topic(self, path: DataPath) -> None:
        reply = path.send(topic="fresh", default_topic_queue_nums=2)

        assert reply.code == ResponseCode.SUCCESS
        topic = path.topics.get("fresh")
        assert topic is not None
        assert topic.write_queue_count == 2

    def test_without_auto_creation_it_is_unknown(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, auto_create_topic_enable=False) as path:
            reply = path.send(topic="fresh")

        assert reply.code == ResponseCode.TOPIC_NOT_EXIST
        assert (reply.remark or "").startswith("topic[fresh] not exist, apply first please!")

    @pytest.mark.parametrize("name", ["", "a b", "ü", "x" * 128, "../etc"])
    def test_a_name_that_cannot_be_one_is_refused(self, name: str, path: DataPath) -> None:
        reply = path.send(topic=name)

        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert (reply.remark or "").startswith("The specified topic")
        assert path.topics.get(name) is None

    @pytest.mark.parametrize("name", [SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC"])
    def test_nobody_sends_to_the_broker_s_own(self, name: str, path: DataPath) -> None:
        reply = path.send(topic=name)

        assert reply.code == ResponseCode.NO_PERMISSION
        assert reply.remark == f"Sending message to topic[{name}] is forbidden."

    def test_a_negative_queue_is_any(self, path: DataPath) -> None:
        replies = [path.send(queue_id=-1) for _ in range(40)]

        assert {reply.ext["queueId"] for reply in replies} == {"0", "1", "2", "3"}

    def test_a_queue_beyond_the_last_is_refused(self, path: DataPath) -> None:
        path.send()
        reply = path.send(queue_id=4)

        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert (reply.remark or "").startswith("request queueId[4] is illegal")

    def test_one_that_shrinks_is_noticed_at_once(self, path: DataPath) -> None:
        path.send(queue_id=3)
        path.topics.put(TopicConfig(TOPIC, 1, 1, attributes={}))

        assert path.send(queue_id=3).code == ResponseCode.INVALID_PARAMETER

    def test_so_is_one_that_is_deleted(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, auto_create_topic_enable=False) as path:
            path.send()
            path.topics.delete(TOPIC)

            assert path.send().code == ResponseCode.TOPIC_NOT_EXIST

    def test_an_ordered_one_takes_nothing_from_a_broker_that_may_not_be_written_to(
        self, tmp_path: Path
    ) -> None:
        with DataPath(tmp_path, broker_permission=4) as path:
            tables.add_topic(path.topics, "ordered", order=True)

            assert path.send(topic="ordered").code == ResponseCode.NO_PERMISSION
            assert path.send().code == ResponseCode.SUCCESS


class TestLimits:
    def test_a_body_up_to_the_limit_is_taken(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, store={"message_bytes_max": 100}) as path:
            assert path.send(b"x" * 100).code == ResponseCode.SUCCESS
            reply = path.send(b"x" * 101)

        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert "limit 100B" in (reply.remark or "")

    def test_a_message_needs_a_body(self, path: DataPath) -> None:
        assert path.send(b"").code == ResponseCode.MESSAGE_ILLEGAL

    def test_properties_have_room_for_the_broker_s_own(self, path: DataPath) -> None:
        assert path.send(asked={"long": "x" * 32_767}).code == ResponseCode.MESSAGE_ILLEGAL

    def test_nothing_is_taken_before_its_time(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, start_accept_send_request_ms=1_700_000_005_000) as path:
            early = path.send()
            path.clock.advance(5)
            late = path.send()

        assert early.code == ResponseCode.SYSTEM_ERROR
        assert (early.remark or "").startswith("broker unable to service, until 20")
        assert late.code == ResponseCode.SUCCESS

    def test_a_store_that_takes_nothing_says_why(self, path: DataPath) -> None:
        path.store.watermarks.fail("disk /dev/sda is broken")
        path.store.flush_step()

        reply = path.send()

        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "disk /dev/sda is broken" in (reply.remark or "")


class TestBatch:
    ITEMS = tuple(BatchItem(n, b"%d" % n, b"UNIQ_KEY\x01%d\x02" % n) for n in range(3))

    @pytest.mark.parametrize("kind", [SendMessage, None])
    def test_each_message_is_stored_and_has_an_id(
        self, kind: type[SendMessage] | None, path: DataPath
    ) -> None:
        names = {} if kind is None else {"kind": kind}
        reply = path.send(batch.encode(self.ITEMS), batch=True, **names)

        stored = path.stored()
        ids = [decode_offset_id(text).physical_offset for text in reply.ext["msgId"].split(",")]
        assert [item.body for item in stored] == [b"0", b"1", b"2"]
        assert [item.physical_offset for item in stored] == ids
        assert reply.ext["queueOffset"] == "0"

    def test_its_properties_are_stored_as_they_came(self, path: DataPath) -> None:
        path.send(batch.encode(self.ITEMS), batch=True)

        assert path.stored()[1].properties == b"UNIQ_KEY\x011\x02"

    def test_a_broken_one_is_refused_whole(self, path: DataPath) -> None:
        reply = path.send(batch.encode(self.ITEMS)[:-1], batch=True)

        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert path.stored() == []

    def test_the_flag_of_the_cpp_client_counts_only_for_a_batch(self, path: DataPath) -> None:
        """It writes 1 for true where others have other meanings for a number."""
        header, _ = sending(kind=SendMessage)
        ext = {**header.to_ext(), "batch": "1"}
        for body in (b"no batch", batch.encode(self.ITEMS)):
            command = request(RequestCode.SEND_MESSAGE, header, body)
            command.ext = ext
            (reply,) = path.channel.ask(path.routes, command)
            assert reply.code == ResponseCode.SUCCESS
        path.loop.turn()

        assert [item.body for item in path.stored()] == [b"no batch", b"0", b"1", b"2"]

    def test_retry_topics_take_none(self, path: DataPath) -> None:
        path.groups.obtain("readers")

        reply = path.send(batch.encode(self.ITEMS), topic="%RETRY%readers", batch=True)

        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert reply.remark == "batch request does not support retry group %RETRY%readers"


class TestDelay:
    def test_a_delayed_message_waits_in_the_queue_of_its_level(self, path: DataPath) -> None:
        reply = path.send(queue_id=2, asked={"DELAY": "3"})

        (item,) = path.stored(SCHEDULE_TOPIC, 2)
        kept = properties.decode(item.properties)
        assert (kept["REAL_TOPIC"], kept["REAL_QID"]) == (TOPIC, "2")
        assert (reply.ext["queueId"], reply.ext["queueOffset"]) == ("2", "0")
        assert path.stored(queue_id=2) == []

    @pytest.mark.parametrize("level", ["0", "-1"])
    def test_a_level_below_one_delays_nothing(self, level: str, path: DataPath) -> None:
        path.send(asked={"DELAY": level})

        assert len(path.stored()) == 1

    def test_what_is_no_level_is_refused_rather_than_ignored(self, path: DataPath) -> None:
        reply = path.send(asked={"DELAY": "soon"})

        assert reply.code == ResponseCode.MESSAGE_ILLEGAL
        assert path.stored() == []

    def test_a_message_with_a_delivery_time_is_put_aside(self, path: DataPath) -> None:
        reply = path.send(asked={"TIMER_DELAY_MS": "5000"})

        assert reply.code == ResponseCode.SUCCESS
        assert path.stored() == []
        (waiting,) = path.stored("rmq_sys_wheel_timer")
        assert waiting.body == b"hello"

    def test_with_a_level_a_delivery_time_does_not_count(self, path: DataPath) -> None:
        path.send(asked={"DELAY": "1", "TIMER_DELAY_MS": "5000"})

        assert path.stored("rmq_sys_wheel_timer") == []
        (waiting,) = path.stored("SCHEDULE_TOPIC_XXXX")
        assert b"TIMER" not in waiting.properties


class TestTransactions:
    def test_half_messages_are_refused(self, path: DataPath) -> None:
        reply = path.send(sys_flag=4, asked={"TRAN_MSG": "true", "PGROUP": "writers"})

        assert reply.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (reply.remark or "")

    def test_so_is_what_looks_like_one_and_could_never_be_read(self, path: DataPath) -> None:
        assert path.send(sys_flag=4).code == ResponseCode.NO_PERMISSION

    def test_a_retry_of_an_old_client_may_still_have_the_mark(self, path: DataPath) -> None:
        reply = path.send(reconsume_times=1, asked={"TRAN_MSG": "true", "DELAY": "2"})

        assert reply.code == ResponseCode.SUCCESS


class TestRetryTopics:
    RETRY, DEAD = "%RETRY%readers", "%DLQ%readers"

    def test_a_copy_stays_until_its_attempts_are_used_up(self, path: DataPath) -> None:
        path.send(topic=self.RETRY, reconsume_times=2, max_reconsume_times=2)
        path.send(b"dead", topic=self.RETRY, reconsume_times=3, max_reconsume_times=2)

        assert len(path.stored(self.RETRY)) == 1
        assert [item.body for item in path.stored(self.DEAD)] == [b"dead"]

    def test_dead_letters_do_not_wait(self, path: DataPath) -> None:
        asked = {"DELAY": "3"}

        path.send(topic=self.RETRY, reconsume_times=3, max_reconsume_times=2, asked=asked)

        assert len(path.stored(self.DEAD)) == 1

    def test_a_group_that_consumes_in_order_has_tried_already(self, path: DataPath) -> None:
        path.locks.lock("readers", "client", [MessageQueue(TOPIC, "broker-a", 0)])

        path.send(topic=self.RETRY, reconsume_times=1, max_reconsume_times=16)

        assert len(path.stored(self.DEAD)) == 1

    def test_without_its_group_there_is_no_retry_topic(self, tmp_path: Path) -> None:
        with DataPath(tmp_path, auto_create_subscription_group=False) as path:
            reply = path.send(topic=self.RETRY)

        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class TestWaitingForTheDisk:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Iterator[DataPath]:
        with DataPath(tmp_path, store={"flush_mode": FlushMode.SYNC_FLUSH}) as path:
            yield path

    def test_senders_are_answered_when_their_messages_are_on_disk(self, path: DataPath) -> None:
        assert path.send_frames(sending(b"a"), sending(b"b")) == []

        path.store.flush_step()
        path.loop.turn()

        assert [reply.code for reply in path.later()] == [0, 0]

    def test_but_not_those_who_do_not_care(self, path: DataPath) -> None:
        assert path.send(asked={"WAIT": "false"}).code == ResponseCode.SUCCESS

    def test_after_a_while_they_are_told_that_it_takes_too_long(self, path: DataPath) -> None:
        path.send_frames(sending(b"a"))

        path.loop.advance(5.1)

        (reply,) = path.later()
        assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert reply.ext["queueOffset"] == "0"

    def test_when_too_many_wait_no_more_are_taken(self, path: DataPath) -> None:
        path.send_frames(*(sending(b"%d" % number) for number in range(WAITING_MAX)))

        reply = path.send(b"too much")

        assert reply.code == ResponseCode.SYSTEM_BUSY
        assert "wait for the disk" in (reply.remark or "")
        assert len(path.stored()) == WAITING_MAX
