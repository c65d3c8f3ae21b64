"""Bodies of answers, written without keeping the other connections waiting."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from cometmq.codec import bodies

QUICK_ENTRIES: Final = 256
"""As many are written as JSON at once, which takes a millisecond or two; more on a thread."""


async def written(body: msgspec.Struct, entry_count: int) -> bytes:
    """A body with so many entries as JSON."""
    return await made(entry_count, lambda: bodies.encode(body))


async def made(entry_count: int, make: Callable[[], bytes]) -> bytes:
    """What ``make`` returns, on a thread if that takes a while."""
    return make() if entry_count <= QUICK_ENTRIES else await asyncio.to_thread(make)
