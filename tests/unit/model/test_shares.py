"""The arithmetic that broker and clients share; the strategies' vectors judge it as well."""

import itertools
from collections.abc import Callable, Sequence

import pytest

from cometmq.model import shares
from cometmq.model.offsets import MessageQueue


def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    expected = [
        MessageQueue("a", "x", 2),
        MessageQueue("a", "x", 10),
        MessageQueue("a", "y", 0),
        MessageQueue("b", "x", 0),
    ]

    assert shares.ordered_queues(reversed(expected)) == expected


def test_names_are_ordered_by_utf_16_units_as_in_java() -> None:
    """Surrogates come before the end of the basic plane, other than code points do."""
    assert shares.ordered_names(["\ufffd", "\U0001f600", "b"]) == ["b", "\U0001f600", "\ufffd"]


@pytest.mark.parametrize("share", [shares.average_share, shares.circle_share])
def test_every_item_has_exactly_one_owner(
    share: Callable[[Sequence[int], int, int], Sequence[int]],
) -> None:
    for item_count, member_count in itertools.product(range(10), range(1, 7)):
        items = range(item_count)
        found = [share(items, position, member_count) for position in range(member_count)]

        assert sorted(itertools.chain(*found)) == list(items)
        assert max(map(len, found)) - min(map(len, found)) <= 1
