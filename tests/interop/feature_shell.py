"""The real clients kept running: one program per client, many commands, events as they happen.

A program reads a command per line (``{"id": 7, "verb": "send", "options": {…}}``) and writes events
per line that start with the command's id; the last event of a command is ``done`` or ``failed``.
Consumers that a command started go on telling what they receive under the command's id.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.interop import cpp, golang, java, node, requirements
from tests.interop.cache import Cache
from tests.interop.clients import Event
from tests.interop.commands import tail
from tests.interop.processes import Stoppable
from tests.interop.tls import Certificates

JAVA_MAIN = "cometmq.features.Features"
# A consumer of 5.x looks for its queues at most once in so many milliseconds, by default a second.
JAVA_PROPERTIES = {"rocketmq.client.rebalance.minInterval": "20"}
OURS = b'{"id"'
READY_ID = 0
COMMAND_TIMEOUT_S = 60.0
RECEIVE_TIMEOUT_S = 30.0
END_TIMEOUT_S = 5.0
LAST_WORDS = ("done", "failed")


class ShellError(Exception):
    """A command failed or a program ended; the text is what the program said about it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a program is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def launch(
    cache: Cache, name: str, home: Path, *, variant: str = "plain", tls: Certificates | None = None
) -> Launch:
    """How the client called ``name`` is started, keeping what it writes below ``home``.

    The variant ``binary`` sends binary headers; with certificates a client speaks TLS.
    """
    home.mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(home)}
    options: tuple[str, ...] = () if variant == "plain" else ("--variant", variant)
    if tls is not None:
        options = ("--variant", "tls", "--tls-trust", str(tls.authority))
    if name == "go":
        return Launch((str(golang.features(cache)), *options), env)
    if name == "node":
        requirements.need("node")
        path = {"NODE_PATH": str(node.packages(cache))}
        return Launch(("node", str(node.FEATURES), *options), {**env, **path})
    if name == "cpp":
        path = {"PYTHONPATH": str(cpp.packages(cache))}
        return Launch((sys.executable, str(cpp.FEATURES), *options), {**env, **path})
    return Launch(_java(cache, name.removeprefix("java-"), home, variant, tls), env)


def _java(
    cache: Cache, version: str, home: Path, variant: str, tls: Certificates | None
) -> tuple[str, ...]:
    requirements.need("java")
    properties = {**JAVA_PROPERTIES, **(tls.java_client_properties() if tls is not None else {})}
    if variant == "binary":
        properties["rocketmq.serialize.type"] = "ROCKETMQ"
    class_path = java.compiled(cache, f"client-{version}", "support", "features")
    return tuple(java.command(class_path, JAVA_MAIN, [], home=home, properties=properties))


class FeatureProgram(Stoppable):
    """One running client program; commands run one at a time, consumers beside them."""

    def __init__(self, name: str, launched: Launch, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._log_path = folder / f"features-{name}.log"
        with self._log_path.open("wb") as log:
            self._popen = subprocess.Popen(
                launched.argv,
                cwd=folder,
                env={**os.environ, **launched.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._ids = itertools.count(READY_ID + 1)
        self._events: dict[int, list[Event]] = {}
        self._changed = threading.Condition()
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(READY_ID, lambda events: bool(events), "to be ready", COMMAND_TIMEOUT_S)

    def call(self, verb: str, **options: Any) -> list[Event]:
        """Every event of a command that must not fail, its last word left out."""
        return self.events_of(self._finish(self._start(verb, options), verb, options))

    def consume(self, consumer: str, **options: Any) -> "Consumer":
        """Start a push consumer called ``consumer``; it runs until it is stopped."""
        options = {"name": consumer, **options}
        command_id = self._finish(self._start("consume", options), "consume", options)
        return Consumer(self, command_id, consumer)

    def events_of(self, command_id: int) -> list[Event]:
        """What came so far, last words left out."""
        with self._changed:
            events = list(self._events.get(command_id, ()))
        return [event for event in events if event["event"] not in LAST_WORDS]

    def wait(
        self,
        command_id: int,
        is_so: Callable[[Sequence[Event]], bool],
        what: str,
        timeout_s: float = RECEIVE_TIMEOUT_S,
    ) -> None:
        """Return once the events of a command are as they should be; raise if that cannot be."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            events = self._events.setdefault(command_id, [])
            while not is_so(events):
                left_s = deadline - time.monotonic()
                if self._has_ended or left_s <= 0:
                    how = "ended" if self._has_ended else f"still does not after {timeout_s:g} s"
                    raise ShellError(f"{self.name} {how}: {what}\n{self._account(events)}")
                self._changed.wait(left_s)

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def stop(self) -> None:
        """Kill it, whatever it is doing."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(END_TIMEOUT_S)
        self._reader.join(END_TIMEOUT_S)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self, verb: str, options: Mapping[str, Any]) -> int:
        command_id = next(self._ids)
        line = json.dumps({"id": command_id, "verb": verb, "options": options}) + "\n"
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line.encode())
            self._popen.stdin.flush()
        except OSError as failure:
            raise ShellError(f"{self.name} takes no commands\n{self._account(())}") from failure
        return command_id

    def _finish(self, command_id: int, verb: str, options: Mapping[str, Any]) -> int:
        self.wait(command_id, _is_finished, f"{verb} to end", COMMAND_TIMEOUT_S)
        with self._changed:
            failed = [event for event in self._events[command_id] if event["event"] == "failed"]
        if failed:
            raise ShellError(f"{self.name}: {verb} {options}\n{failed[0]['error']}")
        return command_id

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            # Some clients print to standard output as they like.
            if line.startswith(OURS):
                event = json.loads(line)
                with self._changed:
                    self._events.setdefault(event["id"], []).append(event)
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _account(self, events: Sequence[Event]) -> str:
        shown = "\n".join(json.dumps(event)[:300] for event in events[-20:])
        log = tail(self._log_path.read_text(errors="backslashreplace"))
        return f"its last of {len(events)} events:\n{shown}\nits last lines:\n{log}"


class Consumer:
    """A push consumer in a program."""

    def __init__(self, program: FeatureProgram, command_id: int, name: str) -> None:
        self.name = name
        self._program = program
        self._command_id = command_id

    @property
    def received(self) -> list[Event]:
        """Every handling of a message so far, in the order they ended."""
        return self._program.events_of(self._command_id)

    def wait(
        self,
        is_so: Callable[[Sequence[Event]], bool],
        what: str,
        timeout_s: float = RECEIVE_TIMEOUT_S,
    ) -> list[Event]:
        """What was received, once it is as it should be."""

        def is_so_of_received(events: Sequence[Event]) -> bool:
            return is_so([event for event in events if event["event"] == "received"])

        self._program.wait(self._command_id, is_so_of_received, what, timeout_s)
        return self.received

    def wait_for(self, bodies: Sequence[str], timeout_s: float = RECEIVE_TIMEOUT_S) -> list[Event]:
        """What was received, once every one of ``bodies`` was handled well."""
        missing = set(bodies)

        def is_complete(events: Sequence[Event]) -> bool:
            return missing <= {event.get("body") for event in events if event["outcome"] == "ok"}

        return self.wait(is_complete, f"{self.name} to receive {len(missing)} messages", timeout_s)

    def stop(self) -> None:
        """Let it leave its group; what else it has to end, it may end later."""
        self._program.call("stop", name=self.name, inBackground=True)


def _is_finished(events: Sequence[Event]) -> bool:
    return any(event["event"] in LAST_WORDS for event in events)
