"""What users of a producer rely on: values, checks, hooks, its life."""

import asyncio
import concurrent.futures
import sys
import threading
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cometmq.client.client import Client
from cometmq.client.core.results import SendResult
from cometmq.client.producer import THREAD_BYTES
from cometmq.codec import recall_handle
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import GetMaxOffset, OffsetResponse
from cometmq.codec.headers.recall import RecallMessage, RecallMessageResponse
from cometmq.codec.recall_handle import RecallHandle
from cometmq.errors import (
    AlreadyExists,
    EncodeError,
    InvalidArgument,
    MissingDependency,
    NotRunning,
    Refused,
    RequestTimeout,
    SendFailed,
    SettingsError,
)
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from cometmq.testing import LocalCluster
from cometmq.testing.local_cluster import BlockingCluster
from tests.unit.client.kit import Asked, FakeCluster, connected, refused

SEND = RequestCode.SEND_MESSAGE_V2


class Order(msgspec.Struct):
    number: int


# --- values


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (b"raw", b"raw"),
        ("täxt", "täxt".encode()),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (Order(7), b'{"number":7}'),
    ],
)
async def test_values_become_bodies_by_what_they_are(value: object, body: bytes) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer().send("orders", value)

        assert cluster.a.sends[0].body == body


async def test_a_codec_says_which_values_are_sent() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(codec=Order)

        await producer.send("orders", Order(7))
        with pytest.raises(EncodeError):
            await producer.send("orders", "seven")

        assert [asked.body for asked in cluster.sends] == [b'{"number":7}']


@pytest.mark.parametrize("size", [4096, THREAD_BYTES])
async def test_large_bodies_are_compressed(size: int) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()

        await producer.send("orders", bytes(size))
        await producer.send("orders", bytes(4095))

        large, small = cluster.a.sends
        assert zlib.decompress(large.body) == bytes(size)
        assert large.send.sys_flag == 0x301
        assert small.send.sys_flag == 0


async def test_a_large_body_stays_as_it_is_where_the_limit_is_higher() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer(compress_over_bytes=1 << 20).send("orders", bytes(THREAD_BYTES))

        assert cluster.a.sends[0].send.sys_flag == 0


async def test_times_may_be_said_in_pythons_types() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        when = datetime(2030, 1, 1, tzinfo=UTC)

        await producer.send("orders", b"x", delay=timedelta(minutes=1))
        await producer.send("orders", b"x", deliver_at=when)

        first, second = cluster.a.sends
        assert first.properties["TIMER_DELAY_MS"] == "60000"
        assert second.properties["TIMER_DELIVER_MS"] == str(round(when.timestamp() * 1000))


