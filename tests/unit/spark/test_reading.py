"""Plans and tasks without Spark, with real servers in this process: every way to the bytes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq import Client
from cometmq.admin import Admin, Earliest
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.pull import PullMessage, PullMessageResponse
from cometmq.errors import NotFound, Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.model.system_names import TOOLS_GROUP
from cometmq.spark.batch_plan import batch_plan, sampled_bodies, topology_of
from cometmq.spark.losses import MessagesLost
from cometmq.spark.options import parse
from cometmq.spark.planning import Range
from cometmq.spark.schema import arrow_schema, schema_ddl
from cometmq.spark.tasks import Task, TaskReader
from cometmq.spark.topology import BrokerTopology, log_status
from cometmq.spark.wire import wire_of
from cometmq.testing import LocalCluster
from tests.interop import asking

pytestmark = pytest.mark.slow

COUNT = 200
SPREAD_COUNT = 240
COLUMNS = ["topic", "queueId", "queueOffset", "tags", "body"]
FAST_FLUSH = {"flushIntervalCommitLog": "20", "flushCommitLogThoroughInterval": "50"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two brokers; topic ``orders`` has messages in all of its queues, every third tagged B."""
    with LocalCluster(brokers=2, settings=FAST_FLUSH) as running:
        running.create_topic("orders", queues=2)
        running.create_topic("empty", queues=2)
        with Client(running.namesrv) as client, client.producer("p") as producer:
            for number in range(COUNT):
                tag = "A" if number % 3 else "B"
                body = json.dumps({"n": number}).encode()
                producer.send("orders", body, tag=tag, keys=f"k{number}")
        yield running


@pytest.fixture
def read(cluster: Any) -> Callable[..., list[dict[str, Any]]]:
    """``read(source="log")``: the rows of a batch query."""

    def rows(columns: list[str] = COLUMNS, **given: str) -> list[dict[str, Any]]:
        options = parse({"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders", **given})
        found: list[dict[str, Any]] = []
        for task in batch_plan(options):
            for batch in TaskReader(options, arrow_schema(columns)).read(task):
                found += batch.to_pylist()
        return found

    return rows


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(json.loads(row["body"])["n"] for row in rows)


@pytest.mark.parametrize("source", ["auto", "broker", "log"])
def test_all_messages_are_read_from_all_brokers(
    read: Callable[..., list[dict[str, Any]]], source: str
) -> None:
    rows = read(source=source, minPartitions="3")

    assert numbers(rows) == list(range(COUNT))
    assert len({(row["queueId"], row["queueOffset"]) for row in rows}) < COUNT  # on two brokers


@pytest.mark.parametrize("source", ["auto", "broker", "log"])
def test_messages_are_chosen_by_tag(read: Callable[..., list[dict[str, Any]]], source: str) -> None:
    assert numbers(read(source=source, tags="B || C")) == list(range(0, COUNT, 3))


def test_small_pulls_are_joined(read: Callable[..., list[dict[str, Any]]]) -> None:
    assert numbers(read(source="broker", **{"pull.maxMsgNums": "3"})) == list(range(COUNT))
    assert numbers(read(source="broker", **{"pull.maxBytes": "300"})) == list(range(COUNT))


def test_rows_are_batched_as_asked_for(cluster: Any) -> None:
    given = {"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders", "source": "broker"}
    options = parse({**given, "pull.maxMsgNums": "5", "arrow.rowsPerBatch": "20"})
    (task,) = batch_plan(options)

    sizes = [b.num_rows for b in TaskReader(options, arrow_schema(["body"])).read(task)]

    assert sum(sizes) == COUNT
    assert max(sizes) == 20
    assert len(sizes) <= 2 * COUNT // 20


