"""The real clients, each behind one small program with the same verbs and the same output.

A program takes a verb and ``--name value`` options and prints one JSON object per line, an
*event*: ``{"event": "sent", "body": …, "messageId": …, "queueOffset": …}`` or ``{"event":
"received", …}``. Whatever else a client prints is not an event and is ignored.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop import cpp, golang, java, node, requirements
from tests.interop.cache import Cache
from tests.interop.commands import run
from tests.interop.tls import Certificates

JAVA_VERSIONS = ("4.9.8", "5.5.0")
NAMES = (*(f"java-{version}" for version in JAVA_VERSIONS), "go", "node", "cpp")
TLS_NAMES = (*(f"java-{version}" for version in JAVA_VERSIONS), "go")

WAIT_S = 40
# What starting and ending the program may take on a busy machine, beyond its own waiting.
START_AND_END_S = 30

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Client:
    """One client program, ready to be called any number of times."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def send(
        self,
        namesrv: str,
        topic: str,
        *,
        count: int,
        group: str = "PG_interop",
        tag: str = "TagA",
        prefix: str = "message-",
    ) -> list[Event]:
        """Send ``count`` messages, bodies ``prefix`` and a number, keys ``key-`` and the number."""
        options = {"topic": topic, "group": group, "tag": tag, "prefix": prefix}
        return self.call("send", namesrv=namesrv, count=str(count), timeout_s=WAIT_S, **options)

    def consume(
        self,
        namesrv: str,
        topic: str,
        *,
        count: int,
        group: str,
        tag: str = "*",
        timeout_s: int = WAIT_S,
    ) -> list[Event]:
        """Consume from the topic's beginning until ``count`` messages came; fail if they do not."""
        options = {"topic": topic, "group": group, "tag": tag, "timeout": str(timeout_s)}
        return self.call(
            "consume", namesrv=namesrv, count=str(count), timeout_s=timeout_s, **options
        )

    def call(self, verb: str, *, timeout_s: int, **options: str) -> list[Event]:
        """Run the program once and give its events in the order it printed them."""
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        output = run(
            [*self.argv, verb, *self.options, *arguments],
            env=self.env,
            timeout_s=timeout_s + START_AND_END_S,
        )
        return events_in(output)


def client(cache: Cache, name: str, folder: Path, *, tls: Certificates | None = None) -> Client:
    """The client called ``name`` (one of ``NAMES``), keeping what it writes below ``folder``.

    With certificates it speaks TLS: Java to every server, Go to the name server (``tunnel.go``).
    """
    assert tls is None or name in TLS_NAMES, name
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    # Clients of every language like to write log files below the home folder.
    env = {"HOME": str(home)}
    if name == "go":
        options = ("--tls-trust", str(tls.authority)) if tls else ()
        return Client(name, (str(golang.program(cache)),), env, options)
    if name == "node":
        requirements.need("node")
        path = {"NODE_PATH": str(node.packages(cache))}
        return Client(name, ("node", str(node.PROGRAM)), {**env, **path})
    if name == "cpp":
        path = {"PYTHONPATH": str(cpp.packages(cache))}
        return Client(name, (sys.executable, str(cpp.PROGRAM)), {**env, **path})
    version = name.removeprefix("java-")
    requirements.need("java")
    class_path = java.compiled(cache, f"client-{version}", "support", "client")
    properties = tls.java_client_properties() if tls else {}
    argv = java.command(class_path, "cometmq.client.Client", [], home=home, properties=properties)
    return Client(name, tuple(argv), env)


def events_in(output: str) -> list[Event]:
    """The events among everything a program printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