async def test_flag_and_wait_store_reach_the_broker() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer().send("orders", b"x", flag=-5, wait_store=False)

        assert cluster.a.sends[0].send.flag == -5
        assert cluster.a.sends[0].properties["WAIT"] == "false"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": "a b"}, "characters that are not allowed"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "the brokers' own"),
        ({"value": b""}, "the body is empty"),
        ({"properties": {"UNIQ_KEY": "x"}}, "RocketMQ's own"),
        ({"delay": 1, "delay_level": 2}, "delay and delay_level"),
        ({"delay_level": 19}, "no delay level 19"),
        ({"delay_level": "3"}, "no delay level '3'"),
        ({"delay_level": 2.5}, "no delay level 2.5"),
        ({"deliver_at": 1_900_000_000_000.5}, "no time to deliver at; say it in whole milli"),
        ({"deliver_at": 1_795_122_893}, "looks like seconds"),
        ({"deliver_at": "tomorrow"}, "'tomorrow' is no time to deliver at"),
        ({"delay": float("nan")}, "is no delay"),
        ({"deliver_at": datetime(2030, 1, 1)}, "in which time zone"),  # noqa: DTZ001
        ({"timeout_ms": 0}, "no time"),
        ({"timeout_ms": "5"}, "'5' ms are no time"),
        ({"timeout_ms": float("nan")}, "nan ms are no time"),
        ({"delay_level": True}, "no delay level True"),
        ({"flag": 0.0}, "0.0 is no number of 32 bits"),
        ({"queue": MessageQueue("orders", "broker-a", -1)}, "take one of the topic's queues"),
        ({"queue": 0}, "0 is no MessageQueue"),
        ({"keys": ["a b"]}, "has blanks in it"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_anybody_is_asked(
    arguments: dict[str, object], words: str
) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        given: dict[str, object] = {"topic": "orders", "value": b"x"} | arguments

        with pytest.raises(InvalidArgument, match=words):
            await client.producer().send(**given)  # type: ignore[arg-type]

        assert not cluster.name_servers[0].asked


async def test_one_value_is_not_sent_as_many() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        for value in (b"abc", "abc"):
            with pytest.raises(InvalidArgument, match="pass a list of values"):
                await client.producer(f"of-{type(value).__name__}").send_many("orders", value)

        assert not cluster.name_servers[0].asked


async def test_queue_and_selector_exclude_each_other() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        queue = (await producer.send("orders", b"x")).queue

        with pytest.raises(InvalidArgument, match="both given"):
            await producer.send("orders", b"x", queue=queue, selector=lambda queues, _: queues[0])


# --- options and groups


async def test_an_option_that_does_not_exist_is_named_with_a_hint() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(SettingsError, match="retries"):
            client.producer(retrys=3)  # type: ignore[call-arg]


async def test_a_group_has_one_producer_at_a_time() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        first = client.producer("shop")

        with pytest.raises(AlreadyExists, match="shop"):
            client.producer("shop")
        await first.close()

        assert client.producer("shop").group == "shop"


@pytest.mark.parametrize(("compression", "package"), [("lz4", "lz4"), ("zstd", "zstandard")])
async def test_a_missing_package_is_said_before_a_large_body_needs_it(
    compression: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in {package, *(name for name in sys.modules if name.partition(".")[0] == package)}:
        monkeypatch.setitem(sys.modules, module, None)
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(MissingDependency, match=package):
            client.producer(compression=compression)

        client.producer()  # of the same group, which nobody has yet


async def test_a_group_that_java_refuses_is_refused() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(InvalidArgument, match="DEFAULT_PRODUCER"):
            client.producer("DEFAULT_PRODUCER")

        client.producer("shop")


async def test_compressing_is_part_of_the_time_of_a_send() -> None:
    """The threads of the loop are everybody's: all of them may be busy."""
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()
        gate = threading.Event()
        pool = concurrent.futures.ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(pool)
        busy = pool.submit(gate.wait)

        with pytest.raises(SendFailed, match="all threads of the loop are busy") as caught:
            await producer.send("orders", bytes(THREAD_BYTES), timeout_ms=10)

        gate.set()
        assert busy.result()
        assert not caught.value.may_be_stored
        assert not cluster.sends


# --- recall


async def test_a_recall_goes_to_the_broker_that_has_the_message() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        recalled = Answer(header=RecallMessageResponse("UNIQUE"))
        cluster.b.on(RequestCode.RECALL_MESSAGE, recalled)
        handle = recall_handle.encode(RecallHandle("orders", "broker-b", 1_800_000_000_000, "U"))

        message_id = await client.producer("shop").recall("orders", handle)

        (asked,) = cluster.b.questions(RequestCode.RECALL_MESSAGE)
        header = RecallMessage.from_ext(asked.command.ext_fields)
        assert message_id == "UNIQUE"
        assert (header.topic, header.recall_handle, header.producer_group) == (
            "orders",
            handle,
            "shop",
        )


@pytest.mark.slow
async def test_finding_the_broker_is_part_of_the_time_of_a_recall() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(RequestCode.RECALL_MESSAGE, None)
        server = cluster.name_servers[0]

        async def late(asked: Asked) -> Answer:
            await asyncio.sleep(0.1)
            return cluster._route(asked)

        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, late)
        handle = recall_handle.encode(RecallHandle("orders", "broker-a", 1_800_000_000_000, "U"))

        with pytest.raises(RequestTimeout) as caught:
            await client.producer().recall("orders", handle, timeout_ms=1_000)

        assert caught.value.address == cluster.a.address
        assert caught.value.timeout_ms <= 925


async def test_a_recall_asks_any_broker_of_the_topic_when_the_one_is_unknown() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        no = refused(ResponseCode.SYSTEM_ERROR, "too late")
        cluster.a.on(RequestCode.RECALL_MESSAGE, no)
        handle = recall_handle.encode(RecallHandle("orders", "gone", 1_800_000_000_000, "U"))

        with pytest.raises(Refused, match="too late"):
            await client.producer().recall("orders", handle)


@pytest.mark.parametrize(
    ("topic", "handle"), [("orders", "nonsense"), ("%RETRY%g", "x"), ("orders", None)]
)
async def test_what_cannot_be_recalled_is_refused_here(topic: str, handle: Any) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(InvalidArgument):
            await client.producer().recall(topic, handle)

        assert not cluster.name_servers[0].asked


# --- its life


async def test_brokers_are_told_of_the_group_and_of_its_end() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer("shop")
        await producer.send("orders", b"x")

        (beat, *_) = await cluster.a.until(RequestCode.HEART_BEAT)
        await producer.close()

        assert b'"groupName":"shop"' in beat.body
        (gone,) = cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        assert gone.command.ext_fields["producerGroup"] == "shop"


async def test_a_closed_producer_refuses_and_may_be_closed_again() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        async with client.producer() as producer:
            pass
        await producer.close()

        with pytest.raises(NotRunning, match="this producer is closed"):
            await producer.send("orders", b"x")


async def test_closing_lets_sends_under_way_finish() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            cluster.create("orders", queues=1)
            gate = asyncio.Event()

            async def slow(asked: Asked) -> Answer:
                await gate.wait()
                return cluster.stored(asked)

            cluster.a.on(SEND, slow)
            producer = client.producer()
            sending = asyncio.ensure_future(producer.send("orders", b"x"))
            await cluster.a.until(SEND)
            closing = asyncio.ensure_future(producer.close())
            await asyncio.sleep(0)
            assert not closing.done()
            gate.set()
            await closing

        assert (await sending).is_ok


async def test_a_client_waits_for_a_producer_that_is_being_closed() -> None:
    async with FakeCluster() as cluster:
        gate = asyncio.Event()

        async def slow(asked: Asked) -> Answer:
            await gate.wait()
            return cluster.stored(asked)

        async with connected(cluster) as client:
            cluster.create("orders", queues=1)
            cluster.a.on(SEND, slow)
            producer = client.producer()
            sending = asyncio.ensure_future(producer.send("orders", b"x"))
            await cluster.a.until(SEND)
            closing = asyncio.ensure_future(producer.close())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.02, gate.set)

        assert (await sending).is_ok
        await closing
        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)


