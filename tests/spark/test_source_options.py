"""Every option of the source on a real broker: what a query with it reads, and how."""

import ast
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cometmq import Client
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.offsets import UpdateConsumerOffset
from cometmq.model.offsets import MessageQueue
from cometmq.spark.options import OPTIONS
from tests.interop import asking, membership, requirements, tls
from tests.interop.commands import run
from tests.interop.tls import Certificates
from tests.spark.servers import Servers, start_servers

QUEUES, EACH = 3, 20
ALL = frozenset(range(QUEUES * EACH))
EARLY = frozenset(number for number in ALL if number < 30)
"""Messages 0 to 29 were stored before a moment that queries name, the others after it."""
OTHER = frozenset({1000, 1001})
GROUP = "spark-options"
LARGE_COUNT, LARGE_BYTES = 1_500, 2_000
PASSWORD = "of-the-key"
OPENSSL_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Orders:
    """Topics of this module: message n is in queue n % 3, at n // 3."""

    servers: Servers
    topic: str
    other: str
    middle_ms: int

    def queues(self, *values: Any) -> str:
        """What options want to know of each queue, as JSON: one value for each."""
        found = {str(number): value for number, value in enumerate(values)}
        return json.dumps({self.topic: {self.servers.broker.name: found}})

    @property
    def base(self) -> dict[str, str]:
        return {"rocketmq.namesrv.addr": self.servers.namesrv, "subscribe": self.topic}


