"""Where a queue begins: what is stored, and what else if nothing is."""

import datetime as dt

import pytest

from cometmq.client.core.positions import (
    Ask,
    Begin,
    Question,
    StartRule,
    Step,
    consume_timestamp_ms,
)
from cometmq.client.core.settings import Start
from cometmq.errors import RemoteProtocolError, SettingsError
from cometmq.model.group import ConsumeFromWhere

STORED = Ask(Question.STORED)


def test_the_stored_offset_is_asked_for_first() -> None:
    assert StartRule("first").begin() == STORED


def test_an_offset_in_memory_saves_the_question() -> None:
    assert StartRule("last").begin(0) == Begin(0)


@pytest.mark.parametrize("start", ["last", "first", 1_000])
@pytest.mark.parametrize("topic", ["orders", "%RETRY%g"])
def test_what_is_stored_always_counts(start: Start, topic: str) -> None:
    assert StartRule(start).next(topic, STORED, 0) == Begin(0)
    assert StartRule(start).next(topic, STORED, 42) == Begin(42)


@pytest.mark.parametrize(
    ("start", "topic", "expected"),
    [
        ("last", "orders", Ask(Question.END)),
        ("last", "%RETRY%g", Begin(0)),
        ("first", "orders", Begin(0)),
        ("first", "%RETRY%g", Begin(0)),
        (1_000, "orders", Ask(Question.TIME, 1_000)),
        (1_000, "%RETRY%g", Ask(Question.END)),
    ],
)
@pytest.mark.parametrize("stored", [None, -1])
def test_without_a_stored_offset_the_setting_decides(
    start: Start, topic: str, expected: Step, stored: int | None
) -> None:
    assert StartRule(start).next(topic, STORED, stored) == expected


@pytest.mark.parametrize("question", [Question.END, Question.TIME])
def test_the_answer_of_the_broker_is_where_it_begins(question: Question) -> None:
    assert StartRule("last").next("orders", Ask(question), 17) == Begin(17)


@pytest.mark.parametrize("answer", [None, -1])
def test_an_end_that_cannot_be_is_an_error(answer: int | None) -> None:
    with pytest.raises(RemoteProtocolError, match="after the last message of orders cannot be"):
        StartRule("last").next("orders", Ask(Question.END), answer)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("last", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        ("first", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        (1_000, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
    ],
)
def test_heartbeats_say_where_the_group_begins(start: Start, expected: ConsumeFromWhere) -> None:
    assert StartRule(start).where is expected


def test_the_time_of_javas_setting_is_local() -> None:
    local = dt.datetime(2024, 2, 29, 13, 5, 9).astimezone()

    assert consume_timestamp_ms("20240229130509") == local.timestamp() * 1000


@pytest.mark.parametrize(
    "text", ["", "20240230130509", "2024022913050", "2024-02-29 130", "x" * 14]
)
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is no time; write it as yyyyMMddHHmmss"):
        consume_timestamp_ms(text)
