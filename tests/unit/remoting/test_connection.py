"""The protocol of one end, without sockets."""

import struct
import tracemalloc

import pytest

from cometmq.codec.command import Command
from cometmq.model.limits import PENDING_REQUESTS_MAX
from cometmq.remoting.connection import Connection, Received
from tests.unit.remoting.kit import answer, bodies, request

MIB = 1024 * 1024


def connection(**arguments: int) -> Connection[str]:
    return Connection(**arguments)


def feed(peer: Connection[str], data: bytes, piece_bytes: int) -> list[Command]:
    """Requests that come out when ``data`` goes in piece by piece."""
    requests = []
    for begin in range(0, len(data), piece_bytes):
        got = peer.receive(data[begin : begin + piece_bytes])
        assert got.fault is None
        requests += got.requests
    return requests


def fault_of(peer: Connection[str], data: bytes) -> str:
    fault = peer.receive(data).fault
    assert fault is not None
    return fault.fact


def test_a_read_with_many_frames_is_one_batch() -> None:
    peer = connection()

    got = peer.receive(b"".join(request(105, opaque) for opaque in range(100)))

    assert [command.opaque for command in got.requests] == list(range(100))
    assert (got.answers, got.unmatched, got.fault) == ([], 0, None)
    assert peer.held_bytes == 0


@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 8, 9, 100, 5000])
def test_frames_in_pieces_come_out_whole_and_in_order(piece_bytes: int) -> None:
    sent = [b"", b"a", b"b" * 4090, b"c" * 9000, b"d" * 17]
    stream = b"".join(request(105, number, body) for number, body in enumerate(sent))
    peer = connection()

    got = feed(peer, stream, piece_bytes)

    assert bodies(got) == sent
    assert [command.opaque for command in got] == [0, 1, 2, 3, 4]
    assert peer.held_bytes == 0


def test_what_is_held_is_counted() -> None:
    frame = request(105, 1, b"body")
    peer = connection()

    peer.receive(frame + frame[:10])
    after_ten = peer.held_bytes
    peer.receive(frame[10:15])

    assert (after_ten, peer.held_bytes) == (10, 15)


def test_a_big_frame_in_many_pieces_is_copied_once() -> None:
    """From the pieces to where the frame is gathered; only the body's own bytes are new."""
    body = bytes(4 * MIB)
    frame = request(310, 1, body)
    pieces = [frame[begin : begin + 65536] for begin in range(0, len(frame), 65536)]
    peer = connection()

    tracemalloc.start()
    try:
        for piece in pieces[:-1]:
            peer.receive(piece)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        (got,) = peer.receive(pieces[-1]).requests
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert got.body == body
    assert held < 64 * 1024, "nothing of it is on the heap"
    assert peak < 1.1 * len(frame), "but the body"


def test_small_pieces_of_a_big_frame_cost_no_more_than_they_hold() -> None:
    """A peer that sends two bytes at a time must not make us keep an object for each two bytes."""
    frame = request(310, 1, bytes(MIB))
    peer = connection()

    tracemalloc.start()
    try:
        assert feed(peer, frame[:40_000], 2) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peer.held_bytes == 40_000
    assert held < 1.5 * peer.held_bytes
    assert bodies(peer.receive(frame[40_000:]).requests) == [bytes(MIB)]


def test_answers_find_their_askers_in_any_order() -> None:
    peer = connection()
    first, second, third = (peer.ask(name, 1.0) for name in ("first", "second", "third"))

    got = peer.receive(answer(third) + answer(first) + answer(second))

    assert [waiter for waiter, _ in got.answers] == ["third", "first", "second"]
    assert [command.opaque for _, command in got.answers] == [third, first, second]
    assert peer.pending_count == 0


def test_an_answer_that_nobody_asked_for_is_counted_and_harmless() -> None:
    peer = connection()
    opaque = peer.ask("asker", 1.0)

    got = peer.receive(answer(opaque + 7) + answer(opaque) + answer(opaque))

    assert [waiter for waiter, _ in got.answers] == ["asker"]
    assert got.unmatched == 2
    assert peer.receive(answer(opaque)).unmatched == 1, "also while nobody waits at all"


def test_an_answer_after_the_asker_has_gone_matches_nothing() -> None:
    peer = connection()
    late, expired = peer.ask("late", 1.0), peer.ask("expired", 0.5)

    peer.forget(late)
    assert peer.expire(0.6) == ["expired"]
    got = peer.receive(answer(late) + answer(expired))

    assert (got.answers, got.unmatched) == ([], 2)


def test_both_ends_may_ask_with_the_same_opaques() -> None:
    one, other = connection(), connection()
    asked, asked_back = one.ask("asker", 1.0), other.ask("asked back", 1.0)
    assert asked == asked_back

    got = one.receive(request(40, asked_back) + answer(asked, body=b"for the asker"))
    got_back = other.receive(request(105, asked) + answer(asked_back))

    assert [command.code for command in got.requests] == [40]
    assert [(waiter, command.body) for waiter, command in got.answers] == [
        ("asker", b"for the asker")
    ]
    assert [command.code for command in got_back.requests] == [105]
    assert [waiter for waiter, _ in got_back.answers] == ["asked back"]


