"""Records as Arrow batches, compared row by row with what the codec reads."""

import zlib
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from cometmq.codec import record, sysflag  # noqa: E402
from cometmq.errors import RemoteProtocolError  # noqa: E402
from cometmq.spark.decode import Place, RecordDecoder  # noqa: E402
from cometmq.spark.records import Records, walk  # noqa: E402
from cometmq.spark.schema import COLUMNS, arrow_schema  # noqa: E402
from tests.unit.spark.record_kit import (  # noqa: E402
    BROKER,
    TOPIC,
    record_bytes,
    row_of,
    rows_of,
)

ALL = list(COLUMNS)


def decoded(data: bytes, columns: list[str] = ALL, topic: str = TOPIC, **options: Any) -> Any:
    decoder = RecordDecoder(arrow_schema(columns), **options)
    batch = decoder.decode(Records.at(pa.py_buffer(data), walk(data)), Place(topic, BROKER))
    batch.validate(full=True)
    return batch


def expected(data: bytes) -> list[dict[str, Any]]:
    return [row_of(one) for one in record.parse_all(data)]


def test_all_columns_of_ordinary_records_are_what_the_codec_reads() -> None:
    data = b"".join(
        record_bytes(number, b"body-%d" % number, {"KEYS": f"k{number}", "TAGS": "A"})
        for number in range(50)
    )

    assert rows_of(decoded(data)) == expected(data)


def test_every_layout_of_hosts_and_topics_can_stand_beside_the_others() -> None:
    flags = [0, sysflag.BORN_HOST_V6, sysflag.STORE_HOST_V6, 0x30, 0, 0x10]
    long_topic = "t" * 200
    data = b"".join(
        record_bytes(number, b"x" * number, {"KEYS": "k"}, sys_flag=flag, topic=topic)
        for number, (flag, topic) in enumerate(
            (flag, topic) for flag in flags for topic in (long_topic, long_topic[:127])
        )
    )

    rows = rows_of(decoded(data))

    wanted = [row | {"topic": TOPIC} for row in expected(data)]  # it is the queue's, not theirs
    assert rows == wanted


