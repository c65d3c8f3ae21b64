"""Several messages in one frame: handed over together, or collected as they come."""

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cometmq import logs
from cometmq.client.core.batches import Accumulator, Batch, Group, Held, joined, split
from cometmq.client.core.outgoing import MessageKind, Outgoing
from cometmq.client.core.results import SendResult
from cometmq.client.core.send_budget import code_of
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.sending import Place
from cometmq.client.watched import Watched
from cometmq.codec.codes import RequestCode
from cometmq.errors import CometError, SendFailed
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)

Waiter = asyncio.Future[SendResult]
"""Who waits for a message that is collected."""


class Item(msgspec.Struct, frozen=True):
    """One message of ``send_many`` that differs from the others in more than its value."""

    value: Any
    tag: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0


class Batching:
    """Sends batches for one producer."""

    def __init__(self, watched: Watched, settings: ProducerSettings) -> None:
        self._watched = watched
        self._bytes_max = settings.body_bytes_max
        self._held: Accumulator[Waiter] = Accumulator(
            hold_ms=settings.batch_hold_ms,
            group_bytes=settings.batch_bytes,
            total_bytes=settings.batch_total_bytes,
            batch_bytes_max=settings.body_bytes_max,
        )
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None  # rings when the first group is due
        self._tasks: set[asyncio.Task[None]] = set()  # batches under way

    async def send_many(
        self, messages: Sequence[Outgoing], timeout_ms: int, place: Place | None
    ) -> list[SendResult]:
        """Send messages in as few frames as they fit into, one after the other.

        The error of one that fails carries the results of those before it.
        """
        results: list[SendResult] = []
        for batch in split(messages, self._bytes_max):
            try:
                results.append(await self._send(batch, timeout_ms, place))
            except CometError as error:
                told = _with_results(error, batch, results)
                raise told from told.__cause__
        return results

    async def send(
        self, message: Outgoing, timeout_ms: int, queue: MessageQueue | None
    ) -> SendResult:
        """Send a message together with others that come soon, or by itself if that cannot be."""
        future: Waiter = self._loop.create_future()
        now_ms = self._now_ms()
        held = self._held.add(message, queue, future, now_ms, timeout_ms=timeout_ms)
        if held is Held.NO:
            if queue is None:
                return await self._watched.send(message, timeout_ms, None)
            if self._held.release(queue, now_ms):
                self._send_due()
                await asyncio.sleep(0)  # it was here first: let it go first
            return await self._watched.send(message, timeout_ms, Place(queue))
        if held is Held.DUE:
            self._send_due()
        else:
            self._set_timer()
        return await future

    async def drain(self, timeout_ms: int) -> None:
        """Send everything that is held, now; wait for it for some time."""
        self._stop_timer()
        for group in self._held.take_all():
            self._begin(group)
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout_ms / 1000)

    # --- the inside

    async def _send(self, batch: Batch, timeout_ms: int, place: Place | None) -> SendResult:
        is_waiting = batch.properties.endswith("\x01true\x02")
        message = Outgoing(
            batch.topic,
            batch.body,
            batch.properties,
            0,
            0,
            ",".join(batch.unique_ids),
            MessageKind.NORMAL,
            "",
            "",
            is_waiting,
        )
        return await self._watched.send(message, timeout_ms, place, mode="batch", code=_BATCH)

    def _send_due(self) -> None:
        for group in self._held.take_due(self._now_ms()):
            self._begin(group)
        self._set_timer()

    def _begin(self, group: Group[Waiter]) -> None:
        task = self._loop.create_task(self._finish(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, group: Group[Waiter]) -> None:
        """Send a group and tell each of its senders how that went; who has gone stays out."""
        pairs = [
            (message, future)
            for message, future in zip(group.messages, group.waiters, strict=True)
            if not future.done()
        ]
        try:
            if pairs:
                await self._send_group(group, pairs)
        finally:
            self._held.sent(group)

    async def _send_group(
        self, group: Group[Waiter], pairs: "list[tuple[Outgoing, Waiter]]"
    ) -> None:
        batch = joined([message for message, _ in pairs])
        key, futures = group.key, [future for _, future in pairs]
        place = None if key.queue is None else Place(key.queue)
        timeout_ms = max(1, key.timeout_ms - (self._now_ms() - group.began_ms))
        try:
            result = await self._send(batch, timeout_ms, place)
        except BaseException as error:
            for future in futures:
                if not future.done():
                    future.set_exception(_told(error))
            if not isinstance(error, Exception):
                raise
            return
        for future, own in zip(futures, _parts(result, batch.unique_ids), strict=True):
            if not future.done():
                future.set_result(own)

    def _set_timer(self) -> None:
        due_ms = self._held.next_due_ms
        if due_ms is None:
            return
        at = due_ms / 1000 + 0.001  # a millisecond more: what rings early finds nothing due
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._send_due()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def _parts(result: SendResult, unique_ids: Sequence[str]) -> list[SendResult]:
    """What the result of a batch says of each message in it."""
    offset_ids = result.offset_id.split(",")
    if len(offset_ids) != len(unique_ids):  # a broker that does not name them all
        offset_ids = [result.offset_id] * len(unique_ids)
    return [
        msgspec.structs.replace(
            result,
            message_id=unique_id,
            offset_id=offset_id,
            queue_offset=result.queue_offset + number,
        )
        for number, (unique_id, offset_id) in enumerate(zip(unique_ids, offset_ids, strict=True))
    ]


def _with_results(error: CometError, batch: Batch, results: Sequence[SendResult]) -> CometError:
    """The error of a frame, which says what became of those before it."""
    if not isinstance(error, SendFailed):
        if not results:
            return error
        told = SendFailed(batch.topic, 0, 0, (), code_of(error), str(error), False)
        told.__cause__ = error
        error = told
    error.results = tuple(results)
    return error


def _told(error: BaseException) -> BaseException:
    """An error for one of several who get it: each raises its own, or traces would pile up."""
    if not isinstance(error, CometError):
        return error
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
