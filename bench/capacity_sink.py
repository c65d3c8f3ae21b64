"""A server that answers every request with the same bytes: what the capacity generator can do.

It looks at lengths only, as the generator does; against a broker the generator cannot be faster.
Its argument is how many bytes an answer has; it prints the port it listens on.

    python -m bench.capacity_sink 250
"""

import select
import socket
import sys

from bench.capacity import BUFFER_BYTES
from bench.capacity_frames import AnswerCounter
from cometmq.codec import command
from cometmq.codec.command import Command, CommandFlag

ANSWERS_AT_ONCE_MAX = 512


def answer_of(size: int) -> bytes:
    """A successful answer of at least so many bytes."""
    empty = command.encode(Command(0, flag=CommandFlag.RESPONSE))
    padding = bytes(max(0, size - len(empty)))
    return command.encode(Command(0, flag=CommandFlag.RESPONSE, body=padding))


def serve(listener: socket.socket, answer: bytes) -> None:
    """Answer until the process is ended."""
    answers = memoryview(answer * ANSWERS_AT_ONCE_MAX)
    peers: dict[int, tuple[socket.socket, AnswerCounter]] = {}
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    while True:
        for number, _ in epoll.poll():
            if number == listener.fileno():
                peer, _ = listener.accept()
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[peer.fileno()] = (peer, AnswerCounter())
                epoll.register(peer, select.EPOLLIN)
            elif not answered(*peers[number], answers, len(answer)):
                epoll.unregister(number)
                peers.pop(number)[0].close()


_buffer = bytearray(BUFFER_BYTES)
_view = memoryview(_buffer)


def answered(peer: socket.socket, requests: AnswerCounter, answers: memoryview, size: int) -> bool:
    """Answer what has come; False when the peer is gone."""
    held = len(requests.held)
    _view[:held] = requests.held
    try:
        received = peer.recv_into(_view[held:])
        if not received:
            return False
        count = requests.count(_buffer, held + received)
        while count > 0:
            peer.sendall(answers[: min(count, ANSWERS_AT_ONCE_MAX) * size])
            count -= ANSWERS_AT_ONCE_MAX
    except ConnectionError:
        return False
    return True


def main() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        serve(listener, answer_of(int(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
