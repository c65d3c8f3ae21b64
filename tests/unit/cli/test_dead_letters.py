import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import pytest

from cometmq.admin.message import Message, messages_in
from cometmq.cli.dead_letters import (
    SAVED_EVERY,
    DeadLetterTopic,
    NoOrigin,
    Places,
    QueueState,
    dead_letters,
    letters_of,
    move_place,
    origin_of,
    replay,
    send_again,
)
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.errors import NotFound, Refused, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import FakeCluster, body, record, refused

GROUP, TOPIC = "billing", "%DLQ%billing"


def letter(offset: int, *, properties: Mapping[str, str] | None = None) -> Message:
    given: Any = {"RETRY_TOPIC": "orders", "UNIQ_KEY": f"ID{offset}"}
    if properties is not None:
        given = properties
    data = record(topic=TOPIC, queue_offset=offset, body=b"v%d" % offset, **given)
    (message,) = messages_in(data, "broker-a")
    return message


class Producer:
    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, dict[str, Any]]] = []

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        tag: str | None = None,
        keys: Collection[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
    ) -> None:
        facts = {"tag": tag, "keys": keys, "properties": properties, "ordering": ordering_key}
        self.sent.append((topic, value, facts))


def cluster_with(min_offset: int, max_offset: int, stored: int | None) -> FakeCluster:
    cluster = FakeCluster()
    cluster.on_route(TOPIC, queues=1, brokers="a")
    queue = MessageQueue(TOPIC, "broker-a", 0)
    table = TopicStatsTable({queue: TopicOffset(min_offset, max_offset, 1_700_000_000_000)})
    cluster.on(RequestCode.GET_TOPIC_STATS_INFO, body(table))
    answer = refused(ResponseCode.QUERY_NOT_FOUND)
    if stored is not None:
        answer = Answer(header=OffsetResponse(stored))
    cluster.on(RequestCode.QUERY_CONSUMER_OFFSET, answer)
    cluster.on(RequestCode.UPDATE_CONSUMER_OFFSET, Answer())
    return cluster


@pytest.mark.parametrize(
    ("stored", "pending"),
    [(None, 6), (0, 6), (7, 3), (10, 0), (99, 6)],
    ids=["never", "expired meanwhile", "some", "all", "before the topic was made anew"],
)
def test_what_lies_behind_the_groups_offset_is_pending(stored: int | None, pending: int) -> None:
    cluster = cluster_with(4, 10, stored)

    found = asyncio.run(dead_letters(cluster.admin, GROUP))

    assert (found.topic, found.message_count, found.pending_count) == (TOPIC, 6, pending)
    assert found.last_ms == 1_700_000_000_000


def test_a_group_without_dead_letters_is_not_found() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, refused(ResponseCode.TOPIC_NOT_EXIST))

    with pytest.raises(NotFound) as caught:
        asyncio.run(dead_letters(cluster.admin, GROUP))

    assert caught.value.fact == "no such group with dead letters: 'billing'"


def test_a_topic_that_may_not_be_read_says_how_to_change_that() -> None:
    cluster = cluster_with(0, 1, None)
    cluster.on(RequestCode.PULL_MESSAGE, refused(ResponseCode.NO_PERMISSION))
    letters = DeadLetterTopic(GROUP, TOPIC, (QueueState("broker-a", 0, 0, 1, 0, 0),))

    async def scenario() -> list[Message]:
        return [one async for one in letters_of(cluster.admin, letters, is_all=False)]

    with pytest.raises(Refused) as caught:
        asyncio.run(scenario())
    assert "topic edit '%DLQ%billing' --perm rw" in caught.value.next_step


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "orders", "DLQ_ORIGIN_TOPIC": "%RETRY%billing"}, "orders"),
        ({"DLQ_ORIGIN_TOPIC": "orders"}, "orders"),
        ({}, None),
    ],
)
def test_a_dead_letter_says_where_it_comes_from(
    properties: dict[str, str], topic: str | None
) -> None:
    assert origin_of(letter(0, properties=properties)) == topic


