"""The asyncio names, and what ``cometmq.aio.Client`` has beyond the client itself."""

import asyncio
import os
import subprocess
import sys
import textwrap

import pytest

from cometmq import aio
from cometmq.errors import NotFound, NotRunning
from cometmq.testing import LocalCluster


def test_every_name_can_be_imported() -> None:
    found = {name: getattr(aio, name).__name__ for name in aio.__all__}

    assert found == {name: name for name in aio.__all__}


def test_a_name_that_does_not_exist_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"module 'cometmq\.aio' has no attribute 'Consumr'"):
        aio.Consumr  # type: ignore[attr-defined]  # noqa: B018


def test_an_admin_needs_a_client_that_runs() -> None:
    async def ask() -> None:
        with pytest.raises(NotRunning, match="was not entered yet"):
            aio.Client("127.0.0.1:1").admin()

    asyncio.run(ask())


@pytest.mark.slow
def test_an_admin_asks_on_the_connections_of_its_client() -> None:
    async def ask() -> tuple[set[str], int, int]:
        async with LocalCluster() as cluster:
            await cluster.create_topic("orders")
            async with aio.Client(cluster.namesrv) as client:
                admin = client.admin()
                names = {topic.name for topic in await admin.topics.list()}
                with pytest.raises(NotFound):
                    await admin.topics.describe("nobody")
                shared = client._require()
                await client.producer().send("orders", b"one")
                return (
                    names,
                    len(shared.name_server_connections.addresses),
                    len(shared.main.connections.addresses),
                )

    names, name_servers, brokers = asyncio.run(ask())

    assert "orders" in names
    assert (name_servers, brokers) == (1, 1)


@pytest.mark.slow
def test_an_admin_ends_with_its_client() -> None:
    async def ask() -> None:
        async with LocalCluster() as cluster:
            async with aio.Client(cluster.namesrv) as client:
                admin = client.admin()
            with pytest.raises(NotRunning, match="is closed"):
                await admin.topics.list()

    asyncio.run(ask())


FORK = """
    import asyncio, os, sys
    from cometmq import NotRunning, aio
    from cometmq.testing import LocalCluster

    async def main():
        async with LocalCluster() as cluster:
            await cluster.create_topic("orders")
            async with aio.Client(cluster.namesrv) as client:
                producer = client.producer()
                await producer.send("orders", b"before")
                numbers = client._require().main.connections.filenos
                child = os.fork()
                if child == 0:
                    null = os.stat(os.devnull).st_rdev
                    print([os.fstat(number).st_rdev == null for number in numbers])
                    try:
                        producer.send("orders", b"child").send(None)
                    except NotRunning as error:
                        print(error.problem, flush=True)
                    os._exit(0)
                await asyncio.to_thread(os.waitpid, child, 0)
                print((await producer.send("orders", b"after")).is_ok)

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_lets_go_of_the_sockets() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines() == [
        "[True]",
        "was made before this process was forked",
        "True",
    ], done.stderr
