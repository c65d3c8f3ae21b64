"""Counters of a client: what each hook counts, and the forms in which the numbers are shown."""

import sys
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from cometmq.client.core.message import Message, Mode, Source
from cometmq.client.core.results import SendResult, SendStatus
from cometmq.client.core.value_codecs import BYTES
from cometmq.client.hooks import ConsumeContext, SendContext
from cometmq.client.metrics import ClientMetrics, QueueProgress
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import MAGIC_V1, Record, pack_host
from cometmq.errors import MissingDependency, NotRunning
from cometmq.model.offsets import MessageQueue
from tests.unit.client.kit import FakeCluster, connected, refused

QUEUE = MessageQueue("orders", "broker-a", 3)
HOST = pack_host("10.0.1.1", 10911)


def send(metrics: ClientMetrics, **changes: Any) -> None:
    """One send from its begin to its end."""
    context = SendContext("payers", "orders", "send", "normal", b"12345", "", "ID", None, ())
    metrics.before_send(context)
    context.tries = 1
    for name, value in changes.items():
        setattr(context, name, value)
    metrics.after_send(context)


def stored(ids: str = "ID") -> SendResult:
    return SendResult(SendStatus.OK, ids, "OFFSET", QUEUE, 5)


def message(mode: Mode = Mode.CONCURRENT, topic: str = "orders") -> Message[bytes]:
    raw = encode_properties({"UNIQ_KEY": "ID"}).encode()
    record = Record(
        0, MAGIC_V1, 0, 3, 0, 3, 4_096, 0, 900, HOST, 950, HOST, 0, 0, b"hi", topic, raw
    )
    return Message(record, Source("broker-a", BYTES, mode=mode))


def consume(
    metrics: ClientMetrics,
    *messages: Message[bytes],
    is_success: bool = True,
    mode: Literal["concurrent", "orderly", "broadcast", "pull"] = "concurrent",
) -> None:
    """One call of a handler."""
    context = ConsumeContext("billing", None, QUEUE, messages, mode)
    metrics.before_consume(context)
    context.is_success = is_success
    context.error = None if is_success else ValueError("no ledger")
    metrics.after_consume(context)


# --- sends


def test_sends_are_counted_by_topic_and_group() -> None:
    metrics = ClientMetrics()

    send(metrics, result=stored())
    send(metrics, result=stored(), topic="bills")

    assert metrics.value("sent") == 2
    assert metrics.value("sent", topic="bills", group="payers") == 1
    assert metrics.value("send_failed") == 0


def test_each_message_of_a_batch_counts() -> None:
    metrics = ClientMetrics()

    send(metrics, result=stored("A,B,C"), mode="batch")

    assert metrics.value("sent") == 3


def test_a_send_that_nobody_answers_counts_as_sent() -> None:
    metrics = ClientMetrics()

    send(metrics, mode="oneway")

    assert metrics.value("sent") == 1


def test_failures_and_further_tries_are_counted() -> None:
    metrics = ClientMetrics()

    send(metrics, error=RuntimeError("no"), tries=3)
    send(metrics, result=stored(), tries=2)

    assert (metrics.value("send_failed"), metrics.value("retried")) == (1, 3)


def test_what_is_under_way_is_shown() -> None:
    metrics = ClientMetrics()
    context = SendContext("payers", "orders", "send", "normal", b"12345", "", "ID", None, ())

    metrics.before_send(context)

    assert metrics.value("in_flight", work="send") == 1
    metrics.after_send(context)
    assert metrics.value("in_flight") == 0


# --- handlers


def test_messages_that_were_handled_well_are_counted() -> None:
    metrics = ClientMetrics()

    consume(metrics, message(), message(topic="bills"))

    assert metrics.value("consumed", topic="orders", group="billing") == 1
    assert metrics.value("consumed") == 2
    assert metrics.value("consume_failed") == 0


def test_a_handler_that_raises_sends_its_message_back() -> None:
    metrics = ClientMetrics()

    consume(metrics, message(), is_success=False)

    assert (metrics.value("consume_failed"), metrics.value("sent_back")) == (1, 1)


