"""Apache's admin tool kept running: many commands, one JVM."""

import re
import socket
from pathlib import Path

from tests.interop import apache, java, requirements
from tests.interop.cache import Cache
from tests.interop.commands import without_noise
from tests.interop.mqadmin import COMMAND_TIMEOUT_S
from tests.interop.ports import LOOPBACK
from tests.interop.processes import Process, Stoppable

MAIN = "cometmq.admin.AdminShell"
LISTENS = r"admin shell listens on (\d+)"
READ_BYTES = 1 << 16


class AdminShell(Stoppable):
    """The tool of one release; called as ``MqAdmin`` is, and twenty times as fast.

    What a command writes to standard error is part of the answer: a command that fails says so
    there, and in no other way. Before a command, ``@within 1500`` ends one that would run for ever;
    ``@act`` speaks to the clients kept online in the same JVM instead (``Actors.java``).
    """

    def __init__(self, cache: Cache, version: str, folder: Path) -> None:
        requirements.need("java")
        self.version = version
        home = apache.home(folder)
        class_path = java.compiled(cache, f"client-{version}", "admin")
        properties = {"rocketmq.home.dir": str(home)}
        argv = java.command(class_path, MAIN, [], home=home, properties=properties)
        self._process = Process(f"mqadmin-{version}", argv, folder=folder)
        try:
            self._process.wait_until_printed(LISTENS)
        except BaseException:
            self._process.stop()
            raise
        found = re.search(LISTENS, self._process.log())
        assert found is not None
        self._port = int(found.group(1))

    def __call__(self, *argv: str) -> str:
        """What the command printed, its complaints included, without the noise around it."""
        where = (LOOPBACK, self._port)
        with socket.create_connection(where, timeout=COMMAND_TIMEOUT_S) as connection:
            connection.sendall("\n".join(argv).encode())
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(READ_BYTES), b""))
        return without_noise(answer.decode("utf-8", "backslashreplace"))

    def stop(self) -> None:
        self._process.kill()
