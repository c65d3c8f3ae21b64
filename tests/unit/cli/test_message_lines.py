import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.cli.message_lines import BadInput, Draft, file_draft, json_draft, text_draft

BASE = Draft(where="", keys=("base",), tag="base-tag", properties={"a": "1", "b": "2"})
NOW_MS = 1_800_000_000_000


def read(line: str | bytes | dict[str, Any], base: Draft = BASE) -> Draft:
    data = json.dumps(line).encode() if isinstance(line, dict) else line
    return json_draft(
        "line 3", data.encode() if isinstance(data, str) else data, base, lambda: NOW_MS
    )


def refusal(line: str | bytes | dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read(line)
    assert caught.value.where == "line 3"
    return caught.value


def test_a_line_is_a_message_as_it_stands() -> None:
    draft = text_draft("line 7", b"\xff raw", BASE)

    assert (draft.where, draft.value, draft.tag) == ("line 7", b"\xff raw", "base-tag")


def test_a_file_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo\n")

    draft = file_draft(tmp_path / "a", BASE)

    assert (draft.where, draft.value) == (f"file '{tmp_path}/a'", b"one\ntwo\n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        file_draft(tmp_path / "a", BASE)

    assert caught.value.fact == f"file '{tmp_path}/a': No such file or directory"


def test_a_json_line_says_all_about_its_message() -> None:
    draft = read(
        {
            "value": "hello",
            "keys": ["k1", "k2"],
            "tag": "paid",
            "properties": {"b": "3", "c": "4"},
            "delay": "10s",
            "ordering_key": "c7",
            "queue": 3,
        }
    )

    assert draft == Draft(
        where="line 3",
        value=b"hello",
        keys=("k1", "k2"),
        tag="paid",
        properties={"a": "1", "b": "3", "c": "4"},
        delay_ms=10_000,
        ordering_key="c7",
        queue="3",
    )


def test_what_a_json_line_does_not_say_is_as_the_options_say() -> None:
    draft = read({"value": "x"})

    assert (draft.keys, draft.tag, draft.properties) == (("base",), "base-tag", BASE.properties)


@pytest.mark.parametrize(
    ("value", "body"),
    [("täxt", "täxt"), ({"id": 1}, '{"id": 1}'), (7, "7"), (None, "null"), (["ä"], '["ä"]')],
)
def test_a_value_that_is_no_text_is_sent_as_json(value: Any, body: str) -> None:
    assert read({"value": value}).value == body.encode()


def test_a_value_may_be_base64() -> None:
    assert read({"value": "/wA=", "value_encoding": "base64"}).value == b"\xff\x00"


def test_a_line_that_says_when_replaces_what_the_options_say() -> None:
    base = Draft(where="", delay_ms=5_000)

    assert read({"value": "x", "delay_level": 3}, base) == Draft(
        where="line 3", value=b"x", delay_level=3
    )
    draft = read({"value": "x", "deliver_at": "10m ago"}, base)
    assert (draft.delay_ms, draft.deliver_at_ms) == (None, NOW_MS - 600_000)


def test_what_consume_prints_can_be_sent_as_it_stands() -> None:
    printed = {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 1,
        "queue_offset": 5,
        "message_id": "AB",
        "offset_id": "CD",
        "stored": "2026-11-17T10:00:00.000+00:00",
        "born": None,
        "born_host": "h:1",
        "store_host": "h:2",
        "reconsume_times": 0,
        "tag": None,
        "keys": ["k"],
        "ordering_key": None,
        "properties": {"color": "red"},
        "system_properties": {"UNIQ_KEY": "AB"},
        "value": "x",
        "value_encoding": "utf-8",
        "value_bytes": 1,
        "value_problem": None,
    }

    assert read(printed, Draft(where="")) == Draft(
        where="line 3", value=b"x", keys=("k",), properties={"color": "red"}
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("nope", "not JSON"),
        ("[1]", "JSON, but no object"),
        (b"\xff", "not JSON"),
        ({}, "it has no 'value'"),
        ({"value": "x", "key": "a", "keys": ["b"]}, "both 'key' and 'keys'"),
        ({"value": "x", "keys": [["b"]]}, "'keys' is no list of texts"),
        ({"value": "x", "tag": 5}, "'tag' is no text but 5"),
        ({"value": "x", "properties": {"a": 1}}, "'properties' is no object"),
        ({"value": "x", "delay": "soon"}, "'delay' is 'soon'"),
        ({"value": "x", "deliver_at": "soon"}, "'deliver_at' is 'soon'"),
        ({"value": "x", "delay_level": "3"}, "'delay_level' is '3'"),
        ({"value": "x", "delay": "1s", "delay_level": 1}, "both 'delay' and 'delay_level'"),
        ({"value": "!", "value_encoding": "base64"}, "'value' is not base64"),
        ({"value": "x", "value_encoding": "hex"}, "'value_encoding' is 'hex'"),
        ('{"value": "\\ud800"}', "half a character"),
    ],
)
def test_a_json_line_that_cannot_be_sent_says_why(line: Any, reason: str) -> None:
    assert reason in refusal(line).reason


def test_a_mistyped_field_is_not_passed_over() -> None:
    error = refusal({"value": "x", "kye": "a"})

    assert error.reason == "no such field: 'kye'"
    assert error.next_step.startswith("did you mean 'key'?")