async def test_a_close_that_is_cancelled_still_leaves_the_group() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, None)
        producer = client.producer("shop")
        sending = asyncio.ensure_future(producer.send("orders", b"x"))
        await cluster.a.until(SEND)
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0)

        closing.cancel()
        await asyncio.wait((closing,))

        assert cluster.a.questions(RequestCode.UNREGISTER_CLIENT)
        client.producer("shop")
        sending.cancel()


async def test_closing_lets_bodies_be_compressed_and_sent() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            cluster.create("orders", queues=1)
            sending = asyncio.ensure_future(
                client.producer().send("orders", bytes(THREAD_BYTES), timeout_ms=3_000)
            )
            await asyncio.sleep(0)  # now it waits for the thread that compresses

        assert (await sending).is_ok


async def test_closing_lets_all_frames_of_a_batch_leave() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            cluster.create("orders", queues=1)
            producer = client.producer(body_bytes_max=400)
            sending = asyncio.ensure_future(producer.send_many("orders", [bytes([1]) * 250] * 5))
            await cluster.a.until(RequestCode.SEND_BATCH_MESSAGE)

        codes = [asked.code for asked in cluster.a.asked]
        assert len(await sending) == 5
        assert codes[-1] == RequestCode.UNREGISTER_CLIENT
        assert codes.count(RequestCode.SEND_BATCH_MESSAGE) == 5


