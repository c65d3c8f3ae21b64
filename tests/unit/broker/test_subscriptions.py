"""What groups want of topics: tags, hashes, and where members disagree."""

import pytest

from cometmq.broker.subscriptions import (
    NOTHING,
    differences,
    subscription,
    tags_of,
    wishes_of,
)
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import HeartbeatData
from cometmq.codec.codes import ResponseCode
from cometmq.codec.java import string_hash
from cometmq.errors import BrokerError
from cometmq.model.group import SQL_EXPRESSION, SubscriptionData
from tests.golden.wire_frames import frames


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_an_asterisk_or_nothing_takes_every_message(expression: str) -> None:
    assert tags_of(expression) is None


@pytest.mark.parametrize(
    "expression", ["TagA||TagB", "TagA || TagB", " TagB||TagA ", "TagA || || TagB ||"]
)
def test_tags_are_trimmed_and_their_order_does_not_matter(expression: str) -> None:
    assert tags_of(expression) == frozenset({2598919, 2598920})


def test_a_tag_is_hashed_over_utf_16_units_with_a_sign() -> None:
    tags = tags_of("标签 || 😀 || polygenelubricants")

    assert tags == frozenset({string_hash("标签"), string_hash("😀"), -(2**31)})


@pytest.mark.parametrize("expression", ["||", " || ", "||||"])
def test_an_expression_without_any_tag_does_not_parse(expression: str) -> None:
    with pytest.raises(BrokerError) as refused:
        tags_of(expression)

    assert refused.value.response_code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert refused.value.remark == "parse the consumer's subscription failed"


def test_hashes_are_computed_here_and_not_taken_from_the_client() -> None:
    data = SubscriptionData("T", "TagA", ("TagA",), (0,), 7)

    wanted = subscription(data)

    assert wanted.tags == frozenset({2598919})
    assert (wanted.topic, wanted.expression, wanted.kind, wanted.version) == ("T", "TagA", "TAG", 7)
    assert wanted.data is data


def test_a_heartbeat_with_an_expression_without_tags_takes_no_message() -> None:
    assert subscription(SubscriptionData("T", "||")).tags == frozenset()


def test_an_empty_kind_of_expression_means_tags() -> None:
    wanted = subscription(SubscriptionData("T", "", expression_type=""))

    assert (wanted.kind, wanted.expression, wanted.tags) == ("TAG", "*", None)


def test_sql_and_class_filters_are_no_matter_of_tags() -> None:
    sql = subscription(SubscriptionData("T", "a > 2", expression_type=SQL_EXPRESSION))
    by_class = subscription(SubscriptionData("T", "com.example.F", class_filter_mode=True))

    assert (sql.kind, sql.expression, sql.tags) == ("SQL92", "a > 2", None)
    assert by_class.is_class_filter
    assert by_class.tags is None


def test_the_same_wishes_in_other_words_are_the_same() -> None:
    one = [SubscriptionData("T", "b || a", sub_version=1), SubscriptionData("U")]
    other = [SubscriptionData("U", ""), SubscriptionData("T", "a||b", sub_version=2)]

    assert wishes_of(one) == wishes_of(other)
    assert differences(wishes_of(one), wishes_of(other)) == []


def test_topics_of_retries_are_no_wishes() -> None:
    assert wishes_of([SubscriptionData("%RETRY%G"), SubscriptionData("T")]) == (("T", "'*'"),)


def test_differences_name_each_topic_with_both_wishes() -> None:
    mine = wishes_of([SubscriptionData("T", "a"), SubscriptionData("U"), SubscriptionData("V")])
    theirs = wishes_of(
        [SubscriptionData("T", "a > 1", expression_type="SQL92"), SubscriptionData("V")]
    )

    assert differences(mine, theirs) == [
        ("T", "'a'", "SQL92 a > 1"),
        ("U", "'*'", NOTHING),
    ]


def test_a_class_filter_differs_from_a_tag_of_the_same_name() -> None:
    by_class = wishes_of([SubscriptionData("T", "F", class_filter_mode=True)])

    assert differences(by_class, wishes_of([SubscriptionData("T", "F")])) == [
        ("T", "class filter F", "'F'")
    ]


def test_recorded_expressions_hash_as_java_hashed_them() -> None:
    checked = 0
    for frame in frames("java-5.5.0"):
        if frame.code == 34 and frame.kind == "request":
            for consumer in bodies.decode(HeartbeatData, frame.body).consumer_data_set:
                for data in consumer.subscription_data_set:
                    expected = frozenset(data.code_set) or None
                    assert subscription(data).tags == expected, frame.label
                    checked += 1

    assert checked > 0
