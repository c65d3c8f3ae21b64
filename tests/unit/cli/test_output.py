import io
import json

import pytest

from cometmq.cli.output import Format, Printer, Record, Screen, cell, flatten, to_json

PIPE = Screen()
ROWS: list[Record] = [
    {"topic": "orders", "queues": 8, "note": None, "hidden": {"perm": [1, 2]}},
    {"topic": "a\tb\nc", "queues": 16, "note": None, "hidden": {}},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows(form: Format, screen: Screen = PIPE) -> str:
    return Printer(form, screen).rows(ROWS, columns=("topic", "queues", "note"))


def test_json_and_yaml_hold_every_field() -> None:
    assert json.loads(rows(Format.JSON)) == ROWS
    assert rows(Format.YAML).startswith("- topic: orders\n  queues: 8\n  note: null\n  hidden:\n")


def test_a_table_shows_the_columns_that_have_something_to_say() -> None:
    assert rows(Format.TABLE) == "TOPIC    QUEUES\norders        8\na\\tb\\nc      16\n"


def test_plain_has_all_columns_one_tab_between_and_one_line_per_row() -> None:
    assert rows(Format.PLAIN) == "orders\t8\t\na\\tb\\nc\t16\t\n"


def test_an_empty_list_is_headings_an_empty_document_or_nothing() -> None:
    def empty(form: Format) -> str:
        return Printer(form, PIPE).rows([], columns=("topic", "queues"))

    assert empty(Format.TABLE) == "TOPIC  QUEUES\n"
    assert empty(Format.JSON) == "[]\n"
    assert empty(Format.YAML) == "[]\n"
    assert empty(Format.PLAIN) == ""


def test_a_record_shows_nested_fields_by_their_path() -> None:
    record: Record = {
        "name": "a",
        "perm": {"read": True, "write": None},
        "ids": [1, 2],
        "q": [{"id": 0}],
    }

    assert Printer(Format.TABLE, PIPE).record(record) == (
        "name        a\nperm.read   true\nperm.write  -\nids         1, 2\nq.0.id      0\n"
    )
    assert Printer(Format.PLAIN, PIPE).record({"a": {"b": None}, "c": ""}) == "a.b\t\nc\t\n"
    assert flatten({"empty": {}, "none": []}) == {"empty": None, "none": ""}


def test_records_are_a_list_or_blocks() -> None:
    records = [{"id": 1}, {"id": 2}]

    assert json.loads(Printer(Format.JSON, PIPE).records(records)) == records
    assert Printer(Format.TABLE, PIPE).records(records) == "id  1\n\nid  2\n"


def test_a_peers_control_characters_do_not_reach_the_terminal() -> None:
    assert cell("\x1b[2J\r\u202eevil") == "\\x1b[2J\\r\\u202eevil"
    assert cell({"k": "\x1b"}) == '{"k": "\\u001b"}'
    printed = Printer(Format.TABLE, PIPE).record({"\x1b[2J": "x"})
    assert printed == "\\x1b[2J  x\n"


def test_numbers_that_json_cannot_say_become_null() -> None:
    assert json.loads(to_json([float("nan"), {"x": float("inf")}, 1.5])) == [None, {"x": None}, 1.5]


def test_json_is_readable_where_the_terminal_can_show_it_and_ascii_elsewhere() -> None:
    assert "订单" in to_json("订单")
    assert to_json("订单", is_unicode=False).isascii()
    assert to_json("half \ud800") == '"half \\ud800"\n'


@pytest.mark.parametrize("c", ["\x7f", "\x9b", "\u061c", "\u200f", "\u202e", "\u2069"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_says_what_it_says_without_a_character_that_commands_a_terminal(
    c: str, indent: int | None
) -> None:
    value: Record = {f"k{c}": [f"订{c}2J", f"\\{c}"]}

    text = to_json(value, indent=indent)

    assert c not in text
    assert "订" in text
    assert json.loads(text) == value


def test_only_a_terminal_has_colours_and_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")

    assert Screen.of(io.StringIO(), {}) == Screen(width=None, has_colour=False)
    assert Screen.of(None, {}) == Screen(width=None, has_colour=False)
    assert Screen.of(Terminal(), {}) == Screen(width=77, has_colour=True)


@pytest.mark.parametrize(
    ("environment", "has_colour"),
    [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_no_color_and_dumb_terminals_are_obeyed(
    environment: dict[str, str], has_colour: bool
) -> None:
    assert Screen.of(Terminal(), environment).has_colour is has_colour


def test_colours_are_where_they_were_asked_for() -> None:
    printer = Printer(Format.TABLE, Screen(width=80, has_colour=True))

    text = printer.rows(
        [{"status": "ok"}, {"status": "odd"}],
        columns=("status",),
        colours={"status": {"ok": "green"}},
    )

    assert text == "\x1b[1mSTATUS\x1b[0m\n\x1b[32mok\x1b[0m\nodd\n"
