"""A client that answers what the broker asks, without a socket."""

from cometmq.codec.command import Command, Serialization
from cometmq.codec.headers.base import Header
from tests.unit.broker.fake_channel import PEER, FakeChannel, Notice


class AnsweringChannel(FakeChannel):
    """Answers every request with ``code`` and ``body``, or with the error that asking ends in."""

    def __init__(
        self, peer: str = PEER, *, code: int = 0, body: bytes = b"", error: Exception | None = None
    ) -> None:
        super().__init__(peer)
        self.asked: list[Notice] = []
        self.timeout_ms = 0  # of the last request
        self._code = code
        self._body = body
        self._error = error

    async def request(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        serialization: Serialization = Serialization.JSON,
    ) -> Command:
        self.asked.append(Notice(code, header, body))
        self.timeout_ms = timeout_ms
        if self._error is not None:
            raise self._error
        return Command(self._code, body=self._body)
