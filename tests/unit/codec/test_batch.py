import pytest

from cometmq.codec import batch
from cometmq.codec.batch import BatchItem
from cometmq.errors import LocalProtocolError, RemoteProtocolError

ITEM = BatchItem(flag=7, body=b"Hello", properties=b"TAGS\x01TagA\x02")
ITEM_BYTES = bytes.fromhex(
    "00000025 00000000 00000000 00000007 00000005 48656c6c6f 000a 54414753015461674102"
)
OTHER = BatchItem(flag=0, body=b"", properties=b"")


def test_a_batch_is_written_and_read() -> None:
    assert batch.encode([ITEM]) == ITEM_BYTES
    assert batch.decode(batch.encode([ITEM, OTHER, ITEM])) == [ITEM, OTHER, ITEM]
    assert batch.decode(memoryview(ITEM_BYTES)) == [ITEM]
    assert batch.encode([]) == b""
    assert batch.decode(b"") == []


def test_magic_and_checksum_are_not_looked_at() -> None:
    assert batch.decode(ITEM_BYTES[:4] + b"\xaa" * 8 + ITEM_BYTES[12:]) == [ITEM]


@pytest.mark.parametrize("length", range(1, len(ITEM_BYTES)))
def test_a_cut_off_batch_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        batch.decode(ITEM_BYTES + ITEM_BYTES[:length])


@pytest.mark.parametrize(
    ("position", "damage"),
    [
        (0, "00000015"),
        (0, "00000024"),
        (0, "00000026"),
        (0, "ffffffff"),
        (0, "7fffffff"),
        (16, "ffffffff"),
        (16, "00000004"),
        (16, "00000010"),
        (16, "7fffffff"),
        (25, "ffff"),
        (25, "0009"),
        (25, "000b"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(position: int, damage: str) -> None:
    patch = bytes.fromhex(damage)
    damaged = ITEM_BYTES[:position] + patch + ITEM_BYTES[position + len(patch) :]

    with pytest.raises(RemoteProtocolError):
        batch.decode(damaged + ITEM_BYTES)


def test_the_length_of_properties_is_signed() -> None:
    tail = (40_000).to_bytes(2, "big") + b"p" * 40_000
    size = (25 + len(tail)).to_bytes(4, "big")

    with pytest.raises(RemoteProtocolError):
        batch.decode(size + ITEM_BYTES[4:25] + tail)


@pytest.mark.parametrize(
    "item",
    [
        BatchItem(flag=1 << 31, body=b"", properties=b""),
        BatchItem(flag=0, body=b"", properties=b"p" * 32_768),
    ],
)
def test_what_does_not_fit_is_refused(item: BatchItem) -> None:
    with pytest.raises(LocalProtocolError):
        batch.encode([ITEM, item])


def test_only_a_whole_batch_looks_like_one() -> None:
    assert batch.looks_like_batch(ITEM_BYTES * 2)
    assert not batch.looks_like_batch(b"")
    assert not batch.looks_like_batch(b"Hello, I am an ordinary body of some length")
    assert not batch.looks_like_batch(ITEM_BYTES + b"\0")
