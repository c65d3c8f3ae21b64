"""Taking messages back: what a producer asks, what it is told, and what is stored for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.broker.delay.timers import Timers
from cometmq.broker.handlers.recall import RecallHandlers
from cometmq.codec import properties, recall_handle
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.recall import RecallMessage
from cometmq.codec.recall_handle import RecallHandle
from tests.unit.broker import tables
from tests.unit.broker.data_path import TOPIC, DataPath
from tests.unit.broker.fake_channel import Reply, request
from tests.unit.broker.timer_ground import TIMER_TOPIC, WHEEL_SLOTS

KEY = "0A00000500002A9F0001"


class Recalling:
    """Sending and taking back; ``settings`` are the broker's."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        allowed = {"recall_message_enable": True, **settings}
        self.path = DataPath(folder, **allowed)
        chosen = tables.broker_settings(**allowed)
        plans = self.path.sends._plans
        RecallHandlers(
            self.path.store,
            self.path.topics,
            plans,
            plans.timers,
            settings=chosen,
            clock=self.path.clock,
        ).add_to(self.path.routes)
        store = self.path.store
        self.timers = Timers(store, chosen, self.path.clock, store.put, wheel_slots=WHEEL_SLOTS)

    def send_in(self, seconds: int) -> Reply:
        return self.path.send(asked={"TIMER_DELAY_SEC": str(seconds)})

    def recall(self, handle: str, topic: str = TOPIC, group: str | None = "writers") -> Reply:
        header = RecallMessage(topic, handle, group)
        command = request(RequestCode.RECALL_MESSAGE, header)
        (reply,) = self.path.channel.ask(self.path.routes, command)
        self.path.loop.turn()
        return reply

    def recall_of(self, **changes: Any) -> Reply:
        """Ask with a handle for a message that is due in a minute."""
        fields: dict[str, Any] = {
            "topic": TOPIC,
            "broker_name": tables.BROKER,
            "timestamp_ms": self.path.clock.now_ms() + 60_000,
            "unique_key": KEY,
            **changes,
        }
        return self.recall(recall_handle.encode(RecallHandle(**fields)))

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.path.clock.advance(1)
            while self.timers.step(self.path.clock.now_ms()) == self.path.clock.now_ms():
                self.path.loop.turn()
            self.path.loop.turn()


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Recalling]:
    made = Recalling(tmp_path)
    with made.path:
        yield made
        made.timers.close()


def test_the_answer_to_a_send_brings_the_handle(ground: Recalling) -> None:
    now_ms = ground.path.clock.now_ms()

    reply = ground.send_in(5)

    handle = recall_handle.decode(reply.ext["recallHandle"])
    assert handle == RecallHandle(TOPIC, tables.BROKER, now_ms + 4001, KEY)


def test_other_answers_do_not(ground: Recalling) -> None:
    assert "recallHandle" not in ground.path.send().ext
    assert "recallHandle" not in ground.path.send(asked={"TIMER_DELIVER_MS": "5"}).ext


def test_a_message_that_is_taken_back_never_comes(ground: Recalling) -> None:
    sent = ground.send_in(5)
    ground.path.send(b"other", asked={"TIMER_DELAY_SEC": "5", "UNIQ_KEY": "B"})

    reply = ground.recall(sent.ext["recallHandle"])
    ground.pass_time(10)

    assert reply.code == ResponseCode.SUCCESS
    assert reply.ext == {"msgId": KEY, "MSG_REGION": "DefaultRegion"}
    assert [found.body for found in ground.path.stored()] == [b"other"]


def test_what_is_stored_is_what_apache_stores(ground: Recalling) -> None:
    now_ms = ground.path.clock.now_ms()

    ground.recall_of(timestamp_ms=now_ms + 60_001)

    (stored,) = ground.path.stored(TIMER_TOPIC)
    assert stored.body == b"0"
    assert properties.decode(stored.properties) == {
        "TAGS": "_RECALL_TAG_",
        "TIMER_DEL_UNIQKEY": KEY,
        "UNIQ_KEY": KEY,
        "TIMER_DELIVER_MS": str(now_ms + 60_001),
        "BORN_TIMESTAMP": str(now_ms),
        "PGROUP": "writers",
        "TIMER_OUT_MS": str(now_ms + 60_000),
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "0",
    }


def test_taking_back_is_not_allowed_unless_it_is_switched_on(tmp_path: Path) -> None:
    ground = Recalling(tmp_path, recall_message_enable=False)

    with ground.path:
        reply = ground.recall_of()

    assert reply.code == ResponseCode.NO_PERMISSION
    assert (reply.remark or "").startswith("recall failed, operation is forbidden")


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "others"}, 604, "recall failed, topic not match"),
        ({"broker_name": "b"}, 604, "recall failed, broker service not available"),
        ({"timestamp_ms": 1}, 604, "recall failed, timestamp invalid"),
        ({"timestamp_ms": 1_700_000_000_000}, 604, "recall failed, timestamp invalid"),
        ({"timestamp_ms": 1_700_259_200_000}, 604, "recall failed, timestamp invalid"),
        ({"unique_key": "a\x02b"}, 604, "recall failed, property"),
    ],
)
def test_a_handle_that_does_not_fit_is_refused(
    ground: Recalling, changes: dict[str, Any], code: int, remark: str
) -> None:
    reply = ground.recall_of(**changes)

    assert reply.code == code
    assert (reply.remark or "").startswith(remark)
    assert ground.path.stored(TIMER_TOPIC) == []


def test_an_unknown_topic_is_refused(ground: Recalling) -> None:
    reply = ground.recall("djEg", topic="unknown")

    assert (reply.code, reply.remark) == (17, "recall failed, the topic[unknown] not exist")


@pytest.mark.parametrize("handle", ["", "djEg", "no handle", "\u00e4"])
def test_what_is_no_handle_is_refused(ground: Recalling, handle: str) -> None:
    reply = ground.recall(handle)

    assert reply.code == ResponseCode.ILLEGAL_OPERATION
    assert (reply.remark or "").startswith("recall handle ")


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"broker_permission": 4}, ResponseCode.SUCCESS),
        (
            {"broker_permission": 4, "allow_recall_when_broker_not_writeable": False},
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ),
        ({"start_accept_send_request_ms": 2**60}, ResponseCode.SERVICE_NOT_AVAILABLE),
        ({"timer_wheel_enable": False}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_broker_that_takes_no_messages_may_take_recalls(
    tmp_path: Path, settings: dict[str, Any], code: ResponseCode
) -> None:
    ground = Recalling(tmp_path, **settings)

    with ground.path:
        assert ground.recall_of().code == code


def test_a_store_that_takes_nothing_is_told(ground: Recalling) -> None:
    ground.path.store.watermarks.fail("broken disk")
    ground.path.store._update_refusal()

    reply = ground.recall_of()

    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert (reply.remark or "").startswith("recall failed, execute error: ")
