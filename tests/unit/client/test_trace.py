"""Traces: what is reported, in which batches, and what is lost when it cannot be sent."""

import asyncio
from typing import Any

import pytest

from cometmq.client import trace
from cometmq.client.core.message import Message, Source
from cometmq.client.core.results import LocalState, SendResult, SendStatus
from cometmq.client.core.value_codecs import BYTES
from cometmq.client.hooks import ConsumeContext, SendContext, TransactionContext
from cometmq.client.trace import Tracer
from cometmq.codec.message_id import UniqueIds
from cometmq.codec.properties import encode as encode_properties
from cometmq.codec.record import MAGIC_V1, Record, pack_host
from cometmq.codec.trace import TraceKind, TraceRecord, parse
from cometmq.errors import Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.testing import FakeClock
from tests.unit.client.kit import FakeCluster, connected

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
QUEUE = MessageQueue("orders", "broker-a", 0)
HOST = pack_host("10.0.1.1", 10911)


class Reports:
    """Takes reports instead of a broker; ``problem`` is raised instead, ``gate`` holds them up."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, str]] = []
        self.problem: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, topic: str, body: bytes, keys: str) -> None:
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        self.sent.append((topic, body, keys))

    @property
    def records(self) -> list[TraceRecord]:
        return [record for _, body, _ in self.sent for record in parse(body)]


def tracer(reports: Reports, clock: FakeClock | None = None, namespace: str = "") -> Tracer:
    return Tracer(
        reports.send,
        topic=TRACE_TOPIC,
        clock=clock or FakeClock(now_ms=1_000),
        unique_ids=UniqueIds(bytes(4), 1, 2),
        namespace=namespace,
    )


def sent(message_id: str = "ID", **changes: Any) -> SendContext:
    result = SendResult(SendStatus.OK, message_id, f"OFFSET-{message_id}", QUEUE, 5)
    context = SendContext(
        "payers", "orders", "send", "normal", b"12345", "", message_id, "paid", ("k1", "k2"),
        QUEUE, "10.0.1.1:10911", 990, result,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def message(message_id: str, **properties: str) -> Message[bytes]:
    raw = encode_properties({"UNIQ_KEY": message_id, "KEYS": "k1", **properties}).encode()
    record = Record(
        0, MAGIC_V1, 0, 0, 0, 3, 4_096, 0, 900, HOST, 950, HOST, 2, 0, b"hello", "orders", raw
    )
    return Message(record, Source("broker-a", BYTES))


def consuming(*messages: Message[bytes]) -> ConsumeContext:
    return ConsumeContext("billing", None, QUEUE, messages, "concurrent", began_ms=1_000)


# --- what is reported


async def test_a_send_is_reported_with_all_that_tools_show() -> None:
    reports = Reports()
    it = tracer(reports)

    it.before_send(sent())
    it.after_send(sent())
    await it.flush()

    ((topic, _, keys),) = reports.sent
    assert (topic, keys) == (TRACE_TOPIC, "ID k1 k2")
    assert reports.records == [
        TraceRecord(
            kind=TraceKind.SENT,
            message_id="ID",
            at_ms=990,
            region="DefaultRegion",
            group="payers",
            topic="orders",
            tags="paid",
            keys="k1 k2",
            store_host="10.0.1.1:10911",
            body_bytes=5,
            cost_ms=10,
            message_type="normal",
            offset_id="OFFSET-ID",
            is_success=True,
        )
    ]


@pytest.mark.parametrize(
    ("kind", "shown"), [("half", "half"), ("delay", "delay"), ("reply", "normal")]
)
async def test_the_kind_of_a_message_is_told_where_tools_know_it(kind: str, shown: str) -> None:
    reports = Reports()
    it = tracer(reports)

    it.after_send(sent(kind=kind))
    await it.flush()

    assert [record.message_type for record in reports.records] == [shown]


async def test_a_message_that_was_not_stored_as_it_should_is_no_success() -> None:
    reports = Reports()
    it = tracer(reports)
    result = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "ID", "OFFSET-ID", QUEUE, 5)

    it.after_send(sent(result=result))
    await it.flush()

    assert [record.is_success for record in reports.records] == [False]


async def test_each_message_of_a_batch_can_be_found() -> None:
    reports = Reports()
    it = tracer(reports)
    result = SendResult(SendStatus.OK, "A,B", "OA,OB", QUEUE, 5)

    it.after_send(sent(mode="batch", kind="batch", result=result))
    await it.flush()

    assert [(r.message_id, r.offset_id) for r in reports.records] == [("A", "OA"), ("B", "OB")]
    assert reports.sent[0][2] == "A k1 k2 B"


@pytest.mark.parametrize(
    "changes",
    [
        {"result": None},
        {"topic": TRACE_TOPIC},
        {"result": SendResult(SendStatus.OK, "ID", "O", QUEUE, 5, is_traced=False)},
    ],
    ids=["no answer", "a report itself", "the broker does not want it"],
)
async def test_what_leaves_no_trace(changes: dict[str, Any]) -> None:
    reports = Reports()
    it = tracer(reports)

    it.after_send(sent(**changes))
    await it.flush()

    assert reports.sent == []


async def test_receiving_and_consuming_share_a_request_id() -> None:
    reports, clock = Reports(), FakeClock(now_ms=1_000)
    it = tracer(reports, clock)
    context = consuming(message("A", MSG_REGION="R"), message("B"))

    it.before_consume(context)
    clock.advance(0.020)
    context.outcome = "EXCEPTION"
    it.after_consume(context)
    await it.flush()

    received_a, received_b, consumed_a, consumed_b = reports.records
    assert len({record.request_id for record in reports.records}) == 1
    assert (received_a.kind, received_a.message_id, received_a.region) == ("received", "A", "R")
    assert (received_a.retry_times, received_a.group, received_b.message_id) == (2, "billing", "B")
    assert (consumed_a.cost_ms, consumed_a.outcome, consumed_a.is_success) == (10, 2, False)
    assert (consumed_b.message_id, consumed_b.at_ms) == ("B", 1_020)


async def test_messages_that_must_not_be_traced_are_left_out() -> None:
    reports = Reports()
    it = tracer(reports)
    mixed, silent = consuming(message("A", TRACE_ON="false"), message("B")), consuming()

    for context in (mixed, silent):
        it.before_consume(context)
        it.after_consume(context)
    await it.flush()

    assert [record.message_id for record in reports.records] == ["B", "B"]


async def test_namespaces_are_not_shown() -> None:
    reports = Reports()
    it = tracer(reports, namespace="ns")

    it.after_send(sent(topic="ns%orders", group="ns%payers"))
    await it.flush()

    (record,) = reports.records
    assert (record.topic, record.group) == ("orders", "payers")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (LocalState.COMMIT, "COMMIT_MESSAGE"),
        (LocalState.ROLLBACK, "ROLLBACK_MESSAGE"),
        (LocalState.UNKNOWN, "UNKNOW"),
    ],
)
async def test_the_end_of_a_transaction_is_reported_in_javas_words(
    state: LocalState, text: str
) -> None:
    reports = Reports()
    it = tracer(reports)

    it.after_end(
        TransactionContext("payers", "orders", "ID", "TX", state, True, "paid", ("k",), "h:1", "R")
    )
    await it.flush()

    (record,) = reports.records
    assert (record.kind, record.transaction_id) == (TraceKind.TRANSACTION, "TX")
    assert (record.transaction_state, record.is_from_check) == (text, True)


# --- batches and losses


async def test_many_events_leave_in_reports_of_bounded_size() -> None:
    reports = Reports()
    it = tracer(reports)
    for number in range(trace.BATCH_MAX * 2 + 1):
        it.after_send(sent(f"ID{number}"))

    await it.flush()

    counts = [len(list(parse(body))) for _, body, _ in reports.sent]
    assert counts == [trace.BATCH_MAX, trace.BATCH_MAX, 1]


async def test_a_report_is_limited_by_its_keys_and_long_keys_are_left_out() -> None:
    reports = Reports()
    it = tracer(reports)
    for number in range(8):
        it.after_send(sent(f"ID{number}", keys=("é" * 2_000,)))
    it.after_send(sent("LAST", keys=("k" * 30_000,)))

    await it.flush()

    sizes = [len(keys.encode()) for _, _, keys in reports.sent]
    assert max(sizes) <= trace.KEYS_BYTES_MAX
    assert reports.sent[-1][2].split()[-1] == "LAST"
    assert len(reports.records) == 9


async def test_a_full_batch_leaves_by_itself() -> None:
    reports = Reports()
    it = tracer(reports)
    it.start()
    await asyncio.sleep(0)

    for number in range(trace.BATCH_MAX):
        it.after_send(sent(f"ID{number}"))
    while not reports.sent:
        await asyncio.sleep(0)

    assert len(reports.records) == trace.BATCH_MAX
    await it.close()


async def test_what_comes_too_fast_is_lost_and_counted() -> None:
    reports = Reports()
    it = tracer(reports)
    for number in range(trace.WAITING_MAX + 3):
        it.after_send(sent(f"ID{number}"))

    await it.flush()

    assert (it.sent_count, it.lost_count) == (trace.WAITING_MAX, 3)


async def test_a_report_that_cannot_be_sent_is_lost_and_the_next_one_is_sent() -> None:
    reports = Reports()
    it = tracer(reports)
    reports.problem = Unreachable("10.0.1.1:10911", "refused")
    it.after_send(sent("A"))

    with pytest.raises(Unreachable):
        await it.flush()
    reports.problem = None
    it.after_send(sent("B"))
    await it.flush()

    assert [record.message_id for record in reports.records] == ["B"]
    assert (it.sent_count, it.lost_count) == (1, 1)


async def test_closing_sends_what_is_left() -> None:
    reports = Reports()
    it = tracer(reports)
    it.start()
    it.after_send(sent())

    await it.close()

    assert [record.message_id for record in reports.records] == ["ID"]


async def test_closing_does_not_lose_the_report_that_is_under_way() -> None:
    reports = Reports()
    it = tracer(reports)
    it.start()
    reports.gate.clear()
    for number in range(trace.BATCH_MAX):
        it.after_send(sent(f"ID{number}"))
    while it._waiting:
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(it.close())
    await asyncio.sleep(0)

    reports.gate.set()
    await closing

    assert (it.sent_count, it.lost_count) == (trace.BATCH_MAX, 0)


async def test_closing_gives_up_what_cannot_be_sent() -> None:
    reports = Reports()
    it = tracer(reports)
    reports.problem = Unreachable("10.0.1.1:10911", "refused")
    for number in range(trace.BATCH_MAX + 1):
        it.after_send(sent(f"ID{number}"))

    await it.close()

    assert it.lost_count == trace.BATCH_MAX + 1


# --- in a client


async def test_a_traced_producer_reports_its_sends_before_the_client_is_closed() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders")
        cluster.create(TRACE_TOPIC, queues=1)
        async with connected(cluster) as client:
            producer = client.producer("payers", is_traced=True)
            sent = await producer.send("orders", b"paid", tag="a", keys="k1")

        (report,) = [asked for asked in cluster.sends if asked.send.topic == TRACE_TOPIC]
        (record,) = parse(report.body)
        assert report.properties["KEYS"] == f"{sent.message_id} k1"
        assert (record.kind, record.message_id) == (TraceKind.SENT, sent.message_id)
        assert (record.group, record.topic, record.tags) == ("payers", "orders", "a")
        assert record.store_host == cluster.a.address


async def test_all_who_report_to_a_topic_share_one_sender() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders")
        cluster.create("traces", queues=1)
        async with connected(cluster) as client:
            options: dict[str, Any] = {"is_traced": True, "trace_topic": "traces"}
            first = client.producer("payers", **options)
            second = client.transaction_producer("others", lambda _: None, **options)

            await first.send("orders", b"paid")
            await second.send("orders", b"paid", local=lambda _: LocalState.COMMIT)

        (report,) = [asked for asked in cluster.sends if asked.send.topic == "traces"]
        kinds = [(record.kind, record.group) for record in parse(report.body)]
        assert kinds == [
            (TraceKind.SENT, "payers"),
            (TraceKind.SENT, "others"),
            (TraceKind.TRANSACTION, "others"),
        ]
