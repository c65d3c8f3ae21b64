"""Which handler serves which request code, and what happens to a request on its way there.

A handler takes the channel and a command and returns an ``Answer``, an awaitable of one, or None
when it has answered by itself (or will later). A batch handler takes all the commands of one code
that came with one read: what touches every message is written that way.

A short way stands before a batch handler and takes commands from the front of what came, as long as
they are usual: their answers are whole frames, which need nothing but to be written. A read of
usual commands costs a few calls that way (ADR 23).
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
ShortWay = Callable[["Channel", Sequence[Command], list[bytes]], int]
"""Appends the answers of the commands it takes, and tells how many those are."""

Gate = Callable[["Channel", Command], Answer | None]


class Routes:
    """The table; built once by a program's composition root, then only read."""

    def __init__(self) -> None:
        self._by_code: dict[int, BatchHandler] = {}
        self._short_ways: dict[int, ShortWay] = {}
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

    def add_short_way(self, code: RequestCode, way: ShortWay) -> None:
        """Let commands of ``code`` be taken before their handler sees what is left.

        When it raises, all of the commands it was given are answered with the error.
        """
        assert code in self._by_code, code
        assert code not in self._short_ways, code
        self._short_ways[code] = way

    def wrap(
        self,
        make: Callable[[int, BatchHandler], BatchHandler],
        make_short: Callable[[int, ShortWay], ShortWay],
    ) -> None:
        """Put something around all handlers and short ways there are; makers get code and each."""
        self._by_code = {code: make(code, handler) for code, handler in self._by_code.items()}
        self._short_ways = {code: make_short(code, way) for code, way in self._short_ways.items()}

    def set_gate(self, gate: Gate) -> None:
        """Let every request pass ``gate`` first; what it answers goes out instead."""
        self._gate = gate

    def dispatch(self, channel: "Channel", commands: Sequence[Command]) -> list[bytes]:
        """Hand commands to their handlers, runs of one code together, in the order received.

        Returns answers that are still to be written: those of the last run's short way.
        """
        if self._gate is not None:
            commands = self._admitted(channel, commands, self._gate)
        frames: list[bytes] = []
        begin, count = 0, len(commands)
        while begin < count:
            code = commands[begin].code
            end = begin + 1
            while end < count and commands[end].code == code:
                end += 1
            run = commands[begin:end] if end - begin < count else commands
            begin = end
            try:
                way = self._short_ways.get(code)
                if way is not None:
                    written: list[bytes] = []
                    taken = way(channel, run, written)
                    if frames:
                        channel.answer_with(frames)
                    frames = written
                    if taken == len(run):
                        continue
                    run = run[taken:]
                self._by_code.get(code, _refuse_unknown)(channel, run)
            except Exception as error:
                for command in run:
                    channel.reply(command, failure(command, error))
        return frames

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
