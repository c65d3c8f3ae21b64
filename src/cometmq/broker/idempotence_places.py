"""Where in the log the messages of a run lie.

The messages of a run have consecutive offsets in one queue, so the queue says where each of them
is. To keep the positions would take too much memory, and to walk over the records from where the
run begins would stop everybody else when a producer sends again what it had in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec.queue_entry import ENTRY_BYTES, LAYOUT

if TYPE_CHECKING:
    from cometmq.broker.idempotence_table import Run
    from cometmq.store import MessageStore
    from cometmq.store.consume_queue import ConsumeQueue


def log_positions(store: MessageStore, topic: str, run: Run, begin: int, end: int) -> list[int]:
    """Log positions of the messages ``[begin, end)`` of a run that was sent to a topic.

    None at all when the queue does not have every one of them, not yet or not any more.
    """
    assert 0 <= begin < end <= run.count, (begin, end, run)
    if end == 1:
        return [run.begin]
    queue = store.queue(*(run.aside or (topic, run.queue_id)))
    if queue is None or queue.min_offset > run.queue_offset + begin:
        return []
    _dispatch(store, queue, run.queue_offset + end)
    if queue.max_offset < run.queue_offset + end:
        return []
    positions = _positions(queue, run.queue_offset + begin, run.queue_offset + end)
    # A queue that was deleted and made anew has other messages at these offsets.
    is_within = run.begin <= positions[0] and positions[-1] < run.end
    return positions if is_within else []


def _dispatch(store: MessageStore, queue: ConsumeQueue, end: int) -> None:
    """Have the queue reach ``end`` if it can; what is done here is not to be done again later."""
    before = -1
    while queue.max_offset < end and store.watermarks.dispatched > before:
        before = store.watermarks.dispatched
        store.dispatch()


def _positions(queue: ConsumeQueue, begin: int, end: int) -> list[int]:
    found: list[int] = []
    at, stop = begin * ENTRY_BYTES, end * ENTRY_BYTES
    while at < stop:
        buffer, file_begin = queue.bytes_at(at)
        part_end = min(stop, file_begin + queue.file_bytes)
        part = buffer[at - file_begin : part_end - file_begin]
        found += [position for position, _, _ in LAYOUT.iter_unpack(part)]
        at = part_end
    return found
