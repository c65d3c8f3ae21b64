"""Messages handed back by consumers: where their copies go, and when nothing is done."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.config import BrokerSettings
from cometmq.broker.delay.delivery import LevelDelivery
from cometmq.broker.delay.levels import DelayLevels
from cometmq.broker.groups import GroupTable
from cometmq.broker.handlers.send_back import SendBackHandlers
from cometmq.broker.topics import TopicTable
from cometmq.codec import properties, record
from cometmq.codec.codes import V5_5_0, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.send import ConsumerSendMsgBack
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.record import Record
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.topic import SCHEDULE_TOPIC, TopicConfig
from cometmq.remoting.routes import Routes
from cometmq.store.check import check
from cometmq.store.config import DELAY_LEVELS
from cometmq.store.documents import ConfigDocuments
from cometmq.testing import FakeClock
from tests.unit.broker.fake_channel import FakeChannel, Reply
from tests.unit.store.builders import HOST, all_records, message, open_store, put

GROUP = "GID_test"
RETRY = f"%RETRY%{GROUP}"
DEAD = f"%DLQ%{GROUP}"
OUR_HOST = record.pack_host("10.0.0.7", 10911)
SUCCESS = (ResponseCode.SUCCESS, None)


class Ground:
    """A broker as far as handing back is concerned, with a fake clock."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.clock = FakeClock()
        self.store = open_store(root, clock=self.clock, log_file_bytes=256 * 1024)
        documents = ConfigDocuments(root)
        broker = BrokerSettings(**settings)
        self.topics = TopicTable(documents.topics, broker, self.clock)
        self.groups = GroupTable(documents.groups, broker, self.clock)
        levels = DelayLevels(self.store.settings.delays_ms())
        self.handlers = SendBackHandlers(
            self.store, self.topics, self.groups, levels, settings=broker, host="10.0.0.7",
            store_host=OUR_HOST, chance=random.Random(4),
        )  # fmt: skip
        self.routes = Routes()
        self.handlers.add_to(self.routes)
        self.delivery = LevelDelivery(
            self.store, levels, documents.delay_offsets, self.clock, self.store.put
        )

    def hand_back(self, offset: int, level: int = 0, **fields: Any) -> Reply:
        version = fields.pop("version", V5_5_0)
        header = ConsumerSendMsgBack(offset, GROUP, level, **fields)
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        command = Command(code, version=version, ext=header.to_ext())
        (reply,) = FakeChannel().ask(self.routes, command)
        return reply

    def aside(self, level: int) -> list[Record]:
        """Messages put aside for a level."""
        return list(all_records(self.store, SCHEDULE_TOPIC, level - 1))


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path / "store")
    yield made
    made.store.close()
    assert check(made.root).is_consistent


def outcome(reply: Reply) -> tuple[int, str | None]:
    assert reply.header is None
    return reply.code, reply.remark


def test_a_message_handed_back_waits_for_its_first_retry(ground: Ground) -> None:
    first = put(ground.store, message(b"failed", queue_id=1, tags="T"))

    reply = ground.hand_back(first.physical_offset)

    assert outcome(reply) == SUCCESS
    (copy,) = ground.aside(3)
    assert (copy.body, copy.reconsume_times, copy.store_host) == (b"failed", 1, OUR_HOST)
    assert properties.decode(copy.properties) == {
        "TAGS": "T",
        "DELAY": "3",
        "WAIT": "false",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": encode_offset_id(HOST, first.physical_offset),
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }


def test_the_retry_topic_is_made_as_the_group_wants_it(ground: Ground) -> None:
    ground.groups.put(SubscriptionGroupConfig(GROUP, retry_queue_nums=4))
    first = put(ground.store, message())

    for _ in range(20):
        ground.hand_back(first.physical_offset, unit_mode=True)

    config = ground.topics.by_name[RETRY].config
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)
    assert config.topic_sys_flag == 2
    chosen = {properties.decode(copy.properties)["REAL_QID"] for copy in ground.aside(3)}
    assert chosen == {"0", "1", "2", "3"}
    assert ground.topics.by_name[RETRY].put_count == 20


def test_a_chosen_level_counts_up_to_the_last(ground: Ground) -> None:
    first = put(ground.store, message())

    ground.hand_back(first.physical_offset, 1)
    ground.hand_back(first.physical_offset, 100)

    assert (len(ground.aside(1)), len(ground.aside(18))) == (1, 1)


@pytest.mark.parametrize(
    ("level", "fields"), [(-1, {}), (0, {"max_reconsume_times": 0})], ids=["asked for", "too often"]
)
def test_a_dead_message_goes_to_the_dead_letters_at_once(
    ground: Ground, level: int, fields: dict[str, int]
) -> None:
    first = put(ground.store, message(b"dead"))

    reply = ground.hand_back(first.physical_offset, level, **fields)

    assert outcome(reply) == SUCCESS
    (copy,) = all_records(ground.store, DEAD)
    assert (copy.body, copy.reconsume_times) == (b"dead", 1)
    assert properties.decode(copy.properties)["DELAY"] == "0"
    config = ground.topics.by_name[DEAD].config
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_an_old_client_cannot_change_the_limit(ground: Ground) -> None:
    first = put(ground.store, message())

    ground.hand_back(first.physical_offset, max_reconsume_times=0, version=120)

    assert len(ground.aside(3)) == 1


