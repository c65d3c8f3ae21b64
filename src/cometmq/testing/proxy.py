"""A network that misbehaves on demand, between a client and a server of the same test."""

import asyncio
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 64 * 1024
_TURNS = 3  # of the loop, between two pieces


class Lane:
    """One direction of a proxy; what is set here holds for all its connections, from now on.

    ``delay_seconds`` holds back each chunk that long; ``bytes_per_second`` is how fast the line is;
    ``piece_bytes`` cuts chunks into pieces that arrive one by one (1: a byte at a time); ``copies``
    sends each chunk that many times. ``passed_bytes`` counts what went through.
    """

    def __init__(self) -> None:
        self.delay_seconds = 0.0
        self.bytes_per_second: float | None = None
        self.piece_bytes: int | None = None
        self.copies = 1
        self.passed_bytes = 0
        self._bytes_left: int | None = None  # until the connection is cut
        self._flows = asyncio.Event()
        self._flows.set()

    def stall(self) -> None:
        """Let nothing through, not even the end of the connection, and tell nobody (half-open)."""
        self._flows.clear()

    def resume(self) -> None:
        """Let everything through again, what was held back first."""
        self._flows.set()

    def cut_after(self, byte_count: int) -> None:
        """Let that many more bytes through, then cut their connection."""
        self._bytes_left = byte_count

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Move bytes until the sender has no more. Raises OSError when the line is cut."""
        while chunk := await self._read(reader):
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            data = chunk * self.copies
            size = self.piece_bytes or len(data)
            for begin in range(0, len(data), size):
                await self._pass(data[begin : begin + size], writer)
        if not writer.is_closing():
            writer.write_eof()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        await self._flows.wait()
        chunk = await reader.read(_CHUNK_BYTES)
        await self._flows.wait()
        return chunk

    async def _pass(self, piece: bytes, writer: asyncio.StreamWriter) -> None:
        await self._flows.wait()
        if self._bytes_left is not None:
            piece = piece[: self._bytes_left]
            self._bytes_left -= len(piece)
        self.passed_bytes += len(piece)
        writer.write(piece)
        await writer.drain()
        if self._bytes_left == 0:
            self._bytes_left = None
            raise ConnectionAbortedError("cut, as the test wanted it")
        if self.bytes_per_second is not None:
            await asyncio.sleep(len(piece) / self.bytes_per_second)
        elif self.piece_bytes is not None:
            for _ in range(_TURNS):  # so that the other end reads it before the next one comes
                await asyncio.sleep(0)


class FaultyProxy:
    """Passes connections to ``target`` on; ``to_server`` and ``to_client`` say how badly.

    ::

        async with FaultyProxy(f"127.0.0.1:{port}") as proxy:
            channel = await connect(proxy.address)
            proxy.to_client.stall()  # the server still hears us, but we do not hear it
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.to_server = Lane()
        self.to_client = Lane()
        self.is_refusing = False
        self._listener: asyncio.Server | None = None
        self._lines: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}

    @property
    def address(self) -> str:
        """Where clients connect to, as ``host:port``."""
        assert self._listener is not None
        return f"{LOOPBACK}:{self._listener.sockets[0].getsockname()[1]}"

    @property
    def lanes(self) -> tuple[Lane, Lane]:
        return self.to_server, self.to_client

    @property
    def connection_count(self) -> int:
        return len(self._lines)

    def cut(self) -> None:
        """End all connections now, on both sides."""
        for task, writers in self._lines.items():
            task.cancel()
            for writer in writers:
                writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, LOOPBACK, 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.close()
        lines = list(self._lines)
        self.cut()
        await asyncio.gather(*lines, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._lines[task] = [writer]
        task.add_done_callback(self._lines.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        lanes: list[asyncio.Task[None]] = []
        try:
            host, _, port = self._target.rpartition(":")
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            self._lines[task].append(inner_writer)
            loop = asyncio.get_running_loop()
            lanes = [
                loop.create_task(self.to_server.forward(reader, inner_writer)),
                loop.create_task(self.to_client.forward(inner_reader, writer)),
            ]
            await asyncio.gather(*lanes)
        except OSError:
            pass  # cut, or nobody listens at the target: either way the connection ends
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
            for end in self._lines[task]:
                end.close()
