"""Questions that take no longer than whoever asks is ready to wait.

Some questions are known to be slow, and the library gives a broker more time for them. That is
right until a person says ``--timeout 1s``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.admin.servers import Asking
    from cometmq.codec.command import Command
    from cometmq.codec.headers.base import Header


class Within:
    """Asks through ``connections``, and waits at most ``timeout_ms`` for any answer."""

    def __init__(self, connections: "Asking", timeout_ms: int) -> None:
        self._connections = connections
        self._timeout_ms = timeout_ms

    async def ask(
        self,
        address: str,
        code: int,
        header: "Header | None" = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> "Command":
        return await self._connections.ask(
            address,
            code,
            header,
            body,
            timeout_ms=min(timeout_ms, self._timeout_ms),
            is_repeatable=is_repeatable,
        )
