import pytest

from cometmq.admin.offsets import Move
from cometmq.admin.positions import Earliest, Latest, Offset, Position, Shift, Time
from cometmq.codec.bodies.clients import Connection, ConsumerConnection
from cometmq.codec.bodies.offsets import ConsumeStats, OffsetWrapper, ResetOffsetBody
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import V5_5_0, LanguageCode, RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import InvalidArgument, NotFound, PartlyDone, Refused, Unreachable, Unsupported
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    V4_9_7,
    Asked,
    FakeCluster,
    body,
    refused,
)

STORED = RequestCode.QUERY_CONSUMER_OFFSET
STORE = RequestCode.UPDATE_CONSUMER_OFFSET
RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
MEMBERS = RequestCode.GET_CONSUMER_CONNECTION_LIST
NOBODY = refused(ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online")


def offset(value: int) -> Answer:
    return Answer(header=OffsetResponse(value))


def stats_of(asked: Asked) -> Answer:
    name = {BROKER_A: "broker-a", BROKER_B: "broker-b"}[asked.address]
    queues = {MessageQueue(asked.header.topic, name, n): TopicOffset(10, 90) for n in range(2)}
    return body(TopicStatsTable(queues))


def consumed_cluster(
    version: int = V5_5_0, language: LanguageCode = LanguageCode.JAVA
) -> FakeCluster:
    """Topic ``orders`` with queues 0 and 1, of 10 to 90, on each broker; the group is at 50."""
    cluster = FakeCluster(version, language)
    cluster.on_route("orders")
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, stats_of)
    cluster.on(STORED, offset(50))
    cluster.on(STORE, Answer())
    cluster.on(RESET, body(ResetOffsetBody()))
    cluster.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, offset(33))
    cluster.on(RequestCode.GET_BROKER_CONFIG, Answer(body=b"useServerSideResetOffset=true\n"))
    cluster.on(MEMBERS, NOBODY)
    return cluster


def places(moves: tuple[Move, ...]) -> list[tuple[str, int, int | None, int]]:
    return [(move.broker_name, move.queue_id, move.before, move.after) for move in moves]


async def test_a_plan_shows_before_and_after_and_changes_nothing() -> None:
    cluster = consumed_cluster()

    plan = await cluster.admin.offsets.plan("billing", "orders", Shift(-10))

    assert not plan.is_done
    assert places(plan.moves) == [
        ("broker-a", 0, 50, 40),
        ("broker-a", 1, 50, 40),
        ("broker-b", 0, 50, 40),
        ("broker-b", 1, 50, 40),
    ]
    assert all(move.is_change for move in plan.moves)
    assert cluster.questions(RESET) == cluster.questions(STORE) == []


@pytest.mark.parametrize("language", [LanguageCode.JAVA, LanguageCode.PYTHON])
async def test_a_broker_from_5_2_on_is_given_an_offset_for_each_queue(
    language: LanguageCode,
) -> None:
    cluster = consumed_cluster(language=language)

    done = await cluster.admin.offsets.reset("billing", "orders", Offset(70))

    asked = cluster.questions(RESET)
    assert done.is_done
    assert {(a.address, a.header.queue_id, a.header.offset) for a in asked} == {
        (address, queue, 70) for address in (BROKER_A, BROKER_B) for queue in (0, 1)
    }
    assert len(asked) == 4
    assert cluster.questions(STORE) == []


async def test_one_queue_may_be_moved_alone() -> None:
    cluster = consumed_cluster()

    done = await cluster.admin.offsets.reset(
        "billing", "orders", Time(1000), broker="broker-b", queue_id=1
    )

    assert places(done.moves) == [("broker-b", 1, 50, 33)]
    (asked,) = cluster.questions(RESET)
    assert (asked.address, asked.header.queue_id, asked.header.offset) == (BROKER_B, 1, 33)


async def test_a_queue_that_the_topic_does_not_have_is_not_found() -> None:
    with pytest.raises(NotFound, match="no such queue: 'broker-a/7'; it is not in 'orders'"):
        await consumed_cluster().admin.offsets.plan(
            "billing", "orders", Latest(), broker="broker-a", queue_id=7
        )


@pytest.mark.parametrize(
    ("position", "time_ms"), [(Earliest(), 0), (Latest(), -1), (Time(1234), 1234)]
)
async def test_an_old_broker_tells_connected_members_a_time(
    position: Position, time_ms: int
) -> None:
    cluster = consumed_cluster(V4_9_7)

    await cluster.admin.offsets.reset("billing", "orders", position)

    asked = cluster.questions(RESET)
    assert {one.address for one in asked} == {BROKER_A, BROKER_B}
    assert {one.header.timestamp for one in asked} == {time_ms}
    assert {(one.header.queue_id, one.header.offset) for one in asked} == {(None, None)}
    assert cluster.questions(STORE) == []


async def test_on_an_old_broker_offsets_are_stored_when_nobody_is_connected() -> None:
    cluster = consumed_cluster(V4_9_7)
    cluster.on(RESET, NOBODY)

    await cluster.admin.offsets.reset("billing", "orders", Latest())

    stored = {
        (a.address, a.header.queue_id, a.header.commit_offset) for a in cluster.questions(STORE)
    }
    assert stored == {(address, queue, 90) for address in (BROKER_A, BROKER_B) for queue in (0, 1)}


async def test_an_old_broker_that_misses_an_offset_gets_one_and_is_asked_again() -> None:
    cluster = consumed_cluster(V4_9_7)
    cluster.on_route("orders", brokers="a")
    unknown = refused(ResponseCode.SYSTEM_ERROR, "THe consumer group <billing> not exist")
    cluster.on(RESET, unknown, body(ResetOffsetBody()))

    await cluster.admin.offsets.reset("billing", "orders", Latest())

    codes = [one.code for one in cluster.asked if one.code in (RESET, STORE)]
    assert codes == [RESET, STORE, STORE, RESET]


