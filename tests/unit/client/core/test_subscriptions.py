"""What a consumer wants, in the words of the protocol."""

from typing import Any

import pytest

from cometmq.client.core.subscriptions import joined, renewed, subscription, takes, wanted_tags
from cometmq.errors import SettingsError
from cometmq.model.group import SubscriptionData
from tests.interop import vectors

NAMELESS = (" ", "\t", "||", "|| ||")
"""Expressions without a tag: Java takes some for everything and refuses others."""


@pytest.mark.parametrize(
    "vector",
    [one for one in vectors.read("client-subscriptions") if one["expression"] not in NAMELESS],
    ids=lambda vector: repr(vector["expression"]),
)
def test_expressions_mean_what_they_mean_in_java(vector: dict[str, Any]) -> None:
    made = subscription("orders", tags=vector["expression"], version_ms=7)

    assert made.topic == "orders"
    assert made.sub_string == vector["text"]
    assert set(made.tags_set) == set(vector["tags"])
    assert sorted(made.code_set) == vector["codes"]
    assert made.expression_type == vector["type"]
    assert made.sub_version == 7
    assert not made.class_filter_mode


@pytest.mark.parametrize("expression", NAMELESS)
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(SettingsError, match="names no tag of topic orders; name the tags"):
        subscription("orders", tags=expression, version_ms=7)


def test_tags_may_be_a_list() -> None:
    made = subscription("orders", tags=["new", "paid"], version_ms=7)

    assert made == subscription("orders", tags="new || paid", version_ms=7)


@pytest.mark.parametrize("tags", [None, "", "*", ["*"]])
def test_without_tags_everything_is_wanted(tags: str | list[str] | None) -> None:
    made = subscription("orders", tags=tags, version_ms=7)

    assert made == SubscriptionData("orders", "*", sub_version=7)
    assert wanted_tags(made) is None
    assert takes(made, "any")
    assert takes(made, None)


@pytest.mark.parametrize(
    ("tags", "fact"),
    [
        ([], "the list is empty"),
        (["a", ""], "'' cannot be a tag"),
        (["a||b"], "'a||b' cannot be a tag"),
        ([" a"], "' a' cannot be a tag"),
        (["a", 5], "5 cannot be a tag"),
        (5, "5 is no tag"),
    ],
)
def test_lists_that_cannot_be_meant_are_refused(tags: Any, fact: str) -> None:
    with pytest.raises(SettingsError) as refused:
        joined(tags)

    assert refused.value.reason == fact


def test_a_condition_is_left_to_the_broker() -> None:
    made = subscription("orders", sql="a > 5", version_ms=7)

    assert made == SubscriptionData("orders", "a > 5", sub_version=7, expression_type="SQL92")
    assert takes(made, None)


def test_a_class_is_left_to_the_filter_server() -> None:
    made = subscription("orders", filter_class="com.example.Filter", version_ms=7)

    assert made == SubscriptionData(
        "orders", "com.example.Filter", sub_version=7, class_filter_mode=True
    )
    assert takes(made, "any")


@pytest.mark.parametrize("given", [{"sql": " "}, {"filter_class": ""}])
def test_an_empty_condition_or_class_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="is empty for topic orders"):
        subscription("orders", **given, version_ms=7)


@pytest.mark.parametrize("given", [{"sql": 5}, {"filter_class": b"com.example.Filter"}])
def test_a_condition_or_class_that_is_no_text_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="is no text"):
        subscription("orders", **given, version_ms=7)


def test_only_one_way_of_choosing_messages_is_possible() -> None:
    with pytest.raises(SettingsError) as refused:
        subscription("orders", tags="a", sql="a > 5", version_ms=7)

    assert str(refused.value) == (
        "setting 'tags': tags and sql cannot be combined for topic orders; give one of them"
    )


@pytest.mark.parametrize(
    ("tag", "is_wanted"), [("Aa", True), ("c", True), ("BB", False), ("aa", False), (None, False)]
)
def test_tags_are_compared_as_text(tag: str | None, is_wanted: bool) -> None:
    """``Aa`` and ``BB`` have the same hash, and hashes are all that a broker compares."""
    made = subscription("orders", tags="Aa || c", version_ms=7)

    assert takes(made, tag) is is_wanted


def test_a_renewed_subscription_is_newer_even_when_the_clock_was_set_back() -> None:
    made = subscription("orders", tags="a", version_ms=100)

    assert renewed(made, 150).sub_version == 150
    assert renewed(made, 50).sub_version == 101
    assert renewed(made, 50).tags_set == ("a",)
