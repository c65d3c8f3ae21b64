"""Numbered messages: all of a message follows from its number, so a found one can be judged."""

from collections.abc import Sequence
from random import Random

from cometmq.codec import batch, properties
from cometmq.codec.batch import BatchItem
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.store.results import NewMessage

TOPICS = ("orders", "events", "a-topic-with-quite-a-long-name-for-a-change")
QUEUE_COUNT = 4
BATCH_COUNT = 4
"""So many consecutive numbers, from a multiple of it on, share topic and queue."""
BODY_BYTES_MAX = 3000
SHARED_KEYS = 7


def message(number: int) -> NewMessage:
    topic, queue_id = place(number)
    return NewMessage(topic, queue_id, body(number), properties_of(number), born_timestamp=number)


def place(number: int) -> tuple[str, int]:
    """Topic and queue of a message."""
    chance = Random(-1 - number // BATCH_COUNT)
    return chance.choice(TOPICS), chance.randrange(QUEUE_COUNT)


def body(number: int) -> bytes:
    chance = Random(number)
    size = chance.choice((0, 10, 100, 600, chance.randrange(BODY_BYTES_MAX)))
    return b"%d:" % number + chance.randbytes(size)


def unique_key(number: int) -> str:
    return f"U{number:09d}"


def shared_key(number: int) -> str:
    """A key that every seventh message has."""
    return f"shared{number % SHARED_KEYS}"


def properties_of(number: int) -> bytes:
    named = {
        Property.UNIQ_KEY: unique_key(number),
        Property.KEYS: f"key{number} {shared_key(number)}",
        Property.TAGS: f"tag{number % 3}" if number % 4 else None,
    }
    return properties.encode(named).encode()


def batch_of(numbers: Sequence[int]) -> NewMessage:
    """One batch send of several messages that share topic and queue."""
    topic, queue_id = place(numbers[0])
    assert all(place(number) == (topic, queue_id) for number in numbers)
    items = [BatchItem(0, body(number), properties_of(number)) for number in numbers]
    return NewMessage(topic, queue_id, batch.encode(items), born_timestamp=numbers[0])


def number_of(record: Record) -> int:
    """The number of a stored message; raises AssertionError when it is none we made."""
    key = properties.get(record.properties, Property.UNIQ_KEY.encode())
    assert key is not None, record
    assert key[:1] == "U", record
    number = int(key[1:])
    assert (record.topic, record.queue_id) == place(number), record
    assert record.body == body(number), record
    assert record.properties == properties_of(number), record
    return number
