"""Which times of delivery are taken, and how a message is put aside for one."""

from random import Random
from typing import Any

import pytest

from cometmq.broker.delay.timer_rules import TimerRules
from cometmq.codec import properties, recall_handle
from cometmq.codec.codes import ResponseCode
from cometmq.codec.recall_handle import RecallHandle
from cometmq.errors import BrokerError
from cometmq.store import NewMessage
from cometmq.testing import FakeClock
from tests.golden.store_data import load
from tests.unit.broker import tables
from tests.unit.store.builders import message, property_text

NOW_MS = 1_700_000_000_400
TIMER_TOPIC = "rmq_sys_wheel_timer"


class Crowd:
    """So many messages are due at any time."""

    def __init__(self, count: int) -> None:
        self.count = count

    def count_at(self, due_ms: int) -> int:
        return self.count


def rules(**settings: Any) -> TimerRules:
    return TimerRules(tables.broker_settings(**settings), FakeClock(NOW_MS), Random(1))


def asking(**asked: str) -> NewMessage:
    return message(b"later", "orders", 3, properties=property_text(UNIQ_KEY="A", **asked))


def text_of(found: NewMessage) -> dict[str, str]:
    return properties.decode(found.properties)


@pytest.mark.parametrize(
    ("asked", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": "2"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "2500"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "2600"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "2601"}, 1_700_000_003_000),
        ({"TIMER_DELIVER_MS": "1700000005000"}, 1_700_000_004_000),
        ({"TIMER_DELIVER_MS": "1700000005001"}, 1_700_000_005_000),
        ({"TIMER_DELAY_MS": "1"}, 1_700_000_000_000),
        ({"TIMER_DELAY_SEC": "+2"}, 1_700_000_002_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "9000"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "2000", "TIMER_DELIVER_MS": "1"}, 1_700_000_002_000),
        ({"TIMER_DELAY_SEC": "259200"}, 1_700_259_200_000),
    ],
)
def test_a_message_waits_in_the_step_that_ends_when_its_time_has_come(
    asked: dict[str, str], out_ms: int
) -> None:
    put_aside = rules().diverted(asking(**asked))

    assert (put_aside.topic, put_aside.queue_id) == (TIMER_TOPIC, 0)
    assert text_of(put_aside) == {
        "UNIQ_KEY": "A",
        **asked,
        "TIMER_OUT_MS": str(out_ms),
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"TIMER_DELIVER_MS": "1699999999999"},
        {"TIMER_DELIVER_MS": str(NOW_MS)},
        {"TIMER_DELAY_MS": "0"},
        {"TIMER_DELAY_SEC": "-5"},
        {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1700000002000"},
    ],
)
def test_a_message_whose_time_came_or_was_kept_before_is_left_alone(asked: dict[str, str]) -> None:
    sent = asking(**asked)

    assert rules().diverted(sent) is sent


def test_what_is_sent_to_the_queue_of_the_timers_is_left_alone() -> None:
    sent = message(b"raw", TIMER_TOPIC, properties=property_text(TIMER_DELAY_SEC="5"))

    assert rules().diverted(sent) is sent


@pytest.mark.parametrize(
    "asked",
    [
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELAY_MS": "1.5"},
        {"TIMER_DELIVER_MS": "9" * 30},
        {"TIMER_DELAY_SEC": "\u0663"},
        {"TIMER_DELAY_SEC": "soon", "TIMER_DELAY_MS": "5000"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "A"},
    ],
)
def test_a_time_that_cannot_be_kept_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(BrokerError) as refused:
        rules().diverted(asking(**asked))

    assert refused.value.response_code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.value.remark == (
        "timer message illegal, the delay time should not be bigger than the max delay"
        " 259200000ms; or if set del msg, the delay time should be bigger than the current time"
    )


def test_when_timers_are_off_all_are_refused() -> None:
    with pytest.raises(BrokerError) as refused:
        rules(timer_wheel_enable=False).diverted(asking(TIMER_DELAY_SEC="5"))

    assert refused.value.response_code == ResponseCode.SYSTEM_ERROR
    assert "timerWheelEnable is false" in str(refused.value)


@pytest.mark.parametrize(("count", "refused_min", "refused_max"), [(10, 0, 0), (20, 100, 100)])
def test_a_full_slot_takes_no_more(count: int, refused_min: int, refused_max: int) -> None:
    assert refused_min <= refusals_at(count) <= refused_max


def test_a_slot_that_is_rather_full_takes_some() -> None:
    assert 0 < refusals_at(12) < refusals_at(18) < 100


def refusals_at(count: int) -> int:
    """How many of 100 messages are refused for a slot with so many; 10 are fine."""
    made = rules(timer_congest_num_each_slot=10)
    made.crowd = Crowd(count)
    refused = 0
    for _ in range(100):
        try:
            made.diverted(asking(TIMER_DELAY_SEC="5"))
        except BrokerError as error:
            refused += "under flow control" in error.remark
    return refused


def test_a_handle_says_where_and_when_the_message_waits() -> None:
    made = rules()

    handle = made.recall_handle(made.diverted(asking(TIMER_DELAY_SEC="5")), "A")

    assert handle is not None
    expected = RecallHandle("orders", tables.BROKER, 1_700_000_005_001, "A")
    assert recall_handle.decode(handle) == expected


@pytest.mark.parametrize(
    ("topic", "key", "delay"),
    [("orders", "A", "0"), ("%RETRY%G", "A", "5"), ("orders", "a b", "5")],
)
def test_there_is_no_handle_for_what_cannot_be_taken_back(topic: str, key: str, delay: str) -> None:
    made = rules()
    text = property_text(UNIQ_KEY=key, TIMER_DELAY_SEC=delay)

    assert made.recall_handle(made.diverted(message(b"", topic, properties=text)), key) is None


def test_properties_are_those_that_apache_leaves() -> None:
    """For each message that 5.5.0 had put aside: from what was sent the same is made."""
    messages = load("5.5.0-clean").manifest["messages"]
    waiting = [found for found in messages if found["topic"] == TIMER_TOPIC]
    assert len(waiting) >= 15
    added = {"TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID"}

    for found in waiting:
        theirs = found["properties"]
        sent = property_text(**{name: theirs[name] for name in theirs if name not in added})
        plain = message(b"", theirs["REAL_TOPIC"], int(theirs["REAL_QID"]), properties=sent)
        clock = FakeClock(found["storeTimestamp"])
        made = TimerRules(tables.broker_settings(), clock, Random(1)).diverted(plain)

        assert text_of(made) == theirs
