"""Bodies, schemas, joined batches and pushed filters: the small parts of a read."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
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


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.bool_(), b"true", True),
        *((kind, b"7", 7) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
        *((kind, b"1.5", 1.5) for kind in (pa.float32(), pa.float64())),
        (pa.decimal128(10, 2), b"1.25", Decimal("1.25")),
        (pa.string(), b'"text"', "text"),
        (pa.binary(), b'"text"', b"text"),
        (pa.timestamp("us", tz="UTC"), b'"2026-01-05T12:00:00Z"', NOON),
        (pa.timestamp("us"), b'"2026-01-05 12:00:00"', NOON.replace(tzinfo=None)),
        (pa.list_(pa.int64()), b"[1, 2]", [1, 2]),
        (pa.list_(pa.struct([("a", pa.string())])), b'[{"a": "b"}]', [{"a": "b"}]),
        (pa.null(), b"null", None),
    ],
    ids=str,
)
def test_json_is_read_as_each_type_that_it_can_be(kind: Any, text: bytes, value: Any) -> None:
    assert converted(pa.struct([("x", kind)]), [b'{"x": %b}' % text]) == [{"x": value}]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pa.date32(), "'body.x' is date, which"),
        (pa.map_(pa.string(), pa.string()), "'body.x' is map, which"),
        (pa.duration("us"), "'body.x' is interval, which"),
        (pa.time64("ns"), "'body.x' is time, which"),
        (pa.list_(pa.date32()), "'body.x[]' is date, which"),
        (pa.struct([("at", pa.date32())]), "'body.x.at' is date, which"),
    ],
    ids=str,
)
def test_a_type_that_json_is_never_read_as_is_refused(kind: Any, words: str) -> None:
    """Every body would be null, and no error would say why."""
    with pytest.raises(InvalidArgument) as caught:
        body_converter(pa.struct([("id", pa.int64()), ("x", kind)]))

    assert words in str(caught.value)
    assert "make it string and cast it" in str(caught.value)


def test_such_a_schema_is_refused_before_anything_is_read() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from cometmq.spark.batch import checked_schema

    body = types.StructType([types.StructField("day", types.DateType())])

    with pytest.raises(InvalidArgument, match=r"body\.day"):
        checked_schema(types.StructType([types.StructField("body", body)]))


@pytest.mark.parametrize("body", [b'{"id": 1.5}', b'{"id": "1"}', b'{"id": [1]}'])
def test_a_field_that_does_not_fit_makes_the_whole_body_null(body: bytes) -> None:
    assert converted(ORDER, [body, b'{"id": 2}']) == [None, {"id": 2, "price": None}]


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


def test_a_name_with_a_backtick_is_still_one_name() -> None:
    inferred = inferred_body_type([b'{"a`b": 1, "nested": {"`": "x"}}'])

    assert inferred == "struct<`a``b`: bigint, `nested`: struct<````: string>>"


@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        ([b'{"Id": 1}', b'{"id": 2, "a": 0}', b'{"ID": 3}'], "'body' has 'Id', 'id', 'ID'"),
        ([b'{"lines": [{"sku": {"a": 1, "A": 2}}]}'], "'body.lines[].sku' has 'a', 'A'"),
    ],
)
def test_names_that_spark_would_not_tell_apart_are_refused(bodies: list[bytes], words: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(words)) as caught:
        inferred_body_type(bodies)

    assert caught.value.argument == "bodySchema"
    assert "bodyFormat=string" in str(caught.value)


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
