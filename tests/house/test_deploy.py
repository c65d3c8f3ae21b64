"""What lies in ``deploy`` fits the program: settings are known, commands exist, probes answer.

Neither Docker nor a running systemd is needed: what the files would run is taken out of them and
run here.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from cometmq.broker.broker_config import BrokerConfig
from cometmq.cli.app import app
from cometmq.codec import java_properties
from cometmq.nameserver.live_settings import NameServerConfig
from cometmq.store.queue_mappings import DESCRIPTORS_FOR_OTHERS, MAPPINGS_MAX
from scripts import tree

DEPLOY = tree.ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
PROGRAM = "/opt/cometmq/bin/cometmq"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


# The broker's file


def example() -> BrokerConfig:
    file = java_properties.loads((DEPLOY / "broker.conf.example").read_bytes())
    return BrokerConfig.load(file=file, environment={}, flags={})


def test_the_example_settings_are_all_known_and_all_have_an_effect() -> None:
    review = example().review()

    assert (review.unknown, tuple(review.without_effect)) == ((), ())


def test_a_setting_in_the_example_that_is_commented_out_is_known_too() -> None:
    text = (DEPLOY / "broker.conf.example").read_text()
    file = java_properties.loads(re.sub(r"^#(?=\w+=)", "", text, flags=re.MULTILINE).encode())

    config = BrokerConfig.load(file=file, environment={}, flags={})

    assert len(file) > len(java_properties.loads(text.encode()))
    assert config.review().unknown == ()


def test_the_program_prints_the_example_settings() -> None:
    line = ["broker", "-c", str(DEPLOY / "broker.conf.example"), "-p", "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "cometmq", *line],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    shown = {row["key"]: row["value"] for row in json.loads(done.stdout)}
    wanted = java_properties.loads((DEPLOY / "broker.conf.example").read_bytes())
    assert {key: str(shown[key]) for key in wanted} == wanted
    assert done.stderr == ""


# Units of systemd


class Unit(configparser.RawConfigParser):
    """A unit file; a key that is given several times has its last value."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, comment_prefixes=("#", ";"))
        self.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
        self.read_string(path.read_text())

    @property
    def arguments(self) -> list[str]:
        """What the program is called with."""
        program, *arguments = shlex.split(self["Service"]["ExecStart"])
        assert program == PROGRAM
        return arguments


def name_of(path: Path) -> str:
    return path.name


def test_there_is_a_unit_for_each_server() -> None:
    commands = [Unit(path).arguments[0] for path in UNITS]

    assert commands == ["broker", "nameserver"]
    assert all(app.get_command(click.Context(app), name) for name in commands)


@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_what_a_unit_starts_has_settings_that_can_be_used(path: Path) -> None:
    conf = str(DEPLOY / "broker.conf.example")
    arguments = [conf if word.endswith(".conf") else word for word in Unit(path).arguments]
    done = subprocess.run(
        [sys.executable, "-m", "cometmq", *arguments, "-p", "-o", "json"],
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_a_unit_ends_its_server_gently_and_starts_it_again_only_when_that_helps(path: Path) -> None:
    service = Unit(path)["Service"]
    server = example().server if "broker" in path.name else NameServerConfig().server

    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) > server.drain_seconds_max + 5
    assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
    assert service["User"] == "cometmq"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("true", "strict")


def test_the_broker_may_open_all_files_it_can_use_and_write_to_its_store() -> None:
    service = Unit(DEPLOY / "cometmq-broker.service")["Service"]
    root = example().store.root

    assert int(service["LimitNOFILE"]) > MAPPINGS_MAX + DESCRIPTORS_FOR_OTHERS
    assert root.is_relative_to(f"/var/lib/{service['StateDirectory']}")


@needs_systemd
@pytest.mark.slow
@pytest.mark.parametrize("path", UNITS, ids=name_of)
def test_systemd_has_nothing_to_say_about_a_unit(path: Path, tmp_path: Path) -> None:
    """It looks for the program, which is elsewhere here."""
    unit = tmp_path / path.name
    unit.write_text(path.read_text().replace(PROGRAM, sys.executable))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# The image


class Instruction(NamedTuple):
    """One instruction of a Dockerfile, with its lines joined."""

    word: str
    rest: str


def instructions() -> Iterator[Instruction]:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, rest = line.split(maxsplit=1)
            yield Instruction(word, rest)


def image(word: str) -> list[str]:
    """The arguments of all such instructions of the last stage, which becomes the image."""
    stage: list[Instruction] = []
    for instruction in instructions():
        stage = [] if instruction.word == "FROM" else [*stage, instruction]
    return [rest for found, rest in stage if found == word]


def environment_of_the_image() -> dict[str, str]:
    return dict(pair.split("=", 1) for rest in image("ENV") for pair in shlex.split(rest))


def test_the_image_is_made_from_files_that_exist_and_are_let_in() -> None:
    copies = [rest.split()[:-1] for word, rest in instructions() if word == "COPY"]
    sources = {name for names in copies for name in names if not names[0].startswith("--from")}
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()

    assert {name for name in sources if not (tree.ROOT / name).exists()} == set()
    assert sources == {line.removeprefix("!") for line in let_in if line.startswith("!")}


def test_the_image_runs_as_nobody_special_and_keeps_its_data_in_a_volume() -> None:
    (user,) = image("USER")
    (volume,) = image("VOLUME")

    assert user == "cometmq"
    assert environment_of_the_image()["HOME"] == volume
    assert f"useradd --system --uid 10911 --create-home --home-dir {volume} {user}" in image("RUN")


def test_the_image_shows_the_ports_of_its_servers() -> None:
    network = BrokerConfig().network
    name_server = NameServerConfig().network
    health = environment_of_the_image()["COMETMQ_HEALTH_PORT"]

    (ports,) = image("EXPOSE")

    wanted = [name_server.listen_port, network.listen_port, network.listen_port - 2, health]
    assert ports.split() == [str(port) for port in wanted]


@pytest.mark.slow
def test_the_health_check_of_the_image_passes_while_its_command_runs(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        health_port = free.getsockname()[1]
    (entry,), (command,), (check,) = image("ENTRYPOINT"), image("CMD"), image("HEALTHCHECK")
    probe = [sys.executable, *json.loads(check[check.index("CMD [") + 4 :])[1:]]
    environment = {
        **os.environ,
        **environment_of_the_image(),
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "COMETMQ_HEALTH_ADDRESS": "127.0.0.1",
        "COMETMQ_HEALTH_PORT": str(health_port),
        "COMETMQ_NAMESRV_PORT": "0",
        "COMETMQ_LISTEN_PORT": "0",
    }
    assert json.loads(entry) == ["cometmq"]

    def answers() -> bool:
        done = subprocess.run(probe, env=environment, capture_output=True, timeout=30, check=False)
        return done.returncode == 0

    assert not answers(), "somebody else is at this port"
    server = subprocess.Popen(
        [sys.executable, "-m", "cometmq", *json.loads(command.replace("0.0.0.0", "127.0.0.1"))],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not answers():
            assert server.poll() is None
            assert time.monotonic() < deadline
    finally:
        server.terminate()

    assert server.wait(20) == 0
