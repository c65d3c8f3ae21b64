"""A frame that comes in pieces."""

import resource
from pathlib import Path

import pytest

from cometmq.errors import RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX
from cometmq.remoting.partial import PartialFrame
from tests.unit.remoting.kit import request

SMALL = request(105, 1, b"body")
BIG = request(105, 1, bytes(range(256)) * 80)


def gathered(data: bytes, piece_bytes: int) -> PartialFrame:
    partial = PartialFrame(FRAME_BYTES_MAX)
    for begin in range(0, len(data), piece_bytes):
        assert not partial.is_complete
        end = begin + piece_bytes
        assert partial.add(data[:end], begin) == min(end, len(data))
    return partial


def content(partial: PartialFrame) -> bytes:
    with partial.view() as view:
        return bytes(view)


@pytest.mark.parametrize("piece_bytes", [1, 5, 8, 13, 10**6])
@pytest.mark.parametrize("frame", [SMALL, BIG], ids=["small", "big"])
def test_a_frame_is_put_together_again(frame: bytes, piece_bytes: int) -> None:
    partial = gathered(frame, piece_bytes)

    assert partial.is_complete
    assert content(partial) == frame
    partial.release()


@pytest.mark.parametrize("frame", [SMALL, BIG], ids=["small", "big"])
def test_what_follows_a_frame_is_left_alone(frame: bytes) -> None:
    partial = PartialFrame(FRAME_BYTES_MAX)
    partial.add(frame[:20])

    end = partial.add(b"...." + frame[20:] + b"next", 4)

    assert end == 4 + len(frame) - 20
    assert content(partial) == frame
    partial.release()


def test_the_smallest_frame_is_complete_with_its_prefix() -> None:
    partial = PartialFrame(FRAME_BYTES_MAX)

    partial.add(b"\0\0\0\4\0")
    assert not partial.is_complete
    partial.add(b"\0\0\0next")

    assert partial.is_complete
    assert partial.held_bytes == 8


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff", b"\0\0\0\3", b"\x7f\xff\xff\xff"])
def test_an_impossible_size_is_refused_before_there_is_room_for_it(prefix: bytes) -> None:
    partial = PartialFrame(FRAME_BYTES_MAX)
    partial.add(prefix)

    with pytest.raises(RemoteProtocolError):
        partial.add(bytes(4))


def test_room_for_what_is_announced_costs_only_what_has_come() -> None:
    """A hundred frames of 16 MiB of which little is there; pages count, 4 KiB each."""
    announcement = (FRAME_BYTES_MAX - 4).to_bytes(4, "big") + bytes(4)
    before = resident_bytes()

    partials = [PartialFrame(FRAME_BYTES_MAX) for _ in range(100)]
    for partial in partials:
        partial.add(announcement + bytes(10_000))
    grown = resident_bytes() - before
    for partial in partials:
        partial.release()

    assert grown < 100 * 16 * 1024 + 4 * 1024 * 1024
    assert partials[0].held_bytes == 0


def test_a_system_without_memory_refuses_the_frame_and_no_more() -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    partial = PartialFrame(FRAME_BYTES_MAX)
    partial.add((FRAME_BYTES_MAX - 4).to_bytes(4, "big"))

    resource.setrlimit(resource.RLIMIT_AS, (virtual_bytes() + 4 * 1024 * 1024, limits[1]))
    try:
        with pytest.raises(RemoteProtocolError, match="no memory for a frame of 16777216 bytes"):
            partial.add(bytes(4))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)

    partial.release()


def virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
