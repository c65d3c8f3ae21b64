"""Counters of producers and consumers, for Prometheus or for a test to look at.

A ``ClientMetrics`` is a hook: give it to what is to be counted, and show what it has counted::

    metrics = ClientMetrics()
    async with Client("host:9876") as mq:
        producer = mq.producer(hooks=[metrics])
        print(metrics.text())  # in the text form that Prometheus reads

``register`` shows the same numbers through the package ``prometheus-client``, if it is installed.
Numbers are kept in this object and nowhere else: two of them do not know of each other.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from cometmq.client.core.message import DecisionKind, Message
from cometmq.client.hooks import ConsumeContext, SendContext
from cometmq.errors import MissingDependency, NotRunning
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.metrics import Labels, Registry

PREFIX = "cometmq_client"
TOTAL = "_total"
_BY_TOPIC: Labels = ("topic", "group")
_BY_QUEUE: Labels = ("topic", "group", "broker", "queue")


class QueueProgress(msgspec.Struct, frozen=True, gc=False):
    """How a consumer stands with a queue: messages in memory, and messages it has yet to handle."""

    queue: MessageQueue
    cached: int
    lag: int


Progress = Callable[[], Iterable[QueueProgress]]


class ClientMetrics:
    """Counts what happens to the producers and consumers that have it as a hook."""

    def __init__(self) -> None:
        self._registry = registry = Registry()
        self._sent = registry.counter(f"{PREFIX}_sent_total", "Messages sent.", _BY_TOPIC)
        self._send_failed = registry.counter(
            f"{PREFIX}_send_failed_total", "Sends that failed with all their tries.", _BY_TOPIC
        )
        self._retried = registry.counter(
            f"{PREFIX}_retried_total", "Further tries of sends.", _BY_TOPIC
        )
        self._consumed = registry.counter(
            f"{PREFIX}_consumed_total", "Messages handled well.", _BY_TOPIC
        )
        self._consume_failed = registry.counter(
            f"{PREFIX}_consume_failed_total", "Messages whose handler failed.", _BY_TOPIC
        )
        self._sent_back = registry.counter(
            f"{PREFIX}_sent_back_total", "Messages to be delivered again.", _BY_TOPIC
        )
        self._dead_lettered = registry.counter(
            f"{PREFIX}_dead_lettered_total", "Messages given up by their handler.", _BY_TOPIC
        )
        self._in_flight = {"send": 0, "handle": 0}
        self._watched: dict[str, Progress] = {}  # by group
        registry.gauge(
            f"{PREFIX}_in_flight",
            "Sends and calls of handlers under way.",
            lambda: {(work,): count for work, count in self._in_flight.items()},
            ("work",),
        )
        registry.gauge(
            f"{PREFIX}_cached", "Messages in memory.", lambda: self._by_queue("cached"), _BY_QUEUE
        )
        registry.gauge(
            f"{PREFIX}_lag",
            "Messages that are not handled yet, as of the last pull.",
            lambda: self._by_queue("lag"),
            _BY_QUEUE,
        )

    def text(self) -> str:
        """All numbers, in the text form of Prometheus (version 0.0.4)."""
        return self._registry.expose()

    def value(self, name: str, **labels: str) -> float:
        """One number by its short name: ``metrics.value("sent", topic="orders")``.

        What was not counted yet is 0; several that have these labels are added up.
        """
        wanted, found = set(labels.items()), 0.0
        for full_name, _, _, samples in self._registry.collect():
            if full_name.removeprefix(f"{PREFIX}_").removesuffix(TOTAL) == name:
                found += sum(s.value for s in samples if wanted <= set(s.labels))
        return found

    def watch(self, group: str, progress: Progress) -> None:
        """Show how a consumer stands with its queues, asking ``progress`` each time::

        metrics.watch("billing", consumer.progress)
        """
        self._watched[group] = progress

    def forget(self, group: str) -> None:
        """Show it no longer."""
        self._watched.pop(group, None)

    def register(self, registry: Any = None) -> None:
        """Show the numbers through ``prometheus_client``, in its own registry by default.

        Raises MissingDependency when the package is not installed.
        """
        core = _prometheus_client()
        (registry or core.REGISTRY).register(_Collector(self._registry, core))

    # --- hooks

    def before_send(self, context: SendContext) -> None:  # noqa: ARG002 - as all hooks
        self._in_flight["send"] += 1

    def after_send(self, context: SendContext) -> None:
        self._in_flight["send"] -= 1
        labels = (context.topic, context.group)
        if context.error is not None:
            self._send_failed.child(*labels).add()
        else:
            result = context.result
            count = 1 if result is None else result.message_id.count(",") + 1
            self._sent.child(*labels).add(count)
        if context.tries > 1:
            self._retried.child(*labels).add(context.tries - 1)

    def before_consume(self, context: ConsumeContext) -> None:  # noqa: ARG002 - as all hooks
        self._in_flight["handle"] += 1

    def after_consume(self, context: ConsumeContext) -> None:
        self._in_flight["handle"] -= 1
        for message in context.messages:
            labels = (message.topic, context.group)
            kind = _decided(message, context)
            # Where others of a batch were decided otherwise, it has FAILED as a whole.
            is_fine = kind is DecisionKind.ACK and context.outcome in ("SUCCESS", "FAILED")
            (self._consumed if is_fine else self._consume_failed).child(*labels).add()
            if kind is DecisionKind.RETRY and context.mode == "concurrent":
                self._sent_back.child(*labels).add()
            elif kind is DecisionKind.DEAD_LETTER:
                self._dead_lettered.child(*labels).add()

    # --- the inside

    def _by_queue(self, field: str) -> Mapping[Labels, float]:
        return {
            (at.queue.topic, group, at.queue.broker_name, str(at.queue.queue_id)): getattr(
                at, field
            )
            for group, progress in tuple(self._watched.items())
            for at in _progress(progress)
        }


class _Collector:
    """What ``prometheus_client`` asks for numbers; ``families`` is the module with its classes."""

    def __init__(self, registry: Registry, families: Any) -> None:
        self._registry = registry
        self._families = families

    def collect(self) -> Iterator[Any]:
        for name, kind, text, samples in self._registry.collect():
            make = self._families.GaugeMetricFamily
            if kind == "counter":
                make = self._families.CounterMetricFamily
            family = make(name.removesuffix(TOTAL), text)
            for sample in samples:
                suffix = TOTAL if kind == "counter" else ""
                family.add_sample(
                    name.removesuffix(TOTAL) + suffix, dict(sample.labels), sample.value
                )
            yield family


def _progress(progress: Progress) -> Iterable[QueueProgress]:
    """How a consumer stands; one that was closed has nothing to say, and hides nobody else."""
    try:
        return progress()
    except NotRunning:
        return ()


def _decided(message: Message[Any], context: ConsumeContext) -> DecisionKind:
    """What becomes of a message; where its handler said nothing, returning is an answer."""
    if message.decision is not None:
        return message.decision.kind
    return DecisionKind.ACK if context.error is None else DecisionKind.RETRY


def _prometheus_client() -> Any:
    try:
        return importlib.import_module("prometheus_client.core")
    except ImportError as error:
        raise MissingDependency("prometheus-client", "metrics", "registering metrics") from error
