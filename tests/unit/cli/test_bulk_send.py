import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cometmq.cli.bulk_send import FAILURES_MAX, BulkSend, Failure, NotAllSent, Pace, Sent, Tally
from cometmq.cli.message_lines import BadInput, Draft
from cometmq.client.core.results import SendResult, SendStatus
from cometmq.errors import InvalidArgument, NoRoute, NotFound, SendFailed, Unreachable
from cometmq.model.offsets import MessageQueue

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def failed(reason: str) -> SendFailed:
    return SendFailed(TOPIC, 1, 5, ("broker-a",), 1, reason, False)


class Producer:
    """Stores in memory what it is given; values in ``bad`` fail. Sends end when they are let."""

    def __init__(self, *, bad: Iterable[bytes] = (), is_held: bool = False) -> None:
        self.bad = set(bad)
        self.error: Exception = failed("no")
        self.started: list[bytes] = []
        self.stored: list[bytes] = []
        self.options: list[dict[str, Any]] = []
        self.batches: list[list[Any]] = []
        self.most_under_way = 0
        self._under_way = 0
        self._is_held = is_held
        self.held: list[asyncio.Event] = []

    async def send(self, topic: str, value: Any, **options: Any) -> SendResult:
        assert topic == TOPIC
        self.started.append(value)
        self.options.append(options)
        self._under_way += 1
        self.most_under_way = max(self.most_under_way, self._under_way)
        if self._is_held:
            event = asyncio.Event()
            self.held.append(event)
            await event.wait()
        else:
            await asyncio.sleep(0)
        self._under_way -= 1
        if value in self.bad:
            raise self.error
        self.stored.append(value)
        offset = len(self.stored) - 1
        return SendResult(SendStatus.OK, f"id-{value.decode()}", f"at-{offset}", QUEUE, offset)

    async def send_many(self, topic: str, values: Sequence[Any]) -> list[SendResult]:
        assert topic == TOPIC
        self.batches.append([item.value for item in values])
        results: list[SendResult] = []
        for begin in range(0, len(values), 2):  # frames of two
            frame = [item.value for item in values[begin : begin + 2]]
            if self.bad.intersection(frame):
                error = failed("no")
                error.results = tuple(results)
                raise error
            ids = ",".join(f"id-{value.decode()}" for value in frame)
            places = ",".join(f"at-{len(self.stored) + n}" for n in range(len(frame)))
            results.append(SendResult(SendStatus.OK, ids, places, QUEUE, len(self.stored)))
            self.stored += frame
        return results


async def find_queue(name: str) -> MessageQueue:
    if name != "0":
        raise NotFound("queue", name)
    return QUEUE


def drafts(*values: str, **facts: Any) -> list[Draft | BadInput]:
    return [
        Draft(where=f"line {number}", value=value.encode(), **facts)
        for number, value in enumerate(values, 1)
    ]


async def stream(items: Iterable[Draft | BadInput]) -> AsyncIterator[Draft | BadInput]:
    for item in items:
        yield item


def bulk(producer: Producer, reported: list[Sent], *, in_flight_max: int = 4, **facts: Any) -> Any:
    return BulkSend(
        producer,
        TOPIC,
        find_queue=find_queue,
        report=reported.extend,
        pace=Pace(None, lambda: 0.0),
        in_flight_max=in_flight_max,
        **facts,
    )


def send(
    producer: Producer, items: Iterable[Draft | BadInput], **facts: Any
) -> tuple[Tally, list[Sent]]:
    reported: list[Sent] = []

    async def scenario() -> Tally:
        async with asyncio.timeout(5):
            tally = await bulk(producer, reported, **facts).run(stream(items))
            assert isinstance(tally, Tally)
            return tally

    return asyncio.run(scenario()), reported


def test_everything_is_sent_and_reported_in_the_order_of_the_input() -> None:
    producer = Producer()
    values = [f"v{number}" for number in range(50)]

    tally, reported = send(producer, drafts(*values))
    tally.check()

    assert [sent.message_id for sent in reported] == [f"id-{value}" for value in values]
    assert (tally.sent_count, tally.sent_bytes) == (50, sum(map(len, values)))
    assert producer.most_under_way <= 4


def test_no_more_than_the_limit_are_under_way() -> None:
    producer = Producer(is_held=True)
    reported: list[Sent] = []

    async def scenario() -> None:
        work = asyncio.ensure_future(
            bulk(producer, reported, in_flight_max=3).run(stream(drafts(*"abcdefgh")))
        )
        for expected in range(3, 9):
            while len(producer.held) < min(8, expected):
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(producer.held) == min(8, expected)
            producer.held[expected - 3].set()
        for event in producer.held:
            event.set()
        await asyncio.wait_for(work, 5)

    asyncio.run(scenario())

    assert len(reported) == 8


