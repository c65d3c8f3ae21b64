"""What ``make run`` does with the cluster that it starts, however it is ended."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.store.files import DiskFiles
from scripts import demo_spark, tree
from scripts.demo_server import Server

SECONDS_MAX = 60
STAYS_UP = "It stays up; Ctrl-C ends it."
PROGRAM = """
import signal
import sys
from pathlib import Path
from scripts.demo_server import Server, run
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may ignore it
server = Server(Path({folder!r}), wants_usual_ports=False)
sys.exit(run(lambda server: print({said!r}, flush=True){more}, server, is_once=False))
"""


@contextmanager
def demo(folder: Path, said: str = "done", more: str = "") -> "Iterator[subprocess.Popen[str]]":
    """The main job with other work than a day at a shop."""
    program = PROGRAM.format(said=said, folder=str(folder), more=more)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tree.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def read_until(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found.strip() == line:
            return
    assert process.stderr is not None
    raise AssertionError(process.stderr.read())


def server_on(folder: Path) -> Server:
    """On ports of its own: other tests may run beside this one."""
    return Server(folder, wants_usual_ports=False)


def is_held(folder: Path) -> bool:
    with DiskFiles().lock(folder / "store" / "lock") as is_ours:
        return not is_ours


@pytest.mark.slow
def test_a_second_run_leaves_the_cluster_of_the_first_alone(tmp_path: Path) -> None:
    folder = tmp_path / "demo-data"
    with server_on(folder) as first, Client(first.namesrv) as mq:
        mq.admin().topics.create("orders")
        producer = mq.producer()
        producer.send("orders", "kept")

        with pytest.raises(SystemExit) as refused, server_on(folder):
            pass

        producer.send("orders", "more")
        assert sorted(message.body for message in mq.browse("orders")) == [b"kept", b"more"]
    assert str(refused.value) == "error: a cluster runs on demo-data/\n  next: end it first"


@pytest.mark.slow
def test_a_run_begins_anew_when_the_one_before_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "demo-data"
    with server_on(folder):
        (folder / "left-over").touch()

    with server_on(folder):
        assert not (folder / "left-over").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1)],
    ids=["INT", "TERM", "HUP"],
)
def test_what_ends_the_demo_ends_its_cluster(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    with demo(tmp_path / "data") as process:
        read_until(process, STAYS_UP)
        assert is_held(tmp_path / "data")

        process.send_signal(number)
        _, complaints = process.communicate(timeout=SECONDS_MAX)

    assert (process.returncode, complaints) == (status, "")
    assert not is_held(tmp_path / "data")


@pytest.mark.slow
def test_ctrl_c_before_the_work_is_done_needs_no_traceback(tmp_path: Path) -> None:
    more = ' or __import__("threading").Event().wait()'
    with demo(tmp_path / "data", "waits", more) as process:
        read_until(process, "waits")

        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=SECONDS_MAX)

    assert (process.returncode, complaints) == (130, "\ninterrupted\n")
    assert not is_held(tmp_path / "data")


def test_without_a_java_spark_is_left_out(tmp_path: Path) -> None:
    reason = demo_spark.lack_of_java({"PATH": ""}, tmp_path, None)

    assert reason == (f"Spark needs Java 17 or newer: none in JAVA_HOME, on PATH or in {tmp_path}")