def test_rows_have_different_properties_or_none() -> None:
    named: list[dict[str, str]] = [
        {"KEYS": "a", "TAGS": "T"},
        {},
        {"TAGS": "U", "KEYS": "b", "mine": "ü"},
        {"DELAY": "3", "RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "0A"},
        {"REAL_TOPIC": "real", "DLQ_ORIGIN_MESSAGE_ID": "0B", "UNIQ_KEY": "0C"},
        {"DELAY": "no number"},
    ]
    data = b"".join(record_bytes(n, b"", one) for n, one in enumerate(named))

    assert rows_of(decoded(data)) == expected(data)


def test_compressed_bodies_are_inflated_and_broken_ones_are_null() -> None:
    flag = sysflag.with_compression(0, sysflag.CompressionType.ZLIB)
    data = b"".join(
        [
            record_bytes(0, b"plain"),
            record_bytes(1, zlib.compress(b"z" * 1000), sys_flag=flag),
            record_bytes(2, b"not compressed at all", sys_flag=flag),
        ]
    )

    bodies = decoded(data, ["body"]).column(0).to_pylist()

    assert bodies == [b"plain", b"z" * 1000, None]


def test_only_wanted_columns_are_made_in_the_order_asked_for() -> None:
    data = record_bytes(5, b"body", {"TAGS": "A"})

    batch = decoded(data, ["tags", "queueOffset"])

    assert batch.schema.names == ["tags", "queueOffset"]
    assert batch.to_pylist() == [{"tags": "A", "queueOffset": 5}]


def test_hosts_of_many_clients_are_told_apart() -> None:
    data = b"".join(record_bytes(n, born_port=1000 + n % 7) for n in range(40))

    assert rows_of(decoded(data)) == expected(data)


def test_messages_with_other_tags_are_left_out() -> None:
    tags = ["A", "B", "", "AB", "C"]
    data = b"".join(
        record_bytes(n, b"", {"TAGS": tag} if tag else {}) for n, tag in enumerate(tags)
    )

    batch = decoded(data, ["queueOffset"], tags=frozenset({"A", "C"}))

    assert batch.column(0).to_pylist() == [0, 4]


@pytest.mark.parametrize("tag", ["A", "B", "C"])
def test_tags_choose_among_records_of_every_layout(tag: str) -> None:
    flags = [0, sysflag.BORN_HOST_V6, 0, sysflag.STORE_HOST_V6, 0x30, 0, 0x10]
    data = b"".join(
        record_bytes(n, b"body-%d" % n, {"TAGS": "AAB"[n // 2 % 3]}, sys_flag=flag)
        for n, flag in enumerate(flags)
    )

    rows = rows_of(decoded(data, tags=frozenset({tag})))

    assert rows == [row for row in expected(data) if row["tags"] == tag]


def test_no_records_make_a_batch_without_rows() -> None:
    assert decoded(b"").num_rows == 0


@pytest.mark.parametrize("verify", ["sample", "all"])
def test_a_body_that_has_changed_is_found_by_its_checksum(verify: str) -> None:
    data = bytearray(record_bytes(0, b"hello", position=77))
    data[data.index(b"hello")] ^= 1

    with pytest.raises(RemoteProtocolError, match="at 77 of the log does not have its checksum"):
        decoded(bytes(data), ["queueId"], verify=verify)
    assert decoded(bytes(data), ["queueId"], verify="none").num_rows == 1


@pytest.mark.parametrize(
    ("place", "byte"),
    [(4, 0), (3, 80), (84, 0x7F), (85, 0xFF), (93, 0x7F), (-1, None)],
    ids=["magic", "size too small", "body too long", "body longer", "topic too long", "cut off"],
)
def test_what_is_no_record_is_refused(place: int, byte: int | None) -> None:
    data = bytearray(record_bytes(0, b"hello", {"KEYS": "k"}))
    positions = walk(bytes(data))
    if byte is None:
        del data[place]
    else:
        data[place] = byte

    def read() -> None:
        records = Records.at(pa.py_buffer(bytes(data)), positions)
        RecordDecoder(arrow_schema(ALL)).decode(records, Place(TOPIC, BROKER))

    with pytest.raises(RemoteProtocolError):
        read()


@pytest.mark.parametrize("cut", [1, 5, 90])
def test_a_pull_that_is_cut_off_is_refused(cut: int) -> None:
    data = record_bytes(0) + record_bytes(1)

    with pytest.raises(RemoteProtocolError):
        walk(data[:-cut])


def test_a_pull_with_an_impossible_size_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="record of 0 bytes at 0"):
        walk(bytes(200))


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_logs_that_apache_wrote_are_decoded_as_the_codec_does(name: str) -> None:
    from tests.golden import store_data

    count = 0
    for path, content in store_data.load(name).below("commitlog").items():
        assert Path(path).name.isdigit()
        ones, positions = _chain(content)
        for topic in {one.topic for one in ones}:
            chosen = [n for n, one in enumerate(ones) if one.topic == topic]
            records = Records.at(pa.py_buffer(content), [positions[n] for n in chosen])
            batch = RecordDecoder(arrow_schema(ALL), verify="all").decode(
                records, Place(topic, BROKER)
            )
            assert rows_of(batch) == [row_of(ones[n]) for n in chosen]
            count += len(chosen)
    assert count > 500


def _chain(content: bytes) -> tuple[list[record.Record], list[int]]:
    """The records of a log file, and where they begin."""
    ones, positions, at = [], [], 0
    while at < len(content) - 8 and record.peek(content, at) != (0, 0):
        one = record.parse(content, at)
        if isinstance(one, record.Blank):
            break
        ones.append(one)
        positions.append(at)
        at += one.size
    return ones, positions
