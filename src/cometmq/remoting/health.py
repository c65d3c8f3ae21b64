"""A small HTTP server for those who watch over a program.

| Path | Answer |
|---|---|
| ``/healthz`` | 200 ``ok``: the process is up and its loop turns |
| ``/readyz`` | 200 ``ok``, or 503 and what is missing |
| ``/metrics`` | the program's numbers, for Prometheus |

One request per connection, small and soon, from a limited number of callers at a time: whoever asks
for more is cut off. It is for probes and scrapers in one's own network, not for the public.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from cometmq import logs
from cometmq.remoting.metrics import CONTENT_TYPE
from cometmq.remoting.server import binding

_log = logs.get_logger("cometmq.remoting")

REQUEST_BYTES_MAX = 8 * 1024
SECONDS_MAX = 5.0
"""From the connection to its end."""

CALLERS_MAX = 32

_TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """What a path says now."""

    text: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = _TEXT
    fields: str = ""


class HealthServer:
    """Serves the three paths; ``lack`` tells what is missing until the program is ready, or None.

    ``metrics`` gives the text of ``/metrics``.
    """

    def __init__(
        self,
        *,
        lack: Callable[[], str | None],
        metrics: Callable[[], str],
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        self._pages: dict[str, Callable[[], Page]] = {
            "/healthz": lambda: Page("ok\n"),
            "/readyz": lambda: _readiness(lack()),
            "/metrics": lambda: Page(metrics(), content_type=CONTENT_TYPE),
        }
        self._seconds_max = seconds_max
        self._listener: asyncio.Server | None = None
        self._callers: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens (useful when port 0 was asked for)."""
        assert self._listener is not None
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Bind and serve. Raises PortInUse and SettingsError."""
        with binding(host, port, key="healthAddress"):
            self._listener = await asyncio.start_server(
                self._accept, host, port, limit=REQUEST_BYTES_MAX
            )

    async def stop(self) -> None:
        """Stop listening and cut everyone off."""
        if self._listener is not None:
            self._listener.close()
        callers = list(self._callers)
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._callers) >= CALLERS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._callers.add(task)
        task.add_done_callback(self._callers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._seconds_max):
                writer.transport.set_write_buffer_limits(high=0)
                writer.write(await self._answer(reader))
                await writer.drain()
                if not writer.transport.is_closing():
                    writer.write_eof()
                # Closing while the caller still sends would reset the connection, and with it the
                # answer on its way.
                while await reader.read(REQUEST_BYTES_MAX):
                    pass
        except (OSError, EOFError):
            pass  # gone or too slow: either way nobody is left to be told (OSError: also timeouts)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(_error(HTTPStatus.BAD_REQUEST))
        method, target, _ = words
        return _response(self._page(method, target.partition("?")[0]), has_body=method != "HEAD")

    def _page(self, method: str, path: str) -> Page:
        make = self._pages.get(path)
        if make is None:
            return _error(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET, HEAD\r\n")
        try:
            return make()
        except Exception:
            _log.exception("path=%s cannot be made", path)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def _readiness(lack: str | None) -> Page:
    if lack is None:
        return Page("ok\n")
    return Page(f"{lack}\n", HTTPStatus.SERVICE_UNAVAILABLE)


def _error(status: HTTPStatus, fields: str = "") -> Page:
    return Page(f"{status.phrase}\n", status, fields=fields)


def _response(page: Page, *, has_body: bool = True) -> bytes:
    body = page.text.encode(errors="replace")
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nConnection: close\r\n{page.fields}\r\n"
    )
    return head.encode() + (body if has_body else b"")
