"""Queues side by side: everything once, in the order it was stored."""

import random
from dataclasses import dataclass

from cometmq.client.core.merging import Merge


@dataclass(frozen=True, slots=True)
class Message:
    stored_ms: int
    broker_name: str = "broker-a"
    physical_offset: int = 0


def merged(queues: list[list[Message]], page_size: int) -> list[Message]:
    """All messages, read a page of each queue at a time."""
    rest = [list(queue) for queue in queues]
    merge: Merge[Message] = Merge()

    def fill(number: int) -> None:
        merge.put(number, rest[number][:page_size])
        del rest[number][:page_size]

    for number in range(len(rest)):
        fill(number)
    found = []
    while merge:
        number, message = merge.take()
        found.append(message)
        if merge.is_dry(number):
            fill(number)
    return found


def test_the_oldest_message_of_all_queues_goes_first() -> None:
    queues = [[Message(1), Message(4)], [Message(2), Message(3)], []]

    times = [message.stored_ms for message in merged(queues, page_size=1)]

    assert times == [1, 2, 3, 4]


def test_within_a_millisecond_the_log_of_a_broker_decides() -> None:
    first, second = Message(7, physical_offset=100), Message(7, physical_offset=200)

    assert merged([[second], [first]], page_size=8) == [first, second]


def test_nothing_is_lost_and_queues_keep_their_order_whatever_the_pages() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    queues = [
        sorted(
            (Message(rng.randrange(50), f"broker-{n}", k) for k in range(rng.randrange(30))),
            key=lambda message: (message.stored_ms, message.physical_offset),
        )
        for n in range(5)
    ]

    found = merged(queues, page_size=rng.randint(1, 8))

    assert [message.stored_ms for message in found] == sorted(
        m.stored_ms for q in queues for m in q
    )
    for number, queue in enumerate(queues):
        assert [m for m in found if m.broker_name == f"broker-{number}"] == queue
