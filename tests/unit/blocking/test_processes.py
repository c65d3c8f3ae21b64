"""A client where processes fork and end: each in a process of its own."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq import Client
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster

SECONDS_MAX = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        yield cluster


def run(program: str, *arguments: str, flags: tuple[str, ...] = ()) -> tuple[int, str]:
    """The exit status of a program, and what it printed."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


FORK = """
    import os, sys
    from cometmq import Client, NotRunning

    client = Client(sys.argv[1]).__enter__()
    producer = client.producer()
    producer.send("orders", b"before")
    shared = client._inner._shared
    sockets = [
        *shared.name_server_connections.filenos,
        *(number for one in shared._instances for number in one.connections.filenos),
    ]
    assert len(sockets) == 2, sockets

    child = os.fork()
    if child == 0:
        null = os.stat(os.devnull).st_rdev
        print([os.fstat(number).st_rdev == null for number in sockets])
        for use in (
            lambda: producer.send("orders", b"child"),
            lambda: producer.send_async("orders", b"child"),
            lambda: client.producer("another"),
            lambda: client.__enter__(),
        ):
            try:
                use()
            except NotRunning as error:
                print(error.problem)
        producer.close()
        client.close()
        with Client(sys.argv[1]) as own:
            print(own.producer().send("orders", b"of the child").is_ok)
        sys.exit(7)

    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
    print(producer.send("orders", b"after").is_ok)
    client.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_touches_nothing_of_its_parents_client(cluster: BlockingCluster) -> None:
    # Newer Pythons warn of forks beside threads, which is what is tried here.
    status, printed = run(FORK, cluster.namesrv, flags=("-W", "ignore::DeprecationWarning"))

    assert status == 0, printed
    assert printed.splitlines() == [
        "[True, True]",
        *["was made before this process was forked"] * 4,
        "True",
        "7",
        "True",
    ]


OPEN = """
    import sys
    from cometmq import Client

    client = Client(sys.argv[1]).__enter__()
    producer = client.producer()
    futures = [producer.send_async("orders", b"one") for _ in range(100)]
    print("end")
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_program_that_closes_nothing_ends_all_the_same(
    cluster: BlockingCluster, loop: str
) -> None:
    without = "import sys; sys.modules['uvloop'] = None\n" if loop == "asyncio" else ""

    status, printed = run(without + textwrap.dedent(OPEN), cluster.namesrv)

    assert (status, printed) == (0, "end\n")


def test_sends_under_way_are_stored_although_nobody_waited_for_them(
    cluster: BlockingCluster,
) -> None:
    cluster.create_topic("left-alone")

    status, printed = run(OPEN.replace("orders", "left-alone"), cluster.namesrv)

    assert (status, printed) == (0, "end\n")
    with Client(cluster.namesrv) as client:
        assert len(list(client.browse("left-alone"))) == 100


HANGING_CALLBACK = """
    import sys, threading
    from cometmq import Client

    begun = threading.Event()

    def hang(future):
        begun.set()
        threading.Event().wait()

    client = Client(sys.argv[1], drain_timeout_ms=10).__enter__()
    client.producer().send_async("orders", b"one").add_done_callback(hang)
    begun.wait(10)
    client.close()
    print("end")
"""


def test_a_callback_that_hangs_keeps_no_program_alive(cluster: BlockingCluster) -> None:
    status, printed = run(HANGING_CALLBACK, cluster.namesrv)

    assert (status, printed) == (0, "end\n")


LEAK = """
    import sys
    from cometmq import Client

    client = Client(sys.argv[1]).__enter__()
"""


def test_a_client_that_is_open_at_the_end_warns_if_warnings_are_on(
    cluster: BlockingCluster,
) -> None:
    status, printed = run(LEAK, cluster.namesrv, flags=("-W", "default"))

    assert status == 0
    assert "ResourceWarning: this client was not closed; it was made at <string>:5" in printed


ELSEWHERE = """
    import asyncio, os, signal, socket, subprocess, sys  # which differ there themselves

    # What Windows does not have.
    for name in ("fcntl", "grp", "pwd", "resource", "termios", "uvloop"):
        sys.modules[name] = None
    for name in ("fork", "fdatasync", "getuid", "pread", "pwrite", "register_at_fork", "sendfile"):
        delattr(os, name)
    for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"):
        delattr(signal, name)
    sys.platform = "win32"

    import cometmq
    from cometmq import Client, aio

    for module in (cometmq, aio):
        for name in module.__all__:
            getattr(module, name)
    with Client(sys.argv[1]) as client:
        client.producer().send("orders", b"from elsewhere", tag="elsewhere")
        consumer = client.consumer("elsewhere", start="first")
        consumer.subscribe("orders", tags="elsewhere")
        for message in consumer:
            print(message.body)
            message.ack()
            break
        everyone = client.consumer(
            "everyone", mode="broadcast", start="first", offsets_folder=sys.argv[2]
        )
        everyone.subscribe("orders", tags="elsewhere")
        everyone.run(lambda message: everyone.close())
"""


def test_a_client_needs_nothing_that_windows_does_not_have(
    cluster: BlockingCluster, tmp_path: Path
) -> None:
    status, told = run(ELSEWHERE, cluster.namesrv, str(tmp_path))

    assert (status, told) == (0, "b'from elsewhere'\n")
    assert list(tmp_path.rglob("offsets.json"))