async def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster, drain_timeout_ms=5) as client:
            cluster.create("orders", queues=1)
            cluster.a.on(SEND, None)
            sending = asyncio.ensure_future(client.producer().send("orders", b"x"))
            await cluster.a.until(SEND)

        with pytest.raises(SendFailed):
            await sending
        assert "closed with 1 sends under way" in caplog.text


@pytest.mark.slow
async def test_what_is_held_and_what_is_under_way_share_the_time_of_closing() -> None:
    async with FakeCluster() as cluster, connected(cluster, drain_timeout_ms=150) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, None)
        cluster.a.on(RequestCode.SEND_BATCH_MESSAGE, None)
        producer = client.producer(is_batching=True, retries=0)
        sends = [
            asyncio.ensure_future(producer.send("orders", body)) for body in (b"x", bytes(40_000))
        ]
        await cluster.a.until(SEND)
        began = asyncio.get_running_loop().time()

        await producer.close()

        assert asyncio.get_running_loop().time() - began < 0.29
        for sending in sends:
            sending.cancel()
        await asyncio.wait(sends)


async def test_a_producer_is_closed_with_its_client() -> None:
    async with FakeCluster() as cluster:
        async with connected(cluster) as client:
            producer = client.producer()

        with pytest.raises(NotRunning):
            await producer.send("orders", b"x")
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


# --- with real brokers


@pytest.mark.slow
async def test_nothing_that_was_confirmed_is_lost_when_a_broker_is_killed() -> None:
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("orders")
        await send_while_a_broker_is_killed(cluster)


async def send_while_a_broker_is_killed(cluster: BlockingCluster) -> None:
    async with Client(cluster.namesrv, client_ip="10.0.0.9") as client:
        producer = client.producer(send_timeout_ms=10_000)
        confirmed: list[SendResult] = []

        async def send() -> None:
            while len(confirmed) < 400:
                result = await producer.send("orders", b"x")
                confirmed.append(result)

        senders = [asyncio.ensure_future(send()) for _ in range(8)]
        while len(confirmed) < 50:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(cluster.broker.kill)
        await asyncio.gather(*senders)
        await asyncio.to_thread(cluster.broker.start)

        offsets: dict[MessageQueue, set[int]] = {}
        for result in confirmed:
            offsets.setdefault(result.queue, set()).add(result.queue_offset)
        assert len(confirmed) == sum(map(len, offsets.values())) >= 400
        async with Client(cluster.namesrv, client_ip="10.0.0.9") as reader:
            await reader._require().routes.find("orders")
            for queue, found in offsets.items():
                assert max(found) < await max_offset(reader, queue)


@pytest.mark.slow
async def test_a_real_broker_takes_all_that_a_producer_sends() -> None:
    async with (
        LocalCluster(settings={"recallMessageEnable": "true"}) as cluster,
        Client(cluster.namesrv, client_ip="10.0.0.9", namespace="ns") as client,
    ):
        producer = client.producer()

        first = await producer.send("orders", bytes(10_000), tag="t", keys=["k"])
        (many,) = await producer.send_many("orders", [b"1", b"2"], queue=first.queue)
        await producer.send_oneway("orders", b"3", queue=first.queue)
        later = await producer.send("orders", b"4", queue=first.queue, delay=60)
        recalled = await producer.recall("orders", later.recall_handle or "")

        assert first.is_ok
        assert many.is_ok
        assert many.queue_offset == first.queue_offset + 1
        assert recalled == later.message_id
        assert await max_offset(client, first.queue, "ns%orders") == 4


async def max_offset(client: Client, queue: MessageQueue, topic: str = "") -> int:
    instance = client._require().main
    address = instance.routes.table.master(queue.broker_name)
    assert address is not None
    header = GetMaxOffset(topic or queue.topic, queue.queue_id)
    answer = await instance.ask(address, RequestCode.GET_MAX_OFFSET, header, timeout_ms=5_000)
    return OffsetResponse.from_ext(answer.ext_fields).offset
