"""``cometmq top`` against our servers and both of Apache's: once for scripts, and live."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cometmq import Client
from tests.interop import client_clusters
from tests.interop.asking import wait_until
from tests.interop.cache import Cache
from tests.interop.cli_kit import Cli
from tests.interop.client_clusters import OLD, OURS, RELEASES, Cluster, Clusters, params_of

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

TOTALS = ["in_tps", "out_tps", "lag", "producers", "consumers"]
BROKER_FIELDS = [
    *("broker_name", "address", "cluster", "is_master", "problem", "version"),
    *("in_tps", "out_tps", "in_today", "out_today", "put_p99_ms", "put_max_ms"),
    *("flush_p99_ms", "flush_max_ms"),
    *("unflushed_bytes", "dispatch_behind_bytes", "disk_ratio", "uptime_ms"),
]
GROUP_FIELDS = ["group", "lag", "lag_change_tps", "out_tps", "members", "topics"]
SOON_S = 30.0


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    with client_clusters.shared(request, cache, tmp_path_factory) as started:
        started.want(params_of(request, "cluster"))
        yield started


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture
def cli(cluster: Cluster, tmp_path: Path) -> Cli:
    return Cli(cluster.namesrv, tmp_path)


def test_a_script_gets_numbers_of_brokers_and_groups(
    cli: Cli, cluster: Cluster, topic: str
) -> None:
    group = f"g_{topic}"
    cluster.create_topic(topic)
    cluster.introduce_group(group)
    with Client(cluster.namesrv) as mq:
        producer = mq.producer()
        for number in range(9):
            producer.send(topic, f"{number}")
        cli.ok("consume", topic, "--group", group, "--count", "4")

        def own_lag() -> int | None:
            found = {one["group"]: one["lag"] for one in cli.json("top")["groups"]}
            return found.get(group)

        wait_until(lambda: own_lag() == 5, "the lag is told")
        view = cli.json("top")

    assert list(view) == ["time", "totals", "name_servers", "brokers", "groups"]
    assert list(view["totals"]) == TOTALS
    assert view["name_servers"] == [
        {"address": cluster.namesrv, "broker_count": 1, "problem": None}
    ]
    (broker,) = view["brokers"]
    assert list(broker) == BROKER_FIELDS
    assert (broker["broker_name"], broker["problem"]) == ("broker-a", None)
    assert broker["version"] == ("5.5.0" if cluster.release == OURS else cluster.release)
    told = ("in_today", "unflushed_bytes", "disk_ratio", "uptime_ms")  # rates come later
    assert all(broker[name] is not None for name in told), broker
    assert broker["in_today"] >= 9
    if cluster.release == OURS:
        assert 0 <= broker["put_p99_ms"] <= broker["put_max_ms"]
        assert 0 <= broker["flush_p99_ms"] <= broker["flush_max_ms"]
    else:
        assert (broker["flush_p99_ms"], broker["flush_max_ms"]) == (None, None)
    own = next(one for one in view["groups"] if one["group"] == group)
    assert list(own) == GROUP_FIELDS
    assert (own["lag"], own["members"], own["topics"]) == (5, 0, [topic])
    assert view["totals"]["lag"] >= 5
    assert view["totals"]["producers"] == 1, view["totals"]


def test_a_person_gets_a_table(cli: Cli, cluster: Cluster) -> None:
    first, _, heading, row, *_ = cli.lines("top", "--once")

    assert first.startswith("1 name server, 1 broker, in ")
    assert heading.split() == [
        *("BROKER", "IN/S", "OUT/S", "P99", "MS", "FLUSH", "MS", "UNFLUSHED"),
        *("BEHIND", "DISK", "UP", "RELEASE"),
    ]
    assert row.startswith("broker-a ")
    assert (row.split()[4] == "-") == (cluster.release != OURS), row


def test_a_cluster_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    ran = Cli("127.0.0.1:1", tmp_path).run("top", "--once")

    assert ran.exit_code == 4
    assert "127.0.0.1:1" in ran.stderr


class Terminal:
    """The program on a terminal that a test types on and looks at."""

    def __init__(self, cli: Cli, *arguments: str, columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen(
            cli.command(*arguments),
            env={**cli.variables, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def resize(self, columns: int) -> None:
        size = struct.pack("HHHH", 24, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str) -> None:
        """Return once it was printed, after what was waited for before."""
        deadline = time.monotonic() + SOON_S
        while text not in self.text:
            assert time.monotonic() < deadline, (text, self.text)
            if select.select([self._ours], [], [], 0.2)[0]:
                self.text += os.read(self._ours, 65536).decode(errors="replace")
        self.text = self.text.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20)
        os.close(self._ours)


@contextmanager
def on_terminal(cli: Cli, *arguments: str) -> Iterator[Terminal]:
    terminal = Terminal(cli, *arguments)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.parametrize("cluster", [OURS, OLD], indirect=True)
def test_the_live_view_follows_the_cluster_its_terminal_and_its_keys(
    cli: Cli, cluster: Cluster
) -> None:
    with on_terminal(cli, "top", "--every", "1h") as terminal:
        terminal.wait_for("\x1b[?1049h")
        terminal.wait_for(f"cometmq top  {cluster.namesrv}")
        terminal.wait_for("BROKER")
        terminal.press(" ")
        terminal.wait_for("cometmq top")
        terminal.resize(40)
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.wait_for("…")
        terminal.press("q")
        terminal.wait_for("\x1b[?1049l")

        assert terminal.process.wait(20) == 0


@pytest.mark.parametrize("cluster", [OURS], indirect=True)
def test_ctrl_c_leaves_the_terminal_as_it_was(cli: Cli) -> None:
    with on_terminal(cli, "top") as terminal:
        terminal.wait_for("BROKER")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("\x1b[?25h\x1b[?1049l")

        assert terminal.process.wait(20) == 0