def test_what_a_handler_decides_counts() -> None:
    metrics = ClientMetrics()
    again, given_up, done = message(), message(), message()
    again.retry(delay_level=3)
    given_up.dead_letter()
    done.ack()

    consume(metrics, again, given_up, done)

    assert metrics.value("consumed") == 1
    assert (metrics.value("sent_back"), metrics.value("dead_lettered")) == (1, 1)
    assert metrics.value("consume_failed") == 2


@pytest.mark.parametrize("mode", ["orderly", "broadcast"])
def test_what_stays_here_after_a_failure_is_not_sent_back(
    mode: Literal["orderly", "broadcast"],
) -> None:
    metrics = ClientMetrics()

    consume(metrics, message(Mode(mode)), is_success=False, mode=mode)

    assert (metrics.value("consume_failed"), metrics.value("sent_back")) == (1, 0)


def test_queues_are_asked_for_each_time_until_they_are_forgotten() -> None:
    metrics = ClientMetrics()
    progress = [QueueProgress(QUEUE, cached=4, lag=10)]
    metrics.watch("billing", lambda: progress)

    before = metrics.value("lag"), metrics.value("cached", queue="3", broker="broker-a")
    progress[0] = QueueProgress(QUEUE, cached=0, lag=1)
    after = metrics.value("lag", group="billing"), metrics.value("cached")
    metrics.forget("billing")

    assert (before, after) == ((10, 4), (1, 0))
    assert "broker-a" not in metrics.text()


# --- forms


def test_a_consumer_that_is_closed_is_not_shown_and_hides_nobody_else() -> None:
    metrics = ClientMetrics()

    def closed() -> list[QueueProgress]:
        raise NotRunning("this client", "is closed")

    metrics.watch("gone", closed)
    metrics.watch("billing", lambda: [QueueProgress(QUEUE, cached=4, lag=10)])

    assert metrics.value("lag") == 10
    assert "gone" not in metrics.text()


def test_the_text_is_what_prometheus_reads() -> None:
    metrics = ClientMetrics()
    send(metrics, result=stored())

    lines = metrics.text().splitlines()

    assert "# TYPE cometmq_client_sent_total counter" in lines
    assert 'cometmq_client_sent_total{topic="orders",group="payers"} 1' in lines
    assert "# TYPE cometmq_client_lag gauge" in lines
    assert 'cometmq_client_in_flight{work="send"} 0' in lines


class FakeFamily:
    """What prometheus_client calls a metric family, as far as a collector uses it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.samples: list[tuple[str, dict[str, str], float]] = []

    def add_sample(self, name: str, labels: dict[str, str], value: float) -> None:
        self.samples.append((name, labels, value))


class FakeRegistry:
    def __init__(self) -> None:
        self.collectors: list[Any] = []

    def register(self, collector: Any) -> None:
        self.collectors.append(collector)


def test_prometheus_client_gets_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = FakeRegistry()
    core = SimpleNamespace(
        REGISTRY=registry, CounterMetricFamily=FakeFamily, GaugeMetricFamily=FakeFamily
    )
    monkeypatch.setitem(sys.modules, "prometheus_client", SimpleNamespace(core=core))
    monkeypatch.setitem(sys.modules, "prometheus_client.core", core)
    metrics = ClientMetrics()
    send(metrics, result=stored())

    metrics.register()

    (collector,) = registry.collectors
    collected = {family.name: family.samples for family in collector.collect()}
    labels = {"topic": "orders", "group": "payers"}
    assert collected["cometmq_client_sent"] == [("cometmq_client_sent_total", labels, 1)]
    assert ("cometmq_client_in_flight", {"work": "send"}, 0) in collected[
        "cometmq_client_in_flight"
    ]


def test_without_prometheus_client_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)

    with pytest.raises(MissingDependency, match=r"cometmq\[metrics\]"):
        ClientMetrics().register()


# --- in a client


async def test_a_producer_counts_its_tries() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders")
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, refused(ResponseCode.SYSTEM_BUSY), cluster.stored)
        metrics = ClientMetrics()
        async with connected(cluster) as client:
            await client.producer("payers", hooks=[metrics]).send("orders", b"paid")

    assert (metrics.value("sent", group="payers"), metrics.value("retried")) == (1, 1)
    assert metrics.value("in_flight") == 0
