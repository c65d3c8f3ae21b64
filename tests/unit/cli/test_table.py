import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.cli.table import display_width, render_record, render_rows, wrap

NOTE = "of customers in Europe, the Middle East and Africa"
TOPICS = [
    {"topic": "orders", "queues": "8", "note": NOTE},
    {"topic": "payments", "queues": "16", "note": "-"},
]
COLUMNS = ("topic", "queues", "note")


def test_columns_are_aligned_under_their_headings() -> None:
    lines = render_rows(TOPICS, COLUMNS, width=None, right=frozenset({"queues"}))

    assert lines == [
        "TOPIC     QUEUES  NOTE",
        "orders         8  of customers in Europe, the Middle East and Africa",
        "payments      16  -",
    ]


def test_the_widest_cells_wrap_on_a_narrow_terminal() -> None:
    lines = render_rows(TOPICS, COLUMNS, width=40)

    assert lines == [
        "TOPIC     QUEUES  NOTE",
        "orders    8       of customers in",
        "                  Europe, the Middle",
        "                  East and Africa",
        "payments  16      -",
    ]


def test_rows_become_blocks_when_columns_would_be_too_narrow() -> None:
    lines = render_rows(TOPICS, COLUMNS, width=24)

    assert lines == [
        "topic   orders",
        "queues  8",
        "note    of customers in",
        "        Europe, the",
        "        Middle East and",
        "        Africa",
        "",
        "topic   payments",
        "queues  16",
    ]


def test_without_rows_there_are_only_headings() -> None:
    assert render_rows([], ("topic", "next_step"), width=80) == ["TOPIC  NEXT STEP"]


def test_wide_characters_count_twice_and_combining_ones_not_at_all() -> None:
    assert display_width("订单") == 4
    assert display_width("e\u0301") == 1

    lines = render_rows([{"a": "订单", "b": "1"}, {"a": "abcd", "b": "2"}], ("a", "b"), width=None)

    assert lines[1:] == ["订单  1", "abcd  2"]


def test_colour_does_not_disturb_the_alignment() -> None:
    def paint(column: str, text: str) -> str:
        return click.style(text, fg="green") if column == "topic" else text

    painted = render_rows(TOPICS, COLUMNS, width=40, paint=paint)

    assert painted != render_rows(TOPICS, COLUMNS, width=40)
    assert [click.unstyle(line) for line in painted] == render_rows(TOPICS, COLUMNS, width=40)


def test_a_record_is_a_list_of_its_fields() -> None:
    assert render_record({"topic": "orders", "read_queues": "8"}, width=None) == [
        "topic        orders",
        "read_queues  8",
    ]
    assert render_record({}, width=80) == []


@pytest.mark.slow
@given(st.text(alphabet="ab 订", max_size=60), st.integers(2, 20))
def test_wrapping_keeps_every_character_and_the_width(text: str, width: int) -> None:
    lines = wrap(text, width)

    assert all(display_width(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.slow
@given(
    st.lists(st.fixed_dictionaries({c: st.text("xy ", max_size=40) for c in "abc"}), max_size=4),
    st.integers(1, 120),
)
def test_a_table_never_exceeds_a_readable_terminal(rows: list[dict[str, str]], width: int) -> None:
    lines = render_rows(rows, "abc", width=width)

    if width >= 20:
        assert all(display_width(line) <= width for line in lines)
