"""Sending many messages: some under way at a time, results in the order of the input.

Messages for one queue, and those with one ordering key, wait for each other; all others do not, so
that a slow broker holds up only its own.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cometmq.cli.message_lines import BadInput, Draft
from cometmq.client.batching import Item
from cometmq.client.core.results import SendResult
from cometmq.codec.codes import ResponseCode
from cometmq.errors import (
    Ambiguous,
    CometError,
    InvalidArgument,
    NoRoute,
    NotFound,
    RequestTimeout,
    SendFailed,
    Unreachable,
)
from cometmq.model.offsets import MessageQueue

FAILURES_MAX: Final = 10
"""After so many failures nothing more is sent: something is wrong with all of it."""

_CATCH_UP_SECONDS: Final = 0.1


class Producing(Protocol):
    """The producer, as far as it is used here."""

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        tag: str | None = ...,
        keys: Sequence[str] = ...,
        properties: Mapping[str, str] | None = ...,
        delay: float | None = ...,
        delay_level: int | None = ...,
        deliver_at: int | None = ...,
        ordering_key: str | None = ...,
        queue: MessageQueue | None = ...,
    ) -> SendResult: ...

    async def send_many(self, topic: str, values: Sequence[Any]) -> list[SendResult]: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that is stored; of a batch each has its own."""

    where: str
    value_bytes: int
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int | None
    status: str
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Messages that were not sent, and why."""

    where: str
    count: int
    error: CometError


class NotAllSent(CometError):
    """Some messages of many were not sent: which, and why."""

    def __init__(self, failures: Sequence[Failure], sent_count: int, is_cut_short: bool) -> None:
        super().__init__(tuple(failures), sent_count, is_cut_short)
        count = sum(failure.count for failure in failures)
        reasons = "; ".join(f"{one.where}: {_reason(one.error)}" for one in failures)
        end = f"; gave up after {len(failures)} failures" if is_cut_short else ""
        self.fact = f"{count} of {sent_count + count} messages were not sent: {reasons}{end}"
        self.next_step = _advice_for(failures)
        if (count, sent_count) == (1, 0):
            self.fact = f"the message was not sent: {reasons}"
            self.next_step = _advice_for_one(failures[0].error)
        if is_cut_short:
            self.next_step = "mend what is wrong, then send these and what follows the last one"


class Pace:
    """Lets through so many messages in a second, evenly; None is as fast as it goes."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._step = 0.0 if rate is None else 1 / rate
        self._clock = clock
        self._sleep = sleep
        self._next = clock()

    async def wait(self, count: int = 1) -> None:
        """Return when it is the turn of the next ``count`` messages."""
        if not self._step:
            return
        now = self._clock()
        # Who was late by a little catches up; who was late by much does not, with a burst.
        self._next = max(self._next, now - max(self._step, _CATCH_UP_SECONDS))
        if self._next > now:
            await self._sleep(self._next - now)
        self._next += self._step * count


@dataclass(slots=True)
class Tally:
    """What became of everything."""

    sent_count: int = 0
    sent_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)
    is_cut_short: bool = False

    def check(self) -> None:
        """Raise what went wrong: NotAllSent or, when nothing at all could be sent, why."""
        if not self.failures:
            return
        first = self.failures[0].error
        # A broker that does not answer a send is SendFailed: the timeout is a name server's.
        for_all = Unreachable | NoRoute | InvalidArgument | RequestTimeout | NotFound | Ambiguous
        reasons = {_reason(failure.error) for failure in self.failures}
        if not self.sent_count and len(reasons) == 1 and isinstance(first, for_all):
            raise first
        causes = [failure.error.__cause__ for failure in self.failures]
        missing = [cause.filename for cause in causes if isinstance(cause, FileNotFoundError)]
        if not self.sent_count and len(missing) == len(causes):
            names = "', '".join(map(str, missing))
            raise NotFound("file", names, "check the path given with --file") from first
        raise NotAllSent(self.failures, self.sent_count, self.is_cut_short)


