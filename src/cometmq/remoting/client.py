"""Dialling: one connection to one address, with a bound on how long that may take."""

import asyncio

from cometmq.errors import Unreachable
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings, TlsClientSettings
from cometmq.remoting.routes import Routes
from cometmq.remoting.tls import TlsStream, client_context

CONNECT_TIMEOUT_MS = 3_000


async def connect(
    address: str,
    routes: Routes | None = None,
    *,
    timeout_ms: int = CONNECT_TIMEOUT_MS,
    settings: ChannelSettings | None = None,
    tls: TlsClientSettings | None = None,
) -> Channel:
    """A channel to ``host:port``; ``routes`` serve what the peer asks. Raises Unreachable.

    The caller owns the channel and closes it.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    handlers = routes or Routes()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, channel = await loop.create_connection(
                lambda: Channel(handlers, settings or ChannelSettings()), host, port
            )
    except TimeoutError as error:
        raise Unreachable(address, f"no connection within {timeout_ms} ms") from error
    except OSError as error:
        raise Unreachable(address, error.strerror or str(error)) from error
    if tls is not None and tls.is_enabled:
        channel.start_tls(TlsStream(client_context(tls), is_server=False, host=host))
    return channel


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` in parts; IPv6 addresses stand in brackets."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise Unreachable(address, "not an address", "write it as host:port")
    return host.strip("[]"), int(port)
