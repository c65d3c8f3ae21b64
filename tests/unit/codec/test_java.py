import zlib

import pytest

from cometmq.codec import java


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("*", 42),
        ("", 0),
        ("TopicTest#Key1", -1656937772),
        ("polygenelubricants", -2147483648),
    ],
)
def test_string_hash_is_javas(text: str, value: int) -> None:
    assert java.string_hash(text) == value


def test_string_hash_counts_utf16_units_not_characters() -> None:
    high, low = 0xD83D, 0xDE00

    assert java.string_hash("\N{GRINNING FACE}") == high * 31 + low
    assert java.string_hash("键") == 0x952E


def test_string_hash_of_a_lone_surrogate_is_the_surrogate() -> None:
    assert java.string_hash("\ud83d") == 0xD83D


def test_twins_with_one_hash_exist() -> None:
    assert java.string_hash("Aa") == java.string_hash("BB")


def test_masked_crc32_drops_the_top_bit() -> None:
    assert zlib.crc32(b"Hello") == 0xF7D18982
    assert java.masked_crc32(b"Hello") == 2010220930 == 0x77D18982
    assert java.masked_crc32(memoryview(b"..Hello")[2:]) == 2010220930


def test_index_hash_is_never_negative() -> None:
    assert java.index_hash("TopicTest#Key1") == 1656937772
    assert java.index_hash("TopicTest#Key1") % 5_000_000 == 1937772
    assert java.index_hash("polygenelubricants") == 0
