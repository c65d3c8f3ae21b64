"""Several messages in one frame."""

import asyncio

import pytest

from cometmq.client.batching import Item
from cometmq.client.core.results import SendResult
from cometmq.client.hooks import SendContext
from cometmq.codec import batch
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.properties import decode as decode_properties
from cometmq.errors import InvalidArgument, NoRoute, SendFailed
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import Asked, FakeCluster, bodies_of, connected, refused

BATCH = RequestCode.SEND_BATCH_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2


def children(asked: Asked) -> list[dict[str, str]]:
    """The properties of the messages in a batch."""
    return [decode_properties(item.properties.decode()) for item in batch.decode(asked.body)]


# --- handed over together


async def test_many_messages_leave_in_one_frame() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        (result,) = await client.producer("shop").send_many("orders", [b"1", "2", {"n": 3}])

        (asked,) = cluster.a.questions(BATCH)
        assert bodies_of(asked.body) == [b"1", b"2", b'{"n":3}']
        assert asked.send.batch is True
        assert asked.properties == {"WAIT": "true"}
        ids = [properties["UNIQ_KEY"] for properties in children(asked)]
        assert len(set(ids)) == 3
        assert result.message_id == ",".join(ids)
        assert (result.offset_id, result.queue_offset) == ("ID0,ID1,ID2", 0)


async def test_items_have_settings_of_their_own() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        items = [b"plain", Item(b"own", tag="b", keys=["k"], properties={"p": "own"}, flag=9)]

        await client.producer().send_many(
            "orders", items, tag="a", properties={"p": "all", "q": "all"}, wait_store=False
        )

        (asked,) = cluster.a.questions(BATCH)
        plain, own = children(asked)
        assert asked.properties == {"WAIT": "false"}
        assert (plain["TAGS"], plain["p"], plain["q"]) == ("a", "all", "all")
        assert (own["TAGS"], own["KEYS"], own["p"], own["q"]) == ("b", "k", "own", "all")
        assert [item.flag for item in batch.decode(asked.body)] == [0, 9]


async def test_more_than_fits_is_split_at_the_limit() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        values = [bytes([number]) * 300 for number in range(10)]

        results = await client.producer(body_bytes_max=1500).send_many("orders", values)

        frames = cluster.a.questions(BATCH)
        assert len(results) == len(frames) > 1
        assert all(len(frame.body) <= 1500 for frame in frames)
        assert [body for frame in frames for body in bodies_of(frame.body)] == values


async def test_bodies_in_a_batch_are_not_compressed() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer().send_many("orders", [bytes(100_000)])

        (asked,) = cluster.a.questions(BATCH)
        assert asked.send.sys_flag == 0
        assert bodies_of(asked.body) == [bytes(100_000)]


async def test_a_batch_goes_where_its_sender_wants() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=3)
        queue = MessageQueue("orders", "broker-b", 2)

        (result,) = await client.producer().send_many("orders", [b"1", b"2"], queue=queue)

        assert result.queue == queue
        assert not cluster.a.questions(BATCH)


async def test_messages_of_a_batch_carry_the_key_by_which_their_queue_was_chosen() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        producer = client.producer()

        (many,) = await producer.send_many("orders", [b"1", b"2"], ordering_key="order-7")
        alone = await producer.send("orders", b"3", ordering_key="order-7")

        (asked,) = cluster.a.questions(BATCH)
        assert [child.get("__SHARDINGKEY") for child in children(asked)] == ["order-7"] * 2
        assert many.queue == alone.queue


async def test_an_ordering_key_that_is_none_is_refused_for_a_batch_too() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(InvalidArgument, match="ordering key '' is blank"):
            await client.producer().send_many("orders", [b"1"], ordering_key="")

        assert not cluster.name_servers[0].asked


