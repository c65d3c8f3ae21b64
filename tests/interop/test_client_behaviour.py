"""Our Python client with our servers and both of Apache's releases: one suite for all three.

What members received is held against what was sent by the history checker. Every test has a topic
and a group of its own; all waits of clients and brokers are as short as they can be set.
"""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import cometmq
from cometmq.aio import Client
from cometmq.client.batching import Item
from cometmq.client.core.message import Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.settings import Compression
from cometmq.client.push_consumer import Consumer
from cometmq.errors import CometError, InvalidArgument, Refused, SendFailed, Unsupported
from cometmq.testing.history import STRICT, History, Rules, Sent
from tests.interop import asking, client_clusters, sockets
from tests.interop.apache import ApacheBroker
from tests.interop.broker import OurBroker
from tests.interop.broker_fixtures import LEVEL_DELAYS_S
from tests.interop.cache import Cache
from tests.interop.client_clusters import (
    OLD,
    OURS,
    QUEUES,
    RELEASES,
    SETTINGS,
    Cluster,
    Clusters,
    params_of,
)
from tests.interop.client_kit import (
    IN_A_HURRY,
    Inbox,
    Trial,
    have_received,
    now_ms,
    numbered,
    our_program,
    queue_ids,
    received,
    scenario,
    text,
    trial,
    until,
)
from tests.interop.feature_kit import AT_LEAST_ONCE, CONCURRENTLY
from tests.interop.feature_shell import Consumer as ProgramConsumer
from tests.interop.feature_shell import FeatureProgram
from tests.interop.nameserver import OurNameServer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(150)]

MIB = 1 << 20
LIMIT_BYTES = 4 * MIB
MESSAGE_ILLEGAL = 13
ALL_QUEUES = set(range(QUEUES))
# How much later than it should a delayed message may come on a busy machine.
LATENESS_S = 3.0
# Timers of 5.x go in steps of a second.
TIMER_STEP_S = 1.0
# Without the broker's notice a client looks at its group again only later.
TAKEOVER_S = 15.0
COMEBACK_S = 60.0
ACL = """\
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  admin: true
"""


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest, cache: Cache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    with client_clusters.shared(request, cache, tmp_path_factory) as started:
        started.want(params_of(request, "cluster"))
        yield started


@pytest.fixture(scope="module", params=RELEASES)
def cluster(request: pytest.FixtureRequest, clusters: Clusters) -> Cluster:
    return clusters.get(request.param)


# --- sending


@scenario
async def test_a_message_arrives_with_all_that_was_sent(cluster: Cluster, topic: str) -> None:
    properties = {"colour": "blue", "é": "ü"}
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        results = await at.send(
            *numbered(12), tag="TagA", keys=("key-1",), properties=properties, flag=7
        )
        async with at.consuming(inbox):
            await until(lambda: len(inbox.messages) == len(at.sent), "all is received")

    by_id = {message.message_id: message for message in inbox.messages}
    for result, key in zip(results, at.keys, strict=True):
        message = by_id[result.message_id]
        assert (message.body.decode(), message.topic, message.flag) == (key, topic, 7)
        assert (message.tag, message.keys) == ("TagA", ("key-1",))
        assert message.properties.items() >= properties.items()
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
        assert message.offset_id == result.offset_id
        assert (message.reconsume_times, message.broker_name) == (0, "broker-a")
    assert {message.queue_id for message in inbox.messages} == ALL_QUEUES


