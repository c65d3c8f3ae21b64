"""One task of the sink: its rows become frames, which go to the brokers of their topics."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cometmq.client.core import checks
from cometmq.codec import fastjson
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.properties import Property
from cometmq.errors import CometError, InvalidArgument, NotFound, Unreachable
from cometmq.model.route import TopicRoute
from cometmq.spark import sink_rows
from cometmq.spark.connecting import Connecting
from cometmq.spark.sink_options import SinkOptions
from cometmq.spark.sink_routing import Plan, Router, Run, is_free, queue_of
from cometmq.spark.sink_rows import Rows
from cometmq.spark.sink_sending import Frame, Pipe
from cometmq.spark.wire import Wire

FRAME_BYTES: Final = 1024 * 1024
FRAME_ROWS: Final = 2048
TOPICS_MAX: Final = 1000
"""Topics that the rows of one task may name."""

ROUTE_SECONDS_MAX: Final = 15.0
"""How long a topic may be unknown: also one whose only broker is just being restarted."""

ROUTE_PAUSE_SECONDS: Final = 0.2
EPOCH_BITS: Final = 32

_wires: dict[tuple[int, Connecting], Wire] = {}


def own_wire(connecting: Connecting) -> Wire:
    """The sink's connections of this process, kept between tasks; a source has others."""
    key = os.getpid(), connecting
    wire = _wires.get(key)
    if wire is None:
        for other in [one for one in _wires if one[0] != key[0]]:
            del _wires[other]  # what a forked process has got from its parent is not its own
        wire = _wires[key] = Wire(connecting)
    return wire


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose rows they are: a query or job, which of its batches, and which partition."""

    job: str
    epoch: int
    partition: int

    @property
    def key_prefix(self) -> bytes:
        """The first 24 of 32 digits of the rows' unique keys; the others are the row."""
        told = hashlib.blake2b(f"{self.job}/{self.partition}".encode(), digest_size=8)
        return f"{told.hexdigest().upper()}{self.epoch:08X}".encode()


def route_of(wire: Wire, topic: str) -> TopicRoute:
    """Where a topic is. Raises NotFound and Unreachable."""
    reply = wire.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopic(topic))
    return fastjson.decode(bytes(reply.body), TopicRoute)


