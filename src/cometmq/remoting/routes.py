"""Which handler serves which request code, and what happens to a request on its way there.

A handler takes the channel and a command and returns an ``Answer``, an awaitable of one, or None
when it has answered by itself (or will later). A batch handler takes all the commands of one code
that came with one read: what touches every message is written that way.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from cometmq import logs
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.errors import BrokerError, LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from cometmq.remoting.channel import Channel

_log = logs.get_logger("cometmq.remoting")


class Answer(msgspec.Struct, gc=False):
    """What a request is answered with; an empty one is a bare success."""

    code: int = ResponseCode.SUCCESS
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None


Handler = Callable[["Channel", Command], Answer | Awaitable[Answer | None] | None]
BatchHandler = Callable[["Channel", Sequence[Command]], None]
Gate = Callable[["Channel", Command], Answer | None]


class Routes:
    """The table; built once by a program's composition root, then only read."""

    def __init__(self) -> None:
        self._by_code: dict[int, BatchHandler] = {}
        self._gate: Gate | None = None

    def add(self, code: RequestCode, handler: Handler) -> None:
        """Serve ``code`` one command at a time."""
        assert code not in self._by_code, code
        self._by_code[code] = _one_by_one(handler)

    def add_batch(self, code: RequestCode, handler: BatchHandler) -> None:
        """Serve ``code`` with all commands of a read at once; the handler answers by itself.

        When it raises, it must not have answered any: all of them are answered with the error.
        """
        assert code not in self._by_code, code
        self._by_code[code] = handler

    def wrap(self, make: Callable[[int, BatchHandler], BatchHandler]) -> None:
        """Put something around every handler there is; ``make`` gets its code and itself."""
        self._by_code = {code: make(code, handler) for code, handler in self._by_code.items()}

    def set_gate(self, gate: Gate) -> None:
        """Let every request pass ``gate`` first; what it answers goes out instead."""
        self._gate = gate

    def dispatch(self, channel: "Channel", commands: Sequence[Command]) -> None:
        """Hand commands to their handlers, runs of one code together, in the order received."""
        if self._gate is not None:
            commands = self._admitted(channel, commands, self._gate)
        begin, count = 0, len(commands)
        while begin < count:
            code = commands[begin].code
            end = begin + 1
            while end < count and commands[end].code == code:
                end += 1
            handler = self._by_code.get(code, _refuse_unknown)
            try:
                handler(channel, commands[begin:end] if end - begin < count else commands)
            except Exception as error:
                for command in commands[begin:end]:
                    channel.reply(command, failure(command, error))
            begin = end

    @staticmethod
    def _admitted(channel: "Channel", commands: Sequence[Command], gate: Gate) -> list[Command]:
        admitted = []
        for command in commands:
            try:
                refusal = gate(channel, command)
            except Exception as error:
                refusal = failure(command, error)
            if refusal is None:
                admitted.append(command)
            else:
                channel.reply(command, refusal)
        return admitted


def _one_by_one(handler: Handler) -> BatchHandler:
    def serve(channel: "Channel", commands: Sequence[Command]) -> None:
        for command in commands:
            try:
                result = handler(channel, command)
                if isinstance(result, Answer):
                    channel.reply(command, result)
                elif result is not None:
                    channel.finish_later(command, result)
            except Exception as error:
                channel.reply(command, failure(command, error))

    return serve


def _refuse_unknown(channel: "Channel", commands: Sequence[Command]) -> None:
    for command in commands:
        code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        channel.reply(command, Answer(code, remark=f" request type {command.code} not supported"))


def failure(command: Command, error: Exception) -> Answer:
    """The answer to a request whose handler raised; what nobody planned for is logged."""
    match error:
        case BrokerError():
            return Answer(error.response_code, remark=error.remark)
        case RemoteProtocolError():
            return Answer(ResponseCode.SYSTEM_ERROR, remark=error.fact)
        case LocalProtocolError():
            _log.error("request %s: the answer cannot be written: %s", command.code, error)
            return Answer(ResponseCode.SYSTEM_ERROR, remark=error.fact)
        case _:
            _log.error("request %s failed", command.code, exc_info=error)
            return Answer(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
