"""A frame of which only the beginning has come.

A big one gets memory of its own from the system, as much as it announces; only what has really come
costs anything, and all of it goes back at once when the frame is complete or its connection ends.
The heap would keep it: a thousand peers that send a part of a frame and go away would leave holes
in it that fit nothing else. The frame's bytes are copied there once, whatever pieces they come in.
"""

import mmap
import sys
from typing import Any

from cometmq.codec.frame import PREFIX_BYTES, locate
from cometmq.errors import RemoteProtocolError

_HEAP_BYTES_MAX = 16 * 1024

# Private memory counts as ours; on Windows there is no other and nothing to be said.
_MAPPING: dict[str, Any] = (
    {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
)


class PartialFrame:
    """Gathers one frame; an impossible one is refused as soon as its prefix is there."""

    __slots__ = ("_frame_bytes_max", "_heap", "_mapping", "_wanted_bytes", "held_bytes")

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._heap = bytearray()  # until the size is known, and of small frames
        self._mapping: mmap.mmap | None = None  # of big ones
        self._wanted_bytes = PREFIX_BYTES  # of the frame, once its prefix is there
        self.held_bytes = 0

    @property
    def is_complete(self) -> bool:
        return self.held_bytes == self._wanted_bytes and self.held_bytes >= PREFIX_BYTES

    def view(self) -> memoryview:
        """The frame, once it is complete; the view must be released before the frame is."""
        assert self.is_complete
        return memoryview(self._heap if self._mapping is None else self._mapping)

    def add(self, data: bytes, begin: int = 0) -> int:
        """Take what belongs to the frame from ``data[begin:]``; the position after it.

        Raises RemoteProtocolError for a frame that cannot be.
        """
        position = begin
        if self.held_bytes < PREFIX_BYTES:
            position = self._take(data, position)
            if self.held_bytes < PREFIX_BYTES:
                return position
            self._make_room()
        return self._take(data, position)

    def release(self) -> None:
        """Forget everything and give the memory back."""
        if self._mapping is not None:
            self._mapping.close()
            self._mapping = None
        self._heap = bytearray()
        self.held_bytes = 0

    def _take(self, data: bytes, begin: int) -> int:
        end = min(len(data), begin + self._wanted_bytes - self.held_bytes)
        if end > begin:
            held = self.held_bytes + end - begin
            with memoryview(data) as view:
                if self._mapping is None:
                    self._heap += view[begin:end]
                else:
                    self._mapping[self.held_bytes : held] = view[begin:end]
            self.held_bytes = held
        return end

    def _make_room(self) -> None:
        locate(self._heap, 0, PREFIX_BYTES, self._frame_bytes_max)  # raises for impossible sizes
        self._wanted_bytes = 4 + int.from_bytes(self._heap[:4], "big")
        if self._wanted_bytes > _HEAP_BYTES_MAX:
            try:
                self._mapping = mmap.mmap(-1, self._wanted_bytes, **_MAPPING)
            except OSError as error:
                raise RemoteProtocolError(
                    f"no memory for a frame of {self._wanted_bytes} bytes: {error.strerror}"
                ) from error
            self._mapping[:PREFIX_BYTES] = bytes(self._heap)
            self._heap = bytearray()
