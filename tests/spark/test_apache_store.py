"""Store directories that Apache's brokers have written, read as files, without any broker."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.model.system_names import is_system_topic
from tests.golden.store_data import STORES, Store, load


@pytest.fixture(params=STORES)
def golden(request: pytest.FixtureRequest) -> Store:
    return load(request.param)


@pytest.fixture
def table(spark: Any, golden: Store, tmp_path: Path) -> Callable[..., Any]:
    """``table(columns="topic")``: a copy of the recorded directory as a frame."""
    root = tmp_path / "store"
    for path, content in golden.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)

    def read(**options: str) -> Any:
        reader = spark.read.format("rocketmq").option("source", "log").option("verifyCrc", "all")
        return reader.option("storePath", str(root)).options(**options).load()

    return read


def told_place(message: dict[str, Any]) -> tuple[str, int, int]:
    return message["topic"], message["queueId"], message["queueOffset"]


def told_facts(message: dict[str, Any]) -> tuple[Any, ...]:
    """What the broker that wrote it said of a message."""
    return (
        message["bodySha256"],
        message["properties"],
        message["tags"],
        message["keys"],
        message["commitLogOffset"],
        message["bornHost"],
        message["storeTimestamp"],
        message["reconsumeTimes"],
    )


def read_facts(row: Any) -> tuple[Any, ...]:
    """The same, as Spark has read it."""
    return (
        hashlib.sha256(row.body).hexdigest(),
        row.properties,
        row.tags,
        row.keys,
        row.physicalOffset,
        row.bornHost,
        row.storedMs,
        row.reconsumeTimes,
    )


def test_every_message_is_a_row_with_what_the_broker_said_of_it(
    golden: Store, table: Callable[..., Any]
) -> None:
    frame = table(subscribePattern=".*", isolation="raw")

    rows = frame.selectExpr("*", "unix_millis(storeTimestamp) AS storedMs").collect()

    found = {(row.topic, row.queueId, row.queueOffset): read_facts(row) for row in rows}
    told = {told_place(one): told_facts(one) for one in golden.manifest["messages"]}
    assert found == told
    assert len(rows) == len(told)


def test_without_asking_for_them_the_brokers_own_topics_are_not_there(
    golden: Store, table: Callable[..., Any]
) -> None:
    rows = table(columns="topic,queueId,queueOffset").collect()

    told = {
        told_place(one)
        for one in golden.manifest["messages"]
        if not is_system_topic(one["topic"]) and not one["topic"].startswith("%")
    }
    assert {tuple(row) for row in rows} == told


@pytest.mark.parametrize("golden", ["5.5.0-clean"], indirect=True)
def test_messages_that_are_gone_end_a_query_unless_that_is_allowed(
    golden: Store, table: Callable[..., Any], tmp_path: Path
) -> None:
    """Retention takes the first file of the log: what a query wants of it is not there."""
    first, second = sorted((tmp_path / "store" / "commitlog").iterdir())[:2]
    first.unlink()
    offsets = {
        is_kept: [
            one["queueOffset"]
            for one in golden.manifest["messages"]
            if one["topic"] == "Plain"
            and one["queueId"] == 0
            and (one["commitLogOffset"] >= int(second.name)) == is_kept
        ]
        for is_kept in (False, True)
    }
    start = json.dumps({"Plain": {tmp_path.name: {"0": 0}}})
    options = {"subscribe": "Plain", "startingOffsets": start, "columns": "queueId,queueOffset"}

    with pytest.raises(Exception, match=rf"are gone: offsets 0 to {max(offsets[False])}"):
        table(**options).collect()
    rows = table(**options, failOnDataLoss="false").where("queueId = 0").collect()

    assert sorted(row.queueOffset for row in rows) == offsets[True]
