"""Push consumers against brokers that answer as a test wants: limits, failures, hand-over."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cometmq.client.core.message import Message
from cometmq.client.hooks import ConsumeContext
from cometmq.client.pulling import PullFlag
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import ConsumeResult, HeartbeatData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import ConsumerSendMsgBack
from cometmq.errors import AlreadyExists, InvalidArgument, NotRunning, Refused
from cometmq.model.group import ConsumeType, MessageModel
from cometmq.remoting.routes import Answer
from tests.unit.client.consumer_kit import queue, stored, until
from tests.unit.client.kit import refused
from tests.unit.client.push_kit import (
    RETRIES,
    Collected,
    clustered,
    member,
    peek,
    started,
)

# --- beginning


async def test_a_group_without_offsets_begins_at_the_end_and_stores_that_soon() -> None:
    handler = Collected()
    async with clustered(messages=3) as (cluster, client):
        consumer = await started(client, handler, start="last")
        cluster.broker.put(1)
        await until(lambda: handler.offsets == [3])
        await member(consumer).persist()
        await until(lambda: cluster.broker.offsets.get(("orders", 0)) == 4)

        pulled = [pull for pull in cluster.broker.pulls if pull.topic == "orders"]
        assert pulled[0].queue_offset == 3
        assert pulled[0].commit_offset == 3  # not a later end, should it crash before the first ack
        retried = [pull for pull in cluster.broker.pulls if pull.topic == RETRIES]
        assert retried[0].queue_offset == 0


async def test_a_queue_whose_offset_cannot_be_read_is_not_begun() -> None:
    async with clustered(messages=3) as (cluster, client):
        cluster.a.on(RequestCode.QUERY_CONSUMER_OFFSET, refused(ResponseCode.SYSTEM_ERROR))
        consumer = await started(client, Collected())

        assert consumer.queues == ()
        assert cluster.broker.pulls == []


async def test_heartbeats_say_what_the_consumer_is() -> None:
    async with clustered() as (cluster, client):
        await started(client, Collected(), start="first")
        beat = cluster.a.questions(RequestCode.HEART_BEAT)[-1]

        (data,) = bodies.decode(HeartbeatData, beat.body).consumer_data_set
        assert data.consume_type is ConsumeType.CONSUME_PASSIVELY
        assert data.message_model is MessageModel.CLUSTERING
        assert {one.topic for one in data.subscription_data_set} == {"orders", RETRIES}


async def test_a_condition_that_the_broker_refuses_stops_the_start_and_leaves_nothing() -> None:
    async with clustered() as (cluster, client):
        no = refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "bad condition")
        cluster.a.on(RequestCode.CHECK_CLIENT_CONFIG, no)
        before = len(asyncio.all_tasks())
        consumer = client.consumer("group")
        consumer.subscribe("orders", sql="a >")

        with pytest.raises(Refused, match="bad condition"):
            await consumer.start(Collected())

        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert client._require().main.consumers == {}
        assert client._require().main.claimed_groups == set()
        with pytest.raises(NotRunning):
            await consumer.start(Collected())


async def test_two_consumers_of_a_group_have_two_ids_but_two_broadcasting_ones_cannot_be(
    tmp_path: Path,
) -> None:
    everyone = {"mode": "broadcast", "offsets_folder": str(tmp_path)}
    async with clustered() as (_, client):
        one = await started(client, Collected())
        two = await started(client, Collected())
        assert one.client_id != two.client_id
        await started(client, Collected(), **everyone)

        with pytest.raises(AlreadyExists, match="broadcasting"):
            await started(client, Collected(), **everyone)


async def test_what_is_no_handler_is_refused() -> None:
    async with clustered() as (_, client):
        consumer = client.consumer("group")
        consumer.subscribe("orders")
        with pytest.raises(InvalidArgument, match="cannot be called"):
            await consumer.start("handler")


# --- pulling


async def test_there_is_one_pull_of_a_queue_at_a_time_and_it_commits() -> None:
    handler = Collected()
    async with clustered(messages=40) as (cluster, client):
        await started(client, handler, pull_count=10)
        await until(lambda: len(handler.messages) == 40)
        await until(lambda: cluster.broker.pulls[-1].queue_offset == 40)

        pulls = [pull for pull in cluster.broker.pulls if pull.topic == "orders"]
        assert [pull.queue_offset for pull in pulls] == [0, 10, 20, 30, 40]
        assert pulls[0].sys_flag == PullFlag.SUSPEND
        assert all(pull.suspend_timeout_millis == 15_000 for pull in pulls)


async def test_a_full_cache_stops_pulling_until_handlers_make_room() -> None:
    go = asyncio.Event()
    got: list[int] = []

    async def handle(message: Message[bytes]) -> None:
        await go.wait()
        got.append(message.queue_offset)

    async with clustered(messages=40) as (_cluster, client):
        consumer = await started(client, handle, pull_count=10, cached_max=15, concurrency=1)
        await until(lambda: consumer.progress()[-1].cached == 20)
        for _ in range(20):
            await asyncio.sleep(0)
        assert consumer.progress()[-1].cached == 20  # more than 15 were there before the next pull
        go.set()
        await until(lambda: len(got) == 40)
        assert got == list(range(40))


async def test_limits_of_a_topic_are_divided_among_its_queues() -> None:
    async with clustered(queues=4) as (_, client):
        consumer = await started(client, Collected(), topic_cached_max=100)
        owned = member(consumer).queues.owned

        assert owned[queue(0)].limits.cached_max == 25
        assert owned[queue(0)].limits.span_max == 2_000


async def test_a_broker_that_has_forgotten_the_subscription_is_greeted_again() -> None:
    handler = Collected()
    async with clustered(messages=1) as (cluster, client):
        unknown = refused(ResponseCode.SUBSCRIPTION_NOT_EXIST)
        cluster.a.on(RequestCode.PULL_MESSAGE, unknown, unknown, cluster.broker._pull)
        beats = len(cluster.a.questions(RequestCode.HEART_BEAT))
        await started(client, handler, pull_pause_ms=1)
        await until(lambda: handler.offsets == [0])

        assert len(cluster.a.questions(RequestCode.HEART_BEAT)) > beats + 1


async def test_messages_with_other_tags_are_skipped_and_committed() -> None:
    handler = Collected()
    async with clustered() as (cluster, client):
        for offset, tag in enumerate(["BB", None]):  # BB has the hash of Aa
            cluster.broker.add(stored(offset, tag=tag))
        consumer = client.consumer("group", start="first")
        consumer.subscribe("orders", tags=["Aa"])
        await consumer.start(handler)

        await until(lambda: peek(consumer) == 2)
    assert handler.messages == []


async def test_an_offset_that_the_queue_does_not_have_is_corrected_at_once() -> None:
    handler = Collected()
    async with clustered(messages=2) as (cluster, client):
        cluster.broker.offsets["orders", 0] = 100
        await started(client, handler)
        await until(lambda: cluster.broker.offsets["orders", 0] == 2)
        cluster.broker.put(1)
        await until(lambda: handler.offsets == [2])


async def test_a_queue_that_is_not_pulled_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    async with clustered(messages=2) as (_, client):
        handler = Collected()
        consumer = await started(client, handler)
        await until(lambda: handler.offsets == [0, 1] and peek(consumer) == 2)
        first = member(consumer).queues.owned[queue()]
        first.cached.last_pull_ms -= 121_000

        member(consumer).queues.look_for_stuck()

        await until(lambda: member(consumer).queues.owned.get(queue(), first) is not first)
        assert member(consumer).queues.owned[queue()].next_offset == 2
    assert "not pulled for 120000 ms" in caplog.text


# --- handling


async def test_a_message_that_cannot_be_sent_back_holds_up_the_offset_and_comes_again() -> None:
    handler = Collected(fail=lambda message: message.queue_offset == 1)
    async with clustered(messages=3) as (cluster, client):
        no = refused(ResponseCode.SYSTEM_ERROR)
        cluster.a.on(RequestCode.CONSUMER_SEND_MSG_BACK, no)
        cluster.a.on(RequestCode.SEND_MESSAGE_V2, no)
        consumer = await started(client, handler, resend_pause_ms=1)
        await until(lambda: handler.offsets.count(1) == 3)

        assert peek(consumer) == 1
        times = [m.reconsume_times for m in handler.messages if m.queue_offset == 1]
        assert times == [0, 1, 2]
        handler.fail = lambda _: False
        await until(lambda: peek(consumer) == 3)


async def test_a_copy_goes_to_the_retry_topic_when_the_broker_does_not_take_it_back() -> None:
    handler = Collected(fail=lambda message: message.topic == "orders")
    async with clustered(messages=1) as (cluster, client):
        cluster.a.on(RequestCode.CONSUMER_SEND_MSG_BACK, refused(ResponseCode.SYSTEM_ERROR))
        consumer = await started(client, handler, reconsume_max=5)
        await until(lambda: peek(consumer) == 1)

        (sent,) = cluster.a.sends
        assert sent.send.topic == RETRIES
        assert sent.send.producer_group == "CLIENT_INNER_PRODUCER"
        assert (sent.send.reconsume_times, sent.send.max_reconsume_times) == (1, 5)
        assert sent.body == b"0"
        assert sent.properties == {
            "UNIQ_KEY": "U0",
            "RETRY_TOPIC": "orders",
            "ORIGIN_MESSAGE_ID": "U0",
            "DELAY": "3",
        }


async def test_a_dead_letter_stays_one_when_it_is_sent_as_a_copy() -> None:
    async def handle(message: Message[bytes]) -> None:
        message.dead_letter()

    async with clustered(messages=1) as (cluster, client):
        cluster.a.on(RequestCode.CONSUMER_SEND_MSG_BACK, refused(ResponseCode.SYSTEM_ERROR))
        consumer = await started(client, handle)
        await until(lambda: peek(consumer) == 1)

        (back,) = cluster.a.questions(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert ConsumerSendMsgBack.from_ext(back.command.ext_fields).delay_level == -1
        (sent,) = cluster.a.sends
        assert (sent.send.reconsume_times, sent.send.max_reconsume_times) == (17, 16)
        assert "DELAY" not in sent.properties


async def test_what_is_sent_back_says_where_it_lies_and_where_it_came_from() -> None:
    async def handle(message: Message[bytes]) -> None:
        message.retry(delay_level=4)

    async with clustered(messages=1) as (cluster, client):
        await started(client, handle)
        (back,) = await cluster.a.until(RequestCode.CONSUMER_SEND_MSG_BACK)

        header = ConsumerSendMsgBack.from_ext(back.command.ext_fields)
        assert header == ConsumerSendMsgBack(1_000, "group", 4, "U0", "orders", False, 16)


async def test_what_a_handler_says_after_its_queue_has_gone_is_ignored() -> None:
    go = asyncio.Event()
    ended = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        await go.wait()
        ended.set()
        raise ValueError("too late")

    async with clustered(messages=1) as (cluster, client):
        consumer = await started(client, handle)
        await until(lambda: bool(member(consumer)._handling.runner.running()))
        cluster.broker.members.update({"0", "00"})  # before us: the queue goes to them
        await member(consumer).membership.rebalance()
        assert consumer.queues == ()
        go.set()
        await ended.wait()
        await asyncio.sleep(0.005)

        assert cluster.broker.sent_back == []
        assert cluster.broker.offsets["orders", 0] == 0


async def test_a_cancelled_handler_leaves_its_message_for_the_next_owner() -> None:
    async def handle(message: Message[bytes]) -> None:
        raise asyncio.CancelledError

    async with clustered(messages=1) as (cluster, client):
        consumer = await started(client, handle)
        await until(lambda: consumer.progress()[-1].cached == 1)
        await asyncio.sleep(0.005)
        await consumer.close()

        assert cluster.broker.sent_back == []
        assert cluster.broker.offsets["orders", 0] == 0


async def test_broadcasting_leaves_failures_behind_and_sends_nothing_back(tmp_path: Any) -> None:
    refusals: list[str] = []

    async def handle(message: Message[bytes]) -> None:
        if message.queue_offset == 0:
            message.retry()
        refusals.append("not reached for the first")

    async with clustered(messages=2) as (cluster, client):
        consumer = await started(client, handle, mode="broadcast", offsets_folder=str(tmp_path))
        await until(lambda: peek(consumer) == 2)

        assert cluster.broker.sent_back == []
        assert not cluster.a.questions(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert all(pull.topic == "orders" for pull in cluster.broker.pulls)
        assert all(not pull.sys_flag & PullFlag.COMMIT for pull in cluster.broker.pulls)
    assert len(refusals) == 1


async def test_hooks_see_each_call_and_filters_leave_messages_out() -> None:
    outcomes: list[tuple[int, str, bool]] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            raise RuntimeError("changes nothing")

        def after_consume(self, context: ConsumeContext) -> None:
            offset = context.messages[0].queue_offset
            outcomes.append((offset, context.outcome, context.is_success))

    class Filter:
        def wanted(self, group: str, messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
            return [message for message in messages if message.queue_offset != 1]

    async def handle(message: Message[bytes]) -> None:
        if message.queue_offset == 2:
            message.retry()
        if message.queue_offset == 3:
            raise ValueError("failed")

    async with clustered(messages=4) as (_, client):
        consumer = client.consumer("group", start="first", hooks=[Hook()], filters=[Filter()])
        consumer.subscribe("orders")
        await consumer.start(handle)
        await until(lambda: peek(consumer) == 4)

    expected = [(0, "SUCCESS", True), (2, "FAILED", False), (3, "EXCEPTION", False)]
    assert outcomes == expected


async def test_a_filter_that_says_nothing_leaves_nothing_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Forgetful:
        def wanted(self, group: str, messages: Sequence[Message[Any]]) -> Any:
            return None

    handled = Collected()
    async with clustered(messages=2) as (_, client):
        consumer = await started(client, handled, filters=[Forgetful()])
        await until(lambda: peek(consumer) == 2)

    assert handled.offsets == [0, 1]
    assert "a filter failed" in caplog.text


async def test_hooks_of_plain_functions_run_on_the_loop() -> None:
    seen: list[str] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            asyncio.get_running_loop()
            seen.append("before")

        def after_consume(self, context: ConsumeContext) -> None:
            asyncio.get_running_loop()
            seen.append(context.outcome)

    async with clustered(messages=1) as (_, client):
        consumer = client.consumer("group", start="first", hooks=[Hook()], concurrency=1)
        consumer.subscribe("orders")
        await consumer.start(lambda message: None)
        await until(lambda: peek(consumer) == 1)

    assert seen == ["before", "SUCCESS"]


# --- orderly


@pytest.mark.slow
async def test_orderly_queues_are_locked_before_they_are_read() -> None:
    async with clustered(messages=1) as (cluster, client):
        cluster.broker.is_locking = False
        handler = Collected()
        consumer = await started(client, handler, is_orderly=True)
        assert consumer.queues == ()
        assert not cluster.broker.pulls
        cluster.broker.is_locking = True

        await until(lambda: handler.offsets == [0])


async def test_a_lost_lock_gives_the_queue_up_and_its_offset_is_not_written() -> None:
    async with clustered(messages=2) as (cluster, client):
        handler = Collected()
        consumer = await started(client, handler, is_orderly=True)
        await until(lambda: peek(consumer) == 2)
        first = member(consumer).queues.owned[queue()]
        cluster.broker.is_locking = False
        cluster.broker.offsets["orders", 0] = 1  # another member has it, and is not as far
        await member(consumer).queues.renew_locks()
        await member(consumer).persist()
        assert first.cached.is_dropped
        assert cluster.broker.offsets["orders", 0] == 1
        cluster.broker.is_locking = True

        await until(lambda: handler.offsets == [0, 1, 1])


@pytest.mark.slow
async def test_an_expired_lock_stops_handling_until_it_is_renewed() -> None:
    async with clustered(messages=1) as (cluster, client):
        handler = Collected()
        consumer = await started(client, handler, is_orderly=True)
        await until(lambda: peek(consumer) == 1)
        owned = member(consumer).queues.owned[queue()]
        owned.cached.last_lock_ms -= 31_000
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, refused(ResponseCode.SYSTEM_ERROR))
        asked = len(cluster.a.questions(RequestCode.LOCK_BATCH_MQ))
        cluster.broker.put(1)
        await cluster.a.until(RequestCode.LOCK_BATCH_MQ, asked + 1)
        assert handler.offsets == [0]
        cluster.a.on(RequestCode.LOCK_BATCH_MQ, cluster.broker._lock)

        await member(consumer).queues.renew_locks()
        await until(lambda: handler.offsets == [0, 1])

        assert member(consumer).queues.owned[queue()] is owned


@pytest.mark.slow
async def test_an_orderly_queue_that_goes_is_saved_and_unlocked_after_its_handler() -> None:
    go = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        await go.wait()

    async with clustered(messages=1) as (cluster, client):
        consumer = await started(client, handle, is_orderly=True)
        owned = member(consumer).queues.owned[queue()]
        await until(lambda: not owned.idle.is_set())
        cluster.broker.members.update({"0", "00"})
        leaving = asyncio.create_task(member(consumer).membership.rebalance())
        await until(lambda: consumer.queues == ())
        unlocked = len(cluster.a.questions(RequestCode.UNLOCK_BATCH_MQ))
        go.set()
        await leaving
        await until(lambda: cluster.broker.offsets.get(("orders", 0)) == 1)
        await cluster.a.until(RequestCode.UNLOCK_BATCH_MQ, unlocked + 1)


# --- what brokers ask


async def test_one_message_can_be_handled_directly_outside_of_everything() -> None:
    handler = Collected(fail=lambda message: message.queue_offset == 8)
    async with clustered() as (cluster, client):
        consumer = await started(client, handler)

        fine = await member(consumer).consume_directly(stored(7), "broker-a")
        bad = await member(consumer).consume_directly(stored(8), "broker-a")

        assert fine.consume_result is ConsumeResult.CR_SUCCESS
        assert bad.consume_result is ConsumeResult.CR_THROW_EXCEPTION
        assert bad.remark == "ValueError: failed"
        assert cluster.broker.sent_back == []
    assert handler.offsets == [7, 8]


async def test_running_info_shows_queues_settings_and_rates() -> None:
    handler = Collected()
    async with clustered(messages=3) as (_, client):
        consumer = await started(client, handler)
        await until(lambda: peek(consumer) == 3)

        info = member(consumer).running_info(with_stacks=True)

        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "20"
        assert info.mq_table[queue()].commit_offset == 3
        assert info.status_table["orders"].consume_ok_tps > 0
        assert "handler 0" in (info.jstack or "")
        assert member(consumer).offsets("orders") == {queue(): 3}


async def test_a_reset_moves_the_queue_back_and_it_is_begun_anew() -> None:
    handler = Collected()
    async with clustered(messages=3) as (cluster, client):
        consumer = await started(client, handler)
        await until(lambda: peek(consumer) == 3)

        await member(consumer).reset_offsets("orders", {queue(): 1, queue(7): 5})

        assert cluster.broker.offsets["orders", 0] == 1
        await until(lambda: handler.offsets == [0, 1, 2, 1, 2])


async def test_a_paused_consumer_pulls_nothing_but_keeps_its_queues() -> None:
    handler = Collected()
    async with clustered(messages=1) as (cluster, client):
        consumer = await started(client, handler)
        await until(lambda: peek(consumer) == 1)
        consumer.pause()
        pulls = len(cluster.broker.pulls)
        cluster.broker.put(1)  # answers the pull that was under way
        cluster.broker.put(1)
        await asyncio.sleep(0.005)
        assert handler.offsets == [0]
        assert len(cluster.broker.pulls) == pulls
        assert consumer.queues
        consumer.resume()
        await until(lambda: handler.offsets == [0, 1, 2])


async def test_brokers_are_told_of_a_subscription_that_comes_later() -> None:
    handler = Collected()
    async with clustered() as (cluster, client):
        cluster.create("others", queues=1)
        cluster.broker.put(1, topic="others")
        consumer = await started(client, handler)
        consumer.subscribe("others")
        await until(lambda: [m.topic for m in handler.messages] == ["others"])
        consumer.unsubscribe("others")
        await until(lambda: "others" not in {q.topic for q in consumer.queues})


async def test_the_answer_that_a_code_is_not_supported_stops_nothing() -> None:
    handler = Collected()
    async with clustered(messages=1) as (cluster, client):
        busy = Answer(ResponseCode.FLOW_CONTROL)
        cluster.a.on(RequestCode.PULL_MESSAGE, busy, busy, cluster.broker._pull)
        await started(client, handler)
        await until(lambda: handler.offsets == [0])


async def test_a_handler_in_order_that_ends_its_thread_does_not_stop_its_queue() -> None:
    seen: list[int] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            seen.append(context.messages[0].queue_offset)

        def after_consume(self, context: ConsumeContext) -> None:
            pass

    def handle(message: Message[bytes]) -> None:
        if len(seen) == 1:
            raise SystemExit(3)

    async with clustered(messages=2) as (_, client):
        consumer = await started(client, handle, hooks=[Hook()], is_orderly=True, suspend_ms=10)
        await until(lambda: peek(consumer) == 2)

    assert seen == [0, 0, 1]
