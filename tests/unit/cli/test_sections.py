import json

import pytest

from cometmq.cli.frame import Frame
from cometmq.cli.output import Format
from cometmq.cli.sections import Section, show_thing

FACTS = {"name": "orders", "rate": None}
QUEUES = Section(name="queues", rows=[{"id": 0, "end": 7}, {"id": 1, "end": 9}], columns=("id",))
HIDDEN = Section(name="outages", rows=[{"why": "down"}], columns=("why",), shown=[])
NONE = Section(name="groups", rows=[], columns=("name",))


def shown(form: Format, capsys: pytest.CaptureFixture[str]) -> str:
    frame = Frame(environment={}, output=form)
    show_thing(frame, FACTS, [QUEUES, NONE, HIDDEN], shown={"name": "orders"})
    return capsys.readouterr().out


def test_programs_get_all_facts_and_all_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown(Format.JSON, capsys)) == {
        **FACTS,
        "queues": [{"id": 0, "end": 7}, {"id": 1, "end": 9}],
        "groups": [],
        "outages": [{"why": "down"}],
    }


def test_people_get_a_table_for_each_list_that_has_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert shown(Format.TABLE, capsys) == "name  orders\n\nqueues (2)\nID\n 0\n 1\n"


def test_in_plain_text_each_line_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(Format.PLAIN, capsys) == "name\torders\nqueues\t0\nqueues\t1\n"
