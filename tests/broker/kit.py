"""A client without manners: it says what it is told, right or wrong, and reads what comes back."""

import contextlib
import logging
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence

import pytest

from cometmq.codec import core, record
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, CommandFlag, Serialization, encode
from cometmq.codec.headers.offsets import GetMaxOffset, OffsetResponse
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2

ANSWER_SECONDS_MAX = 10
SUSPEND, SUBSCRIPTION, CLASS_FILTER = 0x2, 0x4, 0x8

Ext = Mapping[str, str]


class Peer:
    """One connection to a broker, blocking; asks one thing at a time unless told otherwise."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX)
        self._got = b""
        self._opaque = 0

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port

    def ask(
        self, code: int, ext: Ext | None = None, body: bytes = b"", *, binary: bool = False
    ) -> Command:
        """Ask and wait for the answer to just that; requests of the broker are passed over."""
        opaque = self.tell(code, ext, body, binary=binary, flag=0)
        while True:
            command = self.next_command()
            if command.is_response:
                assert command.opaque == opaque, "an answer to something else"
                return command

    def tell(
        self,
        code: int,
        ext: Ext | None = None,
        body: bytes = b"",
        *,
        binary: bool = False,
        flag: int = CommandFlag.ONEWAY,
    ) -> int:
        """Send a request (one-way, unless ``flag`` says otherwise); returns its opaque."""
        self._opaque += 1
        self.say(frame(code, ext, body, opaque=self._opaque, flag=flag, binary=binary))
        return self._opaque

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def next_command(self) -> Command:
        while True:
            commands, end = core.decode_frames(self._got[: self._frame_end()])
            if commands:
                self._got = self._got[end:]
                return commands[0]
            chunk = self.socket.recv(1 << 20)
            assert chunk, "the broker has closed the connection"
            self._got += chunk

    def until_closed(self) -> bytes:
        """Everything until the broker closes the connection."""
        data, self._got = self._got, b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := self.socket.recv(1 << 20):
                data += chunk
        return data

    def max_offset(self, topic: str, queue_id: int = 0) -> int:
        answer = self.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, queue_id).to_ext())
        return core.read(answer, OffsetResponse).offset

    def is_served(self) -> bool:
        """Whether the connection lives, and nothing is left unread on it."""
        return self.max_offset("TBW102") == 0 and not self._got

    def send(self, topic: str, body: bytes = b"body", **changes: str | None) -> Command:
        return self.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, **changes), body)

    def pull(self, topic: str, **changes: str | None) -> Command:
        return self.ask(RequestCode.PULL_MESSAGE, pull_ext(topic, **changes))

    def _frame_end(self) -> int:
        return 4 + int.from_bytes(self._got[:4], "big") if len(self._got) >= 4 else 0


@contextlib.contextmanager
def connected(address: str) -> Iterator[Peer]:
    peer = Peer(address)
    try:
        yield peer
    finally:
        peer.socket.close()


def frame(
    code: int,
    ext: Ext | None = None,
    body: bytes = b"",
    *,
    opaque: int = 0,
    flag: int = 0,
    binary: bool = False,
) -> bytes:
    """A request as bytes."""
    form = Serialization.ROCKETMQ if binary else Serialization.JSON
    fields = None if ext is None else dict(ext)
    command = Command(code, opaque=opaque, flag=flag, serialization=form, ext=fields, body=body)
    return encode(command)


def send_ext(topic: str, **changes: str | None) -> dict[str, str]:
    """The header of a send, by its short names; a change to None leaves a field out."""
    header = SendMessageV2("producers", topic, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, "")
    return _changed(header.to_ext(), changes)


def pull_ext(topic: str, **changes: str | None) -> dict[str, str]:
    """The header of a pull of all there is, by names of the wire."""
    header = PullMessage("consumers", topic, 0, 0, 32, SUBSCRIPTION, 0, 0, "*", 0)
    return _changed(header.to_ext(), changes)


def stored_at(answer: Command) -> int:
    """The queue offset a send was acknowledged with."""
    assert answer.code == 0, (answer.code, answer.remark)
    return core.read(answer, SendMessageResponse).queue_offset


def bodies_of(answer: Command) -> list[bytes]:
    """The bodies of the messages that a pull brought."""
    bodies, position = [], 0
    while position < len(answer.body):
        size = int.from_bytes(answer.body[position : position + 4], "big")
        found = record.parse(answer.body[position : position + size])
        assert isinstance(found, record.Record)
        bodies.append(bytes(found.body))
        position += size
    return bodies


def batch_record(body: bytes, properties: bytes = b"", **lies: int) -> bytes:
    """One record of a batch; ``size``, ``body_bytes`` and ``properties_bytes`` may be untrue."""
    size = lies.get("size", 22 + len(body) + len(properties))
    body_bytes = lies.get("body_bytes", len(body))
    properties_bytes = lies.get("properties_bytes", len(properties))
    head = struct.pack(">iiIii", size, 0, 0, 0, body_bytes)
    return head + body + struct.pack(">h", properties_bytes) + properties


def complaints(caplog: pytest.LogCaptureFixture) -> Sequence[str]:
    """What was logged for people to read."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _changed(ext: dict[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**ext, **changes}
    return {name: value for name, value in merged.items() if value is not None}
