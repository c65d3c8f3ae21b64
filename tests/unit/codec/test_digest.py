"""What queues and index are told of the records in the log, by the plain code and by the core."""

import struct
from collections.abc import Callable

import pytest

from cometmq.codec import core, digest, record
from cometmq.codec.digest import Ending, store_timestamp
from cometmq.codec.java import string_hash
from cometmq.codec.record import MAGIC_BLANK, MAGIC_V1

BOTH = pytest.mark.parametrize(
    "walk", [digest.walk, core.walk_records], ids=["plain", core.active()]
)
Walk = Callable[..., digest.Walk]
HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::5", 10911)
LIMIT = 1000


def one(
    physical_offset: int = 0,
    *,
    topic: str = "T",
    queue_id: int = 3,
    queue_offset: int = 7,
    body: bytes = b"hello",
    text: bytes = b"",
    sys_flag: int = 0,
    timestamp: int = 1_700_000_000_000,
) -> bytes:
    """A record."""
    target = bytearray(400 + len(body) + len(text))
    born = HOST_V6 if sys_flag & 0x10 else HOST
    stored = HOST_V6 if sys_flag & 0x20 else HOST
    facts = (queue_id, queue_offset, physical_offset, timestamp, 5, born, stored, 0, sys_flag, 0, 0)
    return bytes(target[: record.encode_into(target, 0, topic.encode(), body, text, *facts)])


def log_of(*bodies: bytes, base: int = 0) -> bytes:
    log = b""
    for body in bodies:
        log += one(base + len(log), body=body)
    return log


def hashes(topic: str, *keys: str) -> tuple[int, ...]:
    return tuple(abs(string_hash(f"{topic}#{key}")) for key in keys)


@BOTH
class TestDigests:
    def test_a_digest_has_what_queue_and_index_need(self, walk: Walk) -> None:
        text = b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01u\x02"
        data = one(1000, topic="orders", text=text, sys_flag=8, timestamp=42)

        digests, position, ending = walk(data, 0, len(data), 1000, LIMIT, False)

        keys = hashes("orders", "u", "k1", "k2", "T#TagA")
        assert digests == [("orders", 3, 7, 1000, len(data), 8, 42, 2598919, keys)]
        assert (position, ending) == (len(data), Ending.END)

    @pytest.mark.parametrize(
        ("text", "tags_code", "keys"),
        [
            (b"", 0, []),
            (b"OTHER\x01x\x02", 0, []),
            (b"KEYS\x01a\x02", 0, ["a"]),
            (b"KEYS\x01 a  b \x02", 0, ["a", "b"]),
            (b"KEYS\x01a a\x02", 0, ["a", "a"]),
            (b"KEYS\x01 \x02", 0, []),
            (b"TAGS\x01TagA", 2598919, ["T#TagA"]),
            (b"UNIQ_KEY\x01u\x02KEYS\x01k\x02", 0, ["u", "k"]),
            (b"XKEYS\x01a\x02KEYS2\x01b\x02", 0, []),
            ("KEYS\x01ключ\x02TAGS\x01é\x02".encode(), 233, ["ключ", "T#é"]),
        ],
    )
    def test_keys_come_in_their_order(
        self, text: bytes, tags_code: int, keys: list[str], walk: Walk
    ) -> None:
        data = one(text=text)

        ((*_, code, found),), _, _ = walk(data, 0, len(data), 0, LIMIT, False)

        assert (code, found) == (tags_code, hashes("T", *keys))

    @pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
    def test_hosts_of_either_kind_are_passed_over(self, sys_flag: int, walk: Walk) -> None:
        data = one(sys_flag=sys_flag, timestamp=99, text=b"TAGS\x01TagA\x02")

        (found,), position, _ = walk(data, 0, len(data), 0, LIMIT, False)

        assert found[4:8] == (len(data), sys_flag, 99, 2598919)
        assert position == len(data)

    def test_long_topics_are_read(self, walk: Walk) -> None:
        topic = "%RETRY%" + "g" * 248
        data = one(topic=topic)

        (found,), _, _ = walk(data, 0, len(data), 0, LIMIT, False)

        assert found[0] == topic

    def test_records_come_one_after_the_other(self, walk: Walk) -> None:
        data = log_of(b"a", b"bb", b"ccc", base=5000)

        digests, position, ending = walk(data, 0, len(data), 5000, LIMIT, True)

        sizes = [found[4] for found in digests]
        assert [found[3] for found in digests] == [5000, 5000 + sizes[0], 5000 + sum(sizes[:2])]
        assert sum(sizes) == position == len(data)
        assert ending == Ending.END

    def test_nothing_of_the_data_is_kept(self, walk: Walk) -> None:
        data = bytearray(log_of(b"a", b"b"))

        found = walk(data, 0, len(data), 0, LIMIT, True)
        data.clear()  # raises BufferError while somebody holds a view

        assert len(found[0]) == 2


