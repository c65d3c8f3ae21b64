"""Rows as messages of batch sends, compared with what the codec writes message by message."""

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from cometmq.codec import batch as batch_codec  # noqa: E402
from cometmq.codec import properties  # noqa: E402
from cometmq.codec.batch import BatchItem  # noqa: E402
from cometmq.errors import InvalidArgument  # noqa: E402
from cometmq.spark import sink_rows  # noqa: E402

PREFIX = b"0123456789ABCDEF00000007"
MAP = pa.map_(pa.string(), pa.string())


def batch(**columns: Any) -> Any:
    count = len(next(iter(columns.values())))
    return pa.record_batch({"body": [b"x"] * count, **columns})


def texts(record_batch: Any, first_row: int = 0) -> list[dict[str, str]]:
    rows = sink_rows.rows_of(record_batch)
    found = sink_rows.property_texts(rows, PREFIX, first_row)
    return [properties.decode(text) for text in found.to_pylist()]


def test_rows_become_the_messages_that_the_codec_would_write() -> None:
    bodies = [b"first", b"\x00" * 300, "grüße".encode()]
    rows = sink_rows.rows_of(pa.record_batch({"body": bodies, "tags": ["a", None, ""]}))

    found = sink_rows.property_texts(rows, PREFIX, 10)
    items = sink_rows.batch_items(rows.body, found)

    expected = [
        BatchItem(0, body, text) for body, text in zip(bodies, found.to_pylist(), strict=True)
    ]
    assert b"".join(items.to_pylist()) == batch_codec.encode(expected)
    assert batch_codec.decode(b"".join(items.to_pylist())) == expected


def test_every_row_has_a_unique_key_that_follows_from_its_number() -> None:
    found = texts(batch(keys=["a", "b"]), first_row=0xABC)

    assert [one["UNIQ_KEY"] for one in found] == [
        "0123456789ABCDEF0000000700000ABC",
        "0123456789ABCDEF0000000700000ABD",
    ]


def test_keys_tags_and_ordering_keys_are_properties() -> None:
    found = texts(
        batch(keys=["k1 k2", None], tags=[None, "t"], orderingKey=["o", ""], KEYSX=[1, 2])
    )

    assert found[0] | {"UNIQ_KEY": ""} == {
        "UNIQ_KEY": "",
        "WAIT": "true",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "o",
    }
    assert found[1]["TAGS"] == "t"
    assert "KEYS" not in found[1]
    assert "__SHARDINGKEY" not in found[1]


def test_a_list_of_keys_is_joined() -> None:
    found = texts(batch(keys=pa.array([["a", "b"], [], None], pa.list_(pa.string()))))

    assert [one.get("KEYS") for one in found] == ["a b", None, None]


def test_properties_are_copied_without_what_belongs_to_the_message_they_came_from() -> None:
    column = pa.array(
        [
            [("mine", "1"), ("UNIQ_KEY", "old"), ("COMET_SEQ", "p:1:x"), ("CLUSTER", "c")],
            None,
            [("KEYS", "k"), ("TAGS", "t"), ("empty", ""), ("__SHARDINGKEY", "s"), ("two", "ü")],
        ],
        MAP,
    )

    found = texts(batch(properties=column))

    assert found[0]["UNIQ_KEY"].startswith(PREFIX.decode())
    assert set(found[0]) == {"UNIQ_KEY", "WAIT", "mine"}
    assert set(found[1]) == {"UNIQ_KEY", "WAIT"}
    assert {name: found[2][name] for name in ("KEYS", "TAGS", "two")} == {
        "KEYS": "k",
        "TAGS": "t",
        "two": "ü",
    }
    assert not {"empty", "__SHARDINGKEY"} & set(found[2])


def test_columns_count_more_than_properties_of_the_same_name() -> None:
    column = pa.array([[("KEYS", "old"), ("TAGS", "old")]], MAP)

    found = texts(batch(properties=column, keys=["new"], tags=pa.array([None], pa.string())))

    assert found[0]["KEYS"] == "new"
    assert "TAGS" not in found[0]


def test_properties_of_a_slice_are_those_of_its_rows() -> None:
    column = pa.array([[("a", "1")], [("b", "2"), ("c", "3")], [("d", "4")]], MAP)

    found = texts(batch(properties=column).slice(1, 2))

    assert [set(one) - {"UNIQ_KEY", "WAIT"} for one in found] == [{"b", "c"}, {"d"}]


@pytest.mark.parametrize("column", ["keys", "tags", "orderingKey"])
def test_a_separator_inside_a_property_is_refused(column: str) -> None:
    with pytest.raises(InvalidArgument, match="row 41: "):
        texts(batch(**{column: ["good", "bad\x02"]}), first_row=40)


def test_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"row 1: .* take 4\d{4} bytes"):
        texts(batch(keys=["a", "k" * 40_000]))


@pytest.mark.parametrize("body", [None, b""])
def test_a_row_without_a_body_is_refused(body: bytes | None) -> None:
    rows = sink_rows.rows_of(pa.record_batch({"body": pa.array([b"x", body], pa.binary())}))

    with pytest.raises(InvalidArgument, match="row 8: the body is null or empty"):
        sink_rows.check_bodies(rows, 7)


def test_text_bodies_and_times_are_taken() -> None:
    times = pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC"))
    rows = sink_rows.rows_of(pa.record_batch({"Body": ["ü", "x"], "deliverat": times}))

    assert rows.body.to_pylist() == ["ü".encode(), b"x"]
    assert rows.deliver_at.to_pylist() == [1_700_000_000_123, None]


@pytest.mark.parametrize("cut", [1, 999, 4096, 10_000])
def test_chunks_do_not_depend_on_how_rows_were_cut(cut: int) -> None:
    whole = pa.record_batch({"body": [str(i).encode() for i in range(10_000)]})
    pieces = [whole.slice(i, cut) for i in range(0, whole.num_rows, cut)]

    found = list(sink_rows.chunks(pieces))

    assert [chunk.num_rows for chunk in found] == [4096, 4096, 1808]
    assert [body for chunk in found for body in chunk.column(0).to_pylist()] == (
        whole.column(0).to_pylist()
    )


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_large_rows_make_small_chunks(cut: int) -> None:
    half = sink_rows.CHUNK_BYTES // 2
    sizes = [half, half, 1, half, 3 * half, 1, half]
    whole = pa.record_batch({"body": [bytes(size) for size in sizes]})

    found = list(sink_rows.chunks([whole.slice(i, cut) for i in range(0, len(sizes), cut)]))

    assert [[len(body) for body in chunk.column(0).to_pylist()] for chunk in found] == [
        [half, half],
        [1, half],
        [3 * half],
        [1, half],
    ]


def test_no_rows_make_no_chunk() -> None:
    assert list(sink_rows.chunks([])) == []
    assert list(sink_rows.chunks([batch(keys=["a"]).slice(0, 0)])) == []
