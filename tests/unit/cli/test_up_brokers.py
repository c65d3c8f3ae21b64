"""``cometmq up --brokers N``: processes that begin, end and fail together."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from cometmq import Client
from cometmq.cli import broker_process
from cometmq.cli.broker_process import BrokerNotStarted, BrokerProcess
from cometmq.cli.local_broker import BrokerPlace
from cometmq.cli.local_service import LocalOptions, LocalService
from cometmq.codec import java_properties

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Up:
    """A program that has said where it listens, and its children."""

    program: "subprocess.Popen[str]"
    told: Mapping[str, Any]
    children: tuple[int, ...]

    def end(self, number: int) -> tuple[int, str]:
        """Its exit code and what it complained of, after a signal."""
        self.program.send_signal(number)
        return self.outcome()

    def outcome(self) -> tuple[int, str]:
        _, errors = self.program.communicate(timeout=PATIENCE_SECONDS)
        return self.program.returncode, errors


def command_of(data: Path, *more: str) -> list[str]:
    options = ["--brokers", "2", "--port", "0", "--namesrv-port", "0", "-o", "json"]
    return [sys.executable, "-m", "cometmq", "up", "--data", str(data), *options, *more]


@contextmanager
def up(data: Path, *more: str) -> Iterator[Up]:
    program = subprocess.Popen(
        command_of(data, *more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        told = json.loads(document_from(program.stdout))
        yield Up(program, told, children_of(program.pid))
    finally:
        program.kill()
        program.communicate()


def document_from(output: IO[str]) -> str:
    text = ""
    for line in output:
        text += line
        if line.startswith("}"):
            break
    return text


def children_of(pid: int) -> tuple[int, ...]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = (line.split() for line in listed.stdout.splitlines())
    return tuple(int(child) for child, parent in pairs if int(parent) == pid)


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def wait_until_gone(pids: tuple[int, ...]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.02)


def conf_in(folder: Path) -> dict[str, str]:
    return java_properties.loads((folder / "broker.conf").read_bytes())


def test_each_broker_has_a_process_a_port_and_a_folder_of_its_own(tmp_path: Path) -> None:
    with up(tmp_path) as started:
        with Client(started.told["name_server"]) as mq:
            producer = mq.producer()
            stored = {producer.send("orders", f"order {n}").queue.broker_name for n in range(16)}
        code, errors = started.end(signal.SIGINT)

    assert stored == {"broker-a", "broker-b"}
    assert len(started.children) == 2
    assert [one["name"] for one in started.told["brokers"]] == ["broker-a", "broker-b"]
    assert started.told["broker"] == started.told["brokers"][0]["address"]
    assert (code, errors) == (0, "")
    for folder, one in zip((tmp_path, tmp_path / "broker-b"), started.told["brokers"], strict=True):
        conf = conf_in(folder)
        assert conf["brokerName"] == one["name"]
        assert f"127.0.0.1:{conf['listenPort']}" == one["address"]
        assert not (folder / "store" / "abort").exists(), "it was not stopped in order"


def test_a_broker_that_dies_is_named_and_takes_the_others_with_it(tmp_path: Path) -> None:
    with up(tmp_path) as started:
        os.kill(started.children[1], signal.SIGKILL)

        code, errors = started.outcome()

    assert code == 1
    told = json.loads(errors[errors.index("{") :])["error"]  # the name server has its say before
    assert told["fact"] == f"broker-b (process {started.children[1]}) has ended with signal 9"
    assert told["next"] == "its messages are kept: start all of it again with the same --data"
    assert not is_there(started.children[0])
    assert not (tmp_path / "store" / "abort").exists(), "the other one was not stopped in order"


def test_brokers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    with up(tmp_path) as started:
        started.program.kill()

        wait_until_gone(started.children)

    assert not (tmp_path / "store" / "abort").exists()
    assert not (tmp_path / "broker-b" / "store" / "abort").exists()


def test_a_broker_that_cannot_start_is_an_error_and_leaves_nothing_running(tmp_path: Path) -> None:
    with up(tmp_path) as started:
        again = subprocess.run(
            command_of(tmp_path), capture_output=True, text=True, check=False, timeout=60
        )
        code, _ = started.end(signal.SIGTERM)

    assert again.returncode == 1
    fact = json.loads(again.stderr)["error"]["fact"]
    assert fact.startswith("broker-a cannot start: ")
    assert "locked" in fact
    assert code == 0


async def test_ports_follow_the_first_one_in_tens(tmp_path: Path) -> None:
    options = LocalOptions(data=tmp_path, namesrv_port=0, brokers=3)
    service = LocalService(options, {"COMETMQ_LISTEN_PORT": "20100"}, lambda _: None)

    ports = [service._port(number) for number in range(3)]

    assert ports == [None, 20110, 20120]  # the first one takes what the environment says


async def test_what_can_hold_for_one_broker_only_is_for_the_first(
    tmp_path: Path, unused_port: Any
) -> None:
    environment = {**os.environ, "COMETMQ_BROKER_NAME": "mine"}
    environment["COMETMQ_HEALTH_PORT"] = str(unused_port())
    options = LocalOptions(data=tmp_path, port=0, namesrv_port=0, brokers=2)
    service = LocalService(options, environment, lambda _: None)
    try:
        await service.start()

        names = [conf_in(broker.place.folder)["brokerName"] for broker in service.brokers]
        assert [broker.name for broker in service.brokers] == names
    finally:
        await service.stop()

    assert names == ["mine", "broker-b"]


def place_in(folder: Path, port: int = 0) -> BrokerPlace:
    return BrokerPlace(
        folder=folder, name="broker-b", listen="127.0.0.1", port=port, namesrv="127.0.0.1:1"
    )


async def test_a_busy_port_is_told_with_what_helps(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        broker = BrokerProcess(place_in(tmp_path, port), os.environ, {})

        with pytest.raises(BrokerNotStarted, match=f"broker-b cannot start: port {port}"):
            await broker.start()

        await broker.stop()
    assert not is_there(broker.pid)


async def test_a_process_without_a_word_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    broker = BrokerProcess(place_in(tmp_path), os.environ, {})

    with pytest.raises(BrokerNotStarted, match="its process ended without a word"):
        await broker.start()

    await broker.stop()


async def test_a_process_that_neither_answers_nor_ends_is_given_up_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = tmp_path / "deaf"
    deaf.write_text("#!/bin/sh\nexec sleep 1000\n")
    deaf.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(deaf))
    monkeypatch.setattr(broker_process, "START_SECONDS_MAX", 0.1)
    monkeypatch.setattr(broker_process, "STOP_SECONDS_MAX", 0.1)
    broker = BrokerProcess(place_in(tmp_path), os.environ, {})

    with pytest.raises(BrokerNotStarted, match="it has said nothing for 0 seconds"):
        await broker.start()
    await asyncio.wait_for(broker.stop(), PATIENCE_SECONDS)

    assert not is_there(broker.pid)
