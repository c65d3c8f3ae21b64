import pytest

from cometmq.codec import properties
from cometmq.codec.properties import Property
from cometmq.errors import LocalProtocolError


def test_properties_are_written_with_a_trailing_separator() -> None:
    assert properties.encode({"TAGS": "TagA", "KEYS": "k1 k2"}) == (
        "TAGS\x01TagA\x02KEYS\x01k1 k2\x02"
    )
    assert properties.encode({}) == ""


def test_a_property_without_value_is_left_out() -> None:
    assert properties.encode({"TAGS": None, "a": "b"}) == "a\x01b\x02"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "v"),
        ("n", ""),
        ("n\x01", "v"),
        ("n\x02", "v"),
        ("n", "\x01v"),
        ("n", "v\x02"),
        ("n", "\ud83d"),
    ],
)
def test_what_readers_would_lose_or_misread_is_refused(name: str, value: str) -> None:
    with pytest.raises(LocalProtocolError, match="property"):
        properties.encode({"fine": "x", name: value})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02\x02\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01\x02c\x01d\x02", {"c": "d"}),
        ("\x01b\x02c\x01d\x02", {"c": "d"}),
        ("ab\x02abcd\x02c\x01d\x02", {"c": "d"}),
        ("a\x011\x02b\x012\x02a\x013\x02", {"a": "3", "b": "2"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("键\x01值\x02", {"键": "值"}),
    ],
)
def test_reading_skips_what_is_no_property(text: str, found: dict[str, str]) -> None:
    assert properties.decode(text) == found
    assert properties.decode(text.encode()) == found
    assert properties.decode(memoryview(text.encode())) == found
    for name in ("a", "b", "c", "键", "ab"):
        assert properties.get(text.encode(), name.encode()) == found.get(name)


def test_bytes_that_are_not_utf8_read_as_replacement_characters() -> None:
    data = b"a\x01\xff\x02b\x01c\x02"

    assert properties.decode(data) == {"a": "\ufffd", "b": "c"}
    assert properties.get(data, b"a") == "\ufffd"


def test_get_finds_whole_names_only() -> None:
    data = b"NOTAGS\x01wrong\x02x\x01TAGS\x01wrong\x02TAGS\x01right\x02MORETAGS\x01wrong"

    assert properties.get(data, b"TAGS") == "right"
    assert properties.get(data, b"AGS") is None
    assert properties.get(data, b"") is None
    assert properties.get(data, b"x\x01TAGS") is None


def test_get_takes_the_last_value_that_counts() -> None:
    assert properties.get(b"a\x011\x02a\x012\x02a\x01\x02", b"a") == "2"
    assert properties.get(b"a\x01\x02", b"a") is None


def test_the_names_of_5x_that_do_not_look_like_their_constants() -> None:
    assert Property.REAL_QUEUE_ID == "REAL_QID"
    assert Property.FIRST_POP_TIME == "1ST_POP_TIME"
    assert Property.TRANSACTION_ID == "__transactionId__"
    assert Property.CRC32 == "__CRC32#"
    assert Property.SHARDING_KEY == "__SHARDINGKEY"


def test_no_two_names_are_the_same() -> None:
    names = [value for name, value in vars(Property).items() if name.isupper()]

    assert len(set(names)) == len(names) > 50