@scenario
async def test_sends_under_way_at_once_are_all_acknowledged_and_arrive(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        async with at.consuming(inbox):
            await asyncio.gather(*(at.send(key) for key in numbered(200)))
            await inbox.wait_for(at.keys)

    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_sends_may_be_collected_into_batches(cluster: Cluster, topic: str) -> None:
    """Whoever sends is told of the message's own place, not of its batch's."""
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        at.producer = at.mq.producer("collecting", is_batching=True, send_timeout_ms=20_000)
        await asyncio.gather(*(at.send(key) for key in numbered(100)))
        async with at.consuming(inbox):
            await inbox.wait_for(at.keys)

    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_oneway_sends_arrive(cluster: Cluster, topic: str) -> None:
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        for key in numbered(20):
            await at.producer.send_oneway(topic, key.encode())
            at.add(key)
        async with at.consuming(inbox):
            await inbox.wait_for(at.keys)

    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_a_batch_arrives_as_single_messages_of_one_queue(
    cluster: Cluster, topic: str
) -> None:
    """And what does not fit into one frame goes in several."""
    inbox = Inbox()
    body = random.Random(3).randbytes(MIB)
    small = [Item(key.encode(), "TagB", (key,), {"k": key}) for key in numbered(10)]
    large = [Item(body, keys=(key,)) for key in numbered(5, "large")]
    async with trial(cluster, topic) as at:
        (one,) = await at.producer.send_many(topic, small)
        first, second = await at.producer.send_many(topic, large)
        for step, item in enumerate(small):
            at.add(str(item.keys[0]), one, step=step)
        counts = [len(result.message_id.split(",")) for result in (first, second)]
        for number, item in enumerate(large):
            result = first if number < counts[0] else second
            at.add(str(item.keys[0]), result, step=number - (result is second) * counts[0])
        async with at.consuming(inbox):
            await inbox.wait_for(at.keys)

    assert sum(counts) == len(large)
    ids = [inbox.of(key)[0].message_id for key in at.keys]
    assert ids == ",".join(result.message_id for result in (one, first, second)).split(",")
    for item in small:
        (message,) = inbox.of(str(item.keys[0]))
        assert (message.tag, message.properties["k"]) == ("TagB", item.keys[0])
    assert all(inbox.of(str(item.keys[0]))[0].body == body for item in large)
    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_an_ordering_key_keeps_its_order_and_a_failure_holds_up_only_its_queue(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox(fails=lambda message: text(message) == "c-4" and len(inbox.of("c-4")) <= 2)
    async with trial(cluster, topic) as at:
        async with at.consuming(inbox, is_orderly=True):
            for number in range(10):
                for key in "abcdefg":
                    await at.send(f"{key}-{number}", ordering_key=key)
            await until(lambda: len(inbox.receipts) == len(at.sent), "all is done")

    for key in "abcdefg":
        own = [message for message in inbox.messages if text(message).startswith(key)]
        assert len({message.queue_id for message in own}) == 1
        assert {message.ordering_key for message in own} == {key}
    assert [message.reconsume_times for message in inbox.of("c-4")] == [0, 1, 2]
    at.claim(STRICT, inbox)


@scenario
async def test_compressed_bodies_are_stored_small_and_arrive_whole(
    cluster: Cluster, topic: str
) -> None:
    kinds: tuple[Compression, ...] = ("zlib", "lz4", "zstd")
    body = b"the same words again and again; " * 8192
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        for kind in kinds:
            producer = at.mq.producer(f"P_{kind}", compression=kind)
            await producer.send(topic, body, keys=kind)
        async with at.consuming(inbox):
            await inbox.wait_for(kinds)

    for kind in kinds:
        (message,) = inbox.of(kind)
        assert message.body == body
        assert message.stored_bytes < len(body) // 10


@scenario
async def test_a_body_at_the_limit_arrives_and_one_beyond_it_is_refused(
    cluster: Cluster, topic: str
) -> None:
    body = random.Random(2).randbytes(LIMIT_BYTES + 1)
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        # So that the client does not refuse by itself what the broker should refuse.
        daring = at.mq.producer(
            "daring", body_bytes_max=2 * LIMIT_BYTES, compress_over_bytes=2 * LIMIT_BYTES
        )
        with pytest.raises(InvalidArgument, match=str(LIMIT_BYTES)):
            await at.producer.send(topic, body)
        with pytest.raises(SendFailed) as refused:
            await daring.send(topic, body, timeout_ms=20_000)
        await daring.send(topic, body[:-1], keys="biggest", timeout_ms=20_000)
        async with at.consuming(inbox):
            await inbox.wait_for(["biggest"])

    assert (refused.value.code, refused.value.may_be_stored) == (MESSAGE_ILLEGAL, False)
    (message,) = inbox.messages
    assert message.body == body[:-1]


# --- groups


@scenario
async def test_members_share_the_queues_and_whoever_stays_takes_over(
    cluster: Cluster, topic: str
) -> None:
    """Nothing is under way while members come and go: then nothing comes twice."""
    first, second = Inbox("first"), Inbox("second")
    async with trial(cluster, topic) as at, AsyncExitStack() as stack:
        staying = await stack.enter_async_context(at.consuming(first))
        async with at.consuming(second) as leaving:
            await share(staying, leaving, topic)
            await at.send(*numbered(20, "shared"))
            await have_received([first, second], at.keys)
        owned = {own(first), own(second)}
        await until(lambda: queue_ids(staying, topic) == ALL_QUEUES, "it has all queues")
        await at.send(*numbered(20, "alone"))
        await have_received([first, second], at.keys)

    assert len(owned) == 2
    assert {len(queues) for queues in owned} == {QUEUES // 2}
    assert own(first) == ALL_QUEUES
    at.claim(CONCURRENTLY, first, second)


@scenario
async def test_the_survivor_takes_over_the_queues_of_a_killed_member(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    inbox = Inbox("survivor", hold_s=0.005)
    async with trial(cluster, topic) as at:
        async with at.consuming(inbox, concurrency=2) as survivor:
            with await asyncio.to_thread(our_program, tmp_path) as program:
                doomed = await joined(at, program, holdMs=20, threads=1)
                await until(lambda: len(queue_ids(survivor, topic)) == 2, "the queues are shared")
                await at.send(*numbered(100))
                await until(lambda: len(doomed.received) > 5, "the doomed one is at work")
            await at.send(*numbered(20, "after"))
            await until(lambda: queue_ids(survivor, topic) == ALL_QUEUES, "it has all queues")
            unfinished = set(at.keys) - {event["body"] for event in doomed.received}
            await inbox.wait_for(unfinished, timeout_s=TAKEOVER_S)

    assert unfinished - set(numbered(20, "after"))
    at.claim(AT_LEAST_ONCE, inbox, doomed)


@scenario
async def test_order_is_kept_when_a_member_comes_and_is_killed(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    inbox = Inbox("survivor", hold_s=0.002)
    keys = [f"{key}-{number}" for number in range(60) for key in "abcdefgh"]
    async with trial(cluster, topic) as at:

        async def send_all() -> None:
            for key in keys:
                await at.send(key, ordering_key=key[0])
                await asyncio.sleep(0.005)

        async with at.consuming(inbox, is_orderly=True, lock_life_ms=1000) as survivor:
            sending = asyncio.create_task(send_all())
            with await asyncio.to_thread(our_program, tmp_path) as program:
                doomed = await joined(at, program, orderly=True, holdMs=2)
                await until(lambda: len(doomed.received) > 20, "the doomed one is at work")
            await sending
            await until(lambda: queue_ids(survivor, topic) == ALL_QUEUES, "it has all queues")
            done = {event["body"] for event in doomed.received}
            await inbox.wait_for(set(keys) - done, timeout_s=TAKEOVER_S)

    assert done
    at.claim(Rules(may_repeat=True), inbox, doomed)


@scenario
async def test_every_member_of_a_broadcast_gets_all_and_goes_on_after_a_restart(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    inboxes = [Inbox(f"{topic}-a"), Inbox(f"{topic}-b")]
    async with trial(cluster, topic) as at:

        async def listen(inbox: Inbox, keys: list[str]) -> None:
            options = {**IN_A_HURRY, "instance_name": inbox.member}
            folder = str(tmp_path / "offsets")
            async with Client(cluster.namesrv, **options) as mq:  # type: ignore[arg-type]
                async with at.consuming(inbox, mq=mq, mode="broadcast", offsets_folder=folder):
                    await inbox.wait_for(keys)

        await at.send(*numbered(20))
        await asyncio.gather(*(listen(inbox, at.keys) for inbox in inboxes))
        await at.send(*numbered(10, "meanwhile"))
        await asyncio.gather(*(listen(inbox, at.keys) for inbox in inboxes))

    members = tuple(inbox.member for inbox in inboxes)
    at.claim(Rules(is_broadcast=True, members=members, may_reorder=True), *inboxes)


# --- what is wanted


@scenario
async def test_tags_with_the_same_hash_are_told_apart(cluster: Cluster, topic: str) -> None:
    """``Aa`` and ``BB`` have the same hash in Java: brokers take one for the other."""
    inbox, both = Inbox(), Inbox()
    async with trial(cluster, topic) as at:
        for number, tag in enumerate(["Aa", "BB", None, "C", "Aa", "BB", "CC"]):
            await at.send(f"{number}-{tag}", tag=tag)
        async with (
            at.consuming(inbox, tags="Aa"),
            at.consuming(both, tags=["BB", "C"], group=f"B_{topic}"),
        ):
            await inbox.wait_for(["0-Aa", "4-Aa"])
            await both.wait_for(["1-BB", "3-C", "5-BB"])
        browsed = [text(message) async for message in at.mq.browse(topic, tags="BB")]

    at.claim(Rules(may_reorder=True, wanted=lambda sent: sent.tag == "Aa"), inbox)
    at.claim(Rules(may_reorder=True, wanted=lambda sent: sent.tag in ("BB", "C")), both)
    assert sorted(browsed) == ["1-BB", "5-BB"]


@scenario
async def test_a_condition_chooses_messages_by_their_properties(
    cluster: Cluster, topic: str
) -> None:
    if cluster.release == OURS:
        pytest.skip("our broker has no SQL92 subscriptions yet")
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        for price in range(8):
            colour = "blue" if price % 2 else "red"
            properties = {"price": str(price), "colour": colour}
            await at.send(f"{price}-{colour}", properties=properties)
        async with at.consuming(inbox, sql="price > 2 AND colour = 'blue'"):
            await inbox.wait_for(["3-blue", "5-blue", "7-blue"])
        with pytest.raises(Refused):
            async with at.consuming(inbox, group=f"B_{topic}", sql="price >"):
                pass

    at.claim(Rules(may_reorder=True, wanted=lambda sent: sent.key in inbox.keys), inbox)
    assert sorted(inbox.keys) == ["3-blue", "5-blue", "7-blue"]


# --- later


@scenario
async def test_delayed_messages_come_when_their_level_says(cluster: Cluster, topic: str) -> None:
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        async with at.consuming(inbox):
            sent_ms = now_ms()
            await at.send("level-0")
            await at.send("level-1", delay_level=1)
            await at.send("level-2", delay_level=2)
            await inbox.wait_for(at.keys)

    began = {receipt.key: receipt.begin_ms or 0.0 for receipt in inbox.receipts}
    for level, delay_s in enumerate((0, *LEVEL_DELAYS_S[:2])):
        waited_s = (began[f"level-{level}"] - sent_ms) / 1000
        assert delay_s <= waited_s < delay_s + LATENESS_S, level
    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_messages_come_at_their_time_unless_they_are_recalled(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        if not cluster.has_timers:
            with pytest.raises(Unsupported, match=r"4\.9\.7"):
                await at.producer.send(topic, b"late", delay=1)
            return
        async with at.consuming(inbox):
            sent_ms = now_ms()
            await at.send("in-2-s", delay=2)
            await at.send("at-3-s", deliver_at=round(sent_ms) + 3000)
            (doomed,) = await at.send("recalled", delay=2.5)
            assert doomed.recall_handle is not None
            recalled = await at.producer.recall(topic, doomed.recall_handle)
            await inbox.wait_for(["in-2-s", "at-3-s"])

    assert recalled == doomed.message_id
    began = {receipt.key: receipt.begin_ms or 0.0 for receipt in inbox.receipts}
    for key, delay_s in (("in-2-s", 2), ("at-3-s", 3)):
        waited_s = (began[key] - sent_ms) / 1000
        assert delay_s - TIMER_STEP_S <= waited_s < delay_s + LATENESS_S, key
    at.claim(Rules(may_reorder=True, wanted=lambda sent: sent.key != "recalled"), inbox)


# --- again


@scenario
async def test_what_fails_too_often_ends_among_the_dead_letters(
    cluster: Cluster, topic: str
) -> None:
    """Attempts are counted, a handler may choose the delay, or give a message up at once."""

    def decide(message: Message[bytes]) -> bool:
        match text(message), message.reconsume_times:
            case "chosen", 0:
                message.retry(delay_level=1)
            case "given up", _:
                message.dead_letter()
            case "acknowledged", _:
                message.ack()
                return True
        return text(message) in ("doomed", "once") and not (
            text(message) == "once" and message.reconsume_times
        )

    inbox = Inbox(fails=decide)
    async with trial(cluster, topic) as at:
        async with at.consuming(inbox, reconsume_max=2):
            await at.send("doomed", tag="TagA", properties={"k": "v"})
            await at.send("once", "chosen", "given up", "acknowledged", "well")
            await until(lambda: len(inbox.of("doomed")) == 3, "it was tried three times")
            await until(lambda: len(inbox.of("once")) == 2, "it was tried twice")
            await until(lambda: len(inbox.of("chosen")) == 2, "it was tried twice")
            dead = await dead_letters(at, 2)

    doomed = dead["doomed"]
    assert set(dead) == {"doomed", "given up"}
    assert (doomed.tag, doomed.properties["k"]) == ("TagA", "v")
    assert [message.reconsume_times for message in inbox.of("doomed")] == [0, 1, 2]
    assert {message.message_id for message in inbox.of("doomed")} == {doomed.message_id}
    assert {message.topic for message in inbox.messages} == {topic}
    assert {message.delivered_from for message in inbox.of("once")} == {
        topic,
        f"%RETRY%{at.group}",
    }
    assert len(inbox.messages) == 3 + 2 + 2 + 3
    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_an_orderly_message_that_fails_too_often_makes_way_for_the_next(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox(fails=lambda message: text(message) == "doomed")
    async with trial(cluster, topic, queues=1) as at:
        async with at.consuming(inbox, is_orderly=True, reconsume_max=2):
            await at.send("before", "doomed", "after")
            await inbox.wait_for(["after"])
            dead = await dead_letters(at, 1)

    assert inbox.keys == ["before", "doomed", "doomed", "doomed", "after"]
    assert [message.reconsume_times for message in inbox.of("doomed")] == [0, 1, 2]
    assert set(dead) == {"doomed"}


@scenario
async def test_a_batch_handler_may_acknowledge_the_first_and_get_the_others_again(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox()
    sizes: list[int] = []

    async def handle(batch: Batch[bytes]) -> None:
        sizes.append(len(batch))
        for message in batch:
            inbox.take(message)
        if len(batch) == 4:
            batch.ack_up_to(1)

    async with trial(cluster, topic, queues=1) as at:
        await at.send(*numbered(4))
        async with at.mq.consumer(at.group, start="first", batch_size=4) as consumer:
            consumer.subscribe(topic)
            await consumer.start_batches(handle)
            await until(lambda: len(inbox.messages) == 6, "two come again")

    assert sizes[0] == 4
    assert {text(message) for message in inbox.messages[4:]} == {"message-2", "message-3"}
    at.claim(CONCURRENTLY, inbox)


# --- servers that go and come


@scenario
async def test_nothing_acknowledged_is_lost_when_a_broker_is_killed_in_mid_traffic(
    cluster: Cluster, topic: str
) -> None:
    inbox = Inbox()
    async with trial(cluster, topic) as at:
        producer = at.mq.producer("restless", send_timeout_ms=2000)
        is_over = asyncio.Event()

        async def send_on(sender: str) -> None:
            number = 0
            while not is_over.is_set():
                key = f"{sender}-{number}"
                number += 1
                try:
                    at.add(key, await producer.send(topic, key.encode()))
                except CometError:
                    at.sent.append(Sent(key, topic=topic, is_acknowledged=False))
                await asyncio.sleep(0.005)

        async with at.consuming(inbox), asyncio.TaskGroup() as group:
            senders = [group.create_task(send_on(sender)) for sender in "abcd"]
            await until(lambda: len(inbox.messages) > 200, "traffic flows")
            await asyncio.to_thread(cluster.kill_and_restart)
            known = len(at.keys)
            await until(lambda: len(at.keys) > known + 200, "it flows again", timeout_s=COMEBACK_S)
            is_over.set()
            await asyncio.gather(*senders)
            await inbox.wait_for(at.keys, timeout_s=COMEBACK_S)

    at.claim(AT_LEAST_ONCE, inbox)


@scenario
async def test_clients_go_on_with_the_name_server_that_is_left(topic: str, tmp_path: Path) -> None:
    inbox = Inbox()
    with OurNameServer(tmp_path / "one") as one, OurNameServer(tmp_path / "two") as two:
        namesrv = f"{one.address};{two.address}"
        with OurBroker(tmp_path / "broker", namesrv=namesrv) as broker:
            cluster = Cluster(OURS, two.address, broker, lambda: broker)
            async with AsyncExitStack() as stack:
                # Each chooses one by chance: some will have chosen the one that goes.
                clients = [
                    await stack.enter_async_context(Client(namesrv, **IN_A_HURRY)) for _ in range(8)
                ]
                cluster.create_topic(topic)
                await asyncio.gather(*(mq.producer().send(topic, b"x") for mq in clients))
                await asyncio.to_thread(one.stop)
                cluster.create_topic(f"{topic}_new")
                at = Trial(cluster, clients[0], f"{topic}_new", clients[0].producer("P"))
                for number, mq in enumerate(clients):
                    at.producer = mq.producer("P_new")
                    await at.send(f"{number}")
                async with at.consuming(inbox):
                    await inbox.wait_for(at.keys)

    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_sends_go_to_the_broker_that_is_left(topic: str, tmp_path: Path) -> None:
    """Within the time of one send; nobody who sends hears of it."""
    inbox = Inbox()
    with (
        OurNameServer(tmp_path / "namesrv") as namesrv,
        OurBroker(tmp_path / "a", namesrv=namesrv.address) as doomed,
        OurBroker(
            tmp_path / "b", namesrv=namesrv.address, settings={"brokerName": "broker-b"}
        ) as staying,
    ):
        asking.create_topic(doomed.address, topic)
        cluster = Cluster(OURS, namesrv.address, staying, lambda: staying)
        cluster.create_topic(topic)
        async with Client(namesrv.address, **IN_A_HURRY) as mq:
            at = Trial(cluster, mq, topic, mq.producer())
            async with at.consuming(inbox):
                before = await at.send(*numbered(16, "before"))
                await inbox.wait_for(at.keys)
                doomed.kill()
                after = await at.send(*numbered(16, "after"))
                await inbox.wait_for(at.keys)

    assert {result.queue.broker_name for result in before} == {"broker-a", "broker-b"}
    assert {result.queue.broker_name for result in after} == {"broker-b"}
    assert sorted(inbox.keys) == sorted(at.keys)


# --- names, ports, signatures, threads


@scenario
async def test_a_namespace_keeps_names_apart(cluster: Cluster, topic: str) -> None:
    inbox, outside = Inbox(fails=lambda message: not message.reconsume_times), Inbox()
    cluster.create_topic(f"space%{topic}")
    async with trial(cluster, topic) as at:
        async with Client(cluster.namesrv, namespace="space", **IN_A_HURRY) as mq:
            result = await mq.producer().send(topic, b"inside")
            async with at.consuming(inbox, mq=mq), at.consuming(outside):
                await until(lambda: len(inbox.messages) == 2, "it failed once and came again")
                await at.send("outside")
                await outside.wait_for(["outside"])
        topics = asking.topics(cluster.namesrv)

    assert inbox.keys == ["inside", "inside"]
    assert outside.keys == ["outside"]
    assert {message.topic for message in inbox.messages} == {topic}
    assert result.queue.topic == topic
    assert inbox.messages[0].properties["INSTANCE_ID"] == "space"
    assert f"%RETRY%space%{at.group}" in topics


@scenario
async def test_the_vip_port_serves_what_is_not_pulled(cluster: Cluster, topic: str) -> None:
    inbox = Inbox()
    async with trial(cluster, topic, is_vip_channel=True) as at:
        await at.send(*numbered(4))
        async with at.consuming(inbox):
            await inbox.wait_for(at.keys)
        is_used = sockets.established_to(cluster.broker.port - 2)

    assert is_used
    at.claim(CONCURRENTLY, inbox)


@scenario
async def test_a_broker_that_checks_signatures_takes_ours(
    cache: Cache, topic: str, tmp_path: Path
) -> None:
    """Signed are sends, pulls, heartbeats, offsets and what is sent back."""
    home = tmp_path / "broker"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(ACL)
    inbox = Inbox(fails=lambda message: not message.reconsume_times)
    with OurNameServer(tmp_path / "namesrv") as namesrv:
        address = namesrv.address
        settings = {**SETTINGS, "aclEnable": "true"}
        broker = await asyncio.to_thread(
            ApacheBroker, cache, OLD, home, namesrv=address, settings=settings
        )
        try:
            key, secret = "RocketMQ", "12345678"
            async with Client(address, access_key=key, secret_key=secret, **IN_A_HURRY) as mq:
                at = Trial(Cluster(OLD, address, broker, lambda: broker), mq, topic, mq.producer())
                await at.send("signed")
                async with at.consuming(inbox):
                    await until(lambda: len(inbox.messages) == 2, "it failed once and came again")
            wrong = Client(address, access_key=key, secret_key="guessed")
            for stranger in (Client(address), wrong):
                async with stranger as mq:
                    with pytest.raises(SendFailed, match="AclException"):
                        await mq.producer(retries=0).send(topic, b"unsigned")
        finally:
            broker.kill()

    assert inbox.keys == ["signed", "signed"]


def test_the_blocking_client_does_the_same(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    history = History()
    failed: list[str] = []

    def handle(message: cometmq.Message[str]) -> None:
        if message.value == "sent-3" and not message.reconsume_times:
            failed.append(message.value)
            raise ValueError("not yet")
        attempt = message.reconsume_times
        history.add(received(message, attempt=attempt))  # type: ignore[arg-type]

    with cometmq.Client(cluster.namesrv, **IN_A_HURRY) as mq:
        producer = mq.producer()
        for key in numbered(10, "sent"):
            producer.send(topic, key)
        futures = [producer.send_async(topic, key) for key in numbered(10, "future")]
        ids = {future.result(timeout=20).message_id for future in futures}
        keys = [*numbered(10, "sent"), *numbered(10, "future")]
        consumer = mq.consumer(f"G_{topic}", codec=str, start="first")
        consumer.subscribe(topic)
        consumer.start(handle)
        asking.wait_until(lambda: len(history.receipts) == len(keys), "all is received")
        consumer.close()
        for key in keys:
            history.add(Sent(key, topic=topic))
        iterated = []
        producer.send(topic, "one more")
        with mq.consumer(f"G_{topic}", codec=str) as again:
            again.subscribe(topic)
            for message in again:
                iterated.append(message.value)
                break

    assert len(ids) == len(futures)
    assert failed == ["sent-3"]
    assert iterated == ["one more"]
    history.claim(CONCURRENTLY)


# --- what the tests use


async def joined(at: Trial, program: FeatureProgram, **options: Any) -> ProgramConsumer:
    """A member of the trial's group in a program."""
    target = {"namesrv": at.cluster.namesrv, "topic": at.topic, "group": at.group}
    return await asyncio.to_thread(program.consume, "doomed", **target, **options)


async def share(one: Consumer[bytes], other: Consumer[bytes], topic: str) -> None:
    """Return once each has its half of the queues."""

    def is_shared() -> bool:
        shares = [queue_ids(member, topic) for member in (one, other)]
        return all(len(ids) == QUEUES // 2 for ids in shares) and not shares[0] & shares[1]

    await until(is_shared, "the queues are shared")


def own(inbox: Inbox) -> frozenset[int]:
    """The queues it got messages from."""
    return frozenset(message.queue_id for message in inbox.messages)


async def dead_letters(at: Trial, count: int) -> dict[str, Message[bytes]]:
    """What is in the group's dead-letter topic, once there are so many."""
    name = f"%DLQ%{at.group}"
    await asyncio.to_thread(at.cluster.wait_until_known, name)
    found: list[Message[bytes]] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} dead letters"
        found = [message async for message in at.mq.browse(name)]
    assert len(found) == count
    return {text(message): message for message in found}
