"""Idempotent sends: a producer that repeats a send is told what it was told the first time.

Theory of operation. A producer numbers its messages (``idempotence_table``), and every stored
message carries its number as a property (``idempotence_marks``). So the log itself says what was
stored, and nothing has to be on disk before a send is answered. The table is saved now and then
with the log position up to which it is complete, never further than the log is on disk; whoever
opens the store reads the log from there and knows what was known before, also of a message whose
sender was never answered, and of a batch that a crash has cut.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cometmq.broker.extensions import sequence_of
from cometmq.broker.idempotence_marks import Marker, marks_since
from cometmq.broker.idempotence_table import (
    EPOCH_BITS,
    NUMBER_MASK,
    Producer,
    ProducerTable,
    Run,
    Snapshot,
)
from cometmq.codec import batch as batch_codec
from cometmq.codec import properties as message_properties
from cometmq.codec import recall_handle, record
from cometmq.codec.codes import ResponseCode
from cometmq.codec.properties import Property
from cometmq.errors import BrokerError, ProtocolError
from cometmq.logs import get_logger
from cometmq.model.topic import RETRY_PREFIX
from cometmq.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.idempotence_snapshot import SnapshotFile
    from cometmq.broker.send_plans import SendPlan
    from cometmq.clock import Clock
    from cometmq.codec.batch import BatchItem
    from cometmq.codec.headers.send import SendMessage
    from cometmq.codec.record import Record
    from cometmq.store import MessageStore
    from cometmq.store.results import NewMessage

FOLLOW_BYTES: Final = 64 * 1024 * 1024
"""How far the log may get ahead of the saved table: what is read when the store is opened."""

FOLLOW_SECONDS: Final = 5.0

_HOUR_MS: Final = 3_600_000
_UNIQUE_KEY: Final = Property.UNIQ_KEY.encode()
_DUE_MS: Final = Property.TIMER_OUT_MS.encode()
_log = get_logger(__name__)


class Outcome(NamedTuple):
    """What a send is answered with; ``plan`` says the queue and key of the first time.

    ``stored_count`` is how many messages were stored now.
    """

    plan: SendPlan
    result: PutResult
    stored_count: int


class IdempotentSends:
    """Stores sends that have a producer id and a sequence, each message once.

    ``on_dirty`` is called when there is something to save: what ``snapshot`` returns.
    """

    def __init__(
        self, store: MessageStore, file: SnapshotFile, settings: BrokerSettings, clock: Clock
    ) -> None:
        """Load the table and read on in the log; blocks for the disk, and for as long as it takes.

        Raises RemoteProtocolError when the file is there and cannot be read.
        """
        self._store = store
        self._clock = clock
        self._table = ProducerTable(
            producers_max=settings.idempotent_producers_max,
            runs_max=settings.idempotent_sends_remembered,
            expiry_ms=settings.idempotent_producer_expiry_hours * _HOUR_MS,
        )
        # Up to here the log need not be read again.
        self._saved_offset = 0
        self.on_dirty = _nothing
        self._open(file)

    @property
    def producer_count(self) -> int:
        return len(self._table)

    def put(self, header: SendMessage, plan: SendPlan) -> Outcome:
        """Store what is not stored yet of a send.

        Raises BrokerError with the refusal; what the store refuses is in the result.
        """
        producer_id, first = sequence_of(header)
        if plan.topic.name.startswith(RETRY_PREFIX):
            remark = "a send to a retry topic cannot be idempotent"
            raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
        items = _items(plan.message) if plan.is_batch else []
        count = len(items) or 1
        if (first & NUMBER_MASK) + count > NUMBER_MASK:
            remark = f"sequence {first} and {count} messages: an epoch ends within them"
            raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
        producer = self._table.get(plan.topic.name, producer_id)
        if producer is None:
            if first & NUMBER_MASK:
                raise _unknown(producer_id, first)
            self._table.require_room(self._clock.now_ms())
        stored_count = 0 if producer is None else producer.stored_of(first, count)
        if producer is None or not stored_count:
            result = self._put(producer_id, first, plan, items)
            return Outcome(plan, result, count)
        before, plan = self._first_result(producer, first, stored_count, plan)
        if stored_count == count:
            return Outcome(plan, before, 0)
        # A crash has cut the batch; its rest goes where its begin is.
        rest = self._put(producer_id, first + stored_count, plan, items[stored_count:])
        return Outcome(plan, _joined(before, rest), count - stored_count)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted, and with it what was sent to it."""
        if self._table.forget_topic(topic):
            self.on_dirty()

    def snapshot(self) -> Snapshot:
        """The table to be saved: as it was when the log ended where it is on disk now.

        Were it saved further than that, a power cut could take messages that it calls stored.
        """
        snapshot = self._table.snapshot(self._store.watermarks.flushed)
        self._saved_offset = snapshot.offset
        return snapshot

    async def run(self) -> None:
        """Have the table saved when the log got far ahead of it, for ever."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            if self._store.watermarks.flushed - self._saved_offset >= FOLLOW_BYTES:
                self.on_dirty()

    # --- storing

    def _put(
        self, producer_id: str, first: int, plan: SendPlan, items: Sequence[BatchItem]
    ) -> PutResult:
        message = plan.message
        queue = self._store.queue(message.topic, message.queue_id)
        queue_offset = 0 if queue is None else queue.next_offset
        marker = Marker(producer_id, message)
        if items:
            try:
                body = marker.batch(items, first, queue_offset)
            except ProtocolError as error:
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=error.fact)
            result = self._store.put_batch(msgspec.structs.replace(message, body=body))
        else:
            marked = marker.marked(message.properties, first, queue_offset)
            result = self._store.put(msgspec.structs.replace(message, properties=marked))
        if result.status is PutStatus.PUT_OK:
            assert result.queue_offset == queue_offset, (result.queue_offset, queue_offset)
            run = Run(
                first,
                len(items) or 1,
                plan.queue_id,
                queue_offset,
                result.physical_offset,
                result.end,
            )
            self._table.note(plan.topic.name, producer_id, run, self._clock.now_ms())
            self.on_dirty()
        return result

    def _first_result(
        self, producer: Producer, first: int, count: int, plan: SendPlan
    ) -> tuple[PutResult, SendPlan]:
        """What was answered when these messages were stored.

        Read from the log: to keep the position of every message would take too much memory.
        """
        pieces = producer.pieces(first, count)
        offsets: list[int] = []
        for run, begin, end in pieces:
            offsets += self._offsets(producer, first, run, end)[begin:]
        run, begin, _ = pieces[0]
        with self._record(producer, first, offsets[0]) as view:
            found = record.parse(view, with_body=False)
        assert isinstance(found, record.Record)
        result = PutResult(
            PutStatus.PUT_OK,
            offsets[0],
            pieces[-1][0].end,
            run.queue_offset + begin,
            found.store_timestamp,
            tuple(offsets) if plan.is_batch else (),
        )
        if not plan.is_batch:
            return result, _as_stored(plan, run.queue_id, found)
        message = msgspec.structs.replace(plan.message, queue_id=run.queue_id)
        return result, msgspec.structs.replace(plan, message=message, queue_id=run.queue_id)

    def _offsets(self, producer: Producer, first: int, run: Run, count: int) -> list[int]:
        """Log positions of the first messages of a run."""
        offsets = []
        offset = run.begin
        for _ in range(count):
            offsets.append(offset)
            with self._record(producer, first, offset) as view:
                offset += len(view)
        return offsets

    def _record(self, producer: Producer, first: int, offset: int) -> memoryview:
        view = self._store.record_at(offset)
        if view is not None:
            return view
        if offset >= self._store.watermarks.committed:
            remark = f"sequence {first} is being stored: ask again"
            raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        raise producer.forgotten(first)

    # --- opening

    def _open(self, file: SnapshotFile) -> None:
        store = self._store
        end = store.log_end
        saved = file.load()
        if saved is None:
            # From now on there is a file: without one nothing was ever sent like this.
            saved = Snapshot(end, [])
            file.save(saved)
        self._table.restore(saved)
        if saved.offset > end:
            _log.warning(
                "the log ends at %d, idempotent sends are known to %d: forgetting those behind",
                end,
                saved.offset,
            )
            saved = self._table.snapshot(end)
            self._table.restore(saved)
            # At once: when the log has grown again nobody could tell.
            file.save(saved)
        begin = max(saved.offset, store.log_begin)
        self._saved_offset = begin
        count = 0
        for mark in marks_since(store, begin):
            run = Run(mark.sequence, 1, mark.queue_id, mark.queue_offset, mark.begin, mark.end)
            self._table.note(mark.topic, mark.producer_id, run, mark.store_timestamp)
            count += 1
        if count:
            _log.info("found %d idempotent messages in the log from %d to %d", count, begin, end)


def _nothing() -> None:
    """Nobody saves the table."""


def _items(batch: NewMessage) -> list[BatchItem]:
    try:
        items = batch_codec.decode(batch.body)
    except ProtocolError as error:
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, error.fact) from error
    if not items:
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    return items


def _as_stored(plan: SendPlan, queue_id: int, found: Record) -> SendPlan:
    """The plan of a message with what was said about it the first time."""
    key = message_properties.get(found.properties, _UNIQUE_KEY)
    handle, due = plan.recall_handle, message_properties.get(found.properties, _DUE_MS)
    if handle is not None and key is not None and due is not None and due.isdecimal():
        told = recall_handle.decode(handle)
        told = msgspec.structs.replace(told, timestamp_ms=int(due) + 1, unique_key=key)
        handle = recall_handle.encode(told)
    return msgspec.structs.replace(plan, queue_id=queue_id, unique_key=key, recall_handle=handle)


def _joined(before: PutResult, rest: PutResult) -> PutResult:
    """The result of a batch whose messages were stored at two times."""
    if rest.status is not PutStatus.PUT_OK:
        return rest
    offsets = before.offsets + rest.offsets
    return msgspec.structs.replace(before, end=rest.end, offsets=offsets)


def _unknown(producer_id: str, first: int) -> BrokerError:
    epoch, number = first >> EPOCH_BITS, first & NUMBER_MASK
    return BrokerError(
        ResponseCode.PRODUCER_UNKNOWN,
        f"producer '{producer_id}' begins with number {number} of epoch {epoch}, and nothing is"
        " remembered of it here: it begins with number 0, or was forgotten; nothing was stored",
    )