def test_offsets_limit_what_is_read(
    cluster: Any, read: Callable[..., list[dict[str, Any]]]
) -> None:
    name = cluster.brokers[1].name
    rows = read(
        subscribe="orders",
        startingOffsets=json.dumps({"orders": {name: {"0": 3}}}),
        endingOffsets=json.dumps({"orders": {name: {"0": 7}}}),
        source="broker",
    )
    several = [row for row in rows if row["queueId"] == 0]

    assert len(rows) == COUNT - (COUNT // 4 - 4)
    assert len(several) == COUNT // 4 + 4


def test_an_empty_topic_has_no_rows(read: Callable[..., list[dict[str, Any]]]) -> None:
    assert read(subscribe="empty") == []


def test_the_same_store_can_be_read_without_its_broker(
    cluster: Any, read: Callable[..., list[dict[str, Any]]]
) -> None:
    read(source="log")  # has waited until everything is on disk
    found = []
    for broker in cluster.brokers:
        (folder,) = [path.parent for path in broker.folder.glob("**/commitlog")]
        options = parse({"source": "log", "storePath": str(folder), "subscribe": "orders"})
        for task in batch_plan(options):
            for batch in TaskReader(options, arrow_schema(["body"])).read(task):
                found += batch.to_pylist()

    assert numbers(found) == list(range(COUNT))


def test_a_store_that_is_not_visible_is_named(
    tmp_path: Path, read: Callable[..., list[dict[str, Any]]]
) -> None:
    with pytest.raises(NotFound, match="which this machine does not see in"):
        read(source="log", storePath=str(tmp_path))

    assert numbers(read(source="auto", storePath=str(tmp_path))) == list(range(COUNT))


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker whose log lies in two folders, which take turns; all of it is on disk."""
    folder = tmp_path_factory.mktemp("disks")
    several = {"storePathCommitLog": f"{folder}/1,{folder}/2", "mappedFileSizeCommitLog": "65536"}
    with LocalCluster(settings={**FAST_FLUSH, **several}) as running:
        running.create_topic("orders", queues=1)
        with Client(running.namesrv) as client, client.producer("p") as producer:
            for _ in range(SPREAD_COUNT // 30):
                producer.send_many("orders", [b"x" * 1000] * 30)
        asking.wait_until(lambda: is_on_disk(running), "the log to be on disk")
        yield running


def is_on_disk(cluster: Any) -> bool:
    wire = wire_of(parse({"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "x"}).connecting)
    status = log_status(wire, cluster.broker.address)
    assert status is not None
    return status.confirmed_offset == status.end_offset


def spread_rows(spread: Any, **given: str) -> int:
    options = parse({"rocketmq.namesrv.addr": spread.namesrv, "subscribe": "orders", **given})
    reader = TaskReader(options, arrow_schema(["body"]))
    return sum(batch.num_rows for task in batch_plan(options) for batch in reader.read(task))


@pytest.mark.parametrize("is_fatal", ["true", "false"])
@pytest.mark.parametrize("source", ["auto", "broker"])
def test_a_log_in_several_folders_is_read_whole(spread: Any, source: str, is_fatal: str) -> None:
    assert spread_rows(spread, source=source, failOnDataLoss=is_fatal) == SPREAD_COUNT


@pytest.mark.parametrize("is_fatal", ["true", "false"])
def test_files_of_another_folder_are_not_taken_for_lost(spread: Any, is_fatal: str) -> None:
    with pytest.raises(NotFound, match="which this machine does not see in"):
        spread_rows(spread, source="log", failOnDataLoss=is_fatal)


def test_a_log_that_goes_on_in_another_folder_while_it_is_waited_for_is_not_visible(
    tmp_path: Path,
) -> None:
    never = {"flushIntervalCommitLog": "3600000", "flushCommitLogThoroughInterval": "3600000"}
    several = {"storePathCommitLog": f"{tmp_path}/1,{tmp_path}/2"}
    sizes = {"mappedFileSizeCommitLog": "65536"}
    with (
        LocalCluster(settings={**never, **several, **sizes}) as running,
        Client(running.namesrv) as client,
        client.producer("p") as producer,
    ):
        running.create_topic("orders", queues=1)
        producer.send_many("orders", [b"x" * 1000] * 10)
        given = {"rocketmq.namesrv.addr": running.namesrv, "subscribe": "orders"}
        options = parse({**given, "source": "log"})
        (task,) = batch_plan(options)

        def write_on(_: float) -> None:
            for _ in range(2):
                producer.send_many("orders", [b"x" * 1000] * 30)

        with pytest.raises(NotFound, match="which this machine does not see in"):
            list(TaskReader(options, arrow_schema(["body"]), pause=write_on).read(task))


def test_a_topic_or_a_name_server_that_is_not_there_is_named(
    read: Callable[..., list[dict[str, Any]]],
) -> None:
    with pytest.raises(NotFound, match="no such topic: 'nothing'"):
        read(subscribe="nothing")
    with pytest.raises(Unreachable, match="is a name server running there"):
        read(**{"rocketmq.namesrv.addr": "127.0.0.1:1"})


def test_a_schema_is_inferred_from_the_last_messages(cluster: Any) -> None:
    given = {"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders", "bodySample": "10"}
    options = parse({**given, "bodyFormat": "json", "columns": "body"})

    assert len(sampled_bodies(options)) == 10
    assert schema_ddl(options) == "`body` struct<`n`: bigint>"


@pytest.mark.parametrize("begin", [0, 5])
def test_a_range_that_retention_has_passed_is_a_loss(cluster: Any, begin: int) -> None:
    """An offset that the queue never had looks the same to a reader."""
    given = {"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders", "source": "broker"}
    name = cluster.broker.name
    wanted = Range(MessageQueue("orders", name, 0), COUNT + begin, COUNT + 10)
    task = Task((wanted,), ((name, cluster.broker.address),))
    fatal, calm = parse(given), parse({**given, "failOnDataLoss": "false"})

    with pytest.raises(MessagesLost) as caught:
        list(TaskReader(fatal, arrow_schema(["body"]), pause=lambda _: None).read(task))

    assert (caught.value.begin, caught.value.end) == (COUNT + begin, COUNT + 10)
    assert list(TaskReader(calm, arrow_schema(["body"]), pause=lambda _: None).read(task)) == []


@pytest.mark.parametrize("is_fatal", ["true", "false"])
def test_a_reset_of_the_group_is_for_its_members_and_not_for_a_read(
    cluster: Any, read: Callable[..., list[dict[str, Any]]], is_fatal: str
) -> None:
    group = f"G_reset_{is_fatal}"
    options = parse({"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders"})
    topology = BrokerTopology(wire_of(options.connecting))
    topology.commit(group, dict.fromkeys(topology.bounds("orders"), 20))
    reset(cluster, group)

    rows = read(source="broker", group=group, failOnDataLoss=is_fatal)

    assert numbers(rows) == list(range(COUNT))
    answer = wire_of(options.connecting).ask(
        cluster.broker.address,
        RequestCode.PULL_MESSAGE,
        PullMessage(group, "orders", 0, 20, 1, 0x4, 0, 0, "*", 0),
        accept=(ResponseCode.PULL_OFFSET_MOVED,),
    )
    assert core.read(answer.head, PullMessageResponse).next_begin_offset == 0


@pytest.mark.parametrize("is_fatal", ["true", "false"])
def test_a_pull_that_meets_a_reset_is_sent_again(
    cluster: Any, read: Callable[..., list[dict[str, Any]]], is_fatal: str
) -> None:
    reset(cluster, TOOLS_GROUP)

    rows = read(source="broker", failOnDataLoss=is_fatal)

    assert numbers(rows) == list(range(COUNT))


def reset(cluster: Any, group: str) -> None:
    """Set a group to the first messages of the topic; who next pulls in its name is told so."""

    async def ask() -> None:
        async with Admin(cluster.namesrv) as admin:
            await admin.offsets.reset(group, "orders", Earliest())

    asyncio.run(ask())


def test_a_broker_that_restarts_does_not_end_a_read(tmp_path: Path) -> None:
    with LocalCluster(settings=FAST_FLUSH) as running:
        running.create_topic("orders", queues=1)
        with Client(running.namesrv) as client, client.producer("p") as producer:
            producer.send_many("orders", [b"%d" % number for number in range(50)])
        given = {"rocketmq.namesrv.addr": running.namesrv, "subscribe": "orders"}
        options = parse({**given, "source": "broker", "pull.maxMsgNums": "10"})
        reader = TaskReader(options, arrow_schema(["body"]), pause=lambda _: None)
        (task,) = batch_plan(options)
        reader.read(task).close()  # type: ignore[attr-defined]
        assert sum(batch.num_rows for batch in reader.read(task)) == 50

        running.broker.restart()

        assert sum(batch.num_rows for batch in reader.read(task)) == 50


@pytest.mark.parametrize(("source", "pauses"), [("auto", 6), ("log", 0)])
def test_a_broker_that_is_away_is_waited_for_unless_only_its_files_will_do(
    cluster: Any, source: str, pauses: int
) -> None:
    """Asking how far files may be read is no reason to give up sooner."""
    given = {"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders", "source": source}
    task = Task(
        (Range(MessageQueue("orders", "broker-x", 0), 0, 5),), (("broker-x", "127.0.0.1:1"),)
    )
    slept: list[float] = []

    with pytest.raises(Unreachable):
        list(TaskReader(parse(given), arrow_schema(["body"]), pause=slept.append).read(task))

    assert len(slept) == pauses


def test_topologies_tell_times_sizes_and_groups(cluster: Any) -> None:
    options = parse({"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "orders"})
    topology = topology_of(options)
    assert isinstance(topology, BrokerTopology)
    bounds = topology.bounds("orders")
    first = min(bounds)

    topology.commit("spark-group", {first: 7})

    assert {one.end for one in bounds.values()} == {COUNT // 4}
    assert topology.committed("spark-group", bounds) == {first: 7}
    assert topology.at_time({first: 0, max(bounds): 2**42}) == {first: 0, max(bounds): COUNT // 4}
    sizes = topology.row_sizes(Range(first, 0, COUNT // 4), 4)
    assert len(sizes) == 4
    assert all(100 < size < 500 for size in sizes)
    assert {"orders", "empty"} <= set(topology.topics())


def test_tools_find_a_group_where_it_was_introduced_once(cluster: Any) -> None:
    group = "introduced"
    topology = BrokerTopology(
        wire_of(parse({"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "x"}).connecting)
    )
    topology.bounds("orders")

    def brokers() -> list[str]:
        route = asking.route(cluster.namesrv, f"%RETRY%{group}")
        return sorted(data.broker_name for data in route.queue_datas) if route else []

    names = [broker.name for broker in cluster.brokers]
    for number, name in enumerate(names):
        topology.introduce(group, name)
        wanted = names[: number + 1]
        asking.wait_until(lambda wanted=wanted: brokers() == wanted, "the retry topic")  # type: ignore[misc]
    topology.introduce(group, names[0])

    async def members() -> int:
        async with Admin(cluster.namesrv) as admin:
            return len((await admin.groups.members(group)).members)

    assert asyncio.run(members()) == 0


def test_many_questions_are_asked_at_once(cluster: Any) -> None:
    cluster.create_topic("wide", queues=100)
    options = parse({"rocketmq.namesrv.addr": cluster.namesrv, "subscribe": "wide"})
    topology = BrokerTopology(wire_of(options.connecting))
    queues = list(topology.bounds("wide"))

    found = topology.at_time(dict.fromkeys(queues, 0))
    topology.commit("many", dict.fromkeys(queues, 0))

    assert len(queues) == 200
    assert set(found.values()) == {0}
    assert topology.committed("many", queues) == dict.fromkeys(queues, 0)
