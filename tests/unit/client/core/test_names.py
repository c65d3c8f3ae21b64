from typing import Any

import pytest

from cometmq.client.core import names
from cometmq.model.offsets import MessageQueue
from tests.interop import vectors

VECTORS = [one for one in vectors.read("client-producer-namespaces") if "5.5.0" in one["releases"]]


@pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda one: ascii(f"{one['namespace']} {one['name']}")
)
def test_names_are_wrapped_as_java_wraps_them(vector: dict[str, Any]) -> None:
    namespace, name = vector["namespace"], vector["name"]

    assert names.wrap_topic(namespace, name) == vector["wrapped"]
    assert names.wrap_group(namespace, name) == vector["wrapped"]
    assert names.unwrap_topic(namespace, name) == vector["unwrapped"]
    assert names.unwrap_group(namespace, name) == vector["unwrapped"]
    if name:
        assert names.retry_topic(names.wrap_group(namespace, name)) == vector["retry"]


def test_no_namespace_changes_nothing() -> None:
    assert names.wrap_topic(None, "orders") == "orders"
    assert names.unwrap_topic(None, "ns%orders") == "ns%orders"


def test_what_was_wrapped_is_unwrapped_to_what_it_was() -> None:
    for topic in ("orders", "%RETRY%billing", "%DLQ%billing", "TBW102", "other%orders"):
        assert names.unwrap_topic("ns", names.wrap_topic("ns", topic)) == topic


def test_a_queue_is_wrapped_with_its_topic() -> None:
    queue = MessageQueue("orders", "broker-a", 3)

    wrapped = names.wrap_queue("ns", queue)

    assert wrapped == MessageQueue("ns%orders", "broker-a", 3)
    assert names.unwrap_queue("ns", wrapped) == queue


def test_a_queue_that_needs_no_change_is_not_copied() -> None:
    queue = MessageQueue("orders", "broker-a", 3)

    assert names.wrap_queue("", queue) is queue
    assert names.unwrap_queue("ns", queue) is queue


def test_retry_and_dead_letter_topics_are_told_by_their_names() -> None:
    assert names.is_retry_topic(names.retry_topic("g"))
    assert names.is_dead_letter_topic(names.dead_letter_topic("g"))
    assert not names.is_retry_topic("orders")
    assert not names.is_dead_letter_topic("%RETRY%g")
