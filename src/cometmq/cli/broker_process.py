"""A broker of ``cometmq up`` in a process of its own, seen from both sides.

The parent writes one line of JSON to the child's standard input, where the broker is to live, and
keeps that pipe open as long as the child shall run: its end is the order to stop. So a child ends
with its parent even when that was killed. The child answers with one line on its standard output:
its address, or why it could not start. Children are in sessions of their own, else Ctrl-C would
tell them at the same time as the parent, which stops them in order.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cometmq.cli.frame import Frame
from cometmq.cli.local_broker import BrokerPlace, LocalBroker
from cometmq.cli.problems import problem_of
from cometmq.errors import CometError
from cometmq.logs import LogLevel
from cometmq.remoting.running import Background, BackgroundTaskDied, run

START_SECONDS_MAX: Final = 120.0
"""A store that was not closed is read through first."""
STOP_SECONDS_MAX: Final = 60.0
LINE_BYTES_MAX: Final = 1024 * 1024


class BrokerNotStarted(CometError):
    """The process of a broker has said why it cannot run, or has ended without a word."""

    def __init__(self, name: str, reason: str, next_step: str = "") -> None:
        super().__init__(name, reason)
        self.name = name
        self.fact = f"{name} cannot start: {reason}"
        self.next_step = next_step


class BrokerEnded(BackgroundTaskDied):
    """The process of a broker is not there any more, and nobody had told it to go."""

    def __init__(self, name: str, pid: int, status: int) -> None:
        super().__init__(name, RuntimeError(status))
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        self.fact = f"{name} (process {pid}) has ended with {how}"
        self.next_step = "its messages are kept: start all of it again with the same --data"


class BrokerProcess:
    """The parent's side."""

    def __init__(
        self, place: BrokerPlace, environment: Mapping[str, str], log_flags: Mapping[str, str]
    ) -> None:
        self.place = place
        self.background = Background()
        self.name = place.name  # as the broker has it, once started
        self.address = ""  # what clients are told, once started
        self._environment = environment
        self._log_flags = log_flags
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Return when the broker can be used. Raises BrokerNotStarted."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__),
            stdin=PIPE,
            stdout=PIPE,
            env=dict(self._environment),
            start_new_session=True,
            limit=LINE_BYTES_MAX,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(_order(self.place, self._log_flags))
        try:
            answer = await asyncio.wait_for(self._process.stdout.readline(), START_SECONDS_MAX)
        except TimeoutError as error:
            reason = f"it has said nothing for {START_SECONDS_MAX:.0f} seconds"
            raise BrokerNotStarted(self.name, reason) from error
        told = _answer_in(self.name, answer)
        self.name, self.address = told["name"], told["address"]
        self.background.spawn(self.name, self._watch(self._process))

    async def stop(self) -> None:
        """Tell the broker to stop and wait until it is gone; one that does not go is killed."""
        await self.background.stop()
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _watch(self, process: Process) -> None:
        raise BrokerEnded(self.name, process.pid, await process.wait())


def _order(place: BrokerPlace, log_flags: Mapping[str, str]) -> bytes:
    order = {
        "place": {
            "folder": str(place.folder),
            "name": place.name,
            "listen": place.listen,
            "port": place.port,
            "namesrv": place.namesrv,
        },
        "log_flags": dict(log_flags),
    }
    return json.dumps(order).encode() + b"\n"


def _answer_in(name: str, answer: bytes) -> dict[str, str]:
    if not answer:
        raise BrokerNotStarted(name, "its process ended without a word")
    told: dict[str, Any] = json.loads(answer)
    if "error" in told:
        raise BrokerNotStarted(name, told["error"]["fact"], told["error"]["next"] or "")
    return told


def main() -> int:
    """The child's side."""
    order = json.loads(sys.stdin.buffer.readline(LINE_BYTES_MAX))
    place = BrokerPlace(**{**order["place"], "folder": Path(order["place"]["folder"])})
    frame = Frame(environment=os.environ, log_flags=order["log_flags"])
    started: list[LocalBroker] = []

    def on_started(broker: LocalBroker) -> None:
        started.append(broker)
        threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
        _say({"name": broker.name, "address": broker.address})

    try:
        frame.start_logs(LogLevel.WARNING)
        run(lambda: LocalBroker(place, os.environ, on_started))
    except Exception as error:
        problem = problem_of(error)
        # Before that the parent waits for our answer; now a person is all that is left to tell.
        if started:
            frame.complain(problem)
        else:
            _say(problem.as_record())
        return problem.exit_code
    return 0


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _say(told: Mapping[str, Any]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
