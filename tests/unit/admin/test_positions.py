import pytest

from cometmq.admin.positions import (
    Bounds,
    Earliest,
    Latest,
    Offset,
    Position,
    Shift,
    Time,
    offset_at,
)


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (Earliest(), 10),
        (Latest(), 90),
        (Offset(40), 40),
        (Offset(3), 10),
        (Offset(500), 90),
        (Shift(5), 55),
        (Shift(-5), 45),
        (Shift(-500), 10),
        (Shift(500), 90),
    ],
)
def test_a_position_is_an_offset_that_the_queue_has(position: Position, offset: int) -> None:
    assert offset_at(position, Bounds(10, 90, 50)) == offset


def test_a_time_is_where_the_search_found_it() -> None:
    bounds = Bounds(10, 90, 50)

    assert offset_at(Time(1000), bounds, found=60) == 60
    assert offset_at(Time(1000), bounds, found=0) == 10


def test_a_shift_of_a_group_that_is_nowhere_begins_at_the_first_message() -> None:
    assert offset_at(Shift(3), Bounds(10, 90, None)) == 13
