import asyncio
import os
import threading
from collections.abc import AsyncIterator

import pytest

from cometmq.cli import input_lines
from cometmq.cli.input_lines import chunks_of, lines_of
from cometmq.cli.message_lines import BadInput


async def collected(source: AsyncIterator[bytes]) -> list[bytes]:
    return [item async for item in source]


def lines_from(data: bytes) -> list[bytes]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(data)
    try:
        return asyncio.run(asyncio.wait_for(collected(lines_of(reading)), 5))
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\n\nb", [b"a", b"", b"b"]),
        (b"\xff\x00", [b"\xff\x00"]),
    ],
)
def test_lines_come_without_their_ends(data: bytes, lines: list[bytes]) -> None:
    assert lines_from(data) == lines


def test_a_line_comes_as_soon_as_it_is_typed() -> None:
    async def scenario() -> list[bytes]:
        reading, writing = os.pipe()
        lines = lines_of(reading)
        os.write(writing, b"one\ntw")
        first = await asyncio.wait_for(anext(lines), 5)
        os.write(writing, b"o\n")
        second = await asyncio.wait_for(anext(lines), 5)
        os.close(writing)
        rest = await asyncio.wait_for(collected(lines), 5)
        os.close(reading)
        return [first, second, *rest]

    assert asyncio.run(scenario()) == [b"one", b"two"]


def test_what_never_ends_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "LINE_BYTES_MAX", 10)

    with pytest.raises(BadInput) as caught:
        lines_from(b"a\n" + b"x" * 11)

    assert caught.value.fact == "line 2: it is longer than 10 bytes"


def test_who_stops_reading_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the thread read on for nobody: it waits for room, and then it is told."""
    monkeypatch.setattr(input_lines, "CHUNK_BYTES", 1)
    before = set(threading.enumerate())

    async def scenario() -> threading.Thread:
        reading, writing = os.pipe()
        os.write(writing, b"x" * 100)
        chunks = chunks_of(reading)
        await asyncio.wait_for(anext(chunks), 5)
        (thread,) = set(threading.enumerate()) - before
        await chunks.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(thread.join, 5)
        assert len(os.read(reading, 200)) >= 100 - 1 - input_lines.CHUNKS_WAITING_MAX
        os.close(reading)
        os.close(writing)
        return thread

    assert not asyncio.run(scenario()).is_alive()


def test_input_that_cannot_be_read_raises() -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            asyncio.run(asyncio.wait_for(collected(chunks_of(writing)), 5))
    finally:
        os.close(reading)
        os.close(writing)
