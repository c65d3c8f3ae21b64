import json

import pytest

from cometmq.cli.frame import Frame
from cometmq.cli.output import Format
from cometmq.cli.row_stream import RowStream, write_bytes


def stream(form: Format | None) -> RowStream[tuple[str, int]]:
    return RowStream(
        Frame({}, output=form),
        ("name", "count"),
        fields=lambda pair: {"name": pair[0], "count": pair[1], "more": True},
        row=lambda pair, is_short: {
            "name": pair[0][:8] if is_short else pair[0],
            "count": pair[1],
        },
        widths={"name": 6},
        right=frozenset({"count"}),
    )


def test_a_table_has_one_heading_however_often_rows_come(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = stream(None)

    shown.show([("a", 1)])
    shown.show([])
    shown.show([("longer-name", 22), ("b", 3)])

    assert capsys.readouterr().out == (
        "NAME    COUNT\na           1\nlonger-n     22\nb             3\n"
    )


def test_json_is_an_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = stream(Format.JSON)

    shown.show([("a", 1), ("b", 2)])

    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["count"] for line in lines] == [1, 2]
    assert json.loads(lines[0]) == {"name": "a", "count": 1, "more": True}


@pytest.mark.parametrize("form", list(Format))
def test_no_form_lets_out_what_commands_a_terminal(
    capsys: pytest.CaptureFixture[str], form: Format
) -> None:
    stream(form).show([("\x9b2J\u202e", 1)])

    assert not set("\x9b\u202e").intersection(capsys.readouterr().out)


def test_yaml_is_a_document_each(capsys: pytest.CaptureFixture[str]) -> None:
    stream(Format.YAML).show([("a", 1), ("b", 2)])

    assert capsys.readouterr().out == (
        "---\nname: a\ncount: 1\nmore: true\n---\nname: b\ncount: 2\nmore: true\n"
    )


def test_plain_rows_are_not_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    stream(Format.PLAIN).show([("longer-name\n", 1)])

    assert capsys.readouterr().out == "longer-name\\n\t1\n"


def test_bytes_are_printed_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_bytes(b"\x00\xff")

    assert capfdbinary.readouterr().out == b"\x00\xff"
