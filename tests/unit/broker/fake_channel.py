"""A connection without a socket, for tests of handlers: it remembers what was said to the peer."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from cometmq.codec import core
from cometmq.codec.codes import LanguageCode, RequestCode
from cometmq.codec.command import Command, CommandFlag, Serialization
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.codec.headers.send import SendMessageResponse
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes, failure

PEER = "127.0.0.1:40001"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as the peer would get it, its body in one piece."""

    opaque: int
    code: int
    remark: str | None
    header: Header | None
    body: bytes

    @property
    def ext(self) -> dict[str, str]:
        """The ext fields on the wire."""
        return {} if self.header is None else self.header.to_ext()


@dataclass(frozen=True, slots=True)
class Notice:
    """A one-way request to the peer."""

    code: int
    header: Header | None
    body: bytes


def request(
    code: RequestCode,
    header: Header | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    is_oneway: bool = False,
    serialization: Serialization = Serialization.JSON,
    language: int = LanguageCode.JAVA,
    version: int = 407,
) -> Command:
    """A request as it comes from a client of 4.9.7; ``header`` is any that the code may have."""
    return Command(
        code,
        language,
        version,
        opaque,
        CommandFlag.ONEWAY if is_oneway else 0,
        serialization=serialization,
        ext=None if header is None else header.to_ext(),
        body=body,
    )


class FakeChannel(Channel):
    """Answers and notices end up in lists; nothing leaves, and no event loop is needed.

    Handlers that answer later need one, and a test that awaits ``finish``.
    """

    def __init__(self, peer: str = PEER) -> None:
        # Not the constructor of Channel: that one needs a running loop and makes timers.
        self.peer = peer
        self.local = "127.0.0.1:10911"
        self.attributes = {}
        self.replies: list[Reply] = []
        self.notices: list[Notice] = []
        self.closed_for: str | None = None  # why, once it is closed
        self._pending: list[tuple[Command, Awaitable[Answer | None]]] = []

    @property
    def is_open(self) -> bool:
        return self.closed_for is None

    def ask(self, routes: Routes, *commands: Command) -> list[Reply]:
        """Hand requests to ``routes`` as if they had come with one read; the replies to them."""
        before = len(self.replies)
        self.answer_with(routes.dispatch(self, commands))
        replies = self.replies[before:]
        del self.replies[before:]
        return replies

    async def finish(self) -> None:
        """Wait for the handlers that answer later."""
        while self._pending:
            request, pending = self._pending.pop(0)
            try:
                answer = await pending
            except Exception as error:
                answer = failure(request, error)
            if answer is not None:
                self.reply(request, answer)

    # --- what handlers use of a channel

    def succeed(self, request: Command, header: Header) -> None:
        self.reply_parts(request, 0, None, header, ())

    def answer_with(self, frames: list[bytes]) -> None:
        if self.is_open:
            for answer in core.decode_frames(b"".join(frames))[0]:
                is_send = "msgId" in answer.ext_fields
                kind = SendMessageResponse if is_send else PullMessageResponse
                header: Header = core.read(answer, kind)
                self.replies.append(
                    Reply(answer.opaque, answer.code, answer.remark, header, answer.body)
                )

    def reply_parts(
        self,
        request: Command,
        code: int,
        remark: str | None,
        header: Header | None,
        body: Sequence[bytes | memoryview],
    ) -> None:
        if not request.is_oneway and self.is_open:
            joined = b"".join(body)
            # What cannot be written must fail here as it would on a real connection.
            form = request.serialization
            core.encode_head(form, code, request.opaque, 1, remark, header, len(joined))
            self.replies.append(Reply(request.opaque, code, remark, header, joined))

    def finish_later(self, request: Command, pending: Awaitable[Answer | None]) -> None:
        self._pending.append((request, pending))

    def oneway(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        serialization: Serialization = Serialization.JSON,
    ) -> None:
        if self.is_open:
            core.encode_head(serialization, code, 0, CommandFlag.ONEWAY, None, header, len(body))
            self.notices.append(Notice(code, header, body))

    def close(self, reason: str = "closed by us") -> None:
        self.closed_for = self.closed_for or reason

    def drop(self, reason: str) -> None:
        self.close(reason)
