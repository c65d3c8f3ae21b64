"""A second opinion on the store formats: slow, obvious, and written without the codec.

Field after field with ``struct``, no tables and no shortcuts. Tests compare the codec, plain and
compiled, with what this module reads and writes.
"""

import struct
import zlib

Values = dict[str, int | bytes]

V1 = 0xDAA320A7
V2 = 0xDAA320AB


class Reader:
    """Takes big-endian fields from the front of some bytes."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def number(self, code: str) -> int:
        (value,) = struct.unpack_from(">" + code, self.data, self.position)
        self.position += struct.calcsize(">" + code)
        return int(value)

    def raw(self, length: int) -> bytes:
        value = self.data[self.position : self.position + length]
        assert len(value) == length
        self.position += length
        return value


def read_record(data: bytes, position: int = 0) -> Values:
    """All fields of the record at ``position``, which must be one."""
    reader = Reader(data, position)
    values: Values = {"size": reader.number("i"), "magic": reader.number("i")}
    values["body_crc"] = reader.number("i")
    values["queue_id"] = reader.number("i")
    values["flag"] = reader.number("i")
    values["queue_offset"] = reader.number("q")
    values["physical_offset"] = reader.number("q")
    sys_flag = values["sys_flag"] = reader.number("i")
    values["born_timestamp"] = reader.number("q")
    values["born_host"] = reader.raw(20 if sys_flag & 0x10 else 8)
    values["store_timestamp"] = reader.number("q")
    values["store_host"] = reader.raw(20 if sys_flag & 0x20 else 8)
    values["reconsume_times"] = reader.number("i")
    values["prepared_transaction_offset"] = reader.number("q")
    values["body"] = reader.raw(reader.number("i"))
    is_v1 = values["magic"] == V1 - (1 << 32)
    values["topic"] = reader.raw(reader.number("b" if is_v1 else "h"))
    values["properties"] = reader.raw(reader.number("h"))
    assert reader.position == position + int(values["size"])
    return values


def write_record(
    *,
    topic: bytes,
    body: bytes,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    flag: int,
    sys_flag: int,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> bytes:
    """The record, by the keyword arguments of the codec's ``encode_into``."""
    rest = struct.pack(">I", V1 if len(topic) <= 127 else V2)
    rest += struct.pack(">I", zlib.crc32(body) & 0x7FFFFFFF)
    rest += struct.pack(">i", queue_id)
    rest += struct.pack(">i", flag)
    rest += struct.pack(">q", queue_offset)
    rest += struct.pack(">q", physical_offset)
    rest += struct.pack(">i", sys_flag)
    rest += struct.pack(">q", born_timestamp)
    rest += born_host
    rest += struct.pack(">q", store_timestamp)
    rest += store_host
    rest += struct.pack(">i", reconsume_times)
    rest += struct.pack(">q", prepared_transaction_offset)
    rest += struct.pack(">i", len(body)) + body
    rest += struct.pack(">b" if len(topic) <= 127 else ">h", len(topic)) + topic
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4) + rest


def read_entry(data: bytes, number: int) -> tuple[int, int, int]:
    """Physical offset, size and tags code of the n-th entry of a queue file."""
    reader = Reader(data, number * 20)
    return reader.number("q"), reader.number("i"), reader.number("q")


def write_entry(physical_offset: int, size: int, tags_code: int) -> bytes:
    return (
        struct.pack(">q", physical_offset) + struct.pack(">i", size) + struct.pack(">q", tags_code)
    )


def scan(data: bytes, tags: set[int] | None, limit: int) -> tuple[list[tuple[int, int, int]], int]:
    """The matching entries of a queue file and how many were looked at."""
    hits: list[tuple[int, int, int]] = []
    number = 0
    while len(hits) < limit and (number + 1) * 20 <= len(data):
        physical_offset, size, tags_code = read_entry(data, number)
        if physical_offset < 0 or size <= 0:
            break
        if tags is None or tags_code in tags or tags_code <= -2147483649:
            hits.append((number, physical_offset, size))
        number += 1
    return hits, number


def java_hash(text: str) -> int:
    """``String.hashCode`` by its definition: a sum of powers of 31 over UTF-16 units."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = [data[i] * 256 + data[i + 1] for i in range(0, len(data), 2)]
    total = 0
    for i, unit in enumerate(units):
        total += unit * int(31 ** (len(units) - 1 - i))
    total %= 2**32
    return total - 2**32 if total >= 2**31 else total


class IndexFile:
    """An index file that is filled key by key; ``data`` is the whole file."""

    def __init__(self, slots: int, entries: int, *, seed: "IndexFile | None" = None) -> None:
        self.slots = slots
        self.entries = entries
        self.data = bytearray(40 + 4 * slots + 20 * entries)
        self.set("i", 36, 1)
        if seed is not None:
            self.set("q", 0, seed.get("q", 8))
            self.set("q", 8, seed.get("q", 8))
            self.set("q", 16, seed.get("q", 24))
            self.set("q", 24, seed.get("q", 24))

    def get(self, code: str, position: int) -> int:
        return int(struct.unpack_from(">" + code, self.data, position)[0])

    def set(self, code: str, position: int, value: int) -> None:
        struct.pack_into(">" + code, self.data, position, value)

    @property
    def count(self) -> int:
        return self.get("i", 36)

    @property
    def is_full(self) -> bool:
        return self.count >= self.entries

    @property
    def end_offset(self) -> int:
        return self.get("q", 24)

    def put(self, key: str, physical_offset: int, store_timestamp: int) -> None:
        key_hash = abs(java_hash(key)) % 2**31
        slot = 40 + 4 * (key_hash % self.slots)
        newest = self.get("i", slot)
        begin = self.get("q", 0)
        seconds = max(0, store_timestamp - begin) // 1000 if begin > 0 else 0
        entry = 40 + 4 * self.slots + 20 * self.count
        self.set("i", entry, key_hash)
        self.set("q", entry + 4, physical_offset)
        self.set("i", entry + 12, seconds)
        self.set("i", entry + 16, newest)
        self.set("i", slot, self.count)
        if self.count == 1:
            self.set("q", 0, store_timestamp)
            self.set("q", 16, physical_offset)
        if newest == 0:
            self.set("i", 32, self.get("i", 32) + 1)
        self.set("i", 36, self.count + 1)
        self.set("q", 8, store_timestamp)
        self.set("q", 24, physical_offset)