@BOTH
class TestBounds:
    def test_it_begins_where_it_is_told_to(self, walk: Walk) -> None:
        data = log_of(b"a", b"b")
        begin = len(data) // 2

        digests, position, _ = walk(data, begin, len(data), 0, LIMIT, False)

        assert [found[3] for found in digests] == [begin]
        assert position == len(data)

    @pytest.mark.parametrize("limit", [0, 1, 2, 3, 4])
    def test_it_ends_at_the_limit(self, limit: int, walk: Walk) -> None:
        data = log_of(b"a", b"b", b"c")

        digests, position, ending = walk(data, 0, len(data), 0, limit, False)

        assert len(digests) == min(limit, 3)
        assert position == min(limit, 3) * len(data) // 3
        assert ending == Ending.END

    def test_what_lies_behind_the_end_is_not_looked_at(self, walk: Walk) -> None:
        data = log_of(b"a", b"b", b"c")
        end = len(data) // 3

        digests, position, ending = walk(data, 0, end, 0, LIMIT, False)

        assert (len(digests), position, ending) == (1, end, Ending.END)

    def test_no_data_is_the_end(self, walk: Walk) -> None:
        assert walk(b"", 0, 0, 0, LIMIT, False) == ([], 0, Ending.END)


@BOTH
class TestEndings:
    def test_a_blank_ends_a_file(self, walk: Walk) -> None:
        data = log_of(b"a") + struct.pack(">ii", 100, MAGIC_BLANK) + bytes(92)

        digests, position, ending = walk(data, 0, len(data), 0, LIMIT, False)

        assert (len(digests), position, ending) == (1, len(data) - 100, Ending.BLANK)

    @pytest.mark.parametrize(
        "rest", [bytes(100), b"\xff" * 100, struct.pack(">ii", 100, 1) + bytes(92)]
    )
    def test_what_is_no_record_is_broken(self, rest: bytes, walk: Walk) -> None:
        data = log_of(b"a") + rest

        digests, position, ending = walk(data, 0, len(data), 0, LIMIT, False)

        assert (len(digests), position, ending) == (1, len(data) - len(rest), Ending.BROKEN)

    def test_a_record_that_names_another_position_is_broken(self, walk: Walk) -> None:
        data = log_of(b"a") + one(12345)

        digests, position, ending = walk(data, 0, len(data), 0, LIMIT, False)

        assert (len(digests), ending) == (1, Ending.BROKEN)
        assert position == len(log_of(b"a"))

    @pytest.mark.parametrize("size", [-1, 0, 8, 90])
    def test_a_size_that_no_record_has_is_broken(self, size: int, walk: Walk) -> None:
        data = struct.pack(">ii", size, MAGIC_V1) + bytes(200)

        assert walk(data, 0, len(data), 0, LIMIT, False)[1:] == (0, Ending.BROKEN)

    @pytest.mark.parametrize("position", [87, 93])
    def test_lengths_that_do_not_add_up_are_broken(self, position: int, walk: Walk) -> None:
        data = bytearray(one())  # the lengths of body and topic end at 87 and 93
        data[position] ^= 1

        assert walk(data, 0, len(data), 0, LIMIT, False)[2] == Ending.BROKEN

    def test_a_topic_that_is_no_text_is_broken(self, walk: Walk) -> None:
        data = one().replace(b"\x01T", b"\x01\xff")

        assert walk(data, 0, len(data), 0, LIMIT, False)[2] == Ending.BROKEN

    def test_checksums_count_when_they_are_asked_for(self, walk: Walk) -> None:
        data = bytearray(log_of(b"a", b"b"))
        data[len(data) // 2 + 88] ^= 1

        without, with_checks = (walk(data, 0, len(data), 0, LIMIT, check) for check in (0, 1))

        assert without[1:] == (len(data), Ending.END)
        assert with_checks[1:] == (len(data) // 2, Ending.BROKEN)
        assert len(with_checks[0]) == 1

    @pytest.mark.parametrize("kept", [1, 7, 8, 50, 99])
    def test_a_record_that_goes_on_behind_the_end_is_incomplete(
        self, kept: int, walk: Walk
    ) -> None:
        data = log_of(b"a", b"bbbbbbbb")
        begin = len(log_of(b"a"))

        digests, position, ending = walk(data, 0, begin + kept, 0, LIMIT, True)

        assert (len(digests), position, ending) == (1, begin, Ending.INCOMPLETE)


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_the_store_time_is_found_without_reading_the_record(sys_flag: int) -> None:
    data = b"before" + one(sys_flag=sys_flag, timestamp=1_234_567)

    assert store_timestamp(data, 6) == 1_234_567
