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
from cometmq.broker.idempotence_marks import Marker, count_messages, marks_since
from cometmq.broker.idempotence_places import log_positions
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
    from cometmq.broker.config import BrokerSettings
    from cometmq.broker.idempotence_snapshot import SnapshotFile
    from cometmq.broker.send_plans import SendPlan
    from cometmq.clock import Clock
    from cometmq.codec.headers.send import SendMessage
    from cometmq.codec.record import Record
    from cometmq.store import MessageStore
    from cometmq.store.results import NewMessage

FOLLOW_BYTES: Final = 64 * 1024 * 1024
"""How far the log may get ahead of the saved table: what is read when the store is opened."""

FOLLOW_SECONDS: Final = 5.0

BATCH_COUNT_MAX: Final = 10_000
"""Messages of an idempotent batch: each is marked by itself, and meanwhile everybody else waits."""

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
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


class KeptProducers:
    """Saves snapshots, each when everything that it calls stored is on disk.

    Otherwise a power cut could take messages whose repeats would be refused as stored.
    """

    def __init__(self, store: MessageStore, file: SnapshotFile) -> None:
        self._store = store
        self._file = file

    def save(self, snapshot: Snapshot) -> None:
        """Block until that is so, on any thread. Raises OSError when it cannot be."""
        marks = self._store.watermarks
        if marks.flushed < snapshot.offset:
            self._store.vouch()
        if marks.flushed < snapshot.offset:
            raise OSError(f"the log is on disk up to {marks.flushed} only, not {snapshot.offset}")
        self._file.save(snapshot)


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
            idle_ms=settings.idempotent_producer_idle_minutes * _MINUTE_MS,
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
        count = _count(plan.message) if plan.is_batch else 1
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
            return Outcome(plan, self._put(producer_id, first, plan, count), count)
        self._table.touch(plan.topic.name, producer_id, self._clock.now_ms())
        before, plan = self._first_result(producer, first, stored_count, plan)
        if stored_count == count:
            return Outcome(plan, before, 0)
        # A crash has cut the batch; its rest goes where its begin is.
        rest = self._put(producer_id, first + stored_count, plan, count - stored_count)
        return Outcome(plan, _joined(before, rest), count - stored_count)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted, and with it what was sent to it."""
        if self._table.forget_topic(topic):
            self.on_dirty()

    def snapshot(self) -> Snapshot:
        """The table to be saved, by ``KeptProducers``: as it is, and where the log ends."""
        snapshot = self._table.snapshot(self._store.log_end)
        self._saved_offset = snapshot.offset
        return snapshot

    async def run(self) -> None:
        """Have the table saved when the log got far ahead of it, for ever."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            if self._store.watermarks.flushed - self._saved_offset >= FOLLOW_BYTES:
                self.on_dirty()

    # --- storing

    def _put(self, producer_id: str, first: int, plan: SendPlan, count: int) -> PutResult:
        """Store a message, or the last ``count`` of a batch."""
        message = plan.message
        queue = self._store.queue(message.topic, message.queue_id)
        queue_offset = 0 if queue is None else queue.next_offset
        marker = Marker(producer_id, message)
        if plan.is_batch:
            # Before it is taken apart: a batch that is too large should cost no more than that.
            size, size_max = len(message.body), self._store.settings.message_bytes_max
            if size + count * marker.mark_bytes(first) > size_max:
                reason = f"batch of {size} bytes and its marks, the most is {size_max}"
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)
            try:
                items = batch_codec.decode(message.body)[-count:]
                body = marker.batch(items, first, queue_offset)
            except ProtocolError as error:
                return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=error.fact)
            result = self._store.put_batch(msgspec.structs.replace(message, body=body))
        else:
            marked = marker.marked(message.properties, first, queue_offset)
            result = self._store.put(msgspec.structs.replace(message, properties=marked))
        if result.status is PutStatus.PUT_OK:
            assert result.queue_offset == queue_offset, (result.queue_offset, queue_offset)
            is_aside = message.topic != plan.topic.name
            run = Run(
                first,
                count,
                plan.queue_id,
                queue_offset,
                result.physical_offset,
                result.end,
                (message.topic, message.queue_id) if is_aside else None,
            )
            self._table.note(plan.topic.name, producer_id, run, self._clock.now_ms())
            self.on_dirty()
        return result

    def _first_result(
        self, producer: Producer, first: int, count: int, plan: SendPlan
    ) -> tuple[PutResult, SendPlan]:
        """What was answered when these messages were stored."""
        pieces = producer.pieces(first, count)
        offsets: list[int] = []
        for run, begin, end in pieces:
            found = log_positions(self._store, plan.topic.name, run, begin, end)
            if not found:
                raise self._not_there(producer, first, run.end)
            offsets += found
        run, begin, _ = pieces[0]
        stored = self._record(producer, first, offsets[0])
        result = PutResult(
            PutStatus.PUT_OK,
            offsets[0],
            pieces[-1][0].end,
            run.queue_offset + begin,
            stored.store_timestamp,
            tuple(offsets) if plan.is_batch else (),
        )
        if not plan.is_batch:
            return result, _as_stored(plan, run.queue_id, stored)
        message = msgspec.structs.replace(plan.message, queue_id=run.queue_id)
        return result, msgspec.structs.replace(plan, message=message, queue_id=run.queue_id)

    def _record(self, producer: Producer, first: int, offset: int) -> Record:
        view = self._store.record_at(offset)
        if view is None:
            raise self._not_there(producer, first, offset + 1)
        with view:
            found = record.parse(view, with_body=False)
        assert isinstance(found, record.Record)
        return found

    def _not_there(self, producer: Producer, first: int, end: int) -> BrokerError:
        """Why what lies before ``end`` in the log cannot be found."""
        if end > self._store.watermarks.dispatched:
            remark = f"sequence {first} is being stored: ask again"
            return BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        return producer.forgotten(first)

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
            run = Run(
                mark.sequence,
                1,
                mark.queue_id,
                mark.queue_offset,
                mark.begin,
                mark.end,
                mark.aside,
            )
            self._table.note(mark.topic, mark.producer_id, run, mark.store_timestamp)
            count += 1
        if count:
            _log.info("found %d idempotent messages in the log from %d to %d", count, begin, end)


def _nothing() -> None:
    """Nobody saves the table."""


def _count(batch: NewMessage) -> int:
    count = count_messages(batch.body, BATCH_COUNT_MAX)
    if not count:
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, "the body is no batch, or an empty one")
    if count > BATCH_COUNT_MAX:
        remark = f"an idempotent batch has at most {BATCH_COUNT_MAX} messages, this one has more"
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, remark)
    return count


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