async def test_a_batch_is_tried_again_elsewhere() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(BATCH, refused(ResponseCode.SYSTEM_BUSY))
        producer = client.producer()

        results = [(await producer.send_many("orders", [b"1"]))[0] for _ in range(2)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_the_error_of_a_later_frame_tells_which_ones_are_stored() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(BATCH, cluster.stored, refused(ResponseCode.MESSAGE_ILLEGAL))
        producer = client.producer(body_bytes_max=400)

        with pytest.raises(SendFailed) as caught:
            await producer.send_many("orders", [bytes([1]) * 250, bytes([2]) * 250])

        (stored,) = caught.value.results
        assert getattr(stored, "offset_id", "") == "ID0"


@pytest.mark.parametrize(
    ("topic", "values", "words"),
    [
        ("orders", [], "no messages"),
        ("%RETRY%g", [b"1"], "retry topic"),
        ("orders", [b"1", b""], "empty"),
    ],
)
async def test_what_cannot_be_in_a_batch_is_refused(
    topic: str, values: list[bytes], words: str
) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(InvalidArgument, match=words):
            await client.producer().send_many(topic, values)

        assert not cluster.name_servers[0].asked


async def test_hooks_see_a_batch_as_one() -> None:
    seen: list[SendContext] = []

    class Hook:
        def before_send(self, context: SendContext) -> None:
            seen.append(context)

        def after_send(self, context: SendContext) -> None:
            assert context is seen[-1]

    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer(hooks=[Hook()]).send_many("orders", [b"1", b"2"])

        (context,) = seen
        assert (context.mode, context.kind) == ("batch", "batch")
        assert context.message_id.count(",") == 1


# --- collected by itself


async def test_sends_that_come_together_leave_together() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=1)

        results = await asyncio.gather(*(producer.send("orders", b"%d" % n) for n in range(5)))

        (asked,) = cluster.a.questions(BATCH)
        assert bodies_of(asked.body) == [b"0", b"1", b"2", b"3", b"4"]
        ids = [properties["UNIQ_KEY"] for properties in children(asked)]
        assert [result.message_id for result in results] == ids
        assert [result.offset_id for result in results] == ["ID0", "ID1", "ID2", "ID3", "ID4"]
        assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]


async def test_a_full_batch_does_not_wait() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=60_000, batch_bytes=500)

        results = await asyncio.gather(*(producer.send("orders", bytes(200)) for _ in range(2)))

        assert all(result.is_ok for result in results)
        assert len(cluster.a.questions(BATCH)) == 1


async def test_topic_tag_queue_and_wait_keep_messages_apart() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        cluster.create("others", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=1)

        await asyncio.gather(
            producer.send("orders", b"1"),
            producer.send("others", b"2"),
            producer.send("orders", b"3", tag="t"),
            producer.send("orders", b"4", wait_store=False),
            producer.send("orders", b"5", ordering_key="k"),
            producer.send("orders", b"6", ordering_key="k"),
        )

        batches = [bodies_of(asked.body) for asked in cluster.a.questions(BATCH)]
        assert sorted(batches) == [[b"1"], [b"2"], [b"3"], [b"4"], [b"5", b"6"]]


async def test_what_cannot_be_in_a_batch_leaves_alone_and_at_once() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=60_000)

        await producer.send("orders", b"x", delay_level=1)
        await producer.send("orders", bytes(5000))  # compressed
        await producer.send("orders", bytes(40_000))

        assert len(cluster.a.sends) == 3
        assert not cluster.a.questions(BATCH)


async def test_all_senders_of_a_batch_that_failed_are_told() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(BATCH, refused(ResponseCode.MESSAGE_ILLEGAL, "illegal"))
        producer = client.producer(is_batching=True, batch_hold_ms=1)

        errors = await asyncio.gather(
            *(producer.send("orders", b"x") for _ in range(3)), return_exceptions=True
        )

        assert [type(error) for error in errors] == [SendFailed] * 3
        assert len({id(error) for error in errors}) == 3


