"""Spans of sends and handlers, with a stand-in for OpenTelemetry that keeps them."""

import contextvars
import sys
import types
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal

import msgspec
import pytest

from cometmq.client.core.message import Message, Source
from cometmq.client.core.value_codecs import BYTES
from cometmq.client.hooks import ConsumeContext, SendContext
from cometmq.client.telemetry import OpenTelemetry, Telemetry
from cometmq.codec.properties import decode as decode_properties
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import MAGIC_V1, Record, pack_host
from cometmq.errors import MissingDependency
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from cometmq.model.offsets import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 3)
HOST = pack_host("10.0.1.1", 10911)


class FakeSpan(msgspec.Struct):
    name: str
    kind: str
    attributes: dict[str, Any]
    parent: Any
    links: list[Any]
    is_ended: bool = False
    error: BaseException | None = None

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value


class FakeApi:
    """Keeps spans; the context of a message is its ``traceparent``."""

    def __init__(self) -> None:
        self.spans: list[FakeSpan] = []
        self.current: list[FakeSpan] = []

    def start(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        parent: Any = None,
        links: Sequence[Any] = (),
    ) -> FakeSpan:
        span = FakeSpan(name, kind, dict(attributes), parent, list(links))
        self.spans.append(span)
        return span

    def end(self, span: FakeSpan, error: BaseException | None) -> None:
        span.is_ended, span.error = True, error

    def inject(self, span: FakeSpan, carrier: MutableMapping[str, str]) -> None:
        carrier["traceparent"] = f"00-{self.spans.index(span)}"
        carrier["tracestate"] = "a=b"

    def extract(self, carrier: Mapping[str, str]) -> str | None:
        return carrier.get("traceparent")

    def enter(self, span: FakeSpan) -> FakeSpan:
        self.current.append(span)
        return span

    def leave(self, token: FakeSpan) -> None:
        assert self.current.pop() is token


