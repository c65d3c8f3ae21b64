import zlib
from itertools import groupby

import msgspec
import pytest

from cometmq.admin.message import Message, messages_in
from cometmq.admin.messages import ConsumptionState
from cometmq.admin.positions import Latest, Offset, Time
from cometmq.codec.bodies.clients import Connection, ConsumerConnection
from cometmq.codec.bodies.groups import GroupList
from cometmq.codec.bodies.offsets import ConsumeStats, OffsetWrapper
from cometmq.codec.bodies.stats import ConsumeQueueData, QueryConsumeQueueAnswer
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.codec.headers.query import QueryMessageResponse
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.record import pack_host
from cometmq.codec.sysflag import COMPRESSED
from cometmq.errors import NotFound, Refused
from cometmq.model.group import MessageModel, SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    Asked,
    FakeCluster,
    body,
    record,
    refused,
)

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
QUERY = RequestCode.QUERY_MESSAGE
PULL = RequestCode.PULL_MESSAGE
OFFSET_ID = encode_offset_id(pack_host("10.0.1.1", 10911), 700)
UNIQUE = "7F00000113B130946E094CD24EC60000"
NOTHING = refused(ResponseCode.QUERY_NOT_FOUND, "can not find message")
PAGE = 2


def found(*records: bytes) -> Answer:
    return Answer(header=QueryMessageResponse(0, 0), body=b"".join(records))


class FakeQueues:
    """Queues that are read a page of two at a time; stored times by broker letter and queue id."""

    def __init__(self, times: dict[tuple[str, int], list[int]]) -> None:
        self._times = times

    def pull(self, asked: Asked) -> Answer:
        header = asked.header
        times = self._times[self._letter(asked), header.queue_id]
        begin, end = header.queue_offset, min(header.queue_offset + PAGE, len(times))
        told = PullMessageResponse(0, max(begin, end), 0, len(times))
        if begin >= len(times):
            return Answer(ResponseCode.PULL_OFFSET_MOVED, told)
        records = [
            record(queue_id=header.queue_id, queue_offset=n, stored_ms=times[n], body=b"%d" % n)
            for n in range(begin, end)
        ]
        return Answer(header=told, body=b"".join(records))

    def stats(self, asked: Asked) -> Answer:
        letter = self._letter(asked)
        return body(
            TopicStatsTable(
                {
                    MessageQueue("orders", f"broker-{letter}", queue): TopicOffset(0, len(times))
                    for (own, queue), times in self._times.items()
                    if own == letter
                }
            )
        )

    @staticmethod
    def _letter(asked: Asked) -> str:
        return {BROKER_A: "a", BROKER_B: "b"}[asked.address]


def queued_cluster(times: dict[tuple[str, int], list[int]]) -> FakeCluster:
    cluster = FakeCluster()
    queues = FakeQueues(times)
    cluster.on_route("orders", queues=2)
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, queues.stats)
    cluster.on(PULL, queues.pull)
    return cluster


TIMES = {("a", 0): [10, 40, 70], ("a", 1): [20, 50], ("b", 0): [30, 60], ("b", 1): []}


def test_a_record_is_a_message_with_its_ids_keys_and_tag() -> None:
    data = record(physical_offset=700, KEYS="k1 k2", TAGS="A", UNIQ_KEY=UNIQUE, own="x")

    (message,) = messages_in(data, "broker-a")

    assert (message.message_id, message.unique_key) == (UNIQUE, UNIQUE)
    assert message.offset_id == OFFSET_ID
    assert (message.keys, message.tags) == (("k1", "k2"), "A")
    assert message.properties["own"] == "x"
    assert (message.born_host, message.store_host) == ("10.0.2.1:5000", "10.0.1.1:10911")
    assert msgspec.json.decode(msgspec.json.encode(message))["body"] == "Ym9keQ=="


