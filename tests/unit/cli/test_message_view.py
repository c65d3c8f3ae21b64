import json
from dataclasses import dataclass, field
from typing import Any

import click
import pytest

from cometmq.cli.frame import Frame
from cometmq.cli.message_view import (
    Content,
    Template,
    content_of,
    fields_of,
    row_of,
    show_messages,
    user_properties,
)
from cometmq.cli.output import Format
from cometmq.errors import DecodeError

STORED_MS = 1_800_000_000_123


@dataclass(frozen=True)
class Record:
    body: bytes


@dataclass(frozen=True)
class StoredMessage:
    """A message as both libraries have it."""

    body: bytes = b"hello"
    topic: str = "orders"
    broker_name: str = "broker-a"
    queue_id: int = 3
    queue_offset: int = 12
    physical_offset: int = 4096
    message_id: str = "AB01"
    offset_id: str = "CD02"
    keys: tuple[str, ...] = ("k1", "k2")
    properties: dict[str, str] = field(
        default_factory=lambda: {
            "TAGS": "paid",
            "KEYS": "k1 k2",
            "UNIQ_KEY": "AB01",
            "__SHARDINGKEY": "c7",
            "color": "red",
        }
    )
    born_ms: int = STORED_MS - 10
    born_host: str = "10.0.0.1:5000"
    stored_ms: int = STORED_MS
    store_host: str = "10.0.0.2:10911"
    reconsume_times: int = 2


class Unreadable(StoredMessage):
    """Its body cannot be decompressed."""

    record = Record(b"\x78\x9c")

    def __getattribute__(self, name: str) -> Any:
        if name == "body":
            raise DecodeError("AB01", "compressed data", "it is damaged")
        return super().__getattribute__(name)


MESSAGE = StoredMessage()


def test_all_fields_of_a_message_are_there() -> None:
    fields = fields_of(MESSAGE)

    assert list(fields) == [
        *("topic", "broker_name", "queue_id", "queue_offset", "message_id", "offset_id"),
        *("stored", "born", "born_host", "store_host", "reconsume_times", "tag", "keys"),
        *("ordering_key", "properties", "system_properties"),
        *("value", "value_encoding", "value_bytes", "value_problem"),
    ]
    assert (fields["tag"], fields["keys"]) == ("paid", ["k1", "k2"])
    assert fields["ordering_key"] == "c7"
    assert fields["properties"] == {"color": "red"}
    assert fields["system_properties"].keys() == {"TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY"}
    assert (fields["value"], fields["value_encoding"], fields["value_bytes"]) == (
        *("hello", "utf-8"),
        5,
    )


def test_the_properties_of_its_sender_are_told_from_rocketmqs_own() -> None:
    assert user_properties({"TAGS": "t", "x": "1", "CLUSTER": "c"}) == {"x": "1"}


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"hello", "hello"),
        ("zwölf\n€".encode(), "zwölf\\n€"),
        (b"\x1b[31mred", "\\x1b[31mred"),
        (b"\x00\xff\x01", "(3 bytes) 00 ff 01"),
        (b"a\x00b", "(3 bytes) 61 00 62"),
        (b"", ""),
        (bytes(range(200, 232)), f"(32 bytes) {bytes(range(200, 224)).hex(' ')} …"),
        (b"x" * 250, "x" * 200 + "… (50 more characters)"),
    ],
)
def test_a_value_is_shown_on_one_line_that_a_terminal_does_not_obey(body: bytes, line: str) -> None:
    assert Content(body).as_line() == line


def test_binary_values_are_base64_for_programs() -> None:
    fields = Content(b"\x00\xff").as_fields()

    assert (fields["value"], fields["value_encoding"], fields["value_bytes"]) == (
        *("AP8=", "base64"),
        2,
    )


def test_a_body_that_cannot_be_decompressed_is_shown_as_it_is_stored() -> None:
    content = content_of(Unreadable())

    assert content.body == b"\x78\x9c"
    assert content.problem is not None
    assert "damaged" in content.problem


def test_a_row_leaves_room_for_the_value() -> None:
    row = row_of(MESSAGE)

    assert (row["queue"], row["offset"], row["keys"]) == ("broker-a/3", 12, "k1 k2")
    assert row_of(StoredMessage(body=b"x" * 300), is_short=False)["value"] == "x" * 300


def test_messages_are_a_table_for_people_and_a_list_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_messages(Frame({}), [MESSAGE])
    show_messages(Frame({}, output=Format.JSON), [MESSAGE])

    heading, row, *rest = capsys.readouterr().out.splitlines()
    assert heading.split() == ["STORED", "QUEUE", "OFFSET", "TAG", "KEYS", "VALUE"]
    assert row.split()[2:] == ["broker-a/3", "12", "paid", "k1", "k2", "hello"]
    assert json.loads("\n".join(rest))[0]["message_id"] == "AB01"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{key} {value}", b"k1 hello\n"),
        ("{topic}/{broker}/{queue}/{offset}", b"orders/broker-a/3/12\n"),
        ("{{{tag}}}", b"{paid}\n"),
        (r"{id}\t{keys}\n{retries} {bytes}", b"AB01\tk1 k2\n2 5\n"),
        ("{property.color} {property.none}|", b"red |\n"),
        ("{stored_ms} {born_ms} {born_host}", b"1800000000123 1800000000113 10.0.0.1:5000\n"),
        ("nothing", b"nothing\n"),
    ],
)
def test_a_template_prints_what_it_says(template: str, text: bytes) -> None:
    assert Template(template).render(MESSAGE) == text


def test_a_template_prints_values_as_the_bytes_they_are() -> None:
    assert Template("{value}").render(StoredMessage(body=b"\x00\xff\n")) == b"\x00\xff\n\n"


def test_for_a_terminal_a_template_prints_nothing_that_it_would_obey() -> None:
    """What the user's own template says is the user's."""
    hostile = StoredMessage(body="\x1b]0;mine\x07 grüße\n\t\x9b2J\r".encode() + b"\xff")

    shown = Template("\x1b[1m{value}", is_for_terminal=True).render(hostile)

    assert shown.decode() == "\x1b[1m\\x1b]0;mine\\x07 grüße\n\t\\x9b2J\\r\\xff\n"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{vlaue}", "no such field: 'vlaue'; there are value, key"),
        ("{", "a '{' stands alone"),
        ("a } b", "a '}' stands alone"),
    ],
)
def test_a_template_with_a_mistake_is_refused(template: str, reason: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Template(template)

    assert reason in caught.value.message