def test_results_are_told_while_more_input_is_waited_for() -> None:
    """A person types a line and looks."""
    reported: list[Sent] = []

    async def scenario() -> None:
        typed: asyncio.Queue[Draft | None] = asyncio.Queue()

        async def lines() -> AsyncIterator[Draft | BadInput]:
            while (draft := await typed.get()) is not None:
                yield draft

        work = asyncio.ensure_future(bulk(Producer(), reported).run(lines()))
        typed.put_nowait(Draft(where="line 1", value=b"a"))
        async with asyncio.timeout(5):
            while not reported:
                await asyncio.sleep(0)
        typed.put_nowait(None)
        await asyncio.wait_for(work, 5)

    asyncio.run(scenario())

    assert [sent.where for sent in reported] == ["line 1"]


@pytest.mark.parametrize("facts", [{"ordering_key": "c7"}, {"queue": "0"}])
def test_messages_of_one_key_or_queue_wait_for_each_other(facts: dict[str, str]) -> None:
    producer = Producer()

    send(producer, drafts(*"abcdef", **facts))

    assert producer.most_under_way == 1
    assert producer.stored == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_messages_of_different_keys_do_not_wait_for_each_other() -> None:
    producer = Producer()
    items = [
        replace(draft, ordering_key=key)
        for draft, key in zip(drafts(*"abcd"), "1212", strict=True)
        if isinstance(draft, Draft)
    ]

    send(producer, items)

    assert producer.most_under_way == 2


def test_a_message_goes_out_with_all_that_was_said_of_it() -> None:
    producer = Producer()

    send(producer, drafts("a", keys=("k",), tag="t", properties={"p": "1"}, delay_ms=1500))
    send(producer, drafts("b", queue="0", deliver_at_ms=7))

    first, second = producer.options
    assert first == {
        "tag": "t",
        "keys": ("k",),
        "properties": {"p": "1"},
        "delay": 1.5,
        "delay_level": None,
        "deliver_at": None,
        "ordering_key": None,
        "queue": None,
    }
    assert (second["queue"], second["deliver_at"]) == (QUEUE, 7)


def test_where_a_delayed_message_will_be_is_not_known() -> None:
    _, (delayed,) = send(Producer(), drafts("a", delay_level=3))
    _, (plain,) = send(Producer(), drafts("a"))

    assert (delayed.queue_offset, plain.queue_offset) == (None, 0)


def test_a_failure_is_told_with_its_line_and_the_others_are_sent() -> None:
    tally, reported = send(Producer(bad=[b"b"]), drafts("a", "b", "c"))

    assert [sent.where for sent in reported] == ["line 1", "line 3"]
    with pytest.raises(NotAllSent) as caught:
        tally.check()
    assert caught.value.fact.startswith("1 of 3 messages were not sent: line 2: not sent to topic")
    assert caught.value.next_step == "send these again: all others are stored"


def test_input_that_cannot_be_read_is_a_failure_like_others() -> None:
    items: list[Draft | BadInput] = [*drafts("a"), BadInput("line 2", "not JSON"), *drafts("c")]

    tally, reported = send(Producer(), items)

    assert len(reported) == 2
    with pytest.raises(NotAllSent) as caught:
        tally.check()
    assert caught.value.fact == "1 of 3 messages were not sent: line 2: not JSON"
    assert caught.value.next_step == "mend these and send them again: all others are stored"


def test_what_may_be_stored_all_the_same_is_told() -> None:
    producer = Producer(bad=[b"b"])
    producer.error = SendFailed(TOPIC, 1, 5, ("broker-a",), 10_002, "no answer", True)

    tally, _ = send(producer, drafts("a", "b"))

    with pytest.raises(NotAllSent) as caught:
        tally.check()
    assert caught.value.next_step == (
        "send these again: all others are stored, and some of these may be, too"
    )


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (13, "timer message illegal, the delay is too long", "delay it less"),
        (13, "the message is illegal", "change it"),
        (1, "flush failed", "send it again"),
    ],
)
def test_a_message_that_a_broker_does_not_take_is_not_to_be_sent_again_as_it_is(
    code: int, reason: str, advice: str
) -> None:
    producer = Producer(bad=[b"a"])
    producer.error = SendFailed(TOPIC, 1, 5, ("broker-a",), code, reason, False)

    tally, _ = send(producer, drafts("a"))

    with pytest.raises(NotAllSent) as caught:
        tally.check()
    assert advice in caught.value.next_step


