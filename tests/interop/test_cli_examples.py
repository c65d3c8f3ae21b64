"""The examples in the commands' help that need a cluster, each run as it stands."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.admin import Admin
from cometmq.cli.app import app
from cometmq.cli.command import Example
from cometmq.errors import NotFound
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from scripts.cli_reference import commands
from tests.interop.cli_kit import Cli

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]

MESSAGES = 12
EXAMPLES = sorted(
    {
        example
        for _, command in commands(app)
        for example in getattr(command, "examples", ())
        if example.needs_cluster
    },
    key=lambda example: ("purge" in example.line, example.line),  # others want something there
)


@dataclass(frozen=True, slots=True)
class Desk:
    """A cluster as the examples suppose it, and a shell in which ``cometmq`` is found."""

    cli: Cli
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        own = self.cli.variables
        return {**own, "PATH": f"{self.folder}:{own['PATH']}"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    """``orders`` has messages, of which ``billing`` has consumed some and given up one."""
    with LocalCluster(settings={"recallMessageEnable": "true"}) as started:
        started.create_topic("orders", queues=4)
        with Client(started.namesrv) as mq:
            producer = mq.producer()
            for number in range(MESSAGES):
                keys = [f"order-{number}"]
                producer.send("orders", f"order {number}", tag="paid", keys=keys)
            with mq.consumer("billing", start="first") as consumer:
                consumer.subscribe("orders")
                stream = iter(consumer)
                next(stream).dead_letter()
                for _ in range(MESSAGES // 2):
                    next(stream)
        yield started


@pytest.fixture
def desk(cluster: BlockingCluster, tmp_path: Path) -> Desk:
    program = tmp_path / "cometmq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m cometmq "$@"\n')
    program.chmod(0o755)
    asyncio.run(_forget(cluster.namesrv, ("payments", "refunds")))
    return Desk(Cli(cluster.namesrv, tmp_path), tmp_path)


async def _forget(namesrv: str, topics: tuple[str, ...]) -> None:
    """Topics that another example has made."""
    async with Admin(namesrv) as admin:
        for topic in topics:
            with contextlib.suppress(NotFound):
                await admin.topics.delete(topic)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.line)
def test_an_example_works_as_it_stands(example: Example, desk: Desk) -> None:
    process = subprocess.Popen(
        ["sh", "-c", f"exec {example.line}" if example.stays_up else example.line],
        cwd=desk.folder,
        env=desk.variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if example.stays_up:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
        else:
            first = ""
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 0, errors
    assert first + output + errors
    assert "error" not in errors or "||" in example.line
