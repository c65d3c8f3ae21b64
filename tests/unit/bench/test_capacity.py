"""The generator's own parts: what it sends, how it counts, and that it finds refusals."""

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.capacity import CapacityError, Generator, measure, percentile, record_count
from bench.capacity_frames import PULL_COUNT, QUEUES, AnswerCounter, Load, requests, ring_of
from bench.capacity_sink import answer_of, serve
from bench.load import connect
from cometmq.codec import batch, command, core
from cometmq.codec.codes import RequestCode
from cometmq.codec.command import Command, CommandFlag
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessageV2

SEND = Load("send", "json", connections=2, in_flight=4, body=8000)


@contextmanager
def sink(answer: bytes) -> Iterator[str]:
    """A server on a thread that answers everything with the same bytes."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"


def asked(load: Load, address: str, seconds: float = 0.01) -> dict[str, object]:
    return {
        "load": load._asdict(), "address": address, "pid": 1, "topic": "t",
        "seconds": seconds, "settle_seconds": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("header", ["json", "binary"])
def test_sends_go_round_all_queues_with_keys_of_their_own(header: str) -> None:
    ring = requests(SEND._replace(header=header), "orders", salt=7)

    commands, _ = core.decode_frames(ring.run(0, 4).tobytes() + ring.run(4, 4).tobytes())
    headers = [core.read(sent, SendMessageV2) for sent in commands]
    assert [sent.code for sent in commands] == [RequestCode.SEND_MESSAGE_V2] * 8
    assert [sent.queue_id for sent in headers] == list(range(QUEUES))
    assert {sent.topic for sent in headers} == {"orders"}
    assert len({sent.properties for sent in headers}) == 8
    assert all(len(sent.body) == 8000 for sent in commands)


def test_a_batch_holds_as_many_messages_as_said() -> None:
    ring = requests(SEND._replace(batch=16), "orders")

    (sent,), _ = core.decode_frames(ring.run(0, 1).tobytes())
    assert sent.code == RequestCode.SEND_BATCH_MESSAGE
    assert core.read(sent, SendMessageV2).batch is True
    assert len({item.properties for item in batch.decode(sent.body)}) == 16


def test_sends_to_many_topics_reach_every_queue_of_each() -> None:
    ring = requests(SEND._replace(topics=3), "orders")

    commands, _ = core.decode_frames(ring.data.tobytes())
    headers = [core.read(sent, SendMessageV2) for sent in commands]
    assert {(sent.topic, sent.queue_id) for sent in headers} == {
        (f"orders-{topic:04}", queue) for topic in range(3) for queue in range(QUEUES)
    }


def test_pulls_walk_the_backlog_of_every_queue() -> None:
    load = Load("pull", "json", 1, 1, 128, backlog=3 * PULL_COUNT + 5)

    commands, _ = core.decode_frames(requests(load, "orders").data.tobytes())
    headers = [core.read(sent, PullMessage) for sent in commands]
    places = [(sent.queue_id, sent.queue_offset) for sent in headers][:-1]
    assert sorted(places) == [(q, o * PULL_COUNT) for q in range(QUEUES) for o in range(3)]


def test_a_ring_gives_any_run_as_one_slice() -> None:
    frames = [bytes([65 + number]) * (number + 1) for number in range(5)]

    ring = ring_of(frames, run_max=12)

    endless = frames * 5
    for position in range(ring.length):
        for count in range(13):
            assert ring.run(position, count) == b"".join(endless[position : position + count])


def test_answers_are_counted_however_the_stream_is_cut() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 3, 4, 5, 40)) for _ in range(200)]
    stream = b"".join(size.to_bytes(4, "big") + bytes(size) for size in sizes)
    counter = AnswerCounter()

    counted = []
    position = 0
    while position < len(stream):
        taken = rng.choice((1, 2, 3, 4, 7, 100))
        data = counter.held + stream[position : position + taken]
        position += taken
        counted.append(counter.count(data, len(data)))

    assert sum(counted) == len(sizes)
    assert (counter.held, counter.remaining) == (b"", 0)


def test_a_frame_counts_when_its_last_byte_has_come() -> None:
    counter = AnswerCounter()
    frame = (3).to_bytes(4, "big") + b"abc"

    before, after = counter.count(frame[:6], 6), counter.count(frame[6:], 1)

    assert (before, after) == (0, 1)


def test_a_percentile_counts_answers_not_arrivals() -> None:
    waits, weights = [3.0, 1.0, 2.0], [1, 98, 1]

    found = [percentile(waits, weights, share) for share in (0.5, 0.98, 0.99, 1.0)]

    assert found == [1.0, 1.0, 2.0, 3.0]


def test_a_percentile_of_no_answers_is_zero() -> None:
    assert percentile([], [], 0.99) == 0.0


def test_records_of_a_pull_are_counted_by_their_sizes() -> None:
    record = (10).to_bytes(4, "big") + bytes(6)

    counts = [record_count(body) for body in (b"", record * 3, record * 2 + record[:5])]

    assert counts == [0, 3, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("connections", "in_flight"), [(1, 1), (1, 16), (3, 5)])
def test_every_request_is_answered_when_a_load_ends(connections: int, in_flight: int) -> None:
    load = SEND._replace(connections=connections, in_flight=in_flight)
    with sink(answer_of(200)) as address:
        figures = measure(asked(load, address), requests(load, "t"))

    assert figures["answered"] >= connections * in_flight + 2
    assert figures["rate"] > 0
    assert figures["answer_bytes"] == 200


@pytest.mark.slow
def test_requests_the_socket_does_not_take_at_once_go_out_later() -> None:
    """More in flight than buffers hold: the rest waits until the peer has read."""
    load = SEND._replace(connections=2, in_flight=400, body=4000)
    with sink(answer_of(60)) as address:
        connections = [connect(address) for _ in range(2)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        generator = Generator(connections, requests(load, "t"), load.in_flight)

        generator.run(0.0, 0.0, 1)

    assert generator.answered_ever == 2 * 400
    for connection in connections:
        connection.close()


@pytest.mark.slow
def test_a_refused_send_is_an_error_that_says_why() -> None:
    refusal = Command(2, flag=CommandFlag.RESPONSE, remark="system busy")
    with sink(command.encode(refusal)) as address, pytest.raises(CapacityError) as raised:
        measure(asked(SEND, address), requests(SEND, "t"))

    assert str(raised.value) == "send was answered with 2: system busy"


def test_json_requests_look_like_those_of_java() -> None:
    frame = requests(SEND, "orders").run(0, 1).tobytes()

    header = json.loads(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
    assert list(header) == [
        "code", "extFields", "flag", "language", "opaque", "serializeTypeCurrentRPC", "version",
    ]  # fmt: skip
    assert list(header["extFields"]) == list("abcdefghijkmn")