class BulkSend:
    """Sends drafts to one topic; ``report`` gets what is stored, in the order of the input."""

    def __init__(
        self,
        producer: Producing,
        topic: str,
        *,
        find_queue: Callable[[str], Awaitable[MessageQueue]],
        report: Callable[[Sequence[Sent]], None],
        pace: Pace,
        in_flight_max: int,
        batch: int = 1,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._find_queue = find_queue
        self._report = report
        self._pace = pace
        self._batch = batch
        self._under_way: deque[asyncio.Task[_Outcome]] = deque()  # in the order of the input
        self._room = asyncio.Semaphore(in_flight_max)
        self._news = asyncio.Event()  # something was started, or nothing more will be
        self._is_fed = False
        self._lanes: dict[str, asyncio.Task[_Outcome]] = {}  # the last send of each
        self._is_giving_up = False
        self.tally = Tally()

    async def run(self, drafts: AsyncIterator[Draft | BadInput]) -> Tally:
        """Send everything; failures are counted, not raised."""
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._report_all())
                await self._feed(drafts)
                self._is_fed = True
                self._news.set()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None  # whoever reads the output has gone, say
        finally:
            for task in self._under_way:
                task.cancel()
        return self.tally

    async def _feed(self, drafts: AsyncIterator[Draft | BadInput]) -> None:
        group: list[Draft] = []
        async for draft in drafts:
            if self._is_giving_up:
                self.tally.is_cut_short = True
                return
            if isinstance(draft, BadInput):
                await self._start(_failed(draft))
                continue
            group.append(draft)
            if len(group) >= self._batch:
                await self._start_group(group)
                group = []
        if group:
            await self._start_group(group)

    async def _start_group(self, group: list[Draft]) -> None:
        await self._pace.wait(len(group))
        lane = group[0].ordering_key or group[0].queue
        if lane is None or self._batch > 1:
            await self._start(self._send(group, None))
            return
        task = await self._start(self._send(group, self._lanes.get(lane)))
        self._lanes[lane] = task
        task.add_done_callback(lambda done: self._leave(lane, done))

    def _leave(self, lane: str, task: "asyncio.Task[_Outcome]") -> None:
        if self._lanes.get(lane) is task:
            del self._lanes[lane]

    async def _start(self, work: "Coroutine[Any, Any, _Outcome]") -> "asyncio.Task[_Outcome]":
        try:
            await self._room.acquire()
        except BaseException:
            work.close()
            raise
        task = asyncio.get_running_loop().create_task(work)
        self._under_way.append(task)
        self._news.set()
        return task

    async def _report_all(self) -> None:
        while True:
            self._news.clear()
            if not self._under_way:
                if self._is_fed:
                    return
                await self._news.wait()
                continue
            await asyncio.wait((self._under_way[0],))
            outcomes: list[_Outcome] = []
            while self._under_way and self._under_way[0].done():
                outcomes.append(self._under_way.popleft().result())
                self._room.release()
            self._note(outcomes)

    def _note(self, outcomes: Sequence["_Outcome"]) -> None:
        stored = [sent for outcome in outcomes for sent in outcome.sent]
        self.tally.sent_count += len(stored)
        self.tally.sent_bytes += sum(sent.value_bytes for sent in stored)
        self._report(stored)
        for outcome in outcomes:
            if outcome.failure is not None:
                self.tally.failures.append(outcome.failure)
        if len(self.tally.failures) >= FAILURES_MAX:
            self._is_giving_up = True

    async def _send(
        self, group: list[Draft], before: "asyncio.Task[_Outcome] | None"
    ) -> "_Outcome":
        if before is not None:
            await asyncio.wait((before,))
        try:
            if self._batch > 1:
                return await self._send_together(group)
            return _Outcome((await self._send_one(group[0]),))
        except CometError as error:
            return _Outcome((), Failure(_places(group), len(group), error))

    async def _send_one(self, draft: Draft) -> Sent:
        queue = None if draft.queue is None else await self._find_queue(draft.queue)
        result = await self._producer.send(
            self._topic,
            draft.value,
            tag=draft.tag,
            keys=draft.keys,
            properties=dict(draft.properties) or None,
            delay=None if draft.delay_ms is None else draft.delay_ms / 1000,
            delay_level=draft.delay_level,
            deliver_at=draft.deliver_at_ms,
            ordering_key=None if queue is not None else draft.ordering_key,
            queue=queue,
        )
        return _sent(draft, result, result.message_id, result.offset_id, result.queue_offset)

    async def _send_together(self, group: list[Draft]) -> "_Outcome":
        """One call for all of them; what was stored before a failure is told, too."""
        for draft in group:
            if draft.is_delayed or draft.ordering_key or draft.queue:
                reason = f"a message with {_own(draft)} cannot be part of a batch"
                raise BadInput(draft.where, reason, "leave --batch out")
        items = [Item(one.value, one.tag, one.keys, dict(one.properties) or None) for one in group]
        try:
            results = await self._producer.send_many(self._topic, items)
        except CometError as error:
            stored = _of_batches(group, getattr(error, "results", ()))
            left = group[len(stored) :]
            return _Outcome(stored, Failure(_places(left), len(left), error))
        return _Outcome(_of_batches(group, results))


