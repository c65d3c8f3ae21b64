"""Shares of queues: the same that clients compute."""

import itertools

import pytest

from cometmq.broker.assignment import AVERAGE, CIRCLE, allocate
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", number) for number in range(count)]


def shares(queue_count: int, members: str, strategy: str) -> list[list[int]]:
    return [
        [queue.queue_id for queue in allocate(queues(queue_count), members, member, strategy)]
        for member in members
    ]


@pytest.mark.parametrize(
    ("queue_count", "members", "expected"),
    [
        (8, "a", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (8, "abc", [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, "ab", [[0, 1], [2, 3]]),
        (2, "abc", [[0], [1], []]),
        (0, "ab", [[], []]),
    ],
)
def test_averages_are_neighbouring_queues(
    queue_count: int, members: str, expected: list[list[int]]
) -> None:
    assert shares(queue_count, members, AVERAGE) == expected


def test_a_circle_deals_queues_one_by_one() -> None:
    assert shares(8, "abc", CIRCLE) == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize("strategy", [AVERAGE, CIRCLE])
def test_every_queue_has_exactly_one_owner(strategy: str) -> None:
    for queue_count, member_count in itertools.product(range(10), range(1, 7)):
        found = shares(queue_count, "abcdef"[:member_count], strategy)

        assert sorted(itertools.chain(*found)) == list(range(queue_count))
        assert max(map(len, found)) - min(map(len, found)) <= 1


def test_neither_the_order_given_nor_repeats_matter() -> None:
    assert allocate(reversed(queues(4)), ["b", "a", "b"], "a", AVERAGE) == queues(4)[:2]


def test_members_are_ordered_by_utf_16_units_as_in_java() -> None:
    """Surrogates come before the end of the basic plane, other than code points do."""
    members = ["\ufffd", "\U0001f600"]

    assert allocate(queues(2), members, "\U0001f600", AVERAGE) == queues(2)[:1]


def test_who_is_no_member_gets_nothing() -> None:
    assert allocate(queues(4), ["a"], "b", AVERAGE) == []


def test_strategies_that_need_to_know_the_client_are_refused() -> None:
    with pytest.raises(BrokerError) as refused:
        allocate(queues(4), ["a"], "a", "MACHINE_ROOM")

    assert refused.value.remark == (
        "queues cannot be divided by 'MACHINE_ROOM' here: use AVG or AVG_BY_CIRCLE"
    )
