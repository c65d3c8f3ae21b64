r"""Property strings as columns: always what the codec reads of each string alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from cometmq.codec import properties  # noqa: E402
from cometmq.spark.gathering import gather  # noqa: E402
from cometmq.spark.property_columns import PropertyColumns  # noqa: E402

NAMES = ["KEYS", "TAGS", "UNIQ_KEY", "a", "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IX"]


def columns_of(strings: list[bytes]) -> PropertyColumns:
    data = b"".join(strings)
    ends = [sum(map(len, strings[: n + 1])) for n in range(len(strings))]
    begins = [end - len(one) for end, one in zip(ends, strings, strict=True)]
    import numpy as np

    return PropertyColumns(gather(pa.py_buffer(data), np.array(begins), np.array(ends)))


def check(strings: list[bytes]) -> None:
    columns = columns_of(strings)
    wanted = [properties.decode(one) for one in strings]

    maps = columns.maps()
    maps.validate(full=True)
    assert [dict(one) for one in maps.to_pylist()] == wanted
    assert [len(one) for one in maps.to_pylist()] == [len(one) for one in wanted]
    for name in NAMES:
        values = columns.values(name)
        values.validate(full=True)
        assert values.to_pylist() == [one.get(name) for one in wanted]


@pytest.mark.parametrize(
    "strings",
    [
        [b"KEYS\x01k\x02TAGS\x01t\x02"] * 3,
        [b"KEYS\x01k\x02TAGS\x01t", b"KEYS\x01l\x02TAGS\x01u"],
        [b"KEYS\x01k", b"", b"TAGS\x01t\x02", b"KEYS\x01x"],
        [b"", b"", b""],
        [b""],
        [b"KEYS\x01\x02TAGS\x01t\x02", b"\x01v\x02KEYS\x01k\x02"],
        [b"KEYS\x01k\x02KEYS\x01l\x02", b"KEYS\x01k\x02TAGS\x01l\x02"],
        [b"KEYS\x01k\x02TAGS\x01l\x02KEYS\x01m\x02", b"a\x01b\x02"],
        [b"no separator", b"KEYS\x01k\x02"],
        [b"KEYS\x01k\x01l\x02", b"TAGS\x01t\x02"],
        [b"\x02\x02KEYS\x01k\x02"],
        [b"KEYS\x01\xff\xfe\x02", b"KEYS\x01k\x02"],
        ["KEYS\x01ü\x02".encode(), b"TAGS\x01t\x02"],
        ["KEYS\x01ü".encode()[:-1], b"KEYS\x01k\x02"],
        [b"ORIGIN_MESSAGE_ID\x01x\x02ORIGIN_MESSAGE_IX\x01y\x02", b"UNIQ_KEY\x01z\x02"],
    ],
    ids=range(15),
)
def test_strings_of_every_kind_are_read_as_the_codec_reads_them(strings: list[bytes]) -> None:
    check(strings)


_TEXT = st.text(alphabet="ab\x01\x02ü", max_size=3)
_ITEM = st.tuples(st.sampled_from([*NAMES, ""]) | _TEXT, _TEXT).map(lambda item: "\x01".join(item))
_STRINGS = st.lists(
    st.tuples(st.lists(_ITEM, max_size=4), st.booleans()).map(
        lambda made: ("\x02".join(made[0]) + ("\x02" if made[1] else "")).encode()
    )
    | st.binary(max_size=12),
    min_size=1,
    max_size=6,
)


@given(_STRINGS)
def test_any_strings_are_read_as_the_codec_reads_them(strings: list[bytes]) -> None:
    check(strings)
