"""The client for asyncio: ``Client`` and what is made from it::

    async with Client("host:9876") as mq:
        await mq.producer().send("orders", {"id": 1})

The classes have the same names as in ``cometmq``, where each call waits for its result instead.
What they take and return, and what they raise, is in ``cometmq`` for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.client import client

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.client.lite_consumer import LiteConsumer
    from cometmq.client.producer import Producer
    from cometmq.client.pull_consumer import PullConsumer
    from cometmq.client.push_consumer import Consumer
    from cometmq.client.shared import Shared
    from cometmq.client.transactions import TransactionProducer
    from cometmq.codec.command import Command
    from cometmq.codec.headers.base import Header

__all__ = [
    "Client",
    "Consumer",
    "LiteConsumer",
    "Producer",
    "PullConsumer",
    "TransactionProducer",
]

_MODULES = {
    "Consumer": "push_consumer",
    "LiteConsumer": "lite_consumer",
    "Producer": "producer",
    "PullConsumer": "pull_consumer",
    "TransactionProducer": "transactions",
}
"""Where classes live that nobody needs before a client is open."""


class Client(client.Client):
    __doc__ = client.Client.__doc__

    def admin(self) -> Admin:
        """Questions and commands to the same cluster, on the connections of this client.

        Names are those that servers know: with the client's namespace, if it has one.
        """
        from cometmq.admin import Admin

        shared = self._require()
        return Admin(
            self._name_servers,
            clock=self._clock,
            connections=_Connections(shared, frozenset(self._name_servers)),
        )


class _Connections:
    """Those of a client: name servers have theirs, which no broker's business ever uses."""

    def __init__(self, shared: Shared, name_servers: frozenset[str]) -> None:
        self._shared = shared
        self._name_servers = name_servers

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Command:
        self._shared.require()
        connections = self._shared.main.connections
        if address in self._name_servers:
            connections = self._shared.name_server_connections
        return await connections.ask(
            address, code, header, body, timeout_ms=timeout_ms, is_repeatable=is_repeatable
        )


if not TYPE_CHECKING:  # checkers would believe in any name

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        import importlib

        found = getattr(importlib.import_module(f"cometmq.client.{_MODULES[name]}"), name)
        globals()[name] = found
        return found