def test_a_group_that_wants_no_retries_gets_none(ground: Ground) -> None:
    ground.groups.put(SubscriptionGroupConfig(GROUP, retry_queue_nums=0))
    first = put(ground.store, message())

    reply = ground.hand_back(first.physical_offset)

    assert outcome(reply) == SUCCESS
    assert ground.store.log_end == first.end
    assert ground.topics.get(RETRY) is None


def test_a_group_that_cannot_exist_is_refused(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", auto_create_subscription_group=False)

    reply = ground.hand_back(0)

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert outcome(reply) == (code, f"subscription group not exist, {GROUP}")
    ground.store.close()


def test_a_broker_that_takes_no_messages_refuses_these_too(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "store", broker_permission=4)
    first = put(ground.store, message())

    reply = ground.hand_back(first.physical_offset)

    remark = "the broker[10.0.0.7] sending message is forbidden"
    assert outcome(reply) == (ResponseCode.NO_PERMISSION, remark)
    ground.store.close()


def test_a_retry_topic_that_takes_no_messages_refuses_them(ground: Ground) -> None:
    ground.topics.put(TopicConfig(RETRY, 1, 1, perm=4))
    first = put(ground.store, message())

    reply = ground.hand_back(first.physical_offset)

    remark = f"the topic[{RETRY}] sending message is forbidden"
    assert outcome(reply) == (ResponseCode.NO_PERMISSION, remark)


@pytest.mark.parametrize("offset", [-1, 1, 10**9])
def test_an_offset_without_a_message_is_refused(ground: Ground, offset: int) -> None:
    put(ground.store, message())

    reply = ground.hand_back(offset)

    remark = f"look message by offset failed, {offset}"
    assert outcome(reply) == (ResponseCode.SYSTEM_ERROR, remark)


def test_an_offset_inside_a_body_that_looks_like_a_record_is_refused(ground: Ground) -> None:
    looks = (200).to_bytes(4, "big") + record.MAGIC_V1.to_bytes(4, "big", signed=True)
    first = put(ground.store, message(looks + b"\xff" * 300))
    offset = first.physical_offset + 88

    reply = ground.hand_back(offset)

    remark = f"look message by offset failed, {offset}"
    assert outcome(reply) == (ResponseCode.SYSTEM_ERROR, remark)


def test_a_store_that_takes_no_messages_is_named_by_its_status(ground: Ground) -> None:
    text = b"x\x01" + b"v" * 32_700
    first = put(ground.store, message(properties=text))

    reply = ground.hand_back(first.physical_offset)

    assert outcome(reply) == (ResponseCode.SYSTEM_ERROR, "PROPERTIES_SIZE_EXCEEDED")
    assert ground.topics.by_name[RETRY].put_count == 0


def test_a_request_without_an_offset_is_an_error(ground: Ground) -> None:
    command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext={"group": GROUP})

    (reply,) = FakeChannel().ask(ground.routes, command)

    remark = "CONSUMER_SEND_MSG_BACK: field 'offset' is missing"
    assert outcome(reply) == (ResponseCode.SYSTEM_ERROR, remark)


def test_the_default_schedule_from_the_first_failure_to_the_dead_letters(ground: Ground) -> None:
    """Sixteen retries, after the delays of levels 3 to 18; the 17th failure is the last."""
    assert ground.store.settings.delay_levels == DELAY_LEVELS
    first = put(ground.store, message(b"never works", tags="T"))
    offset, origin = first.physical_offset, encode_offset_id(HOST, first.physical_offset)
    waited = []

    for attempt in range(1, 17):
        failed_ms = ground.clock.now_ms()
        assert outcome(ground.hand_back(offset)) == SUCCESS
        while (wake_ms := ground.delivery.step(ground.clock.now_ms())) is not None:
            assert ground.store.max_offset(RETRY, 0) == attempt - 1, "delivered too early"
            ground.clock.advance((wake_ms - ground.clock.now_ms()) / 1000)
        waited.append((ground.clock.now_ms() - failed_ms) // 1000)
        found = list(all_records(ground.store, RETRY))[-1]
        assert found.reconsume_times == attempt
        offset = found.physical_offset
    ground.hand_back(offset)

    minutes = [60 * minute for minute in range(1, 11)]
    assert waited == [10, 30, *minutes, 1200, 1800, 3600, 7200]
    assert ground.delivery.step(ground.clock.now_ms()) is None
    (dead,) = all_records(ground.store, DEAD)
    assert (dead.body, dead.reconsume_times, dead.topic) == (b"never works", 17, DEAD)
    text = properties.decode(dead.properties)
    assert (text["RETRY_TOPIC"], text["ORIGIN_MESSAGE_ID"]) == ("orders", origin)
    assert (text["DELAY"], text["TAGS"]) == ("0", "T")


def test_what_comes_back_is_counted_for_the_topic_it_was_sent_to(ground: Ground) -> None:
    offset = put(ground.store, message(topic="orders")).physical_offset
    ground.hand_back(offset)
    ground.clock.advance(10)
    ground.delivery.step(ground.clock.now_ms())
    (again,) = all_records(ground.store, RETRY)

    ground.hand_back(again.physical_offset)

    assert ground.handlers.returned == {("orders", GROUP): [2]}
    assert ground.handlers.buried == {}


def test_dead_letters_are_counted_too(ground: Ground) -> None:
    offset = put(ground.store, message(topic="orders")).physical_offset

    ground.hand_back(offset, level=-1)

    assert ground.handlers.returned == {("orders", GROUP): [1]}
    assert ground.handlers.buried == {("orders", GROUP): [1]}