def test_a_message_without_unique_key_is_called_by_its_place() -> None:
    (message,) = messages_in(record(physical_offset=700), "broker-a")

    assert message.message_id == OFFSET_ID
    assert message.unique_key is None


def test_a_compressed_body_is_shown_as_it_was_sent() -> None:
    data = record(body=zlib.compress(b"hello" * 100), sys_flag=COMPRESSED)

    (message,) = messages_in(data, "broker-a")

    assert message.body == b"hello" * 100
    assert message.body_problem is None


@pytest.mark.parametrize(
    ("sys_flag", "problem"),
    [(COMPRESSED, "ZLIB data is damaged"), (COMPRESSED | 7 << 8, "unknown compression type")],
)
def test_a_body_that_cannot_be_read_is_shown_as_it_is_stored(sys_flag: int, problem: str) -> None:
    damaged = record(queue_offset=1, body=b"no zlib", sys_flag=sys_flag)

    before, message, after = messages_in(record() + damaged + record(queue_offset=2), "broker-a")

    assert message.body == b"no zlib"
    assert problem in (message.body_problem or "")
    assert (before.body_problem, after.body_problem) == (None, None)
    assert (before.body, after.body) == (b"body", b"body")


async def test_an_offset_id_leads_to_the_broker_that_is_in_it() -> None:
    cluster = FakeCluster()
    cluster.on(VIEW, Answer(body=record(physical_offset=700)))

    message = await cluster.admin.messages.get(OFFSET_ID)

    (asked,) = cluster.questions(VIEW)
    assert (asked.address, asked.header.offset) == (BROKER_A, 700)
    assert (message.broker_name, message.offset_id) == ("broker-a", OFFSET_ID)


async def test_a_place_without_a_message_is_not_found() -> None:
    cluster = FakeCluster()
    cluster.on(VIEW, refused(ResponseCode.SYSTEM_ERROR, "can not find message by the offset"))
    admin = cluster.admin

    with pytest.raises(NotFound, match="no such message: '7 of"):
        await admin.messages.at_physical("broker-a", 7)
    with pytest.raises(NotFound, match="this is no offset id"):
        await admin.messages.by_offset_id("x")
    cluster.on(VIEW, refused(ResponseCode.NO_PERMISSION, "no"))
    with pytest.raises(Refused):
        await admin.messages.at_physical("broker-a", 7)


async def test_a_unique_key_is_looked_for_on_all_brokers_of_its_topic() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders")
    cluster.on(QUERY, NOTHING, at=BROKER_A)
    twin = record(stored_ms=1, UNIQ_KEY="other")  # the same hash in the index
    first, again = record(stored_ms=2, UNIQ_KEY=UNIQUE), record(stored_ms=3, UNIQ_KEY=UNIQUE)
    cluster.on(QUERY, found(again, twin, first), at=BROKER_B)
    admin = cluster.admin

    messages = await admin.messages.by_unique_key("orders", UNIQUE)

    assert [message.stored_ms for message in messages] == [2, 3]
    assert (await admin.messages.get(UNIQUE, "orders")).stored_ms == 3
    header = cluster.questions(QUERY)[0].header
    assert (header.unique_key_query, header.index_type) == (True, "U")


async def test_an_id_that_is_nowhere_is_not_found_and_says_why() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders")
    cluster.on(QUERY, NOTHING)
    admin = cluster.admin

    with pytest.raises(NotFound, match="it is not in 'orders', or too old"):
        await admin.messages.get(UNIQUE, "orders")
    with pytest.raises(NotFound, match="to look for a unique key, name its topic"):
        await admin.messages.get("some-id")


