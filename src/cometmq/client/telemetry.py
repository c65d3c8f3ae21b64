"""Spans of sends, receives and handlers for OpenTelemetry, joined across programs by the message.

A ``Telemetry`` is a hook for producers and consumers::

    telemetry = Telemetry()
    producer = mq.producer(hooks=[telemetry])

A sent message carries the context of its span in the properties ``traceparent`` and ``tracestate``
(W3C trace context; or whatever the program's propagator writes). The span of a handler with one
message continues that trace, one with several is linked to all of them. Names and attributes are
those of the semantic conventions for messaging.

Needs the package ``opentelemetry-api``; which spans are kept, and where, is up to its SDK.
"""

import importlib
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Protocol

from cometmq.client.core.message import Message
from cometmq.client.hooks import ConsumeContext, SendContext
from cometmq.codec.properties import NAME_END, VALUE_END, Property, decode
from cometmq.errors import MissingDependency
from cometmq.model.limits import PROPERTIES_BYTES_MAX

_NAME = "cometmq"
_SPAN, _TOKEN = "cometmq.telemetry.span", "cometmq.telemetry.token"
_TYPES = {"half": "transaction", "delay": "delay"}
_MODELS = {"broadcast": "broadcasting"}


class Api(Protocol):
    """What is used of OpenTelemetry; a seam for tests. ``Any`` is its own type each time."""

    def start(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        parent: Any = None,
        links: Sequence[Any] = (),
    ) -> Any:
        """A span of kind PRODUCER or CONSUMER."""
        ...

    def end(self, span: Any, error: BaseException | None) -> None: ...

    def inject(self, span: Any, carrier: MutableMapping[str, str]) -> None: ...

    def extract(self, carrier: Mapping[str, str]) -> Any:
        """The context of the span that a message came from."""
        ...

    def enter(self, span: Any) -> Any:
        """Make it the current span; returns what ``leave`` needs."""
        ...

    def leave(self, token: Any) -> None: ...


class Telemetry:
    """The hooks. ``tracer_provider`` and ``propagator`` are the program's own by default.

    Raises MissingDependency when OpenTelemetry is not installed.
    """

    def __init__(
        self, *, tracer_provider: Any = None, propagator: Any = None, api: Api | None = None
    ) -> None:
        self._api = api or OpenTelemetry(tracer_provider, propagator)

    def before_send(self, context: SendContext) -> None:
        attributes = _destination("send", "send", context.topic)
        attributes["messaging.message.id"] = context.message_id
        attributes["messaging.message.body.size"] = len(context.body)
        attributes["messaging.rocketmq.message.type"] = _TYPES.get(context.kind, "normal")
        if context.tag:
            attributes["messaging.rocketmq.message.tag"] = context.tag
        if context.keys:
            attributes["messaging.rocketmq.message.keys"] = context.keys
        properties = decode(context.properties)
        if level := properties.get(Property.DELAY):
            attributes["messaging.rocketmq.message.delay_time_level"] = int(level)
        span = self._api.start(f"send {context.topic}", "PRODUCER", attributes)
        context.notes[_SPAN] = span
        if context.mode != "batch":  # whose messages are written already
            self._carry(context, span, properties)

    def after_send(self, context: SendContext) -> None:
        span = context.notes.pop(_SPAN, None)
        if span is None:
            return
        if context.address:
            host, _, port = context.address.rpartition(":")
            span.set_attribute("server.address", host)
            span.set_attribute("server.port", int(port))
        if context.queue is not None:
            span.set_attribute("messaging.destination.partition.id", str(context.queue.queue_id))
        self._api.end(span, context.error)

    def before_consume(self, context: ConsumeContext) -> None:
        messages = context.messages
        topic = messages[0].topic if messages else context.queue.topic
        operation = "receive" if context.mode == "pull" else "process"
        attributes = _destination(operation, operation, topic)
        attributes["messaging.consumer.group.name"] = context.group
        attributes["messaging.destination.partition.id"] = str(context.queue.queue_id)
        model = _MODELS.get(context.mode, "clustering")
        attributes["messaging.rocketmq.consumption_model"] = model
        parent, links = None, []
        if len(messages) == 1:
            _describe(messages[0], attributes)
            if operation == "process":
                parent = self._api.extract(messages[0].properties)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        if parent is None:
            links = [self._api.extract(message.properties) for message in messages]
        span = self._api.start(
            f"{operation} {topic}", "CONSUMER", attributes, parent=parent, links=links
        )
        context.notes[_SPAN] = span
        context.notes[_TOKEN] = self._api.enter(span)

    def after_consume(self, context: ConsumeContext) -> None:
        span, token = context.notes.pop(_SPAN, None), context.notes.pop(_TOKEN, None)
        if span is None:
            return
        self._api.leave(token)
        if not context.is_success:
            span.set_attribute("error.type", context.outcome)
        self._api.end(span, context.error)

    def _carry(self, context: SendContext, span: Any, properties: Mapping[str, str]) -> None:
        """Write the context of a span into a message that has none yet, if there is room."""
        carrier: dict[str, str] = {}
        self._api.inject(span, carrier)
        if any(name in properties for name in carrier):
            return
        more = "".join([f"{name}{NAME_END}{value}{VALUE_END}" for name, value in carrier.items()])
        text = context.properties
        if text and not text.endswith(VALUE_END):
            text += VALUE_END
        if len(text.encode()) + len(more.encode()) <= PROPERTIES_BYTES_MAX:
            context.properties = text + more