def test_lines_that_fail_for_different_reasons_are_told_one_by_one() -> None:
    tally = Tally(
        failures=[
            Failure("line 1", 1, InvalidArgument("body", "the body is empty")),
            Failure("line 2", 1, NotFound("queue", "9")),
        ]
    )

    with pytest.raises(NotAllSent) as caught:
        tally.check()

    assert caught.value.fact == (
        "2 of 2 messages were not sent: line 1: the body is empty; line 2: no such queue: '9'"
    )


def test_a_queue_that_does_not_exist_is_a_failure_of_its_line() -> None:
    tally, reported = send(Producer(), [*drafts("a"), *drafts("b", queue="9")])

    assert len(reported) == 1
    with pytest.raises(NotAllSent, match="no such queue: '9'"):
        tally.check()


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("h:9876", "refused"),
        NoRoute(TOPIC, ()),
        InvalidArgument("topic", "the topic 'a b' is bad"),
    ],
)
def test_when_nothing_could_be_sent_the_reason_is_the_error(error: Exception) -> None:
    producer = Producer(bad=[b"a", b"b"])
    producer.error = error

    tally, _ = send(producer, drafts("a", "b"))

    with pytest.raises(type(error)) as caught:
        tally.check()
    assert caught.value is error


def test_after_many_failures_nothing_more_is_sent() -> None:
    values = [f"v{number}" for number in range(500)]
    producer = Producer(bad=[value.encode() for value in values])

    tally, _ = send(producer, drafts(*values))

    assert FAILURES_MAX <= len(tally.failures) < 30
    assert len(producer.started) == len(tally.failures)
    with pytest.raises(NotAllSent, match="gave up after"):
        tally.check()


def test_a_batch_is_one_call_and_each_message_has_its_own_result() -> None:
    producer = Producer()

    tally, reported = send(producer, drafts(*"abcde"), batch=3)
    tally.check()

    assert producer.batches == [[b"a", b"b", b"c"], [b"d", b"e"]]
    assert [sent.message_id for sent in reported] == ["id-a", "id-b", "id-c", "id-d", "id-e"]
    assert [sent.queue_offset for sent in reported] == [0, 1, 2, 3, 4]
    assert [sent.offset_id for sent in reported] == ["at-0", "at-1", "at-2", "at-3", "at-4"]


def test_what_is_stored_of_a_batch_that_failed_is_told() -> None:
    tally, reported = send(Producer(bad=[b"d"]), drafts(*"abcde"), batch=5)

    assert [sent.where for sent in reported] == ["line 1", "line 2"]
    (failure,) = tally.failures
    assert (failure.where, failure.count) == ("line 3 to line 5", 3)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"delay_ms": 1}, "a message with a delay"),
        ({"queue": "0"}, "a message with a queue"),
        ({"ordering_key": "k"}, "a message with an ordering key"),
    ],
)
def test_what_cannot_be_part_of_a_batch_is_refused(facts: dict[str, Any], reason: str) -> None:
    producer = Producer()

    tally, _ = send(producer, drafts("a", "b", **facts), batch=2)

    assert producer.batches == []
    assert reason in str(tally.failures[0].error)


def test_when_the_reader_of_results_has_gone_it_ends_at_once() -> None:
    def report(_: Sequence[Sent]) -> None:
        raise BrokenPipeError

    async def endless() -> AsyncIterator[Draft | BadInput]:
        while True:
            yield Draft(where="line", value=b"a")

    async def scenario() -> None:
        async with asyncio.timeout(5):
            sending = bulk(Producer(), [])
            sending._report = report
            await sending.run(endless())

    with pytest.raises(BrokenPipeError):
        asyncio.run(scenario())


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


def test_a_pace_lets_messages_through_evenly() -> None:
    time = Time()
    pace = Pace(10, time, time.sleep)

    async def scenario() -> None:
        for _ in range(4):
            await pace.wait()

    asyncio.run(scenario())

    assert time.slept == [0.1, 0.1, 0.1]


def test_a_batch_takes_as_many_turns_as_it_has_messages() -> None:
    time = Time()
    pace = Pace(10, time, time.sleep)

    async def scenario() -> None:
        await pace.wait(5)
        await pace.wait(5)

    asyncio.run(scenario())

    assert time.slept == [0.5]


def test_who_was_late_by_much_does_not_catch_up() -> None:
    time = Time()
    pace = Pace(10, time, time.sleep)

    async def scenario() -> None:
        await pace.wait()
        time.now += 60
        for _ in range(4):
            await pace.wait()

    asyncio.run(scenario())

    assert time.slept == [0.1, 0.1]
