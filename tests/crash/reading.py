"""Everything a store has to offer, read the way consumers read it."""

from collections.abc import Iterator

from cometmq.codec import record
from cometmq.codec.record import Record
from cometmq.store import MessageStore
from cometmq.store.results import GetStatus


def read_all(store: MessageStore) -> Iterator[Record]:
    """All messages, queue by queue, each in the order of its offsets, which have no gap."""
    for topic, queue_id in store.queues():
        yield from read_queue(store, topic, queue_id)


def read_queue(store: MessageStore, topic: str, queue_id: int) -> Iterator[Record]:
    offset, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while offset < end:
        with store.get(topic, queue_id, offset) as result:
            assert result.status is GetStatus.FOUND, (topic, queue_id, offset, end, result.status)
            for piece in result.slices:
                for found in record.parse_all(piece):
                    assert found.queue_offset == offset, (topic, queue_id, offset, found)
                    yield found
                    offset += 1
            assert offset == result.next_offset, (topic, queue_id, offset, result.next_offset)
