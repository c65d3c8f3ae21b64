"""Finding frames in a stream of bytes."""

import struct

import pytest

from cometmq.codec import frame
from cometmq.codec.frame import Frame, locate
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX


def frame_of(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    return frame.prefix(serialization, len(header), len(body)) + header + body


def test_a_frame_is_located_by_its_ranges() -> None:
    data = b"??" + frame_of(b"head", b"body!", serialization=1) + b"next"

    found = locate(data, 2, len(data))

    assert found == Frame(serialization=1, header=10, body=14, end=19)
    assert data[found.header : found.body] == b"head"
    assert data[found.body : found.end] == b"body!"


def test_a_frame_without_header_and_body_is_a_frame() -> None:
    assert locate(frame_of(b""), 0, 8) == Frame(0, 8, 8, 8)


@pytest.mark.parametrize("missing", range(1, 17))
def test_an_incomplete_frame_is_not_there_yet(missing: int) -> None:
    data = frame_of(b"head", b"body")

    assert locate(data, 0, len(data) - missing) is None


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3])
def test_a_length_without_room_for_the_header_word_is_refused_after_four_bytes(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"frame length {length} is too small"):
        locate(struct.pack(">i", length), 0, 4)


def test_a_frame_above_the_limit_is_refused_before_it_is_received() -> None:
    """Waiting for the rest would let every peer make us keep 2 GiB."""
    with pytest.raises(RemoteProtocolError, match="16777217 bytes is above the limit of 16777216"):
        locate(struct.pack(">i", FRAME_BYTES_MAX - 3), 0, 4)


def test_the_largest_frame_is_accepted() -> None:
    data = struct.pack(">iI", FRAME_BYTES_MAX - 4, 0)

    assert locate(data, 0, len(data)) is None


def test_a_limit_of_the_callers_own_is_obeyed() -> None:
    data = frame_of(b"head", b"body")

    assert locate(data, 0, len(data), frame_bytes_max=16) == Frame(0, 8, 12, 16)
    with pytest.raises(RemoteProtocolError, match="above the limit of 15 bytes"):
        locate(data, 0, len(data), frame_bytes_max=15)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    data = struct.pack(">iI", 10, 7) + bytes(6)

    with pytest.raises(RemoteProtocolError, match="header of 7 bytes does not fit its frame"):
        locate(data, 0, len(data))


def test_a_frame_that_no_peer_would_accept_is_not_written() -> None:
    largest_body = FRAME_BYTES_MAX - 8 - 100

    assert len(frame.prefix(0, 100, largest_body)) == 8
    with pytest.raises(LocalProtocolError, match="above the limit"):
        frame.prefix(0, 100, largest_body + 1)
