"""Thousands of clients that say nothing cost little memory, and others do not notice them."""

import contextlib
import re
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.kit import Peer, connected, stored_at
from tests.interop.ports import LOOPBACK, free_port
from tests.interop.processes import Process

CONNECTIONS = 5_000
BYTES_EACH_MAX = 20_000
SENDS = 2_000
TRIES = 3
FILES = 2 * CONNECTIONS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(),
        reason="needs /proc to look at another process's memory",
    ),
]


class BrokerProcess:
    """A broker whose memory a test can look at."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"{LOOPBACK}:{port}"
        settings = {
            "listenPort": port,
            "bindAddress": LOOPBACK,
            "isVipEnabled": "false",
            "brokerName": "idle",
            "storePathRootDir": folder / "store",
            "mappedFileSizeCommitLog": 64 * 1024 * 1024,
            "mappedFileSizeConsumeQueue": 600_000,
            "maxHashSlotNum": 5_000,
            "maxIndexNum": 20_000,
        }
        file = folder / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        argv = [sys.executable, "-m", "cometmq", "broker", "-c", str(file)]
        self.process = Process("our-broker", argv, folder=folder, env={"HOME": str(folder)})

    @property
    def anonymous_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if wanted < CONNECTIONS + 500:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    started = BrokerProcess(tmp_path)
    try:
        started.process.wait_until_printed("broker listens on")
        yield started
    finally:
        started.process.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def p99_ms(peer: Peer) -> float:
    """Of sends one after another."""
    times = []
    for _ in range(SENDS):
        begun = time.perf_counter()
        assert stored_at(peer.send("busy")) >= 0
        times.append(time.perf_counter() - begun)
    return sorted(times)[SENDS * 99 // 100] * 1000


@contextlib.contextmanager
def idle_connections(address: str) -> Iterator[None]:
    """Each has asked once, as any client does, and then says nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            assert stack.enter_context(connected(address)).is_served()
        yield


def test_five_thousand_idle_connections_are_cheap_and_disturb_nobody(
    broker: BrokerProcess,
) -> None:
    with connected(broker.address) as peer:
        p99_ms(peer)  # so that everything is there before it is measured
        measured = []
        for _ in range(TRIES):
            before, memory_before = p99_ms(peer), broker.anonymous_bytes
            with idle_connections(broker.address):
                bytes_each = (broker.anonymous_bytes - memory_before) / CONNECTIONS
                during = p99_ms(peer)
            measured.append((before, during, p99_ms(peer)))
            assert bytes_each <= BYTES_EACH_MAX
            if during <= 2 * max(measured[-1][0], measured[-1][2]):
                return

    # What else the machine does comes and goes; what the connections do is there each time.
    pytest.fail(f"p99 of a send in ms, without, with and again without them: {measured}")
