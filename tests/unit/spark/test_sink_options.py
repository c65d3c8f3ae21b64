"""Options and columns of the sink: what is taken, and what is refused with which advice."""

import pytest

from cometmq.errors import InvalidArgument

pytest.importorskip("pyspark")

from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from cometmq.spark import sink_options

TEXT = types.StringType()
TYPES = {
    kind.simpleString(): kind
    for kind in (
        TEXT,
        types.BinaryType(),
        types.IntegerType(),
        types.LongType(),
        types.TimestampType(),
        types.TimestampNTZType(),
        types.ArrayType(TEXT),
        types.MapType(TEXT, TEXT),
    )
}
NAMESRV = {"rocketmq.namesrv.addr": "127.0.0.1:9876"}


def parse(**options: str) -> sink_options.SinkOptions:
    return sink_options.parse({**NAMESRV, **options})


def check(ddl: str, topic: str | None = "orders") -> None:
    fields = [column.split(" ", 1) for column in ddl.split("; ")]
    schema = StructType([StructField(name, TYPES[kind]) for name, kind in fields])
    sink_options.check_columns(schema, topic)


def test_options_have_defaults() -> None:
    options = parse(topic="orders")

    assert options.topic == "orders"
    assert options.is_idempotent
    assert options.brokers == ()
    assert options.patience_ms == 120_000
    assert options.in_flight_max == 4
    assert options.producer_id is None
    assert options.epoch == 0


def test_options_are_read_in_any_case() -> None:
    options = parse(TOPIC="orders", sendtimeout="5s", brokers="b, a", Delivery="at-least-once")

    assert options.topic == "orders"
    assert options.patience_ms == 5_000
    assert options.brokers == ("a", "b")
    assert not options.is_idempotent


def test_what_spark_adds_to_options_is_no_mistake() -> None:
    assert parse(checkpointLocation="/ck").checkpoint == "/ck"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topik": "t"}, "no such option of the sink: 'topik'; did you mean 'topic'?"),
        ({"delivery": "exactly"}, "it can be: idempotent, at-least-once"),
        ({"sendTimeout": "soon"}, "write it like 250ms"),
        ({"inFlight": "0"}, "no number from 1 on"),
        ({"producerId": "a b"}, "letters, digits"),
        ({"epoch": str(2**31)}, "the most is"),
        ({"path": "orders"}, "name it with option 'topic'"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "the brokers' own"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(**options)

    assert words in str(caught.value)


def test_all_columns_are_taken_in_any_case() -> None:
    check(
        "Topic string; BODY binary; keys array<string>; tags string;"
        " properties map<string,string>; orderingkey string; queueId int; brokerName string;"
        " deliverAt timestamp",
        None,
    )
    check("body string; keys string; queueId bigint; deliverAt bigint")


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("key string; body string", "no column 'key'; did you mean 'keys'?"),
        ("wholly_else string; body string", "columns are: topic, body"),
        ("body int", "column 'body' is int, and must be binary or string; cast it"),
        ("keys string", "there is no column 'body'; select what is to be sent AS body"),
        ("body string; deliverAt timestamp_ntz", "must be timestamp or bigint"),
    ],
)
def test_a_table_that_cannot_be_sent_is_refused(ddl: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check(ddl)

    assert words in str(caught.value)


def test_rows_need_a_topic_from_somewhere() -> None:
    with pytest.raises(InvalidArgument, match="nothing says to which topic"):
        check("body string", None)

    check("body string; topic string", None)


def test_secrets_are_not_in_the_text_of_options() -> None:
    options = parse(topic="t", accessKey="me", secretKey="hush", securityToken="hush2")

    assert "hush" not in repr(options)
