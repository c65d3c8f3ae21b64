"""One send: queue, address, tries, time."""

import asyncio
from collections import Counter

import pytest

from cometmq.client.core.results import SendStatus
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessageV2
from cometmq.codec.java import string_hash
from cometmq.errors import (
    InvalidArgument,
    NoRoute,
    RequestTimeout,
    SendFailed,
    TooManyRequests,
    Unreachable,
    Unsupported,
)
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import V4_9_7, Asked, FakeCluster, Reply, connected, refused, status

SEND = RequestCode.SEND_MESSAGE_V2


async def test_a_send_says_all_that_the_broker_must_know() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        result = await client.producer("shop").send("orders", b"1", tag="paid", keys=["k1", "k2"])

        (asked,) = cluster.a.sends
        header = asked.send
        assert (header.producer_group, header.topic, header.queue_id) == ("shop", "orders", 0)
        assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
        assert (header.sys_flag, header.flag, header.reconsume_times) == (0, 0, 0)
        assert header.broker_name == "broker-a"
        assert asked.body == b"1"
        assert asked.properties == {
            "KEYS": "k1 k2",
            "UNIQ_KEY": result.message_id,
            "WAIT": "true",
            "TAGS": "paid",
        }


async def test_the_result_tells_where_the_message_is() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        result = await client.producer().send("orders", b"1")

        assert result.status is SendStatus.OK
        assert result.queue == MessageQueue("orders", "broker-a", 0)
        assert (result.offset_id, result.queue_offset, result.transaction_id) == ("ID0", 0, "T")
        assert (result.region, result.is_traced) == ("DefaultRegion", True)