def test_opaques_start_over_at_zero() -> None:
    peer = connection(first_opaque=0x7FFFFFFE)

    assert [peer.ask("asker", 1.0) for _ in range(4)] == [0x7FFFFFFE, 0x7FFFFFFF, 0, 1]


def test_an_opaque_that_still_waits_is_passed_over() -> None:
    peer = connection(first_opaque=7)
    peer.ask("has been waiting since two thousand million requests", 1e9)
    peer._opaque = 7  # which nobody wants to send here

    assert peer.ask("next", 1.0) == 8


def test_what_is_told_one_way_has_an_opaque_that_hits_nobody() -> None:
    peer = connection()
    asked = peer.ask("asker", 1.0)

    told = peer.tell()

    assert told != asked
    assert peer.receive(answer(told)).unmatched == 1


def test_only_so_many_requests_may_wait() -> None:
    peer = connection(pending_max=3)
    for number in range(3):
        assert peer.has_room
        peer.ask(str(number), 1.0)

    assert not peer.has_room
    peer.receive(answer(0))
    assert peer.has_room


@pytest.mark.slow
def test_the_limit_of_waiting_requests_is_the_one_with_a_name() -> None:
    peer = connection()

    for number in range(PENDING_REQUESTS_MAX):
        peer.ask("asker", float(number))

    assert not peer.has_room
    assert len(peer.expire(float(PENDING_REQUESTS_MAX))) == PENDING_REQUESTS_MAX


def test_deadlines_pass_in_their_own_order() -> None:
    peer = connection()
    peer.ask("slow", 3.0)
    peer.ask("quick", 1.0)
    answered = peer.ask("answered", 0.5)
    peer.ask("middle", 2.0)
    peer.receive(answer(answered))

    assert peer.next_deadline() == 1.0
    assert peer.expire(0.9) == []
    assert peer.expire(2.0) == ["quick", "middle"]
    assert peer.next_deadline() == 3.0
    assert peer.expire(3.0) == ["slow"]
    assert peer.next_deadline() is None


def test_deadlines_of_answered_requests_do_not_pile_up() -> None:
    """Whoever asks a million times with a timeout of a minute keeps a few entries, not all."""
    peer = connection()
    stays = peer.ask("stays", 1e9)

    tracemalloc.start()
    try:
        for number in range(6_000):
            peer.forget(peer.ask("asker", 60.0 + number))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held < 2_000 * 120
    assert peer.next_deadline() == 1e9
    assert [waiter for waiter, _ in peer.receive(answer(stays)).answers] == ["stays"]


def test_a_broken_frame_is_a_fault_and_nothing_after_it_is_taken() -> None:
    peer = connection()

    assert "too small" in fault_of(peer, b"\x00\x00\x00\x01" + bytes(4))
    assert "too small" in fault_of(peer, request(105))
    assert peer.held_bytes == 0


def test_a_fault_behind_good_frames_lets_them_be_served() -> None:
    peer = connection()
    asked = peer.ask("asker", 1.0)

    got = peer.receive(request(105, 9) + answer(asked) + b"\xff\xff\xff\xff")

    assert [command.opaque for command in got.requests] == [9]
    assert [waiter for waiter, _ in got.answers] == ["asker"]
    assert got.fault is not None


def test_a_fault_shows_with_the_piece_that_completes_it() -> None:
    peer = connection()
    whole = request(105, 1)

    first = peer.receive(whole[:-1])
    got = peer.receive(whole[-1:] + (2**31 - 1).to_bytes(4, "big") + bytes(4))

    assert first == Received([], [])
    assert len(got.requests) == 1
    assert got.fault is not None
    assert "above the limit" in got.fault.fact


@pytest.mark.parametrize("header", [b"no JSON", b"[" * 30_000, b'{"code":1,"flag":"x"}'])
def test_a_big_frame_that_turns_out_broken_is_a_fault_too(header: bytes) -> None:
    frame = struct.pack(">iI", 4 + len(header) + 50_000, len(header)) + header + bytes(50_000)
    peer = connection()

    got = peer.receive(request(105, 1) + frame[:30_000])
    assert (len(got.requests), got.fault) == (1, None)
    got = peer.receive(frame[30_000:] + request(105, 2))

    assert got.requests == []
    assert got.fault is not None
    assert peer.held_bytes == 0


def test_a_frame_above_the_limit_is_refused_with_its_first_bytes() -> None:
    frame = request(105, 1, bytes(1024))

    assert feed(connection(frame_bytes_max=len(frame)), frame, 100) != []
    assert "above the limit" in fault_of(connection(frame_bytes_max=len(frame) - 1), frame[:4])


def test_the_end_gives_everyone_back_who_waits() -> None:
    peer = connection()
    for name in ("first", "second", "answered"):
        peer.ask(name, 1.0)
    peer.receive(answer(2) + request(105)[:10])

    assert peer.close() == ["first", "second"]
    assert (peer.pending_count, peer.held_bytes, peer.next_deadline()) == (0, 0, None)
    assert peer.close() == []