def patient_route_of(
    wire: Wire,
    topic: str,
    *,
    seconds_max: float = ROUTE_SECONDS_MAX,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> TopicRoute:
    """The same, waiting a while for a topic whose broker may be coming back."""
    deadline = clock() + seconds_max
    while True:
        try:
            return route_of(wire, topic)
        except NotFound as error:
            if clock() >= deadline:
                raise NotFound("topic", topic, "create it, or is its broker down?") from error
            sleep(ROUTE_PAUSE_SECONDS)


def writable_brokers(route: TopicRoute) -> tuple[str, ...]:
    """Names of the brokers that take messages of a topic, in order."""
    return tuple(
        sorted(q.broker_name for q in route.queue_datas if q.is_writable and q.write_queue_nums)
    )


class TopicRows:
    """What a task knows of one topic: brokers, how rows are routed, the next numbers."""

    def __init__(self, plan: Plan, identity: Identity, route: TopicRoute | None) -> None:
        self.plan = plan
        self.router = Router(plan, identity.partition)
        self.producer_id = plan.producer_id(identity.job, identity.partition)
        self.queue_counts = _queue_counts(route)
        self.next_numbers = [0] * len(plan.brokers)
        self.turns = [identity.partition] * len(plan.brokers)


class SinkTask:
    """Sends the rows of one task. ``brokers`` are those of topics whose brokers are fixed."""

    def __init__(
        self,
        options: SinkOptions,
        identity: Identity,
        brokers: Mapping[str, tuple[str, ...]],
        wire: Wire,
    ) -> None:
        self._options = options
        self._identity = identity
        self._brokers = brokers
        self._wire = wire
        self._topics: dict[str, TopicRows] = {}
        self._pipes: dict[str, Pipe] = {}
        self._row = 0  # of the task, from 0

    def run(self, batches: Iterable[Any]) -> int:
        """Send everything; how many messages are stored when it returns. Raises CometError."""
        for chunk in sink_rows.chunks(batches):
            self._send(sink_rows.rows_of(chunk))
        for pipe in self._pipes.values():
            pipe.finish()
        return sum(pipe.sent for pipe in self._pipes.values())

    @property
    def brokers(self) -> dict[str, tuple[str, ...]]:
        """Of each topic that rows went to, the brokers that they were divided among."""
        return {name: topic.plan.brokers for name, topic in self._topics.items()}

    def _send(self, rows: Rows) -> None:
        sink_rows.check_bodies(rows, self._row)
        texts = sink_rows.property_texts(rows, self._identity.key_prefix, self._row)
        items = sink_rows.batch_items(rows.body, texts)
        for topic, places in self._by_topic(rows):
            self._send_topic(self._topic(topic), rows, places, texts, items)
        self._row += rows.count

    def _by_topic(self, rows: Rows) -> list[tuple[str, Any]]:
        everything = np.arange(rows.count)
        default = self._options.topic
        if rows.topic is None:
            assert default is not None
            return [(default, everything)]
        encoded = rows.topic.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        codes = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        if default is None and (codes == len(names)).any():
            row = self._row + int((codes == len(names)).argmax())
            advice = "set option 'topic' for rows without one"
            raise InvalidArgument("topic", f"row {row}: topic is null or empty", advice)
        by_name: dict[str, list[Any]] = {}
        for code, name in enumerate([*names, default]):
            places = everything[codes == code]
            if len(places) and name is not None:
                by_name.setdefault(name, []).append(places)
        return [(name, np.sort(np.concatenate(found))) for name, found in by_name.items()]

    def _topic(self, name: str) -> TopicRows:
        known = self._topics.get(name)
        if known is None:
            if len(self._topics) >= TOPICS_MAX:
                fact = f"rows of one task name more than {TOPICS_MAX} topics"
                raise InvalidArgument("topic", fact, "repartition by the column 'topic'")
            checks.check_sendable(name)
            known = self._topics[name] = self._planned(name)
        return known

    def _planned(self, name: str) -> TopicRows:
        fixed = self._options.brokers or self._brokers.get(name)
        if fixed:
            return TopicRows(Plan(name, tuple(fixed)), self._identity, None)
        route = patient_route_of(self._wire, name)
        brokers = writable_brokers(route)
        if not brokers:
            raise NotFound("writable queue of topic", name, "give the topic write permission")
        return TopicRows(Plan(name, brokers), self._identity, route)

    def _send_topic(
        self, topic: TopicRows, rows: Rows, places: Any, texts: Any, items: Any
    ) -> None:
        order, runs = topic.router.order(rows, places)
        in_order = items if _is_everything(order, rows.count) else items.take(order)
        offsets = np.frombuffer(in_order.buffers()[1], np.int32)[in_order.offset :]
        offsets = offsets[: len(in_order) + 1]
        data = memoryview(in_order.buffers()[2])
        timed = None if rows.deliver_at is None else rows.deliver_at.take(order)
        for run in _merged(runs, topic, self._queue_count):
            for begin, end, due in _cuts(run, offsets, timed):
                body, text = bytes(data[offsets[begin] : offsets[end]]), None
                if due is not None:
                    row = int(order[begin])
                    body = rows.body[row].as_py()
                    text = f"{texts[row].as_py().decode()}{Property.TIMER_DELIVER_MS}\x01{due}\x02"
                self._put(topic, run, end - begin, body, text)

    def _put(self, topic: TopicRows, run: Run, count: int, body: bytes, text: str | None) -> None:
        broker = topic.plan.brokers[run.broker]
        number = topic.next_numbers[run.broker]
        queue = queue_of(run.rank, self._queue_count(topic, broker), topic.turns[run.broker])
        if is_free(run.rank):
            topic.turns[run.broker] += 1
        frame = Frame(
            topic=topic.plan.topic,
            queue_id=queue,
            count=count,
            body=body,
            properties=text,
            producer_id=topic.producer_id,
            sequence=(self._identity.epoch << EPOCH_BITS) + number,
            born_ms=int(time.time() * 1000),
        )
        topic.next_numbers[run.broker] += count
        self._pipe(topic.plan.topic, broker).put(frame)

    def _pipe(self, topic: str, broker: str) -> Pipe:
        pipe = self._pipes.get(broker)
        if pipe is None:
            pipe = self._pipes[broker] = Pipe(
                self._wire,
                broker,
                lambda: self._address(topic, broker),
                wants_idempotence=self._options.is_idempotent,
                in_flight_max=self._options.in_flight_max,
                patience_ms=self._options.patience_ms,
            )
        return pipe

    def _address(self, topic: str, broker: str) -> str:
        for data in route_of(self._wire, topic).broker_datas:
            if data.broker_name == broker and data.master_address is not None:
                return data.master_address
        raise Unreachable(broker, f"no name server knows where it is (topic '{topic}')")

    def _queue_count(self, topic: TopicRows, broker: str) -> int:
        """How many queues a broker has of a topic; asked again until it is known."""
        count = topic.queue_counts.get(broker)
        if count is None:
            deadline = time.monotonic() + self._options.patience_ms / 1000
            while (count := self._asked_count(topic, broker)) is None:
                if time.monotonic() >= deadline:
                    advice = "if it is gone for good, name the others in option 'brokers'"
                    reason = f"it is not among the brokers of topic '{topic.plan.topic}'"
                    raise Unreachable(broker, reason, advice)
                time.sleep(ROUTE_PAUSE_SECONDS)
        return count

    def _asked_count(self, topic: TopicRows, broker: str) -> int | None:
        try:
            topic.queue_counts |= _queue_counts(route_of(self._wire, topic.plan.topic))
        except CometError:
            return None
        return topic.queue_counts.get(broker)


def _queue_counts(route: TopicRoute | None) -> dict[str, int]:
    if route is None:
        return {}
    return {
        queues.broker_name: queues.write_queue_nums
        for queues in route.queue_datas
        if queues.is_writable and queues.write_queue_nums
    }


def _is_everything(order: Any, count: int) -> bool:
    """Whether rows are sent as they stand."""
    return len(order) == count and bool((order[1:] > order[:-1]).all())


def _merged(
    runs: list[Run], topic: TopicRows, queue_count: Callable[[TopicRows, str], int]
) -> list[Run]:
    """Runs side by side that go to the same queue, as one."""
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last is not None and last.broker == run.broker and not is_free(run.rank):
            count = queue_count(topic, topic.plan.brokers[run.broker])
            if not is_free(last.rank) and queue_of(last.rank, count, 0) == queue_of(
                run.rank, count, 0
            ):
                merged[-1] = last._replace(end=run.end)
                continue
        merged.append(run)
    return merged


def _cuts(run: Run, offsets: Any, timed: Any) -> list[tuple[int, int, int | None]]:
    """A run in frames, ``[begin, end)``; messages with a time go by themselves, with it."""
    due = [None] * (run.end - run.begin)
    if timed is not None:
        due = timed.slice(run.begin, run.end - run.begin).to_pylist()
    cuts: list[tuple[int, int, int | None]] = []
    begin = run.begin
    while begin < run.end:
        if due[begin - run.begin] is not None:
            cuts.append((begin, begin + 1, due[begin - run.begin]))
            begin += 1
            continue
        limit = int(np.searchsorted(offsets, offsets[begin] + FRAME_BYTES, "right")) - 1
        end = min(max(limit, begin + 1), begin + FRAME_ROWS, run.end)
        if timed is not None:
            end = next((i for i in range(begin, end) if due[i - run.begin] is not None), end)
        cuts.append((begin, end, None))
        begin = end
    return cuts