async def test_keys_are_compared_because_hashes_are_not_enough() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", brokers="a")
    hits = [record(stored_ms=n, KEYS="k1 k2") for n in (3, 1, 2)]
    cluster.on(QUERY, found(*hits, record(KEYS="k1k2")))
    admin = cluster.admin

    every = await admin.messages.by_key("orders", "k1", begin_ms=5, end_ms=9)
    last = await admin.messages.by_key("orders", "k1", count=2)

    assert [message.stored_ms for message in every] == [1, 2, 3]
    assert [message.stored_ms for message in last] == [2, 3]
    header = cluster.questions(QUERY)[0].header
    assert (header.begin_timestamp, header.end_timestamp, header.max_num) == (5, 9, 64)


async def test_a_trace_is_read_from_the_reports_in_the_order_it_happened() -> None:
    cluster = FakeCluster()
    cluster.on_route("RMQ_SYS_TRACE_TOPIC", brokers="a")
    sent = f"Pub\x01100\x01R\x01PG\x01orders\x01{UNIQUE}\x01A\x01k\x01h\x015\x011\x010\x01O\x01true"
    taken = f"SubBefore\x01200\x01R\x01billing\x01REQ\x01{UNIQUE}\x010\x01k"
    other = "SubBefore\x01150\x01R\x01billing\x01REQ\x01OTHER\x010\x01k"
    reports = [
        record(body=f"{taken}\x02{other}\x02".encode(), KEYS=UNIQUE),
        record(body=f"{sent}\x02".encode(), KEYS=UNIQUE),
    ]
    cluster.on(QUERY, found(*reports))

    records = await cluster.admin.messages.trace(UNIQUE)

    assert [(one.kind.value, one.at_ms) for one in records] == [("sent", 100), ("received", 200)]


async def test_without_a_trace_topic_the_error_says_what_to_switch_on() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders")

    with pytest.raises(NotFound, match="do clients trace"):
        await cluster.admin.messages.trace(UNIQUE)


async def test_a_queue_is_read_from_an_offset_on_without_waiting_or_committing() -> None:
    cluster = queued_cluster(TIMES)
    admin = cluster.admin

    page = await admin.messages.page("orders", "broker-a", 0, 1)
    one = await admin.messages.at("orders", "broker-a", 0, 2)

    assert [message.queue_offset for message in page.messages] == [1, 2]
    assert (page.next_offset, page.min_offset, page.max_offset) == (3, 0, 3)
    assert one.stored_ms == 70
    header = cluster.questions(PULL)[0].header
    assert (header.consumer_group, header.sys_flag) == ("TOOLS_CONSUMER", 4)
    assert header.suspend_timeout_millis == 0


async def test_an_offset_beyond_the_queue_is_not_found_and_the_bounds_are_told() -> None:
    with pytest.raises(NotFound, match="the queue has 0 to 3"):
        await queued_cluster(TIMES).admin.messages.at("orders", "broker-a", 0, 99)


async def test_browsing_goes_through_all_queues_in_the_order_of_storing() -> None:
    admin = queued_cluster(TIMES).admin

    times = [message.stored_ms async for message in admin.messages.browse("orders")]

    assert times == [10, 20, 30, 40, 50, 60, 70]


async def test_browsing_may_be_of_one_queue_and_end_early() -> None:
    admin = queued_cluster(TIMES).admin

    one = admin.messages.browse("orders", broker="broker-a", queue_id=0, begin=Offset(1))
    few = admin.messages.browse("orders", limit=2)
    middle = admin.messages.browse("orders", broker="broker-a", queue_id=0, end=Offset(2))
    none = admin.messages.browse("orders", begin=Latest())

    assert [message.stored_ms async for message in one] == [40, 70]
    assert [message.stored_ms async for message in few] == [10, 20]
    assert [message.stored_ms async for message in middle] == [10, 40]
    assert [message.stored_ms async for message in none] == []


async def test_browsing_since_a_time_leaves_out_what_an_old_broker_finds_too_early() -> None:
    cluster = queued_cluster(TIMES)
    cluster.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, Answer(header=OffsetResponse(0)))

    found = cluster.admin.messages.browse("orders", begin=Time(45))

    assert [message.stored_ms async for message in found] == [50, 60, 70]


