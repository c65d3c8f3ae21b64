"""Bodies, schemas, joined batches and pushed filters: the small parts of a read."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from cometmq.errors import InvalidArgument  # noqa: E402
from cometmq.spark.bodies import body_converter, inferred_body_type  # noqa: E402
from cometmq.spark.joining import joined  # noqa: E402
from cometmq.spark.planning import Range  # noqa: E402
from cometmq.spark.pushdown import Pushed  # noqa: E402
from cometmq.spark.schema import (  # noqa: E402
    COLUMNS,
    body_type_of,
    chosen_columns,
    ddl_of,
)
from tests.unit.spark.topology_kit import FakeTopology, queue  # noqa: E402

ORDER = pa.struct([("id", pa.int64()), ("price", pa.float64())])


def converted(kind: Any, bodies: list[bytes | None]) -> list[Any]:
    array = body_converter(kind)(pa.array(bodies, pa.binary()))
    assert array.type == kind
    found: list[Any] = array.to_pylist()
    return found


def test_text_is_utf8_and_what_is_not_is_replaced() -> None:
    assert converted(pa.string(), [b"a", "ü".encode(), None]) == ["a", "ü", None]
    assert converted(pa.string(), [b"a", b"\xff"]) == ["a", "\ufffd"]


def test_json_becomes_values_of_the_schema() -> None:
    bodies: list[bytes | None] = [b'{"id": 1, "price": 2.5, "more": 0}', b'{"price": 1}', b"{}"]

    assert converted(ORDER, bodies) == [
        {"id": 1, "price": 2.5},
        {"id": None, "price": 1.0},
        {"id": None, "price": None},
    ]


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("bad", [b"no json", b"", b"[1]", b'{"id": "text"}', b'{"id": 1', None])
def test_a_body_that_is_no_json_is_null_and_the_others_are_not(
    bad: bytes | None, place: int
) -> None:
    bodies: list[bytes | None] = [b'{"id": %d, "price": 0.0}' % number for number in range(7)]
    bodies[place] = bad

    got = converted(ORDER, bodies)

    assert got[place] is None
    assert [one["id"] for n, one in enumerate(got) if n != place] == [
        n for n in range(7) if n != place
    ]


@pytest.mark.parametrize(
    "bodies",
    [
        [b'{"id": 1}{"id": 2}', b""],
        [b"", b'{"id": 1} {"id": 2}', b'{"id": 3}'],
        [b'{"id"', b": 1}", b'{"id": 3}\n{"id": 4}', b'{"id": 5}'],
        [None, b'{"id": 1}{"id": 2}'],
    ],
)
def test_two_objects_in_one_body_are_not_those_of_two_messages(bodies: list[bytes | None]) -> None:
    got = converted(ORDER, bodies)

    assert len(got) == len(bodies)
    for body, value in zip(bodies, got, strict=True):
        alone = converted(ORDER, [body])[0]
        assert value == alone, body


def test_json_with_space_around_it_is_read() -> None:
    got = converted(ORDER, [b' {"id": 1}', b'{"id": 2}\n', b"", b'\t{"id": 3} '])

    assert [one and one["id"] for one in got] == [1, 2, None, 3]


def test_json_over_several_lines_is_one_body() -> None:
    assert converted(ORDER, [b'{\n  "id": 1\n}', b'{"id": 2}'])[0] == {"id": 1, "price": None}


def test_a_schema_is_inferred_from_messages() -> None:
    bodies = [
        b'{"id": 1, "name": "a", "when": "2026-01-01T00:00:00Z"}',
        b"no json",
        b'{"id": 2.5, "ok": true, "lines": [{"sku": "x"}], "nothing": null}',
    ]

    assert inferred_body_type(bodies) == (
        "struct<`id`: double, `name`: string, `when`: string, `ok`: boolean,"
        " `lines`: array<struct<`sku`: string>>, `nothing`: string>"
    )


@pytest.mark.parametrize("bodies", [[], [b"no json"]])
def test_nothing_to_infer_from_is_an_error(bodies: list[bytes]) -> None:
    with pytest.raises(InvalidArgument):
        inferred_body_type(bodies)


def test_columns_are_all_or_those_asked_for() -> None:
    assert chosen_columns((), with_properties=True) == tuple(COLUMNS)
    assert "properties" not in chosen_columns((), with_properties=False)
    assert chosen_columns(("BODY", "topic"), with_properties=True) == ("body", "topic")


@pytest.mark.parametrize(
    ("names", "words"), [(("queueid", "boddy"), "did you mean 'body'?"), (("a", "a"), "there are:")]
)
def test_a_column_that_does_not_exist_is_refused(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        chosen_columns(names, with_properties=True)

    assert words in str(caught.value)


def test_a_column_is_named_once() -> None:
    with pytest.raises(InvalidArgument, match="named twice"):
        chosen_columns(("body", "BODY"), with_properties=True)


def test_the_body_has_the_type_of_its_format() -> None:
    assert body_type_of("binary", "") == "binary"
    assert body_type_of("json", "id long") == "struct<id long>"
    assert body_type_of("json", "STRUCT<id: long>") == "STRUCT<id: long>"
    assert ddl_of(["topic", "body"], "string") == "`topic` string, `body` string"


def test_small_batches_are_joined_and_large_ones_stay_as_they_are() -> None:
    batches = [pa.record_batch({"n": list(range(count))}) for count in (1, 0, 2, 3, 9, 1)]

    got = list(joined(batches, rows=10, bytes_max=10_000))

    assert [one.num_rows for one in got] == [6, 9, 1]
    assert got[1] is batches[4]


@dataclass
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class GreaterThan(EqualTo):
    pass


class LessThanOrEqual(EqualTo):
    pass


class In(EqualTo):
    pass


class StringContains(EqualTo):
    pass


RANGES = [Range(queue(n, topic), 0, 100) for topic in ("a", "b") for n in range(2)]


def narrowed(*filters: Any) -> list[Range]:
    topology = FakeTopology({one.queue: (one.begin, one.end) for one in RANGES})
    for one in RANGES:
        topology.stored[one.queue] = [1000 * number for number in range(100)]
    return Pushed.of(filters).narrowed(RANGES, topology)


def test_filters_leave_out_topics_and_queues() -> None:
    assert narrowed(EqualTo(("topic",), "a"), In(("queueId",), (1, 7))) == [RANGES[1]]
    assert narrowed(EqualTo(("topic",), "a"), EqualTo(("topic",), "b")) == []


def test_filters_make_ranges_shorter() -> None:
    got = narrowed(
        EqualTo(("topic",), "a"),
        EqualTo(("queueId",), 0),
        GreaterThan(("queueOffset",), 10),
        LessThanOrEqual(("queueOffset",), 20),
    )

    assert got == [Range(queue(0, "a"), 11, 21)]


def test_times_make_ranges_shorter_and_never_too_short() -> None:
    def at(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)

    got = narrowed(
        EqualTo(("topic",), "a"),
        EqualTo(("queueId",), 0),
        GreaterThan(("storeTimestamp",), at(10)),
        LessThanOrEqual(("storeTimestamp",), at(20)),
    )

    assert got == [Range(queue(0, "a"), 10, 21)]


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("body",), b"x"),
        EqualTo(("topic",), None),
        StringContains(("topic",), "a"),
        EqualTo(("queueOffset",), 1.5),
        EqualTo(("storeTimestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001
        EqualTo(("properties", "KEYS"), "a"),
    ],
)
def test_what_is_not_understood_narrows_nothing(one: Any) -> None:
    assert narrowed(one) == RANGES