@pytest.fixture(scope="module")
def orders(servers: Servers) -> Orders:
    topic, other = "options_orders", "options_other"
    servers.create_topic(topic, queues=QUEUES)
    servers.create_topic(other, queues=1)
    with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
        middle_ms = 0
        for number in sorted(ALL):
            if number == len(EARLY):
                middle_ms = _a_moment_between()
            queue = MessageQueue(topic, servers.broker.name, number % QUEUES)
            producer.send(topic, _body(number), tag="ABC"[number // 3 % 3], queue=queue)
        for number in sorted(OTHER):
            producer.send(other, _body(number))
    membership.join_and_leave(servers.broker.address, GROUP)
    for number in range(QUEUES):
        _commit(servers, topic, number, 15)
    return Orders(servers, topic, other, middle_ms)


def _body(number: int) -> bytes:
    return json.dumps({"n": number, "price": number / 2, "note": f"note {number}"}).encode()


def _a_moment_between() -> int:
    """Milliseconds that nothing was stored at; everything before is earlier."""
    moment = int(time.time() * 1000) + 1
    asking.wait_until(lambda: time.time() * 1000 > moment + 1, "the clock to go on")
    return moment


def _commit(servers: Servers, topic: str, queue_id: int, offset: int) -> None:
    header = UpdateConsumerOffset(GROUP, topic, queue_id, offset)
    asking.ask_well(servers.broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


@pytest.fixture
def load(spark: Any, orders: Orders) -> Callable[..., Any]:
    """``load({"tags": "A"})``: a frame; an option of None is left out."""

    def frame(given: dict[str, str | None]) -> Any:
        options = {**orders.base, **given}
        wanted = {name: value for name, value in options.items() if value is not None}
        return spark.read.format("rocketmq").options(**wanted).load()

    return frame


def numbers(frame: Any) -> frozenset[int]:
    """Which messages a frame has; none of them twice."""
    rows = [json.loads(row.body)["n"] for row in frame.select("body").collect()]
    assert len(rows) == len(set(rows))
    return frozenset(rows)


@dataclass(frozen=True, slots=True)
class Case:
    """Options, and the messages that a query with them reads."""

    options: Callable[[Orders], dict[str, str | None]]
    wanted: frozenset[int] = field(default=ALL)


CASES = {
    "subscribe": Case(lambda o: {"subscribe": f"{o.topic}, {o.other}"}, ALL | OTHER),
    "subscribePattern": Case(
        lambda _: {"subscribe": None, "subscribePattern": "options_o.*"}, ALL | OTHER
    ),
    "assign": Case(
        lambda o: {
            "subscribe": None,
            "assign": json.dumps({o.topic: {o.servers.broker.name: [0, 2]}}),
        },
        frozenset(n for n in ALL if n % 3 != 1),
    ),
    "storePath": Case(lambda o: {"source": "log", "storePath": str(o.servers.broker.store_path)}),
    "startingOffsets latest": Case(lambda _: {"startingOffsets": "latest"}, frozenset()),
    "startingOffsets json": Case(
        lambda o: {"startingOffsets": o.queues(18, -1, -3), "group": GROUP},
        frozenset({54, 57} | {n for n in ALL if n % 3 == 2 and n >= 45}),
    ),
    "group": Case(
        lambda _: {"startingOffsets": "committed", "group": GROUP},
        frozenset(n for n in ALL if n >= 45),
    ),
    "startingTimestamp": Case(lambda o: {"startingTimestamp": str(o.middle_ms)}, ALL - EARLY),
    "startingOffsetsByTimestamp": Case(
        lambda o: {"startingOffsetsByTimestamp": o.queues(0, o.middle_ms, o.middle_ms)},
        frozenset(n for n in ALL if n % 3 == 0 or n not in EARLY),
    ),
    "startingOffsetsByTimestampStrategy": Case(
        lambda _: {
            "startingTimestamp": str(2**41 + 2**40),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        frozenset(),
    ),
    "endingOffsets": Case(lambda o: {"endingOffsets": o.queues(2, 0, 1)}, frozenset({0, 3, 2})),
    "endingTimestamp": Case(lambda o: {"endingTimestamp": str(o.middle_ms)}, EARLY),
    "endingOffsetsByTimestamp": Case(
        lambda o: {"endingOffsetsByTimestamp": o.queues(o.middle_ms, o.middle_ms, 0)},
        frozenset(n for n in EARLY if n % 3 != 2),
    ),
    "pull.maxMsgNums": Case(lambda _: {"source": "broker", "pull.maxMsgNums": "7"}),
    "pull.maxBytes": Case(lambda _: {"source": "broker", "pull.maxBytes": "1k"}),
    "arrow.rowsPerBatch": Case(lambda _: {"arrow.rowsPerBatch": "3"}),
    "arrow.bytesPerBatch": Case(lambda _: {"arrow.bytesPerBatch": "2k"}),
    "tags": Case(lambda _: {"tags": "A || C"}, frozenset(n for n in ALL if n // 3 % 3 != 1)),
    "tags log": Case(
        lambda _: {"tags": "B", "source": "log"}, frozenset(n for n in ALL if n // 3 % 3 == 1)
    ),
    "verifyCrc": Case(lambda _: {"source": "log", "verifyCrc": "all"}),
    "verifyCrc none": Case(lambda _: {"source": "log", "verifyCrc": "none"}),
    "rocketmq.timeout": Case(lambda _: {"rocketmq.timeout": "7s"}),
    "accessKey": Case(lambda _: {"accessKey": "me", "secretKey": "s", "securityToken": "t"}),
}
DIVIDED = "test_source_options::test_rows_are_divided_among_tasks"
COLUMNS = "test_source_options::test_only_wanted_columns_are_there"
TLS = "test_source_options::test_options_say_how_to_talk_tls"
SECRETS = "test_source_errors::test_secrets_are_neither_in_plans_nor_in_what_the_ui_shows"
DELAY = "test_stream_life::test_few_rows_do_not_wait_for_ever"
ELSEWHERE = {
    "rocketmq.namesrv.addr": "test_source_errors::test_what_cannot_be_read_is_said_clearly",
    "source": "test_source_batch::test_all_messages_of_a_topic_are_rows_of_a_table",
    "secretKey": SECRETS,
    "securityToken": SECRETS,
    "minPartitions": DIVIDED,
    "maxRecordsPerPartition": DIVIDED,
    "maxBytesPerPartition": "test_source_options::test_large_messages_are_divided_by_bytes",
    "columns": COLUMNS,
    "includeProperties": COLUMNS,
    "pushdown": "test_source_options::test_filters_that_are_pushed_down_read_less",
    "isolation": "test_source_options::test_topics_that_brokers_keep_are_read_by_who_asks_for_them",
    "bodyFormat": "test_source_options::test_bodies_are_text",
    "bodySchema": "test_source_options::test_bodies_are_values_of_the_schema_that_is_given",
    "bodySample": "test_source_options::test_a_schema_of_bodies_is_inferred",
    "credentialsFile": TLS,
    **dict.fromkeys(("tls", "tls.trustCertPath"), TLS),
    **dict.fromkeys(("tls.certPath", "tls.keyPath", "tls.keyPassword"), TLS),
    "maxOffsetsPerTrigger": "test_source_stream::test_batches_have_no_more_rows_than_allowed",
    "maxBytesPerTrigger": (
        "test_stream_life::test_messages_of_a_batch_have_no_more_bytes_than_allowed"
    ),
    "minOffsetsPerTrigger": DELAY,
    "maxTriggerDelay": DELAY,
    "commitOffsets": "test_stream_life::test_a_stream_publishes_nothing_if_told_so",
    "failOnDataLoss": "test_stream_life::test_a_topic_that_is_made_anew_is_not_passed_over",
    "sql92": "test_interop::test_brokers_choose_by_expression",
}
"""Options whose effect is not which of the messages here are read: the test of each."""


def test_every_option_is_tested() -> None:
    tested = {name.split()[0] for name in CASES} | ELSEWHERE.keys()

    assert tested == set(OPTIONS)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_test_of_an_option_sets_it(name: str) -> None:
    module, _, function = ELSEWHERE[name].partition("::")

    text = _test_text(Path(__file__).with_name(f"{module}.py"), function)

    assert re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text), text


def _test_text(path: Path, function: str) -> str:
    """The source of a test with what it is called with; fails when there is no such test."""
    lines = path.read_text().splitlines()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            first = min((one.lineno for one in node.decorator_list), default=node.lineno)
            return "\n".join(lines[first - 1 : node.end_lineno])
    raise AssertionError(f"{path.name} has no {function}")


@pytest.mark.parametrize("name", CASES)
def test_an_option_chooses_what_is_read(
    name: str, load: Callable[..., Any], orders: Orders
) -> None:
    case = CASES[name]
    options = case.options(orders)
    assert name.split()[0] in options

    assert numbers(load(options)) == case.wanted


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({"minPartitions": "7"}, 7),
        ({"maxRecordsPerPartition": "25"}, 3),
        ({"minPartitions": "1000"}, len(ALL)),
    ],
    ids=["few rows", "at least", "rows at most", "no task is empty"],
)
def test_rows_are_divided_among_tasks(
    load: Callable[..., Any], options: dict[str, str], count: int
) -> None:
    frame = load({**options, "columns": "body"})

    assert frame.rdd.getNumPartitions() == count
    assert numbers(frame) == ALL


@pytest.fixture(scope="module")
def large(servers: Servers) -> dict[str, str]:
    """Options for a topic with many bytes."""
    topic = "options_large"
    servers.create_topic(topic, queues=1)
    with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
        for _ in range(3):
            producer.send_many(topic, [b"x" * LARGE_BYTES] * (LARGE_COUNT // 3))
    return {"rocketmq.namesrv.addr": servers.namesrv, "subscribe": topic}


def test_large_messages_are_divided_by_bytes(spark: Any, large: dict[str, str]) -> None:
    options = {**large, "columns": "body", "maxBytesPerPartition": "512k"}

    frame = spark.read.format("rocketmq").options(**options).load()

    # With their heads they are about 3.3 MB.
    assert 6 <= frame.rdd.getNumPartitions() <= 8
    assert frame.count() == LARGE_COUNT


def test_columns_that_are_left_out_do_not_travel(spark: Any, large: dict[str, str]) -> None:
    """By Spark's count of the bytes that come from Python, which goes on from query to query."""
    reader = spark.read.format("rocketmq").options(**large)
    counts = [
        _bytes_from_python(reader.option("columns", columns).load())
        for columns in ("queueOffset", "queueOffset,body", "queueOffset")
    ]

    assert counts[1] - counts[0] >= LARGE_COUNT * LARGE_BYTES
    assert counts[2] - counts[1] < 50 * LARGE_COUNT


def test_only_wanted_columns_are_there(load: Callable[..., Any]) -> None:
    frame = load({"columns": "queueOffset, TOPIC"})

    assert frame.columns == ["queueOffset", "topic"]
    assert frame.count() == len(ALL)
    assert "properties" not in load({"includeProperties": "false"}).columns
    assert "properties" in load({}).columns


def _bytes_from_python(frame: Any) -> int:
    """What the scan of a frame has got from Python workers, in bytes."""
    execution = frame._jdf.queryExecution()
    frame._jdf.collectToPython()
    metrics = execution.executedPlan()
    found = _metric(metrics, "pythonDataReceived")
    assert found is not None, metrics.treeString()
    return found


def _metric(plan: Any, name: str) -> int | None:
    chosen = plan.metrics().get(name)
    if chosen.isDefined():
        return int(chosen.get().value())
    children = plan.children()
    for number in range(children.size()):
        found = _metric(children.apply(number), name)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize(
    ("where", "tasks", "wanted"),
    [
        ("queueId = 1", 2, frozenset(n for n in ALL if n % 3 == 1)),
        ("queueOffset >= 15", 2, frozenset(n for n in ALL if n >= 45)),
        ("queueOffset < 2 AND queueId IN (0, 2)", 1, frozenset({0, 3, 2, 5})),
        ("topic = 'options_other'", 0, frozenset()),
        ("storeTimestamp >= timestamp_millis({middle})", 3, ALL - EARLY),
        ("storeTimestamp < timestamp_millis({middle})", 3, EARLY),
        ("tags = 'A'", 6, frozenset(n for n in ALL if n // 3 % 3 == 0)),
    ],
)
def test_filters_that_are_pushed_down_read_less(
    load: Callable[..., Any], orders: Orders, where: str, tasks: int, wanted: frozenset[int]
) -> None:
    condition = where.format(middle=orders.middle_ms)
    options = {"pushdown": "true", "maxRecordsPerPartition": "10"}

    frame = load(options).where(condition)
    planned = frame.select("queueOffset").rdd.getNumPartitions()

    assert numbers(frame) == wanted
    assert planned == max(tasks, 1)


def test_bodies_are_text(load: Callable[..., Any]) -> None:
    frame = load({"bodyFormat": "string"})

    assert dict(frame.dtypes)["body"] == "string"
    assert numbers(frame) == ALL


def test_bodies_are_values_of_the_schema_that_is_given(load: Callable[..., Any]) -> None:
    options = {"bodyFormat": "json", "bodySchema": "price double, n long, missing string"}

    rows = load(options).selectExpr("body.*").collect()

    assert sorted((row.n, row.price, row.missing) for row in rows) == [
        (number, number / 2, None) for number in sorted(ALL)
    ]


def test_a_schema_of_bodies_is_inferred(load: Callable[..., Any]) -> None:
    frame = load({"bodyFormat": "json", "bodySample": "10"})

    assert dict(frame.dtypes)["body"] == "struct<n:bigint,price:double,note:string>"
    assert frame.selectExpr("sum(body.n) AS n").first().n == sum(ALL)
    assert frame.where("body.note = 'note 7'").count() == 1


def test_topics_that_brokers_keep_are_read_by_who_asks_for_them(load: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="isolation=raw"):
        load({"subscribe": "SELF_TEST_TOPIC"}).count()

    assert load({"subscribe": "SELF_TEST_TOPIC", "isolation": "raw"}).count() == 0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Servers, Certificates]]:
    """Servers that ask who speaks TLS for a certificate, and those that they know."""
    if requirements.lack("openssl") is not None:
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    made = tls.make(folder / "certificates")
    settings = {
        **made.server_settings("permissive"),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(made.authority),
    }
    with start_servers(folder, settings=settings, namesrv_settings=settings) as started:
        yield started, made


def test_options_say_how_to_talk_tls(
    spark: Any, secured: tuple[Servers, Certificates], topic: str, tmp_path: Path
) -> None:
    servers, made = secured
    servers.create_topic(topic, queues=1)
    with Client(servers.namesrv) as client, client.producer("spark-tests") as producer:
        producer.send(topic, _body(7))
    keys = tmp_path / "keys.properties"
    keys.write_text("accessKey=me\nsecretKey=hush\n")
    options = {"rocketmq.namesrv.addr": servers.namesrv, "subscribe": topic, "source": "broker"}
    trusting = {"tls": "true", "tls.trustCertPath": str(made.authority)}
    own = {
        "tls.certPath": str(made.certificate("client")),
        "tls.keyPath": str(_locked(made.key("client"), tmp_path / "locked.key")),
        "tls.keyPassword": PASSWORD,
    }
    told = {**trusting, **own, "credentialsFile": str(keys)}

    frame = spark.read.format("rocketmq").options(**options, **told).load()
    deceived = {**told, "tls.trustCertPath": str(tls.make(tmp_path / "other").authority)}

    assert numbers(frame) == {7}
    with pytest.raises(Exception, match=r"(?i)certificate verify failed"):
        spark.read.format("rocketmq").options(**options, **deceived).load().count()
    with pytest.raises(Exception, match=r"(?i)certificate required"):
        spark.read.format("rocketmq").options(**options, **trusting).load().count()


def _locked(key: Path, target: Path) -> Path:
    """The same key, encrypted with ``PASSWORD``."""
    argv = ["openssl", "ec", "-in", str(key), "-aes128", "-passout", f"pass:{PASSWORD}"]
    run([*argv, "-out", str(target)], timeout_s=OPENSSL_SECONDS_MAX)
    return target
