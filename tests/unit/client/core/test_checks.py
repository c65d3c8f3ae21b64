"""Refusals compared with those of Java's own checks, and the sentences that come with them."""

from collections.abc import Callable
from typing import Any

import pytest

from cometmq.client.core import checks
from cometmq.errors import InvalidArgument, SettingsError
from cometmq.model.limits import BODY_BYTES_MAX
from cometmq.model.offsets import MessageQueue
from tests.interop import vectors

VECTORS = [one for one in vectors.read("client-producer-checks") if "5.5.0" in one["releases"]]

STRICTER = {
    ("group", "DEFAULT_PRODUCER"),  # Java refuses it elsewhere
    ("topic", "rmq_sys_wheel_timer"),  # brokers refuse it
    ("property", "a\x01b"),  # arrives as another property
    ("property", "color", "a\x02b"),  # arrives cut off
}
"""What we refuse and Java's checks do not."""


def refuses(check: Callable[..., object], *arguments: object) -> bool:
    try:
        check(*arguments)
    except InvalidArgument:
        return True
    return False


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(one, id=ascii(str(one["value"])[:40]) + f" {number}")
        for number, one in enumerate(VECTORS)
        if one["check"] == kind
    ]


@pytest.mark.parametrize("vector", of_kind("group"))
def test_groups_are_refused_as_by_java(vector: dict[str, Any]) -> None:
    group = vector["value"]

    is_refused = refuses(checks.check_producer_group, group)

    assert is_refused == (vector["refused"] or ("group", group) in STRICTER)


@pytest.mark.parametrize("vector", of_kind("topic"))
def test_topics_are_refused_as_by_java(vector: dict[str, Any]) -> None:
    topic = vector["value"]

    is_refused = refuses(checks.check_sendable, topic)

    assert is_refused == (vector["refused"] or ("topic", topic) in STRICTER)


@pytest.mark.parametrize("vector", of_kind("body"))
def test_bodies_are_refused_as_by_java(vector: dict[str, Any]) -> None:
    body = None if vector["value"] < 0 else bytes(vector["value"])

    assert refuses(checks.check_body, body, BODY_BYTES_MAX) == vector["refused"]


@pytest.mark.parametrize("vector", of_kind("property"))
def test_properties_are_refused_as_by_java(vector: dict[str, Any]) -> None:
    name, value = vector["value"], vector["text"]

    is_refused = refuses(checks.check_properties, {name: value})

    is_stricter = ("property", name) in STRICTER or ("property", name, value) in STRICTER
    assert is_refused == (vector["refused"] or is_stricter)


def test_every_name_that_java_reserves_is_in_the_list() -> None:
    reserved = {
        one["value"]
        for one in VECTORS
        if one["check"] == "property" and one["refused"] and one["text"] == "x"
    }

    assert {name for name in reserved if name.strip()} == checks.RESERVED_PROPERTIES


def test_what_4_9_refuses_is_refused_too() -> None:
    old = [one for one in vectors.read("client-producer-checks") if "4.9.7" in one["releases"]]

    for vector in old:
        if vector["check"] == "property" and vector["refused"]:
            assert refuses(checks.check_properties, {vector["value"]: vector["text"]}), vector
        if vector["check"] == "topic" and vector["refused"]:
            assert refuses(checks.check_sendable, vector["value"]), vector


def test_consumers_may_not_use_javas_name_for_no_group() -> None:
    assert refuses(checks.check_consumer_group, "DEFAULT_CONSUMER")
    assert not refuses(checks.check_consumer_group, "DEFAULT_PRODUCER")
    assert refuses(checks.check_consumer_group, "a b")


@pytest.mark.parametrize("namespace", ["n%s", "a b", "%", "é"])
def test_a_namespace_that_could_not_be_taken_off_again_is_refused(namespace: str) -> None:
    assert refuses(checks.check_namespace, namespace)


@pytest.mark.parametrize("namespace", ["", "ns", "MQ_INST_1_2"])
def test_other_namespaces_are_fine(namespace: str) -> None:
    assert not refuses(checks.check_namespace, namespace)


def test_a_body_may_be_any_kind_of_bytes() -> None:
    assert not refuses(checks.check_body, bytearray(b"x"), 10)
    assert not refuses(checks.check_body, memoryview(b"x"), 10)
    assert refuses(checks.check_body, "text", 10)
    assert refuses(checks.check_body, memoryview(b""), 10)


@pytest.mark.parametrize("tag", [" ", "a\x01b", "a\x02", 5])
def test_a_tag_is_text_without_separators(tag: object) -> None:
    assert refuses(checks.check_tag, tag)


def test_keys_are_joined_by_blanks() -> None:
    assert checks.joined_keys("k1 k2") == "k1 k2"
    assert checks.joined_keys(["k1", "k2"]) == "k1 k2"
    assert checks.joined_keys(iter(["k1"])) == "k1"
    assert checks.joined_keys([]) == ""


@pytest.mark.parametrize("keys", [" ", "a\x01", "a\x02", ["a b"], [""], ["a\x02"], [5], 5])
def test_keys_that_would_not_arrive_as_they_are_get_refused(keys: Any) -> None:
    assert refuses(checks.joined_keys, keys)


@pytest.mark.parametrize("key", ["", " ", "a\x01", "a\x02", 5])
def test_an_ordering_key_is_text_that_says_something(key: object) -> None:
    assert refuses(checks.check_ordering_key, key)
    assert not refuses(checks.check_ordering_key, "user-17")


@pytest.mark.parametrize(
    "properties",
    [{5: "x"}, {"a": 5}, {"INNER_MULTI_DISPATCH": "a/b"}, {"a": "b\x01"}, [("a", "b")]],
)
def test_properties_are_pairs_of_text(properties: Any) -> None:
    assert refuses(checks.check_properties, properties)