@pytest.fixture
def opentelemetry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions of OpenTelemetry that make a span the current one, whose context is itself."""
    current: contextvars.ContextVar[Any] = contextvars.ContextVar("current", default=None)
    functions: dict[str, Any] = {
        "get_tracer": lambda _name, tracer_provider: tracer_provider,
        "get_global_textmap": lambda: None,
        "set_span_in_context": lambda span: span,
        "get_current_span": current.get,
        "get_current": current.get,
        "attach": current.set,
    }
    for name in ("opentelemetry", "trace", "context", "propagate"):
        path = name if name == "opentelemetry" else f"opentelemetry.{name}"
        module = types.ModuleType(path)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, path, module)
    return functions


def sending(properties: Mapping[str, str] | None = None, **changes: Any) -> SendContext:
    text = encode_properties({"UNIQ_KEY": "ID", **(properties or {})})
    context = SendContext(
        "payers", "orders", "send", "normal", b"12345", text, "ID", "paid", ("k1", "k2")
    )
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def message(message_id: str, **properties: str) -> Message[bytes]:
    raw = encode_properties({"UNIQ_KEY": message_id, "TAGS": "paid", "KEYS": "k1", **properties})
    record = Record(
        0, MAGIC_V1, 0, 3, 0, 3, 4_096, 0, 900, HOST, 950, HOST, 0, 0, b"hi", "orders", raw.encode()
    )
    return Message(record, Source("broker-a", BYTES))


def consuming(
    *messages: Message[bytes],
    mode: Literal["concurrent", "orderly", "broadcast", "pull"] = "concurrent",
) -> ConsumeContext:
    return ConsumeContext("billing", None, QUEUE, messages, mode)


# --- sends


def test_a_send_is_a_span_by_the_conventions() -> None:
    api = FakeApi()
    telemetry = Telemetry(api=api)
    context = sending({"DELAY": "3"}, kind="delay")

    telemetry.before_send(context)
    context.queue, context.address = QUEUE, "10.0.1.1:10911"
    telemetry.after_send(context)

    (span,) = api.spans
    assert (span.name, span.kind, span.is_ended, span.error) == (
        "send orders",
        "PRODUCER",
        True,
        None,
    )
    assert span.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.message.id": "ID",
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "delay",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.delay_time_level": 3,
        "server.address": "10.0.1.1",
        "server.port": 10911,
    }


def test_a_message_carries_the_context_of_its_span() -> None:
    telemetry = Telemetry(api=FakeApi())
    context = sending()

    telemetry.before_send(context)

    assert decode_properties(context.properties) == {
        "UNIQ_KEY": "ID",
        "traceparent": "00-0",
        "tracestate": "a=b",
    }


@pytest.mark.parametrize(
    "context",
    [
        sending({"traceparent": "mine"}),
        sending(mode="batch"),
        sending({"large": "x" * (PROPERTIES_BYTES_MAX - 30)}),
    ],
    ids=["has one", "batch", "no room"],
)
def test_a_context_is_not_written_where_it_does_not_belong(context: SendContext) -> None:
    before = context.properties

    Telemetry(api=FakeApi()).before_send(context)

    assert context.properties == before


def test_a_send_that_fails_ends_its_span_with_the_error() -> None:
    api = FakeApi()
    telemetry = Telemetry(api=api)
    context = sending()

    telemetry.before_send(context)
    context.error = ValueError("no")
    telemetry.after_send(context)
    telemetry.after_send(context)

    assert [span.error for span in api.spans] == [context.error]


# --- handlers


def test_a_handler_continues_the_trace_of_its_message_and_is_the_current_span() -> None:
    api = FakeApi()
    telemetry = Telemetry(api=api)
    context = consuming(message("A", traceparent="00-7"))

    telemetry.before_consume(context)
    inside = list(api.current)
    context.is_success = True
    telemetry.after_consume(context)

    (span,) = api.spans
    assert (span.name, span.kind, span.parent, span.links) == (
        "process orders",
        "CONSUMER",
        "00-7",
        [],
    )
    assert (inside, api.current, span.is_ended) == ([span], [], True)
    assert span.attributes == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.consumer.group.name": "billing",
        "messaging.rocketmq.consumption_model": "clustering",
        "messaging.message.id": "A",
        "messaging.message.body.size": 2,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("k1",),
    }


def test_a_batch_is_linked_to_all_its_messages() -> None:
    api = FakeApi()
    telemetry = Telemetry(api=api)
    context = consuming(message("A", traceparent="00-1"), message("B", traceparent="00-2"))

    telemetry.before_consume(context)

    (span,) = api.spans
    assert (span.parent, span.links) == (None, ["00-1", "00-2"])
    assert span.attributes["messaging.batch.message_count"] == 2


def test_a_pull_is_a_receive_that_belongs_to_who_pulls() -> None:
    api = FakeApi()
    context = consuming(message("A", traceparent="00-1"), mode="pull")

    Telemetry(api=api).before_consume(context)

    (span,) = api.spans
    assert (span.name, span.parent, span.links) == ("receive orders", None, ["00-1"])


def test_a_handler_that_fails_ends_its_span_with_the_error() -> None:
    api = FakeApi()
    telemetry = Telemetry(api=api)
    context = consuming(message("A"), mode="broadcast")

    telemetry.before_consume(context)
    context.error, context.outcome = ValueError("no"), "EXCEPTION"
    telemetry.after_consume(context)
    telemetry.after_consume(context)

    (span,) = api.spans
    assert (span.error, span.attributes["error.type"]) == (context.error, "EXCEPTION")
    assert span.attributes["messaging.rocketmq.consumption_model"] == "broadcasting"


def test_a_span_is_left_only_where_it_was_entered(opentelemetry: dict[str, Any]) -> None:
    """An iterator may be asked for the next message by another task than before."""
    api = OpenTelemetry()
    here, elsewhere = contextvars.copy_context(), contextvars.copy_context()

    token = here.run(api.enter, "span")
    elsewhere.run(api.leave, token)
    assert here.run(opentelemetry["get_current_span"]) == "span"

    here.run(api.leave, token)
    assert here.run(opentelemetry["get_current_span"]) is None


def test_a_span_may_be_left_in_a_copy_of_the_context_where_it_was_entered(
    opentelemetry: dict[str, Any],
) -> None:
    """The loop does so for an iterator that is gone; OpenTelemetry would log an error each time."""
    api = OpenTelemetry()
    here = contextvars.copy_context()
    token = here.run(api.enter, "span")
    copy = here.run(contextvars.copy_context)

    copy.run(api.leave, token)

    assert copy.run(opentelemetry["get_current_span"]) is None
    assert here.run(opentelemetry["get_current_span"]) == "span"


def test_without_opentelemetry_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("opentelemetry", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(MissingDependency, match=r"cometmq\[otel\]"):
        Telemetry()
