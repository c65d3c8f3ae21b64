"""The tails move as the plain code moves them, whichever core is active."""

import mmap
import random
from collections import deque
from typing import Any, NamedTuple

import pytest

from cometmq.codec import core, digest, index_entry, record, tails
from cometmq.codec.queue_entry import ENTRY_BYTES, unpack

HOST = record.pack_host("10.0.0.5", 10911)
HOST_V6 = record.pack_host("2001:db8::1", 10911)
SEEDS = range(60)
FILE_BYTES = 4096
SLOTS, ENTRIES = 5, 30


class Message(NamedTuple):
    queue_id: int = 0
    body: bytes | memoryview = b"body"
    properties: bytes = b"KEYS\x01k\x02"
    born_timestamp: int = 5
    born_host: bytes = HOST
    store_host: bytes = HOST
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def result(*facts: Any) -> tuple[Any, ...]:
    return facts


def log_tail(kind: type[tails.LogTail]) -> tails.LogTail:
    tail = kind(300, 600, lambda: 7_000_999_999, result, "ok")
    tail.target = mmap.mmap(-1, FILE_BYTES)
    tail.base = 3 * FILE_BYTES
    tail.room_end = FILE_BYTES - 8
    tail.attention = FILE_BYTES - 200
    return tail


def random_message(chance: random.Random) -> Message:
    sys_flag = chance.choice([0, 0, 0, 4, 8, 12, 0x10, 0x30])
    body = chance.randbytes(chance.choice([0, 9, 100, 301]))
    return Message(
        queue_id=chance.randrange(3),
        body=memoryview(body) if chance.random() < 0.3 else body,
        properties=chance.choice([b"", b"TAGS\x01a\x02", b"P\x01" + bytes(600)]),
        born_host=HOST_V6 if sys_flag & 0x10 else HOST,
        store_host=chance.choice([HOST, HOST_V6]) if sys_flag & 0x20 else HOST,
        sys_flag=sys_flag,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_are_appended_as_the_plain_code_does(seed: int) -> None:
    chance = random.Random(seed)
    plain, fast = log_tail(tails.LogTail), log_tail(core.LogTail)
    plain_queue, fast_queue = tails.QueueTail(b"orders"), core.QueueTail(b"orders")

    for _ in range(40):
        message = random_message(chance)
        expected = plain.append(message, plain_queue)
        assert fast.append(message, fast_queue) == expected, (seed, message)

    assert plain.target is not None
    assert fast.target is not None
    assert fast.target[:] == plain.target[:]
    assert fast_queue.next_offset == plain_queue.next_offset
    assert (fast.position, fast.end, fast.timestamp) == (plain.position, plain.end, 7000)


@pytest.mark.parametrize(
    "message",
    [
        Message(body=bytes(301)),
        Message(properties=bytes(601)),
        Message(sys_flag=0x10),
        Message(body=bytes(200), properties=bytes(400)),
    ],
    ids=["body", "properties", "host", "record"],
)
def test_what_does_not_fit_changes_nothing(message: Message) -> None:
    tail, queue = log_tail(core.LogTail), core.QueueTail(b"orders")

    assert tail.append(message, queue) is None

    assert (tail.position, queue.next_offset) == (0, 0)
    assert tail.target is not None
    assert not any(tail.target[:])


def test_a_file_that_wants_attention_gets_it_before_more_is_written() -> None:
    tail, queue = log_tail(core.LogTail), core.QueueTail(b"orders")
    tail.attention = 1

    assert tail.append(Message(), queue) is not None
    assert tail.append(Message(), queue) is None


class Scene:
    """Queues and an index with little room, in the plain code or in the active core."""

    def __init__(self, module: Any, chance: random.Random) -> None:
        self.queues: dict[str, dict[int, tails.QueueTail]] = {}
        for topic in ("orders", "тема"):
            for queue_id in range(2):
                queue = module.QueueTail(topic.encode())
                queue.buffer = mmap.mmap(-1, 20 * ENTRY_BYTES)
                queue.ready_end = chance.choice([20, 5, 1]) * ENTRY_BYTES
                self.queues.setdefault(topic, {})[queue_id] = queue
        data = mmap.mmap(-1, index_entry.file_bytes(SLOTS, ENTRIES))
        index_entry.put_entries(data, SLOTS, 1, (3,), 0, 0)
        self.index = module.IndexTail(data, SLOTS, 2, chance.choice([ENTRIES, 9]), -1, 1000)
        self.has_index = chance.random() < 0.8
        self.touched: list[tails.QueueTail] = []

    def parts(self) -> tuple[Any, Any, Any]:
        return self.queues, self.touched, self.index if self.has_index else None

    def facts(self) -> list[Any]:
        index = self.index
        found: list[Any] = [index.data[:], index.number, index.empty, index.newest_offset]
        for ids in self.queues.values():
            for queue in ids.values():
                assert queue.buffer is not None
                found += [queue.buffer[:], queue.max_offset, queue.max_physical, queue.next_offset]
                found += [queue.is_touched, queue.is_hot]
        return found


def random_log(chance: random.Random, base: int) -> tuple[bytes, int]:
    log = bytearray(8192)
    position = 0
    offsets: dict[tuple[bytes, int], int] = {}
    for _ in range(chance.randrange(1, 20)):
        topic = chance.choice(["orders", "orders", "тема", "unknown"]).encode()
        queue_id = chance.randrange(2)
        sys_flag = chance.choice([0, 0, 0, 4, 8, 12])
        offset = offsets.get((topic, queue_id), 0)
        if not sys_flag & 4:
            offsets[topic, queue_id] = offset + 1
        properties = chance.choice(
            ["", "KEYS\x01a b\x02", "UNIQ_KEY\x01ü\x02TAGS\x01t\x02", "TAGS\x01ß\x02KEYS\x01x"]
        )
        position += record.encode_into(
            log, position, topic, chance.randbytes(chance.randrange(40)), properties.encode(),
            queue_id, chance.choice([offset, offset, offset, offset, offset + 1]), base + position,
            chance.randrange(5000), 1, HOST, HOST, 0, sys_flag, 0, 0,
        )  # fmt: skip
    if chance.random() < 0.2:
        log[chance.randrange(position)] ^= 4
    return bytes(log), position


@pytest.mark.parametrize("seed", SEEDS)
def test_records_are_dispatched_as_the_plain_code_does(seed: int) -> None:
    base = 1 << 33
    log, size = random_log(random.Random(seed), base)
    plain, fast = (Scene(module, random.Random(seed)) for module in (tails, core))
    limit = random.Random(seed).choice([3, 100])

    expected = tails.dispatch(log, 0, size, base, limit, *plain.parts(), deque())
    done = core.dispatch_records(log, 0, size, base, limit, *fast.parts(), deque())

    assert done == expected
    assert fast.facts() == plain.facts()
    assert len(fast.touched) == len(plain.touched)


def test_dispatched_entries_lead_to_their_records() -> None:
    log = bytearray(1000)
    first = record.encode_into(
        log, 0, b"orders", b"a", b"TAGS\x01x\x02", 1, 0, 0, 9, 1, HOST, HOST, 0, 0, 0, 0
    )
    second = record.encode_into(
        log, first, b"orders", b"b", b"", 1, 1, first, 10, 1, HOST, HOST, 0, 0, 0, 0
    )
    queue = core.QueueTail(b"orders")
    queue.buffer = mmap.mmap(-1, 4096)
    queue.ready_end = 4000
    touched: list[tails.QueueTail] = []

    end = first + second
    queues = {"orders": {1: queue}}
    done = core.dispatch_records(log, 0, end, 0, 10, queues, touched, None, deque())

    assert done == (end, 2, 10)
    assert touched == [queue]
    assert unpack(queue.buffer, 0).physical_offset == 0
    assert unpack(queue.buffer, 0).tags_code == ord("x")
    assert unpack(queue.buffer, 20).physical_offset == first
    assert (queue.max_offset, queue.next_offset, queue.max_physical) == (2, 2, end)


@pytest.mark.parametrize("seed", SEEDS)
def test_digests_that_are_at_hand_lead_to_the_same_as_reading_the_log(seed: int) -> None:
    """Some are missing, and some are of records that were passed long ago."""
    chance = random.Random(seed)
    base = 1 << 33
    log, size = random_log(chance, base)
    digests = digest.walk(log, 0, size, base, 100, False).digests
    passed = [(*digests[0][:3], base - 1, *digests[0][4:])] if digests else []
    fresh = deque([*passed, *(known for known in digests if chance.random() < 0.7)])
    reads, knows = (Scene(tails, random.Random(seed)) for _ in range(2))

    results = [
        tails.dispatch(log, 0, size, base, 100, *scene.parts(), at_hand)
        for scene, at_hand in ((reads, deque[digest.Digest]()), (knows, fresh))
    ]

    assert results[0] == results[1]
    assert knows.facts() == reads.facts()
    assert all(known[3] > base + results[1][0] for known in fresh), "those passed are gone"