@pytest.mark.parametrize(("kind", "level"), [("zlib", 10), ("zlib", 15), ("zstd", 0)])
def test_a_level_that_the_compression_lacks_is_refused_before_a_body_needs_it(
    kind: str, level: int
) -> None:
    with pytest.raises(SettingsError, match=f"{kind} has no level {level}"):
        checks.check_compression(kind, level)


@pytest.mark.parametrize(("kind", "level"), [("zlib", 0), ("zlib", 9), ("zstd", 22), ("lz4", 5)])
def test_levels_that_exist_are_fine(kind: str, level: int) -> None:
    checks.check_compression(kind, level)


@pytest.mark.parametrize("flag", [2**31, -(2**31) - 1, "1", 0.0, 1.5, True])
def test_a_flag_has_32_bits(flag: Any) -> None:
    assert refuses(checks.checked_flag, flag)
    assert checks.checked_flag(-(2**31)) == -(2**31)


@pytest.mark.parametrize(
    ("delay_ms", "delay_level", "deliver_at_ms"),
    [
        (1, 1, None),
        (1, None, 1),
        (None, 1, 1),
        (1, 1, 1),
        (None, 0, None),
        (None, 19, None),
        (None, True, None),
        (-1, None, None),
        (2**63, None, None),
        (None, None, 0),
        (None, None, True),
        (None, None, 1_795_122_893),
        (None, None, 10**11 - 1),
        (None, None, 2**63),
    ],
)
def test_impossible_delays_and_two_of_them_are_refused(
    delay_ms: int | None, delay_level: int | None, deliver_at_ms: int | None
) -> None:
    assert refuses(checks.check_delay, delay_ms, delay_level, deliver_at_ms)


@pytest.mark.parametrize(
    "delays", [(None, None, None), (0, None, None), (None, 1, None), (None, 18, None)]
)
def test_other_delays_are_fine(delays: tuple[int | None, ...]) -> None:
    assert not refuses(checks.check_delay, *delays)


def test_a_queue_belongs_to_the_topic_of_the_message() -> None:
    queue = MessageQueue("orders", "broker-a", 0)

    assert not refuses(checks.check_queue, queue, "orders")
    assert refuses(checks.check_queue, queue, "bills")


@pytest.mark.parametrize(("broker", "number"), [("broker-a", -1), ("broker-a", "0"), (None, 0)])
def test_a_queue_that_no_broker_has_is_refused(broker: Any, number: Any) -> None:
    """Brokers would take -1 for any of theirs."""
    assert refuses(checks.check_queue, MessageQueue("orders", broker, number), "orders")


@pytest.mark.parametrize(
    "values", [b"abc", "abc", bytearray(b"abc"), memoryview(b"abc"), {"id": 1}, None, 5]
)
def test_one_value_is_not_taken_for_many(values: Any) -> None:
    """Each letter of a text would be a message of its own."""
    assert refuses(checks.listed_values, values)
    assert checks.listed_values(iter(["a", b"b"])) == ["a", b"b"]


@pytest.mark.parametrize("timeout", [0, -1, "5", 2.5, float("nan"), float("inf"), True, 2**63])
def test_a_timeout_is_a_number_of_milliseconds(timeout: Any) -> None:
    assert refuses(checks.checked_timeout, timeout)
    assert checks.checked_timeout(1) == 1
    assert checks.checked_timeout(0, minimum=0) == 0


@pytest.mark.parametrize("level", [99, -7, "x", 1.0, None, True])
def test_a_level_of_return_is_one_that_brokers_have(level: Any) -> None:
    assert refuses(checks.check_level_of_return, level)
    assert not any(refuses(checks.check_level_of_return, known) for known in (-1, 0, 18))


def test_a_number_is_no_queue() -> None:
    """Each broker of the topic has a queue of that number."""
    assert not refuses(checks.check_is_queue, MessageQueue("orders", "broker-a", 0))
    assert refuses(checks.check_is_queue, 0)


@pytest.mark.parametrize(
    ("check", "arguments", "sentence"),
    [
        (
            checks.check_sendable,
            ("a b",),
            (
                "topic 'a b' has characters that are not allowed;"
                " use letters, digits and the characters % | _ -"
            ),
        ),
        (
            checks.check_sendable,
            ("SCHEDULE_TOPIC_XXXX",),
            "topic 'SCHEDULE_TOPIC_XXXX' is the brokers' own; send to a topic of yours",
        ),
        (
            checks.check_properties,
            ({"TAGS": "x"},),
            "property 'TAGS' is RocketMQ's own; use tag= for it",
        ),
        (
            checks.check_delay,
            (1, 2, None),
            "delay and delay_level were given for one message; choose one of them",
        ),
        (
            checks.check_delay,
            (None, None, 1_795_122_893),
            (
                "1795122893 looks like seconds, and is in the past as milliseconds;"
                " say it in milliseconds since 1970, or as an aware datetime"
            ),
        ),
        (
            checks.check_body,
            (b"abc", 2),
            (
                "body of 3 bytes, at most 2 are allowed;"
                " send less, or raise body_bytes_max here and maxMessageSize of the brokers"
            ),
        ),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_to_do(
    check: Callable[..., object], arguments: tuple[object, ...], sentence: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check(*arguments)

    assert str(refused.value) == sentence


def test_a_long_name_is_not_shown_whole() -> None:
    with pytest.raises(InvalidArgument, match="has 100000 characters, at most 127") as refused:
        checks.check_topic("x" * 100_000)

    assert len(str(refused.value)) < 250