async def test_all_queues_of_all_brokers_take_turns() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=2)
        producer = client.producer()

        results = [await producer.send("orders", b"x") for _ in range(40)]

        counts = Counter(result.queue for result in results)
        assert sorted(counts.values()) == [10, 10, 10, 10]


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
    ],
)
async def test_a_broker_that_cannot_is_followed_by_another_with_the_same_id(
    code: ResponseCode,
) -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, refused(code))
        producer = client.producer()

        results = [await producer.send("orders", b"x") for _ in range(2)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert cluster.a.sends
        ids = {asked.properties["UNIQ_KEY"] for asked in cluster.sends}
        assert ids == {result.message_id for result in results}


async def test_another_refusal_ends_the_send_at_once_with_the_brokers_words() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        no = refused(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal")
        cluster.a.on(SEND, no)
        cluster.b.on(SEND, no)

        with pytest.raises(SendFailed) as caught:
            await client.producer().send("orders", b"x")

        error = caught.value
        assert (error.tries, error.code, error.may_be_stored) == (1, 13, False)
        assert "the message is illegal" in str(error)
        assert len(cluster.sends) == 1


async def test_tries_end_with_an_error_that_names_all_brokers() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        busy = refused(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]")
        cluster.a.on(SEND, busy)
        cluster.b.on(SEND, busy)

        with pytest.raises(SendFailed) as caught:
            await client.producer(retries=2).send("orders", b"x")

        assert caught.value.tries == 3
        assert sorted(set(caught.value.brokers)) == ["broker-a", "broker-b"]
        assert caught.value.brokers[0] != caught.value.brokers[1]
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
        assert len(cluster.sends) == 3


async def test_a_connection_that_breaks_is_followed_by_another_broker() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, lambda asked: asked.channel.drop("the test breaks it"))
        producer = client.producer()

        results = [await producer.send("orders", b"x") for _ in range(2)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_broker_that_is_down_is_followed_by_another() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        await cluster.a.stop()
        producer = client.producer()

        results = [await producer.send("orders", b"x") for _ in range(3)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_all_tries_share_one_time() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, None)
        began = asyncio.get_running_loop().time()

        with pytest.raises(SendFailed) as caught:
            await client.producer().send("orders", b"x", timeout_ms=30)

        assert asyncio.get_running_loop().time() - began < 0.5
        assert caught.value.code == 10002
        assert caught.value.may_be_stored
        assert isinstance(caught.value.cause, RequestTimeout)


async def test_each_try_but_the_last_may_have_a_limit_of_its_own() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, None)
        producer = client.producer(try_timeout_ms=10)

        results = [await producer.send("orders", b"x") for _ in range(2)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_the_only_try_of_a_message_that_has_its_place_has_all_the_time() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        async def late(asked: Asked) -> Answer:
            await asyncio.sleep(0.05)
            return cluster.stored(asked)

        cluster.a.on(SEND, late)
        producer = client.producer(try_timeout_ms=10)

        assert (
            await producer.send("orders", b"x", ordering_key="customer-1")
        ).status is SendStatus.OK


async def test_a_connection_on_which_nothing_came_in_time_is_ended() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(retries=0)
        await producer.send("orders", b"x")
        await cluster.a.until(RequestCode.HEART_BEAT)
        await producer.send("orders", b"x")  # answered after the heartbeat: nothing else will come
        cluster.a.on(SEND, None, cluster.stored)

        client._require().main.connections._silence_ms = 5
        with pytest.raises(SendFailed):
            await producer.send("orders", b"x", timeout_ms=5)
        await producer.send("orders", b"x")

        first, *_, last = cluster.a.sends
        assert first.channel is not last.channel


async def test_a_send_in_a_hurry_does_not_end_the_connection_of_all_others() -> None:
    """What is left for the last try may be less than a broker's ordinary answer takes."""
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer(retries=0)
        await producer.send("orders", b"x")
        cluster.a.on(SEND, None, cluster.stored)

        with pytest.raises(SendFailed):
            await producer.send("orders", b"x", timeout_ms=5)
        await producer.send("orders", b"x")

        first, *_, last = cluster.a.sends
        assert first.channel is last.channel


async def test_an_answer_that_cannot_be_read_may_mean_that_it_is_stored() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, Answer())  # success, but not where

        with pytest.raises(SendFailed, match="it may be stored all the same") as caught:
            await client.producer(retries=0).send("orders", b"x")

        assert caught.value.may_be_stored


@pytest.mark.parametrize("is_less_safe", [False, True])
async def test_a_route_that_is_lost_between_tries_does_not_hide_what_the_first_one_met(
    is_less_safe: bool,
) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        routes = client._require().routes

        def lose(asked: Asked) -> Answer | None:
            del cluster.topics["orders"]
            routes.table.remove("orders")
            if is_less_safe:
                return status(ResponseCode.FLUSH_DISK_TIMEOUT)(asked)
            asked.channel.drop("as told")
            return None

        cluster.a.on(SEND, lose)
        producer = client.producer(is_retried_when_not_stored=True)

        if is_less_safe:
            result = await producer.send("orders", b"x")
            assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        else:
            with pytest.raises(SendFailed, match="no route for topic 'orders'") as caught:
                await producer.send("orders", b"x")
            assert caught.value.may_be_stored
            assert isinstance(caught.value.cause, NoRoute)
        assert len(cluster.a.sends) == 1


async def test_a_second_broker_that_is_too_old_does_not_hide_what_the_first_one_met() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.b.version = V4_9_7
        cluster.a.on(SEND, lambda asked: asked.channel.drop("as told"))
        producer = client.producer()
        errors: list[Exception] = []

        for _ in range(2):
            with pytest.raises((SendFailed, Unsupported)) as caught:
                await producer.send("orders", b"x", delay=60)
            errors.append(caught.value)

        failed, *_ = [error for error in errors if isinstance(error, SendFailed)]
        assert failed.may_be_stored
        assert isinstance(failed.cause, Unsupported)


async def test_a_broker_that_goes_away_is_asked_once_more_on_a_new_connection() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, refused(ResponseCode.GO_AWAY), cluster.stored)

        result = await client.producer(retries=0).send("orders", b"x")

        assert result.is_ok
        first, second = cluster.a.sends
        assert first.channel is not second.channel


async def test_a_broker_that_goes_away_twice_has_failed() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, refused(ResponseCode.GO_AWAY))

        with pytest.raises(SendFailed) as caught:
            await client.producer(retries=0).send("orders", b"x")

        assert caught.value.code == ResponseCode.GO_AWAY
        assert len(cluster.a.sends) == 2
        # Whoever comes next need not hear it on a connection that is of no more use.
        assert client._require().main.connections.find(cluster.a.address) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_a_message_that_is_less_safe_than_asked_for_is_a_result(
    code: ResponseCode, expected: SendStatus
) -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, status(code))

        result = await client.producer().send("orders", b"x")

        assert result.status is expected
        assert not result.is_ok
        assert len(cluster.a.sends) == 1


async def test_a_less_safe_message_may_be_sent_to_another_broker() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, status(ResponseCode.SLAVE_NOT_AVAILABLE))
        producer = client.producer(is_retried_when_not_stored=True)

        results = [await producer.send("orders", b"x") for _ in range(2)]

        assert all(result.is_ok for result in results)


