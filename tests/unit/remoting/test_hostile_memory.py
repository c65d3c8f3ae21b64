"""A thousand hostile connections leave nothing behind in the memory of a server."""

import contextlib
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cometmq.model.limits import FRAME_BYTES_MAX, PARTIAL_FRAMES_BYTES_MAX
from scripts import tree
from tests.unit.remoting.kit import ECHO, LOOPBACK, commands_in, request

CONNECTIONS = 1_000
SECONDS_MAX = 60
GROWTH_BYTES_MAX = 4 * 1000 * 1000

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to look at another process's memory"
)


class Counts(NamedTuple):
    """What a server says of itself; the connection that asks is not counted."""

    alive: int
    ended: int
    held_bytes: int


class Prisoner:
    """The server's process and a connection to ask it about itself."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())
        self._asking = socket.create_connection((LOOPBACK, self.port), timeout=SECONDS_MAX)

    @property
    def anonymous_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def counts(self) -> "Counts":
        self._asking.sendall(request(ECHO))
        got = b""
        while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
            got += self._asking.recv(4096)
        (command,) = commands_in(got)
        alive, ended, held = map(int, command.body.split())
        return Counts(alive - 1, ended, held)

    def close(self) -> None:
        self._asking.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def serving(loop_name: str) -> Iterator[Prisoner]:
    command = [sys.executable, "-m", "tests.unit.remoting.hostile_server", loop_name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tree.ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        prisoner = Prisoner(process)
        try:
            yield prisoner
        finally:
            prisoner.close()


def attack(server: Prisoner) -> Counts:
    """Each connection announces 16 MiB and sends a part of it; then all of them go."""
    data = struct.pack(">iI", FRAME_BYTES_MAX - 4, 10) + bytes(64 * 1024)
    ended_before = server.counts().ended
    with contextlib.ExitStack() as stack:
        for number in range(CONNECTIONS):
            peer = stack.enter_context(socket.create_connection((LOOPBACK, server.port)))
            peer.settimeout(SECONDS_MAX)
            with contextlib.suppress(ConnectionError):  # the largest are dropped meanwhile
                peer.sendall(data + bytes(number))
        seen = settled(server, lambda now: now.alive + now.ended - ended_before == CONNECTIONS)
    settled(server, lambda now: (now.alive, now.held_bytes) == (0, 0))
    return seen


def settled(server: Prisoner, is_done: Callable[[Counts], bool]) -> Counts:
    """Wait until it has taken in everything: so far that nothing changes any more."""
    deadline = time.monotonic() + SECONDS_MAX
    before, now = None, server.counts()
    while before != now or not is_done(now):
        assert time.monotonic() < deadline, now
        time.sleep(0.02)
        before, now = now, server.counts()
    return now


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("loop_name", ["asyncio", "uvloop"])
def test_a_second_round_of_a_thousand_hostile_connections_adds_nothing(loop_name: str) -> None:
    with serving(loop_name) as server:
        first = attack(server)
        before = server.anonymous_bytes
        second = attack(server)
        after = server.anonymous_bytes

    for seen in (first, second):
        assert 0.9 * PARTIAL_FRAMES_BYTES_MAX < seen.held_bytes <= PARTIAL_FRAMES_BYTES_MAX
        assert 700 < seen.alive < 800, "as many as have room"
    assert after - before <= GROWTH_BYTES_MAX, (before, after)
