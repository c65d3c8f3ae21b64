"""Dialling: one connection to one address, with a bound on how long that may take."""

import asyncio
import os
from collections.abc import Callable

from cometmq.errors import ConnectionLost, Unreachable
from cometmq.remoting.addresses import split_address
from cometmq.remoting.channel import Channel
from cometmq.remoting.config import ChannelSettings, TlsClientSettings
from cometmq.remoting.routes import Routes
from cometmq.remoting.tls import TlsStream, client_context

__all__ = ["CONNECT_TIMEOUT_MS", "connect", "split_address"]

CONNECT_TIMEOUT_MS = 3_000


async def connect(
    address: str,
    routes: Routes | None = None,
    *,
    timeout_ms: int = CONNECT_TIMEOUT_MS,
    settings: ChannelSettings | None = None,
    tls: TlsClientSettings | None = None,
    on_closed: Callable[[Channel], None] | None = None,
) -> Channel:
    """A channel to ``host:port``, ready to be used; ``routes`` serve what the peer asks.

    ``on_closed`` is told when the connection has ended, whoever ended it. Raises Unreachable,
    also when both sides cannot agree on TLS. The caller owns the channel and closes it.
    """
    host, port = split_address(address)
    context = client_context(tls) if tls is not None and tls.is_enabled else None
    channel = Channel(routes or Routes(), settings or ChannelSettings(), on_closed=on_closed)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await loop.create_connection(lambda: channel, host, port)
            if context is not None:
                await channel.start_tls(TlsStream(context, is_server=False, host=host))
    except TimeoutError as error:
        raise Unreachable(address, f"no connection within {timeout_ms} ms") from error
    except ConnectionLost as error:
        raise Unreachable(address, error.reason) from error
    except (OSError, ValueError) as error:  # ValueError: no host can have that name
        raise Unreachable(address, _reason(error)) from error
    finally:
        if not channel.is_open:
            channel.close("given up while connecting")
    return channel


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        # The loops put their own words into strerror; look-ups of names have negative numbers.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error)
