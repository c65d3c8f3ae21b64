"""Lines of standard input while a loop runs: a person may type them, or never end.

They are read on a thread, because files and pipes cannot be waited for in the same way everywhere.
It reads the descriptor itself: a thread that waits inside a Python stream would keep the program
from ending.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

from cometmq.cli.message_lines import LINE_BYTES_MAX, BadInput

CHUNK_BYTES: Final = 256 * 1024
CHUNKS_WAITING_MAX: Final = 4


async def chunks_of(descriptor: int) -> AsyncIterator[bytes]:
    """What comes in, piece by piece, until its end. Raises OSError."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_WAITING_MAX)
    is_left = threading.Event()

    def read() -> None:
        is_over = False
        while not is_over:
            room.acquire()
            if is_left.is_set():
                return
            try:
                piece: bytes | OSError = os.read(descriptor, CHUNK_BYTES)
            except OSError as error:
                piece = error
            is_over = not piece or isinstance(piece, OSError)
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:
                return  # the loop has ended

    threading.Thread(target=read, name="reading input", daemon=True).start()
    try:
        while piece := await pieces.get():
            if isinstance(piece, OSError):
                raise piece
            yield piece
            room.release()
    finally:
        is_left.set()
        room.release()


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """Lines without their ends; the last one need not have one."""
    rest, number = b"", 0
    async for piece in chunks_of(descriptor):
        *lines, rest = (rest + piece).split(b"\n")
        number += len(lines)
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > LINE_BYTES_MAX:
            raise BadInput(f"line {number + 1}", f"it is longer than {LINE_BYTES_MAX} bytes")
    if rest:
        yield rest.removesuffix(b"\r")