async def test_a_less_safe_message_is_better_than_none() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        less_safe = status(ResponseCode.SLAVE_NOT_AVAILABLE)
        replies: list[Reply] = [less_safe, refused(ResponseCode.SYSTEM_BUSY)]
        cluster.a.on(SEND, lambda asked: _next(replies, asked))
        cluster.b.on(SEND, lambda asked: _next(replies, asked))

        producer = client.producer(is_retried_when_not_stored=True, retries=1)
        result = await producer.send("orders", b"x")

        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert len(cluster.sends) == 2


def _next(replies: list[Reply], asked: Asked) -> Answer:
    reply = replies.pop(0)
    answer = reply(asked) if callable(reply) else reply
    assert isinstance(answer, Answer)
    return answer


# --- queues that the sender chooses


async def test_a_given_queue_is_used_and_not_left_when_it_fails() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        cluster.b.on(SEND, cluster.stored, refused(ResponseCode.SYSTEM_BUSY))
        producer = client.producer()
        queue = MessageQueue("orders", "broker-b", 3)

        result = await producer.send("orders", b"x", queue=queue)
        with pytest.raises(SendFailed) as caught:
            await producer.send("orders", b"x", queue=queue)

        assert result.queue == queue
        assert caught.value.brokers == ("broker-b",)
        assert not cluster.a.sends


async def test_messages_of_one_key_go_where_java_sends_them() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=4)
        producer = client.producer()
        queues = [MessageQueue("orders", f"broker-{x}", n) for x in "ab" for n in range(4)]

        results = [await producer.send("orders", b"x", ordering_key="k-7") for _ in range(3)]

        expected = queues[abs(string_hash("k-7")) % 8]
        assert {result.queue for result in results} == {expected}
        assert {asked.properties["__SHARDINGKEY"] for asked in cluster.sends} == {"k-7"}


async def test_a_selector_gets_the_queues_and_the_value() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=3)
        producer = client.producer()

        result = await producer.send(
            "orders", {"n": 2}, selector=lambda queues, value: queues[value["n"]]
        )

        assert result.queue.queue_id == 2


async def test_a_queue_of_another_topic_is_refused() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders")

        with pytest.raises(InvalidArgument, match="the queue is of topic 'others'"):
            await client.producer().send(
                "orders", b"x", queue=MessageQueue("others", "broker-a", 0)
            )

        assert not cluster.sends


# --- routes and addresses


async def test_an_unknown_topic_is_made_after_the_default_topic() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("TBW102", queues=8, perm=7)
        producer = client.producer(default_queue_count=3)

        results = [await producer.send("fresh", b"x") for _ in range(6)]

        assert Counter(result.queue.queue_id for result in results) == {0: 2, 1: 2, 2: 2}
        header = cluster.a.sends[0].send
        assert (header.topic, header.default_topic_queue_nums) == ("fresh", 3)


async def test_without_a_default_topic_there_is_no_route() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        with pytest.raises(NoRoute) as caught:
            await client.producer().send("fresh", b"x")

        answers = [answer for _, answer in caught.value.asked]
        assert len(answers) == 2
        assert "TBW102" in answers[1]


async def test_a_broker_without_a_master_gets_nothing() -> None:
    """In Java its sends went to the name server."""
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        slave = BrokerData("broker-b", {1: cluster.b.address}, "east")
        cluster.topics["orders"] = TopicRoute((slave,), (QueueData("broker-b", 1, 1, 6),))
        queue = MessageQueue("orders", "broker-b", 0)
        cluster.create("others", brokers="a")
        producer = client.producer()

        with pytest.raises(NoRoute, match="none of its queues can be written to"):
            await producer.send("orders", b"x")
        cluster.create("orders", brokers="a")
        with pytest.raises(SendFailed, match="names its master") as caught:
            await producer.send("orders", b"x", queue=queue)

        assert isinstance(caught.value.cause, Unreachable)
        assert not cluster.sends


async def test_nobody_to_ask_is_an_error_that_names_the_name_servers() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        await cluster.name_servers[0].stop()

        with pytest.raises(Unreachable, match=cluster.namesrv):
            await client.producer().send("orders", b"x")


async def test_the_vip_channel_is_two_ports_below() -> None:
    async with (
        FakeCluster(have_vip_ports=True) as cluster,
        connected(cluster, is_vip_channel=True) as client,
    ):
        cluster.create("orders")

        result = await client.producer().send("orders", b"x")

        assert result.is_ok
        (sent,) = cluster.a.sends
        assert sent.channel.local == cluster.a.vip_address


