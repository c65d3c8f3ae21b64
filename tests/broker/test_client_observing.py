"""What a client shows of itself, through the packages that programs use: no stand-ins here."""

from concurrent.futures import Future

import prometheus_client
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from cometmq import Client, ClientMetrics, Message, MessageQueue, SendFailed, Telemetry
from cometmq.testing.local_cluster import BlockingCluster

WAIT_SECONDS = 20


class Spans:
    """Keeps the spans that end here."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return span


@pytest.fixture
def mq(cluster: BlockingCluster) -> Client:
    return Client(cluster.namesrv)


def test_a_message_carries_its_trace_from_the_sender_to_the_handler(mq: Client, topic: str) -> None:
    spans = Spans()
    handled: Future[int] = Future()

    def handle(message: Message[bytes]) -> None:
        handled.set_result(get_current_span().get_span_context().trace_id)

    with mq:
        telemetry = Telemetry(tracer_provider=spans.provider)
        with spans.provider.get_tracer("shop").start_as_current_span("checkout"):
            mq.producer(hooks=[telemetry]).send(topic, b"paid", tag="paid", keys="order-1")
        consumer = mq.consumer(f"{topic}-billing", start="first", hooks=[telemetry])
        consumer.subscribe(topic)
        consumer.start(handle)
        trace_id = handled.result(WAIT_SECONDS)
        consumer.close()

    checkout, send = spans.named("checkout"), spans.named(f"send {topic}")
    process = spans.named(f"process {topic}")
    assert send.parent is not None
    assert process.parent is not None
    assert send.parent.span_id == checkout.context.span_id
    assert process.parent.span_id == send.context.span_id
    assert {send.context.trace_id, process.context.trace_id, trace_id} == {
        checkout.context.trace_id
    }
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert send.attributes is not None
    assert send.attributes["messaging.system"] == "rocketmq"
    assert send.attributes["messaging.rocketmq.message.keys"] == ("order-1",)


def test_a_send_that_fails_is_an_error_in_its_span(mq: Client, topic: str) -> None:
    spans = Spans()

    with mq:
        producer = mq.producer(hooks=[Telemetry(tracer_provider=spans.provider)])
        with pytest.raises(SendFailed) as refused:
            producer.send(topic, b"paid", queue=MessageQueue(topic, "nobody", 0))

    span = spans.named(f"send {topic}")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == type(refused.value).__qualname__


def test_prometheus_shows_what_was_sent_and_handled(mq: Client, topic: str) -> None:
    registry = prometheus_client.CollectorRegistry()
    metrics = ClientMetrics()
    metrics.register(registry)
    handled: Future[None] = Future()

    with mq:
        mq.producer("payers", hooks=[metrics]).send(topic, b"paid")
        consumer = mq.consumer(f"{topic}-billing", start="first", hooks=[metrics])
        consumer.subscribe(topic)
        consumer.start(lambda _: handled.set_result(None))
        metrics.watch(consumer.group, consumer.progress)
        handled.result(WAIT_SECONDS)
        consumer.close()

    text = prometheus_client.generate_latest(registry).decode()
    assert "# TYPE cometmq_client_sent_total counter" in text
    sent = registry.get_sample_value(
        "cometmq_client_sent_total", {"topic": topic, "group": "payers"}
    )
    consumed = registry.get_sample_value(
        "cometmq_client_consumed_total", {"topic": topic, "group": f"{topic}-billing"}
    )
    assert (sent, consumed) == (1, 1)
