"""A dictionary for both fuzzers, and a small mutator for machines without atheris."""

import random
from collections.abc import Callable, Sequence

DICTIONARY: tuple[bytes, ...] = (
    b"\xda\xa3\x20\xa7",
    b"\xda\xa3\x20\xab",
    b"\xcb\xd4\x31\x94",
    b"\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\x01",
    b"\x02",
    b"__CRC32#\x01",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\xef\xbf\xbd",
    b"\\u0000",
    b"\\u0063",
    b"\\ud83d\\ude00",
    b"\\ud800",
    b"\\n",
    b'"extFields":{',
    b'"extFields":{},',
    b'"extFields":null,',
    b'"code":10,',
    b'"code":310,',
    b'"code":11,',
    b'"flag":1,',
    b'"language":"JAVA",',
    b'"language":3,',
    b'"language":true,',
    b'"opaque":-1,',
    b'"remark":"',
    b'"remark":null,',
    b'"remark":1,',
    b'"version":513,',
    b'{"$ref":"$"}',
    b'{"$ref":".."}',
    b'{"$ref":"@"}',
    b'{"$ref":"$.a[0]"}',
    b"{{",
    b"}:",
    b"{0:",
    b"null",
    b"true",
    b"false",
    b"-0",
    b"1e5",
    b"1E400",
    b"0.1",
    b"2147483648",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"9" * 50,
    b"'",
    b'","',
    b'":"',
    b" ",
    b"\x78\x9c",
    b"\x04\x22\x4d\x18",
    b"\x28\xb5\x2f\xfd",
    b"SINGLE_TAG",
    b"v1 ",
)
"""Magic numbers, lengths at their limits, and the words of JSON that a header is made of."""


def mutated(seed: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """``seed`` with one to four changes; ``others`` are what it may be crossed with."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        begin = chance.randint(0, len(data))
        end = min(len(data), begin + chance.choice((1, 1, 2, 4, 8, 64)))
        chance.choice(_CHANGES)(data, begin, end, chance)
    if chance.random() < 0.1:
        other = chance.choice(others)
        data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]
    return bytes(data)


def _flip(data: bytearray, begin: int, end: int, chance: random.Random) -> None:
    for position in range(begin, min(end, begin + 1)):
        data[position] ^= 1 << chance.randrange(8)


def _overwrite(data: bytearray, begin: int, end: int, chance: random.Random) -> None:
    data[begin:end] = chance.randbytes(end - begin)


def _insert(data: bytearray, begin: int, end: int, chance: random.Random) -> None:
    data[begin:begin] = chance.randbytes(max(1, end - begin))


def _remove(data: bytearray, begin: int, end: int, _chance: random.Random) -> None:
    del data[begin:end]


def _repeat(data: bytearray, begin: int, end: int, chance: random.Random) -> None:
    data[begin:begin] = data[begin:end] * chance.randint(1, 3)


def _move(data: bytearray, begin: int, end: int, chance: random.Random) -> None:
    piece = data[begin:end]
    del data[begin:end]
    position = chance.randint(0, len(data))
    data[position:position] = piece


def _insert_word(data: bytearray, begin: int, _end: int, chance: random.Random) -> None:
    data[begin:begin] = chance.choice(DICTIONARY)


def _overwrite_word(data: bytearray, begin: int, _end: int, chance: random.Random) -> None:
    word = chance.choice(DICTIONARY)
    data[begin : begin + len(word)] = word


def _count(data: bytearray, begin: int, end: int, chance: random.Random) -> None:
    """Add a little to what may be a big-endian number, a length perhaps."""
    number = int.from_bytes(data[begin:end], "big") + chance.choice((-256, -2, -1, 1, 2, 256))
    data[begin:end] = (number % (1 << 8 * (end - begin))).to_bytes(end - begin, "big")


_CHANGES: tuple[Callable[[bytearray, int, int, random.Random], None], ...] = (
    _flip,
    _overwrite,
    _insert,
    _remove,
    _repeat,
    _move,
    _insert_word,
    _overwrite_word,
    _count,
)
