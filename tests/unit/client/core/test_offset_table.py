"""Offsets in memory: forward, back, frozen, forgotten."""

from cometmq.client.core.offset_table import OffsetTable
from cometmq.model.offsets import MessageQueue

A, B, C = (MessageQueue(topic, "broker-a", 0) for topic in ("a", "b", "c"))


def test_nothing_is_known_before_something_is_set() -> None:
    assert OffsetTable().get(A) is None


def test_a_table_may_begin_with_what_was_stored() -> None:
    assert OffsetTable({A: 5}).get(A) == 5


def test_advancing_never_goes_back() -> None:
    table = OffsetTable()

    table.advance(A, 0)
    table.advance(A, 7)
    table.advance(A, 3)

    assert table.get(A) == 7


def test_setting_goes_back_too() -> None:
    table = OffsetTable({A: 7})

    table.set(A, 3)

    assert table.get(A) == 3


def test_a_frozen_offset_withstands_late_handlers() -> None:
    table = OffsetTable({A: 7})

    table.freeze(A, 3)
    table.advance(A, 8)
    table.set(A, 9)

    assert table.get(A) == 3


def test_a_frozen_offset_can_be_frozen_elsewhere() -> None:
    table = OffsetTable()

    table.freeze(A, 3)
    table.freeze(A, 5)

    assert table.get(A) == 5


def test_a_queue_thaws_when_it_is_forgotten() -> None:
    table = OffsetTable()
    table.freeze(A, 3)

    table.forget(A)
    table.forget(B)
    table.advance(A, 4)

    assert table.get(A) == 4


def test_due_is_what_is_owned_and_the_rest_is_forgotten() -> None:
    table = OffsetTable({A: 1, B: 2})
    table.freeze(B, 2)

    assert table.due([A, C]) == {A: 1}

    table.advance(B, 3)
    assert table.due([A, B]) == {A: 1, B: 3}
    assert len(table) == 2


def test_what_did_not_change_is_due_again() -> None:
    table = OffsetTable({A: 1})

    assert table.due([A]) == table.due([A]) == {A: 1}


def test_offsets_can_be_asked_for_by_topic() -> None:
    table = OffsetTable({A: 1, B: 2})

    assert table.of_topic("a") == {A: 1}
    assert table.of_topic() == {A: 1, B: 2}