@pytest.mark.parametrize("remark", ["disk is full", "THe consumer group <billing> not exist"])
async def test_an_old_broker_that_goes_on_refusing_is_believed(remark: str) -> None:
    cluster = consumed_cluster(V4_9_7)
    cluster.on_route("orders", brokers="a")
    cluster.on(RESET, refused(ResponseCode.SYSTEM_ERROR, remark))

    with pytest.raises(Refused, match=remark):
        await cluster.admin.offsets.reset("billing", "orders", Latest())


@pytest.mark.parametrize("position", [Offset(20), Shift(-3)])
async def test_an_old_broker_cannot_move_connected_members_to_an_offset(
    position: Position,
) -> None:
    cluster = consumed_cluster(V4_9_7)
    cluster.on(MEMBERS, body(ConsumerConnection((Connection("client-1"),))))

    with pytest.raises(Unsupported, match="lacks moving connected members to exact offsets"):
        await cluster.admin.offsets.reset("billing", "orders", position)

    assert cluster.questions(RESET) == cluster.questions(STORE) == []


async def test_an_old_broker_takes_offsets_while_nobody_is_connected() -> None:
    cluster = consumed_cluster(V4_9_7)

    await cluster.admin.offsets.reset("billing", "orders", Shift(-3))

    assert {one.header.commit_offset for one in cluster.questions(STORE)} == {47}
    assert cluster.questions(RESET) == []


async def test_a_new_broker_with_the_old_way_switched_on_is_not_given_offsets() -> None:
    """It would ignore them and move everybody to the time beside them: the end."""
    cluster = consumed_cluster()
    cluster.on(RequestCode.GET_BROKER_CONFIG, Answer(body=b"useServerSideResetOffset=false\n"))

    await cluster.admin.offsets.reset("billing", "orders", Offset(20))

    assert cluster.questions(RESET) == []
    assert {one.header.commit_offset for one in cluster.questions(STORE)} == {20}


async def test_a_group_that_is_nowhere_has_no_before() -> None:
    cluster = consumed_cluster()
    cluster.on(STORED, refused(ResponseCode.QUERY_NOT_FOUND))

    plan = await cluster.admin.offsets.plan("billing", "orders", Earliest())

    assert {(move.before, move.after) for move in plan.moves} == {(None, 10)}


async def test_a_reset_that_one_broker_missed_says_so() -> None:
    cluster = consumed_cluster()
    cluster.on(RESET, Unreachable(BROKER_B, "refused"), at=BROKER_B)

    with pytest.raises(PartlyDone, match=f"moving group 'billing' was done by {BROKER_A}"):
        await cluster.admin.offsets.reset("billing", "orders", Latest())


async def test_a_clone_is_where_its_source_is() -> None:
    cluster = consumed_cluster()
    offsets = {
        MessageQueue("orders", "broker-a", 0): OffsetWrapper(90, 61),
        MessageQueue("orders", "broker-a", 1): OffsetWrapper(90, 5),  # before the first message
        MessageQueue("%RETRY%billing", "broker-a", 0): OffsetWrapper(3, 3),
        MessageQueue("%DLQ%billing", "broker-a", 0): OffsetWrapper(3, 1),
    }
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats(offsets)), at=BROKER_A)
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats()), at=BROKER_B)

    shown = await cluster.admin.offsets.clone("billing", "copy", is_dry_run=True)
    assert cluster.questions(RESET) == []
    done = await cluster.admin.offsets.clone("billing", "copy")

    assert places(shown.moves) == places(done.moves)
    assert places(done.moves) == [("broker-a", 0, 50, 61), ("broker-a", 1, 50, 10)]
    assert {(a.header.group, a.header.offset) for a in cluster.questions(RESET)} == {
        ("copy", 61),
        ("copy", 10),
    }


async def test_a_group_without_offsets_cannot_be_cloned() -> None:
    cluster = consumed_cluster()
    cluster.on(RequestCode.GET_CONSUME_STATS, body(ConsumeStats()))

    with pytest.raises(NotFound, match="no such group: 'billing'; it has no offsets on orders"):
        await cluster.admin.offsets.clone("billing", "copy", "orders")


@pytest.mark.parametrize(
    "remark",
    ["Offset 600 is not noted, the queue ends at 90", "Offset has been previously reset"],
)
async def test_an_offset_that_the_broker_does_not_store_is_refused(remark: str) -> None:
    cluster = consumed_cluster()
    cluster.on(STORE, Answer(remark=remark))

    with pytest.raises(Refused, match=remark):
        await cluster.admin.offsets.commit("billing", "orders", "broker-b", 1, 600)


async def test_no_broker_is_asked_to_store_a_negative_offset() -> None:
    cluster = consumed_cluster()

    with pytest.raises(InvalidArgument, match="offset -1 is negative"):
        await cluster.admin.offsets.commit("billing", "orders", "broker-b", 1, -1)

    assert cluster.questions(STORE) == []


async def test_single_offsets_are_read_and_stored() -> None:
    cluster = consumed_cluster()
    admin = cluster.admin

    assert await admin.offsets.get("billing", "orders", "broker-b", 1) == 50
    await admin.offsets.commit("billing", "orders", "broker-b", 1, 60)

    (asked,) = cluster.questions(STORE)
    assert (asked.address, asked.header.queue_id, asked.header.commit_offset) == (BROKER_B, 1, 60)