async def test_senders_of_a_batch_without_a_route_each_get_an_error_of_their_own() -> None:
    """One that several raise would collect the traces of all of them."""
    async with FakeCluster() as cluster, connected(cluster) as client:
        producer = client.producer(is_batching=True, batch_hold_ms=1)

        errors = await asyncio.gather(
            *(producer.send("nowhere", b"x") for _ in range(3)), return_exceptions=True
        )

        assert [type(error) for error in errors] == [NoRoute] * 3
        assert len({id(error) for error in errors}) == 3
        assert len({str(error) for error in errors}) == 1


async def test_a_sender_that_gives_up_in_time_stays_out_of_the_batch() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=2)
        kept = asyncio.ensure_future(producer.send("orders", b"kept"))
        gone = asyncio.ensure_future(producer.send("orders", b"gone"))
        await asyncio.sleep(0)

        gone.cancel()
        await kept

        (asked,) = cluster.a.questions(BATCH)
        assert bodies_of(asked.body) == [b"kept"]


async def test_closing_sends_what_is_held() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=60_000)
        sending = asyncio.ensure_future(producer.send("orders", b"x"))
        await asyncio.sleep(0)

        await producer.close()

        assert (await sending).is_ok


async def test_beyond_the_total_messages_leave_alone() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        gate = asyncio.Event()

        async def slow(asked: Asked) -> Answer:
            await gate.wait()
            return cluster.stored(asked)

        cluster.a.on(BATCH, slow)
        producer = client.producer(is_batching=True, batch_bytes=250, batch_total_bytes=400)
        held = [asyncio.ensure_future(producer.send("orders", bytes(100))) for _ in range(2)]
        await cluster.a.until(BATCH)

        alone = await producer.send("orders", bytes(100))
        gate.set()

        assert alone.is_ok
        assert len(cluster.a.sends) == 1
        assert all(result.is_ok for result in await asyncio.gather(*held))


async def test_a_sender_without_time_does_not_take_it_from_others() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(is_batching=True, batch_hold_ms=2, retries=0)

        def answer(asked: Asked) -> Answer | None:
            return None if b"hurried" in asked.body else cluster.stored(asked)

        cluster.a.on(BATCH, answer)
        await producer.send("orders", b"x")  # from here on the way is known

        hurried, patient = await asyncio.gather(
            producer.send("orders", b"hurried", timeout_ms=100),
            producer.send("orders", b"patient"),
            return_exceptions=True,
        )

        assert isinstance(hurried, SendFailed)
        assert isinstance(patient, SendResult)


async def test_a_message_that_leaves_alone_does_not_overtake_those_held_for_its_queue() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        producer = client.producer(is_batching=True, batch_hold_ms=60_000)
        await producer.send("orders", b"x" * 40_000)
        cluster.a.asked.clear()

        await asyncio.gather(
            producer.send("orders", b"first", ordering_key="k", tag="a"),
            producer.send("orders", b"second", ordering_key="k", tag="b"),
            producer.send("orders", bytes(5_000), ordering_key="k"),
        )

        codes = [asked.code for asked in cluster.a.asked if asked.code in (BATCH, SEND)]
        assert codes == [BATCH, SEND]
        assert bodies_of(cluster.a.questions(BATCH)[0].body) == [b"first", b"second"]


async def test_whatever_ends_a_later_frame_tells_which_ones_are_stored() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        routes = client._require().routes

        def lose(asked: Asked) -> Answer:
            cluster.topics.clear()
            routes.table.remove("orders")
            return cluster.stored(asked)

        cluster.a.on(BATCH, lose)
        producer = client.producer(body_bytes_max=300)

        with pytest.raises(SendFailed, match="no route") as caught:
            await producer.send_many("orders", [bytes(150), bytes(150)])

        assert isinstance(caught.value.cause, NoRoute)
        assert len(caught.value.results) == 1