@dataclass(frozen=True, slots=True)
class _Outcome:
    sent: tuple[Sent, ...]
    failure: Failure | None = None


async def _failed(error: BadInput) -> _Outcome:
    # The place is told by whoever lists failures.
    return _Outcome((), Failure(error.where, 1, error))


def _of_batches(group: Sequence[Draft], results: Sequence[Any]) -> tuple[Sent, ...]:
    """Who is who in the frames of a batch: ids are joined by commas, offsets follow the first."""
    sent: list[Sent] = []
    for result in results:
        offset_ids = result.offset_id.split(",")
        for step, message_id in enumerate(result.message_id.split(",")):
            draft = group[len(sent)]
            offset_id = offset_ids[step] if step < len(offset_ids) else ""
            sent.append(_sent(draft, result, message_id, offset_id, result.queue_offset + step))
    return tuple(sent)


def _sent(draft: Draft, result: SendResult, message_id: str, offset_id: str, offset: int) -> Sent:
    return Sent(
        draft.where,
        len(draft.value),
        message_id,
        offset_id,
        result.queue,
        # Where it waits for its time is not where it will be delivered.
        None if draft.is_delayed else offset,
        result.status.value,
        result.recall_handle,
    )


def _own(draft: Draft) -> str:
    return "a delay" if draft.is_delayed else "a queue" if draft.queue else "an ordering key"


def _places(group: Sequence[Draft]) -> str:
    if len(group) == 1:
        return group[0].where
    return f"{group[0].where} to {group[-1].where}" if group else "nothing"


def _advice_for(failures: Sequence[Failure]) -> str:
    errors = [failure.error for failure in failures]
    if all(isinstance(error, BadInput) for error in errors):
        return "mend these and send them again: all others are stored"
    if any(isinstance(error, SendFailed) and error.may_be_stored for error in errors):
        return "send these again: all others are stored, and some of these may be, too"
    return "send these again: all others are stored"


def _advice_for_one(error: CometError) -> str:
    if not isinstance(error, SendFailed) or error.code != ResponseCode.MESSAGE_ILLEGAL:
        return error.next_step or "send it again"
    if "delay" in error.reason:
        return "delay it less: see 'cometmq broker config get timerMaxDelaySec'"
    return error.next_step or "the broker takes no such message: change it"


def _reason(error: CometError) -> str:
    return error.reason if isinstance(error, BadInput) else error.fact or str(error)