def test_a_dead_letter_is_sent_again_with_all_that_its_sender_gave_it() -> None:
    producer = Producer()
    properties = {
        "RETRY_TOPIC": "orders",
        "UNIQ_KEY": "ID7",
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "DELAY": "-1",
        "__SHARDINGKEY": "c7",
        "color": "red",
    }

    to = asyncio.run(send_again(producer, letter(7, properties=properties), GROUP, None))

    assert to == "orders"
    ((topic, value, facts),) = producer.sent
    assert (topic, value) == ("orders", b"v7")
    assert (facts["tag"], tuple(facts["keys"]), facts["ordering"]) == ("paid", ("k1", "k2"), "c7")
    assert facts["properties"] == {
        "color": "red",
        "REPLAY_OF": "ID7",
        "REPLAY_GROUP": "billing",
    }


def test_what_dies_again_keeps_the_id_that_it_had_first() -> None:
    producer = Producer()
    properties = {"RETRY_TOPIC": "orders", "UNIQ_KEY": "ID9", "REPLAY_OF": "ID7"}

    asyncio.run(send_again(producer, letter(9, properties=properties), GROUP, None))

    assert producer.sent[0][2]["properties"]["REPLAY_OF"] == "ID7"


def test_a_dead_letter_without_an_origin_needs_a_topic() -> None:
    producer = Producer()

    with pytest.raises(NoOrigin) as caught:
        asyncio.run(send_again(producer, letter(0, properties={}), GROUP, None))
    asyncio.run(send_again(producer, letter(0, properties={}), GROUP, "elsewhere"))

    assert "--to" in caught.value.next_step
    assert [topic for topic, _, _ in producer.sent] == ["elsewhere"]


async def stream(count: int) -> AsyncIterator[Message]:
    for offset in range(count):
        yield letter(offset)


def run_replay(
    cluster: FakeCluster,
    count: int,
    act: Callable[[Message], Any],
    *,
    limit: int | None = None,
    is_wanted: Callable[[Message], bool] = lambda _: True,
) -> int:
    letters = DeadLetterTopic(GROUP, TOPIC, (QueueState("broker-a", 0, 0, count, 0, 0),))

    async def scenario() -> int:
        places = Places(cluster.admin, letters)
        return await replay(stream(count), places, is_wanted, act, limit)

    return asyncio.run(scenario())


def saved(cluster: FakeCluster) -> list[int]:
    asked = cluster.questions(RequestCode.UPDATE_CONSUMER_OFFSET)
    return [question.header.commit_offset for question in asked]


def test_a_replay_saves_how_far_it_is_from_time_to_time_and_at_the_end() -> None:
    cluster, had = cluster_with(0, 100, None), []

    async def act(message: Message) -> None:
        had.append(message.queue_offset)

    done = run_replay(cluster, SAVED_EVERY * 2 + 5, act)

    assert done == len(had) == SAVED_EVERY * 2 + 5
    assert saved(cluster) == [SAVED_EVERY, SAVED_EVERY * 2, SAVED_EVERY * 2 + 5]


def test_a_replay_that_fails_goes_on_at_what_failed() -> None:
    cluster = cluster_with(0, 100, None)

    async def act(message: Message) -> None:
        if message.queue_offset == 3:
            raise Unreachable("h:1", "gone")

    with pytest.raises(Unreachable):
        run_replay(cluster, 10, act)

    assert saved(cluster) == [3]


def test_a_replay_ends_after_so_many() -> None:
    cluster, had = cluster_with(0, 100, None), []

    async def act(message: Message) -> None:
        had.append(message.queue_offset)

    assert run_replay(cluster, 10, act, limit=2) == 2
    assert (had, saved(cluster)) == ([0, 1], [2])


def test_all_dead_letters_may_be_given_up() -> None:
    cluster = cluster_with(0, 10, 4)
    letters = DeadLetterTopic(GROUP, TOPIC, (QueueState("broker-a", 0, 0, 10, 4, 0),))

    asyncio.run(move_place(cluster.admin, letters, to_end=True))
    asyncio.run(move_place(cluster.admin, letters, to_end=False))

    assert saved(cluster) == [10, 0]