async def test_sends_are_signed() -> None:
    options = {"access_key": "ak", "secret_key": "secret"}
    async with FakeCluster() as cluster, connected(cluster, **options) as client:
        cluster.create("orders", queues=1)

        await client.producer().send("orders", b"x")

        ext = cluster.a.sends[0].command.ext_fields
        assert ext["AccessKey"] == "ak"
        assert ext["Signature"]


async def test_a_namespace_is_on_the_wire_and_not_in_results() -> None:
    async with FakeCluster() as cluster, connected(cluster, namespace="ns") as client:
        cluster.create("ns%orders", queues=1)
        producer = client.producer("shop")

        result = await producer.send("orders", b"x")
        chosen = await producer.send("orders", b"x", selector=lambda queues, _: queues[0])

        header: SendMessageV2 = cluster.a.sends[0].send
        assert (header.producer_group, header.topic) == ("ns%shop", "ns%orders")
        assert cluster.a.sends[0].properties["INSTANCE_ID"] == "ns"
        assert result.queue == chosen.queue == MessageQueue("orders", "broker-a", 0)


# --- delays


async def test_a_delay_level_works_with_any_broker() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.version = V4_9_7

        await client.producer().send("orders", b"x", delay_level=3)

        assert cluster.a.sends[0].properties["DELAY"] == "3"


async def test_a_time_of_delivery_needs_a_new_broker() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.version = V4_9_7

        with pytest.raises(Unsupported, match="delay_level"):
            await client.producer().send("orders", b"x", delay=1.5)

        assert not cluster.sends


async def test_a_new_broker_gets_times_in_milliseconds() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()

        await producer.send("orders", b"x", delay=1.5)
        await producer.send("orders", b"x", deliver_at=1_700_000_000_123)

        first, second = cluster.a.sends
        assert first.properties["TIMER_DELAY_MS"] == "1500"
        assert second.properties["TIMER_DELIVER_MS"] == "1700000000123"


# --- limits


async def test_more_sends_than_allowed_wait_for_their_turn() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        gate = asyncio.Event()
        under_way = 0
        most = 0

        async def slow(asked: Asked) -> Answer:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await gate.wait()
            under_way -= 1
            return cluster.stored(asked)

        cluster.a.on(SEND, slow)
        producer = client.producer(in_flight_max=2)
        sends = [asyncio.ensure_future(producer.send("orders", b"x")) for _ in range(5)]
        while under_way < 2:
            await asyncio.sleep(0)
        gate.set()

        results = await asyncio.gather(*sends)

        assert len(results) == 5
        assert most == 2


async def test_a_turn_that_does_not_come_in_time_is_an_error() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(SEND, None)
        producer = client.producer(in_flight_max=1)
        blocking = asyncio.ensure_future(producer.send("orders", b"x"))
        await cluster.a.until(SEND)

        with pytest.raises(TooManyRequests):
            await producer.send("orders", b"x", timeout_ms=5)

        blocking.cancel()


async def test_a_turn_is_passed_on_by_who_gave_up_waiting() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        gate = asyncio.Event()

        async def slow(asked: Asked) -> Answer:
            await gate.wait()
            return cluster.stored(asked)

        cluster.a.on(SEND, slow)
        producer = client.producer(in_flight_max=1)
        sends = [asyncio.ensure_future(producer.send("orders", b"x")) for _ in range(3)]
        await cluster.a.until(SEND)
        sends[1].cancel()
        gate.set()

        assert (await sends[0]).is_ok
        assert (await sends[2]).is_ok
        assert sends[1].cancelled()


# --- one way


async def test_a_oneway_send_asks_for_no_answer() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)

        await client.producer().send_oneway("orders", b"x", tag="t")

        (asked,) = await cluster.a.until(SEND)
        assert asked.command.is_oneway
        assert asked.properties["TAGS"] == "t"


async def test_a_oneway_send_that_cannot_leave_raises() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        await cluster.a.stop()

        with pytest.raises(Unreachable):
            await client.producer().send_oneway("orders", b"x")


async def test_many_oneway_sends_all_arrive_in_order() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        producer = client.producer()

        for number in range(300):
            await producer.send_oneway("orders", str(number).encode())

        asked = await cluster.a.until(SEND, 300)
        assert [each.body for each in asked] == [str(number).encode() for number in range(300)]


# --- the table of faults


async def test_a_broker_that_failed_is_kept_away_from() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", queues=2)
        cluster.a.on(SEND, refused(ResponseCode.SYSTEM_BUSY), cluster.stored)
        producer = client.producer(fault_table="5.1.4")

        results = [await producer.send("orders", b"x") for _ in range(8)]

        assert {result.queue.broker_name for result in results} == {"broker-b"}
        assert len(cluster.a.sends) == 1