async def test_messages_of_one_millisecond_come_in_the_order_of_the_log() -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", brokers="a")
    stats = TopicStatsTable(
        {MessageQueue("orders", "broker-a", n): TopicOffset(0, 1) for n in range(2)}
    )
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, body(stats))
    cluster.on(
        PULL,
        lambda asked: Answer(
            header=PullMessageResponse(0, 1, 0, 1),
            body=record(physical_offset=500 - asked.header.queue_id),
        ),
    )

    offsets = [m.physical_offset async for m in cluster.admin.messages.browse("orders")]

    assert offsets == [499, 500]


async def test_browsing_a_queue_that_was_emptied_meanwhile_ends() -> None:
    cluster = queued_cluster({("a", 0): [10], ("a", 1): [], ("b", 0): [], ("b", 1): []})
    cluster.on(PULL, Answer(ResponseCode.PULL_NOT_FOUND, PullMessageResponse(0, 0, 0, 0)))

    assert [message async for message in cluster.admin.messages.browse("orders")] == []


async def test_browsing_a_queue_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="no such queue"):
        async for _ in queued_cluster(TIMES).admin.messages.browse("orders", queue_id=9):
            pass


async def test_entries_of_a_queue_are_numbered() -> None:
    cluster = FakeCluster()
    data = (ConsumeQueueData(700, 200, 65, eval=True), ConsumeQueueData(900, 100, 66))
    answer = QueryConsumeQueueAnswer(data, 9, 4)
    cluster.on(RequestCode.QUERY_CONSUME_QUEUE, body(answer))

    entries = await cluster.admin.messages.entries("orders", "broker-a", 0, 2, group="billing")

    assert [(one.queue_offset, one.physical_offset, one.is_match) for one in entries] == [
        (4, 700, True),
        (5, 900, False),
    ]


def message_at(offset: int, tag: str = "A") -> Message:
    (message,) = messages_in(record(queue_offset=offset, TAGS=tag), "broker-a")
    return message


def online(model: MessageModel = MessageModel.CLUSTERING, expression: str = "A || B") -> Answer:
    subscription = SubscriptionData("orders", expression)
    return body(
        ConsumerConnection((Connection("c"),), {"orders": subscription}, message_model=model)
    )


CASES = [
    (ConsumptionState.CONSUMED, 4, "A", online()),
    (ConsumptionState.FILTERED, 4, "C", online()),
    (ConsumptionState.CONSUMED, 4, "C", online(expression="*")),
    (ConsumptionState.PENDING, 5, "A", online()),
    (ConsumptionState.BROADCAST, 4, "A", online(MessageModel.BROADCASTING)),
    (ConsumptionState.CONSUMED, 4, "C", refused(ResponseCode.CONSUMER_NOT_ONLINE)),
]


@pytest.mark.parametrize(("state", "offset", "tag", "members"), CASES)
async def test_what_became_of_a_message_follows_from_offsets_and_subscriptions(
    state: ConsumptionState, offset: int, tag: str, members: Answer
) -> None:
    cluster = FakeCluster()
    cluster.on_route("orders", brokers="a")
    cluster.on(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, body(GroupList(("billing",))))
    cluster.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, members)
    stats = ConsumeStats({MessageQueue("orders", "broker-a", 0): OffsetWrapper(9, 5)})
    cluster.on(RequestCode.GET_CONSUME_STATS, body(stats))

    (consumption,) = await cluster.admin.messages.consumption(message_at(offset, tag))

    assert consumption.group == "billing"
    assert consumption.state is state


def test_every_state_has_a_case() -> None:
    """What is unknown is so because of an outage; see the tests of those."""
    tested = {state for state, _ in groupby(sorted(case[0] for case in CASES))}

    assert tested == set(ConsumptionState) - {ConsumptionState.UNKNOWN}
