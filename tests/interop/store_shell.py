"""Apache's client for the tests of the store: what it sends, gets and finds, in one JVM."""

import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from cometmq.codec import sysflag
from cometmq.codec.properties import Property
from tests.interop import apache, java, requirements
from tests.interop.cache import Cache
from tests.interop.clients import Event
from tests.interop.ports import LOOPBACK
from tests.interop.processes import Process, Stoppable
from tests.interop.store_kit import Facts, Ground, Queue

MAIN = "cometmq.store.StoreShell"
LISTENS = r"store shell listens on (\d+)"
COMMAND_TIMEOUT_S = 60
# What a client adds to the properties of a message it pulled.
ADDED_BY_CLIENT = {Property.MIN_OFFSET, Property.MAX_OFFSET}


class ShellError(Exception):
    """A command of the client failed; the text is Java's stack trace."""


class StoreShell(Stoppable):
    """Apache's client of one release, kept running for many commands."""

    def __init__(self, cache: Cache, release: str, folder: Path) -> None:
        requirements.need("java")
        # There is no 4.9.7 of the clients' set; its broker is as old as a 4.9.8 client.
        version = release if release.startswith("5.") else "4.9.8"
        class_path = java.compiled(cache, f"client-{version}", "support", "store")
        argv = java.command(class_path, MAIN, [], home=apache.home(folder))
        self._process = Process(f"store-shell-{release}", argv, folder=folder)
        try:
            self._process.wait_until_printed(LISTENS)
        except BaseException:
            self._process.stop()
            raise
        found = re.search(LISTENS, self._process.log())
        assert found is not None
        self._port = int(found.group(1))

    def __call__(self, verb: str, ground: Ground, **options: str) -> list[Event]:
        """Every event of a command that must not fail."""
        return list(self.events(verb, ground, **options))

    def events(self, verb: str, ground: Ground, **options: str) -> Iterator[Event]:
        """The events of a command as they happen."""
        lines = [f"{name}={value}" for name, value in {**ground.shell_options(), **options}.items()]
        where = (LOOPBACK, self._port)
        with socket.create_connection(where, timeout=COMMAND_TIMEOUT_S) as connection:
            connection.sendall("\n".join([verb, *lines]).encode())
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile(encoding="ascii") as answer:
                for line in answer:
                    event = json.loads(line)
                    if event["event"] == "failed":
                        raise ShellError(f"{verb} {options}\n{event['reason']}")
                    yield event

    def pull(self, ground: Ground, queues: Sequence[Queue], tags: str = "*") -> list[Facts]:
        """All messages of the queues, as the client got them."""
        names = ",".join(f"{topic}@{queue_id}" for topic, queue_id in queues)
        return [facts_of(event) for event in self("pull", ground, queues=names, tags=tags)]

    def stop(self) -> None:
        self._process.kill()


def facts_of(event: Event) -> Facts:
    """What the client said of a message, without what it added."""
    found = {name: value for name, value in event.items() if name not in ("event", "asked")}
    found["sysFlag"] &= ~sysflag.COMPRESSED
    found["properties"] = {
        name: value for name, value in event["properties"].items() if name not in ADDED_BY_CLIENT
    }
    return found