class OpenTelemetry:
    """``Api`` by the package ``opentelemetry-api``, which is imported here and not before."""

    def __init__(self, tracer_provider: Any = None, propagator: Any = None) -> None:
        try:
            self._trace: Any = importlib.import_module("opentelemetry.trace")
            self._context: Any = importlib.import_module("opentelemetry.context")
            propagate: Any = importlib.import_module("opentelemetry.propagate")
        except ImportError as error:
            raise MissingDependency("opentelemetry-api", "otel", "telemetry") from error
        self._propagator = propagator or propagate.get_global_textmap()
        self._tracer = self._trace.get_tracer(_NAME, tracer_provider=tracer_provider)

    def start(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        parent: Any = None,
        links: Sequence[Any] = (),
    ) -> Any:
        spans = (self._trace.get_current_span(link).get_span_context() for link in links)
        return self._tracer.start_span(
            name,
            context=parent,
            kind=self._trace.SpanKind[kind],
            attributes=attributes,
            links=[self._trace.Link(span) for span in spans if span.is_valid],
        )

    def end(self, span: Any, error: BaseException | None) -> None:
        if error is not None:
            span.set_attribute("error.type", type(error).__qualname__)
            span.record_exception(error)
            status = self._trace.Status(self._trace.StatusCode.ERROR, str(error))
            span.set_status(status)
        span.end()

    def inject(self, span: Any, carrier: MutableMapping[str, str]) -> None:
        self._propagator.inject(carrier, context=self._trace.set_span_in_context(span))

    def extract(self, carrier: Mapping[str, str]) -> Any:
        return self._propagator.extract(carrier, context=self._context.Context())

    def enter(self, span: Any) -> Any:
        before = self._context.get_current()
        self._context.attach(self._trace.set_span_in_context(span))
        return span, before

    def leave(self, token: Any) -> None:
        span, before = token
        # A message that was iterated over may end in another task, where its span never was, or
        # where only a copy of it is: ``detach`` would log an error there.
        if self._trace.get_current_span() is span:
            self._context.attach(before)


def _destination(name: str, kind: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _describe(message: Message[Any], attributes: dict[str, Any]) -> None:
    attributes["messaging.message.id"] = message.message_id
    attributes["messaging.message.body.size"] = message.body_bytes
    if message.tag:
        attributes["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        attributes["messaging.rocketmq.message.keys"] = message.keys
