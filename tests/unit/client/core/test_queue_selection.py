import random
from collections import Counter
from typing import Any

import pytest

from cometmq.client.core.queue_selection import (
    RoundRobin,
    at_random,
    by_key,
    by_selector,
)
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue
from tests.interop import vectors


def is_small_negative_long(vector: dict[str, Any]) -> bool:
    """We take such a number for an Integer; Java's Long of it has another hash."""
    return bool(vector["kind"] == "long" and -(2**31) <= vector["key"] < 0)


def queues_of(*brokers: str, each: int = 4) -> list[MessageQueue]:
    return [MessageQueue("orders", broker, number) for broker in brokers for number in range(each)]


@pytest.mark.parametrize("start", [0, 1, 7, 998, 2**31])
def test_sends_are_spread_evenly_over_all_queues(start: int) -> None:
    queues, turns = queues_of("a", "b"), RoundRobin(start)

    counts = Counter(turns.take(queues) for _ in range(8_000))

    assert len(counts) == 8
    assert all(abs(count - 1_000) <= 1 for count in counts.values())


def test_turns_go_on_when_the_list_changes() -> None:
    turns = RoundRobin(5)
    turns.take(queues_of("a", "b"))

    shorter = queues_of("a", each=2)

    assert {turns.take(shorter) for _ in range(2)} == set(shorter)


def test_a_retry_goes_to_another_broker() -> None:
    queues, turns = queues_of("a", "b"), RoundRobin(0)

    for _ in range(20):
        last = turns.take(queues).broker_name
        assert turns.take(queues, last).broker_name != last


def test_a_retry_with_one_broker_goes_to_its_next_queue() -> None:
    queues, turns = queues_of("a"), RoundRobin(0)

    assert [turns.take(queues, "a").queue_id for _ in range(5)] == [0, 1, 2, 3, 0]


def test_good_brokers_are_taken_in_turn() -> None:
    queues, turns = queues_of("a", "b", "c", each=2), RoundRobin(0)

    found = [turns.take_where(queues, lambda name: name != "b") for _ in range(8)]

    assert Counter(found) == dict.fromkeys(queues_of("a", "c", each=2), 2)


def test_no_good_broker_takes_no_turn() -> None:
    queues, turns = queues_of("a"), RoundRobin(2)

    assert turns.take_where(queues, lambda _: False) is None
    assert turns.take(queues).queue_id == 2


@pytest.mark.parametrize(
    "vector",
    [one for one in vectors.read("client-producer-queues") if not is_small_negative_long(one)],
    ids=lambda one: ascii(f"{one['kind']} {str(one['key'])[:10]} {one['queues']}"),
)
def test_a_key_has_the_queue_that_java_chooses(vector: dict[str, Any]) -> None:
    key = vector["key"]
    queues = queues_of("a", each=vector["queues"])

    assert by_key(queues, key).queue_id == vector["index"]


def test_any_queue_may_come_at_random() -> None:
    queues = queues_of("a", "b")
    source = random.Random(1)

    assert {at_random(queues, source) for _ in range(200)} == set(queues)


class TestSelectors:
    def test_a_selector_answers_with_a_queue_or_its_index(self) -> None:
        queues = queues_of("a", "b")

        assert by_selector(queues, lambda found, _: found[5], None) is queues[5]
        assert by_selector(queues, lambda _found, message: message, 3) is queues[3]

    @pytest.mark.parametrize("chosen", [8, -1, True, None, MessageQueue("orders", "c", 0), "a"])
    def test_anything_else_is_refused(self, chosen: Any) -> None:
        with pytest.raises(InvalidArgument, match="none of the 8 queues"):
            by_selector(queues_of("a", "b"), lambda *_: chosen, None)

    def test_what_it_raises_is_the_cause(self) -> None:
        def selector(*_: object) -> MessageQueue:
            raise KeyError("customer")

        with pytest.raises(InvalidArgument, match=r"raised KeyError\('customer'\)") as refused:
            by_selector(queues_of("a"), selector, None)

        assert isinstance(refused.value.__cause__, KeyError)
