"""The programs in ``examples`` do what they say, each in a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from scripts import tree

EXAMPLES = tree.ROOT / "examples"
ORDERS = 10
WAIT_SECONDS = 30
POLL_SECONDS = 0.05

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as cluster:
        yield cluster


def environment(cluster: BlockingCluster) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": cluster.namesrv}


def output_of(cluster: BlockingCluster, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        env=environment(cluster),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextmanager
def service(cluster: BlockingCluster, folder: Path, name: str) -> Iterator[Path]:
    """A program that runs until Ctrl-C; its output is in the file that is given."""
    output = folder / f"{name}.out"
    with output.open("wb") as file:
        program = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLES / name)],
            cwd=folder,
            env=environment(cluster),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield output
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 0, output.read_text()
    finally:
        program.kill()
        program.wait()


def wait_for_lines(output: Path, beginning: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while output.read_text().count(f"{beginning} ") < count:
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(POLL_SECONDS)


def test_orders_are_sent_exported_billed_once_and_passed_on(
    cluster: BlockingCluster, tmp_path: Path
) -> None:
    sent = output_of(cluster, "send_orders.py").splitlines()
    output_of(cluster, "send_orders.py")  # everything once more
    with (
        service(cluster, tmp_path, "bill_orders.py") as bills,
        service(cluster, tmp_path, "relay.py") as relay,
    ):
        wait_for_lines(bills, "billed", ORDERS)
        wait_for_lines(bills, "known", ORDERS)
        wait_for_lines(relay, "invoice for", 2 * ORDERS)
    exported = [
        json.loads(line)
        for line in output_of(cluster, "export_topic.py", "example-orders").splitlines()
    ]

    assert [line.split()[0] for line in sent] == [f"order-{n}" for n in range(1, ORDERS + 1)]
    assert [line["keys"] for line in exported[:ORDERS]] == [[line.split()[0]] for line in sent]
    assert bills.read_text().endswith("ended\n")
    assert relay.read_text().endswith("ended\n")


def test_every_example_is_run_here_or_with_spark() -> None:
    tests = Path(__file__).read_text() + (tree.ROOT / "tests/spark/test_guides.py").read_text()

    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in tests] == []


def test_the_example_of_a_test_passes_and_stands_in_the_guide(tmp_path: Path) -> None:
    guide = (tree.ROOT / "docs/guides/testing.md").read_text()
    shutil.copytree(EXAMPLES / "testing", tmp_path / "testing")
    (tmp_path / "testing" / "pytest.ini").write_text("[pytest]\n")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "."],
        cwd=tmp_path / "testing",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for path in (EXAMPLES / "testing").glob("*.py"):
        assert path.read_text() in guide, path.name
