"""What leaves on a connection, and in how many writes."""

import asyncio

import pytest

from cometmq.remoting.outbox import Outbox
from tests.unit.remoting.kit import FakeTransport

MIB = 1024 * 1024


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


def outbox_on(transport: FakeTransport, bytes_max: int = 64 * MIB) -> tuple[Outbox, list[str]]:
    dropped: list[str] = []
    loop = asyncio.get_running_loop()
    return Outbox(loop, transport, bytes_max=bytes_max, drop=dropped.append), dropped


async def test_what_is_put_in_one_turn_is_one_write(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)

    outbox.put(b"head1", (b"body1",), 5)
    outbox.put(b"head2")
    outbox.put(b"head3", (b"a", b"", memoryview(b"b")), 2)
    assert transport.writes == []
    await asyncio.sleep(0)

    assert transport.writes == [b"head1body1head2head3ab"]


async def test_while_a_read_is_handled_nothing_is_written(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)

    outbox.is_held = True
    outbox.put(b"one")
    await asyncio.sleep(0)
    outbox.put(b"two")
    outbox.is_held = False
    assert transport.writes == []
    outbox.flush()
    outbox.flush()

    assert transport.writes == [b"onetwo"]


async def test_much_is_written_at_once_even_then(transport: FakeTransport) -> None:
    """A read may hold thousands of requests with answers a thousand times their size."""
    outbox, _ = outbox_on(transport)

    outbox.is_held = True
    for _ in range(20):
        outbox.put(b"head", (bytes(MIB // 4),), MIB // 4)

    assert len(transport.writes) == 5
    assert all(MIB <= len(write) < 1.1 * MIB for write in transport.writes)


@pytest.mark.parametrize("frames", [[b"one"], [b"one", b"two"], []])
async def test_frames_are_sent_at_once_behind_what_has_gathered(
    transport: FakeTransport, frames: list[bytes]
) -> None:
    outbox, _ = outbox_on(transport)
    outbox.send(frames)
    sent = b"".join(frames)
    assert transport.writes == ([sent] if sent else [])

    outbox.put(b"zero")
    outbox.send(frames)
    await asyncio.sleep(0)

    assert b"".join(transport.writes) == sent + b"zero" + sent
    assert outbox.sent_bytes == 2 * len(sent) + 4


async def test_frames_sent_at_once_are_judged_like_all(transport: FakeTransport) -> None:
    outbox, dropped = outbox_on(transport, bytes_max=1000)

    transport.unsent_bytes = 2 * MIB
    outbox.send([b"too much"])
    assert dropped == [f"has {2 * MIB} bytes of answers unread"]
    assert outbox.is_stalled

    transport.unsent_bytes = 0
    outbox.send([b"it has read"])
    assert not outbox.is_stalled


async def test_a_peer_that_leaves_too_much_unread_is_dropped(transport: FakeTransport) -> None:
    outbox, dropped = outbox_on(transport, bytes_max=1000)

    transport.unsent_bytes = 1000
    outbox.put(b"still bearable")
    await asyncio.sleep(0)
    assert dropped == []

    transport.unsent_bytes = 1001
    outbox.put(b"too much")
    await asyncio.sleep(0)
    assert dropped == ["has 1001 bytes of answers unread"]


async def test_sent_is_what_was_written_and_is_not_waiting(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)

    outbox.put(b"0123456789")
    outbox.flush()
    outbox.write(b"01234")
    transport.unsent_bytes = 4

    assert outbox.sent_bytes == 11


async def test_nothing_is_written_once_the_transport_closes(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)
    transport.close()

    outbox.put(b"late")
    outbox.write(b"later")
    await asyncio.sleep(0)

    assert transport.writes == []


async def test_what_was_put_can_be_forgotten(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)

    outbox.put(b"never mind")
    outbox.clear()
    await asyncio.sleep(0)

    assert transport.writes == []


async def test_a_full_box_is_seen_before_the_transport_says_so(transport: FakeTransport) -> None:
    """uvloop tells only after its next write; until then everybody would go on sending."""
    outbox, _ = outbox_on(transport)
    assert not outbox.is_stalled

    transport.unsent_bytes = 2 * MIB
    outbox.put(b"head", (bytes(MIB),), MIB)
    assert outbox.is_stalled
    waiting = asyncio.ensure_future(outbox.flowing())
    await asyncio.sleep(0)
    assert not waiting.done()
    transport.unsent_bytes = 0
    await waiting

    assert not outbox.is_stalled


async def test_those_who_wait_go_on_a_few_at_a_time(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)
    sent = 0

    async def send() -> None:
        nonlocal sent
        await outbox.flowing()
        sent += 1
        if sent == 10:  # full again
            outbox.pause()

    outbox.pause()
    waiting = [asyncio.ensure_future(send()) for _ in range(200)]
    await asyncio.sleep(0)

    outbox.resume()
    for _ in range(5):
        await asyncio.sleep(0)
    assert sent == 10
    outbox.resume()
    await asyncio.gather(*waiting)

    assert sent == 200


async def test_a_connection_that_ends_lets_everybody_go(transport: FakeTransport) -> None:
    outbox, _ = outbox_on(transport)
    outbox.pause()
    waiting = [asyncio.ensure_future(outbox.flowing()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[1].cancel()

    outbox.clear()
    results = await asyncio.gather(*waiting, return_exceptions=True)

    assert results[0] is results[2] is None
    assert isinstance(results[1], asyncio.CancelledError)
