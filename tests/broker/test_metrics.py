"""What a running broker shows to Prometheus, and the board that shows it to people."""

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import Peer, connected
from tests.unit.broker.data_path import PROPERTIES

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "cometmq-broker.json"
WITHOUT_PANEL = {"process_start_time_seconds"}
"""Metrics that are for calculating with, not for looking at."""

_NAME = re.compile(r"\b(?:cometmq|process)_[a-z0-9_]+")
_HISTOGRAM_ENDINGS = ("_bucket", "_sum", "_count")


class Watched:
    """A cluster whose broker shows metrics."""

    def __init__(self, cluster: BlockingCluster, health_port: int) -> None:
        self.cluster = cluster
        self._url = f"http://127.0.0.1:{health_port}/metrics"

    def exposed(self) -> str:
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    def values(self) -> dict[str, float]:
        """Every sample by its name and labels, as written."""
        lines = (line for line in self.exposed().splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    port = free_port()
    with LocalCluster(settings={"healthPort": port, "messageDelayLevel": "1h"}) as running:
        running.create_topic("orders")
        yield Watched(running, port)


@pytest.fixture
def peer(watched: Watched) -> Iterator[Peer]:
    with connected(watched.cluster.broker.address) as found:
        yield found


def names(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


def board_names() -> set[str]:
    board: dict[str, Any] = json.loads(BOARD.read_text())
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    variables = [str(variable["query"]) for variable in board["templating"]["list"]]
    texts = [target["expr"] for target in targets] + variables
    return {name for text in texts for name in _NAME.findall(text)}


def base(name: str, known: set[str]) -> str:
    """The metric that a sample's name belongs to."""
    for ending in _HISTOGRAM_ENDINGS:
        if name.endswith(ending) and name.removesuffix(ending) in known:
            return name.removesuffix(ending)
    return name


def test_every_metric_of_the_board_exists_and_every_metric_has_a_panel(
    watched: Watched,
) -> None:
    known = names(watched.exposed())
    shown = {base(name, known) for name in board_names()}

    assert shown - known == set(), "in the board, but not in the broker"
    assert known - shown == WITHOUT_PANEL, "in the broker, but not in the board"


def test_messages_are_counted_and_not_requests(watched: Watched, peer: Peer) -> None:
    """A send that is refused is none."""
    before = watched.values()

    for _ in range(3):
        assert peer.send("orders").code == 0
    assert peer.send("no/topic").code != 0

    after = watched.values()
    kind = 'cometmq_broker_requests_total{kind="send"}'
    refused = 'cometmq_broker_requests_refused_total{request="SEND_MESSAGE_V2"'
    name = f'{refused},code="INVALID_PARAMETER"}}'
    total = "cometmq_broker_messages_put_total"
    assert after[total] - before[total] == 3
    assert after[kind] - before[kind] == 4
    assert after[name] - before.get(name, 0) == 1


def test_what_was_handed_out_is_counted_with_its_bytes(watched: Watched, peer: Peer) -> None:
    peer.send("orders", b"x" * 1000)
    before = watched.values()

    answer = peer.pull("orders")

    after = watched.values()
    size, count = "cometmq_broker_got_bytes_total", "cometmq_broker_messages_got_total"
    assert after[size] - before[size] == len(answer.body) > 1000
    assert after[count] - before[count] >= 1


def test_times_of_handlers_and_flushes_are_there(watched: Watched, peer: Peer) -> None:
    peer.send("orders")

    found = watched.values()

    assert found['cometmq_broker_request_seconds_count{kind="send"}'] >= 1
    assert found['cometmq_broker_request_seconds_sum{kind="send"}'] > 0
    assert "cometmq_broker_flush_seconds_count" in found


def test_delayed_messages_are_a_backlog_by_level(watched: Watched, peer: Peer) -> None:
    text = "".join(f"{key}\x01{value}\x02" for key, value in {**PROPERTIES, "DELAY": "1"}.items())
    peer.send("orders", i=text)
    peer.max_offset("orders")

    assert watched.values()['cometmq_broker_delayed_messages{level="1"}'] == 1


def test_a_broker_says_where_it_is_registered(watched: Watched) -> None:
    name = f'cometmq_broker_registered{{name_server="{watched.cluster.namesrv}"}}'

    assert watched.values()[name] == 1


def test_an_unknown_request_is_counted_as_such_whatever_its_number(
    watched: Watched, peer: Peer
) -> None:
    for number in (7_001, 7_002, 7_003):
        peer.ask(number)

    found = watched.values()
    code = "REQUEST_CODE_NOT_SUPPORTED"
    assert found[f'cometmq_broker_requests_refused_total{{request="unknown",code="{code}"}}'] == 3
