"""What the codecs cost per message: headers of send and pull, records, queue entries.

The floor is what any reader in Python pays: one ``struct.unpack_from`` of the fixed fields and one
copy of the same bytes.
Targets (compiled core): binary headers and records within 3 times the
floor, JSON headers within 6 times.

    python -m bench.codec [--quick] [--row PATTERN]
"""

import argparse
import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bench.rounds import Row, run
from cometmq.codec import command, core, queue_entry, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2

BINARY_RATIO_MAX, JSON_RATIO_MAX, RECORD_RATIO_MAX = 3.0, 6.0, 3.0
ENTRIES = 32

HOST = record.pack_host("10.0.0.5", 10911)
PROPERTIES = (
    "KEYS\x01order-4711\x02UNIQ_KEY\x010A00000510F330946E094CD1B2A80000\x02WAIT\x01true\x02"
    "TAGS\x01TagA\x02"
)
SEND = SendMessageV2(
    "orders-producer", "orders", "TBW102", 4, 3, 0, 1794780011177, 0, PROPERTIES, 0, False, None,
    False, "broker-a",
)  # fmt: skip
SEND_ANSWER = SendMessageResponse(
    "7F0000010000326F000000000000B5C3", 3, 4711, "0A00000510F330946E094CD1B2A80000",
    "DefaultRegion", "true",
)  # fmt: skip
PULL = PullMessage("billing", "orders", 3, 4711, 32, 3, 4700, 15000, None, 1794780011177, "TAG")
PULL_ANSWER = PullMessageResponse(0, 4743, 0, 99999, 0, 0)

_FIXED, _RECORD, _ENTRY = ">iIhbhii", ">iiiiiqqiq", ">qiq"


class Core(NamedTuple):
    """One set of hot functions."""

    name: str
    decode_frames: Callable[[bytes], tuple[list[Command], int]]
    read: Callable[[Command, type[Header]], Header]
    encode_head: Callable[..., bytes]
    encode_record_into: Callable[..., int]
    scan_entries: Callable[..., tuple[list[tuple[int, int, int]], int]]
    parse_records: Callable[[bytes], list[record.Record]]


PLAIN = Core(
    "plain",
    command.decode_frames,
    core.plain_read,
    core.plain_encode_head,
    record.encode_into,
    queue_entry.scan,
    record.parse_records,
)


def compiled() -> Core:
    if core.active() != "compiled":
        print("error: the compiled core is not active", file=sys.stderr)
        print("  next: make setup, and unset COMETMQ_PURE", file=sys.stderr)
        sys.exit(1)
    return Core(
        "compiled",
        core.decode_frames,
        core.read,
        core.encode_head,
        core.encode_record_into,
        core.scan_entries,
        core.parse_records,
    )


def header_rows(used: Core) -> Iterator[Row]:
    requests = (
        ("send", RequestCode.SEND_MESSAGE_V2, SEND),
        ("pull", RequestCode.PULL_MESSAGE, PULL),
    )
    answers = (("send", SEND_ANSWER), ("pull", PULL_ANSWER))
    for serialization, limit in (
        (Serialization.ROCKETMQ, BINARY_RATIO_MAX),
        (Serialization.JSON, JSON_RATIO_MAX),
    ):
        target = limit if used.name == "compiled" else None
        form = "binary" if serialization == Serialization.ROCKETMQ else "json"
        for name, code, header in requests:
            label = f"{name} request, {form}, {used.name}"
            yield decode_row(used, f"decode {label}", serialization, code, header, target)
            yield encode_row(used, f"encode {label}", serialization, code, header, target)
        for name, answer in answers:
            label = f"{name} answer, {form}, {used.name}"
            yield decode_row(used, f"decode {label}", serialization, 0, answer, target)
            yield encode_row(used, f"encode {label}", serialization, 0, answer, target)


def floor_of(frame: bytes) -> Callable[[], object]:
    unpack = struct.unpack_from

    def floor() -> object:
        return unpack(_FIXED, frame), frame[8:]

    return floor


def decode_row(
    used: Core, name: str, serialization: int, code: int, header: Header, target: float | None
) -> Row:
    frame = used.encode_head(serialization, code, 77, 0, None, header, 0)
    decode_frames, read, header_type = used.decode_frames, used.read, type(header)

    def work() -> object:
        return read(decode_frames(frame)[0][0], header_type)

    assert work() == header, name
    return Row(name, work, floor_of(frame), target)


def encode_row(
    used: Core, name: str, serialization: int, code: int, header: Header, target: float | None
) -> Row:
    encode_head = used.encode_head
    frame = encode_head(serialization, code, 77, 0, None, header, 0)

    def work() -> object:
        return encode_head(serialization, code, 77, 0, None, header, 0)

    return Row(name, work, floor_of(frame), target)


def record_rows(used: Core) -> Iterator[Row]:
    properties = PROPERTIES.encode()
    for body in (bytes(128), bytes(1024)):
        room = bytearray(4096)
        encode_into = used.encode_record_into

        def work(
            body: bytes = body, room: bytearray = room, encode: Callable[..., int] = encode_into
        ) -> int:
            return encode(
                room, 0, b"orders", body, properties, 3, 4711, 1 << 30, 1794780011178,
                1794780011177, HOST, HOST, 0, 0, 0, 0,
            )  # fmt: skip

        written = bytes(room[: work()])

        def floor(written: bytes = written) -> object:
            return struct.unpack_from(_RECORD, written), written[4:]

        target = RECORD_RATIO_MAX if used.name == "compiled" else None
        yield Row(f"encode record, {len(body)} B body, {used.name}", work, floor, target)


def pull_row(used: Core) -> Row:
    """A pull answer full of small messages; the floor unpacks and copies each record once."""
    room = bytearray(1024)
    size = record.encode_into(
        room, 0, b"orders", bytes(128), PROPERTIES.encode(), 3, 4711, 1 << 30, 1794780011178,
        1794780011177, HOST, HOST, 0, 0, 0, 0,
    )  # fmt: skip
    pulled = bytes(room[:size]) * ENTRIES
    parse, unpack = used.parse_records, struct.unpack_from

    def work() -> object:
        return parse(pulled)

    def floor() -> object:
        for position in range(0, len(pulled), size):
            unpack(_RECORD, pulled, position)
            pulled[position + 4 : position + size]
        return None

    target = RECORD_RATIO_MAX if used.name == "compiled" else None
    return Row(f"parse {ENTRIES} pulled records, {used.name}", work, floor, target)


def scan_rows(used: Core) -> Iterator[Row]:
    entries = b"".join(queue_entry.pack(4096 + 300 * n, 300, n % 2) for n in range(ENTRIES))
    scan, unpack = used.scan_entries, struct.unpack_from

    def floor() -> object:
        for position in range(0, len(entries), 20):
            unpack(_ENTRY, entries, position)
            entries[position : position + 20]
        return None

    for name, tags in (("all", None), ("by tag", frozenset({1}))):

        def work(tags: frozenset[int] | None = tags) -> object:
            return scan(entries, 0, len(entries), tags, ENTRIES)

        yield Row(f"scan {ENTRIES} queue entries, {name}, {used.name}", work, floor)


def rows() -> Iterator[Row]:
    for used in (compiled(), PLAIN):
        yield from header_rows(used)
        yield from record_rows(used)
        yield pull_row(used)
        yield from scan_rows(used)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.codec", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter rounds, for a first look")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="only rows that match")
    chosen = parser.parse_args()
    seconds = 0.02 if chosen.quick else 0.2
    return run("codec", rows(), pattern=chosen.row, seconds=seconds)


if __name__ == "__main__":
    sys.exit(main())
