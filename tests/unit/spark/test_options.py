"""Options of the source: defaults, what texts mean, and what is refused with which words."""

import pytest

pytest.importorskip("pyarrow")

from cometmq.errors import CometError, InvalidArgument, SettingsError
from cometmq.model.offsets import MessageQueue
from cometmq.spark.connecting import Connecting
from cometmq.spark.options import OPTIONS, SourceOptions, parse

BASE = {"rocketmq.namesrv.addr": "127.0.0.1:9876", "subscribe": "orders"}


def options(**given: str) -> SourceOptions:
    return parse({**BASE, **{name.replace("__", "."): text for name, text in given.items()}})


def test_defaults_are_those_that_are_declared() -> None:
    got = options()

    assert got.source == "auto"
    assert (got.rows_per_trigger_max, got.bytes_per_trigger_max) == (2_000_000, 2**30)
    assert got.rows_per_trigger_min is None
    assert got.trigger_delay_max_ms == 15 * 60_000
    assert (got.pull_count, got.pull_bytes) == (4096, 8 * 2**20)
    assert (got.batch_rows, got.batch_bytes) == (4096, 16 * 2**20)
    assert got.is_loss_fatal
    assert got.verify == "sample"
    assert got.tags == frozenset()


def test_names_are_taken_in_any_case() -> None:
    assert parse({key.upper(): text for key, text in BASE.items()}).topics == ("orders",)


def test_values_are_read_by_their_kind() -> None:
    got = options(
        maxOffsetsPerTrigger="none",
        maxBytesPerTrigger="512m",
        maxTriggerDelay="30s",
        tags="paid || sent",
        columns="topic, body",
        failOnDataLoss="FALSE",
        storePath="/a,/b",
    )

    assert got.rows_per_trigger_max is None
    assert got.bytes_per_trigger_max == 512 * 2**20
    assert got.trigger_delay_max_ms == 30_000
    assert got.tags == {"paid", "sent"}
    assert got.columns == ("topic", "body")
    assert not got.is_loss_fatal
    assert got.store_paths == ("/a", "/b")


def test_queues_are_assigned_and_offsets_are_given_as_json() -> None:
    given = {
        "rocketmq.namesrv.addr": "127.0.0.1:9876",
        "assign": '{"orders": {"broker-a": [1, 0]}}',
        "startingOffsets": '{"orders": {"broker-a": {"0": 23, "1": -2}}}',
    }

    got = parse(given)

    first, second = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
    assert got.queues == (first, second)
    assert got.start is not None
    assert got.start.offsets == {first: 23, second: -2}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOfsets": "latest"}, "did you mean 'startingOffsets'?"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"zzz": "1"}, "no such option of the source: 'zzz'"),
        ({"path": "orders"}, "name topics with option 'subscribe'"),
        ({"adaptiveLimit": "true"}, "not there yet"),
        ({"archivePath": "/x"}, "reading from an archive is not there yet"),
        ({"source": "archive"}, "reading from an archive is not there yet"),
        ({"source": "disk"}, "it can be: auto, broker, log"),
        ({"subscribePattern": "o.*"}, "subscribe and subscribePattern exclude each other"),
        ({"bodyFormat": "avro"}, "'avro' is not there yet"),
        ({"bodyFormat": "xml"}, "'xml' is no format of bodies"),
        ({"startingOffsets": "first"}, "no place in a queue: 'first'"),
        ({"startingOffsets": "{"}, "is no JSON"),
        ({"startingOffsets": '{"orders": 3}'}, 'write {"topic": {"broker": {"0": 23}}}'),
        ({"startingOffsets": '{"t": {"b": {"0": -7}}}'}, "-1 is latest, -2 earliest"),
        ({"startingOffsets": "committed"}, "'committed' offsets belong to a group"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "exclude each other"),
        ({"endingOffsets": "earliest"}, "a range cannot end there"),
        ({"maxBytesPerTrigger": "many"}, "write it like 512k, 16m or 1g"),
        ({"maxTriggerDelay": "soon"}, "write it like 250ms, 10s, 15m or 2h"),
        ({"minPartitions": "0"}, "no number from 1 on: '0'"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"sql92": "a = 1", "tags": "x"}, "tags and sql92 exclude each other"),
        ({"sql92": "a = 1", "source": "log"}, "files cannot be filtered"),
        ({"verifyCrc": "some"}, "it can be: none, sample, all"),
        ({"columns": ","}, "names nothing"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse({**BASE, **given})

    assert words in str(caught.value)


def test_a_query_names_topics_and_a_name_server() -> None:
    with pytest.raises(InvalidArgument, match="set exactly one of subscribe"):
        parse({"rocketmq.namesrv.addr": "127.0.0.1:9876"})
    with pytest.raises(InvalidArgument, match=r"set option 'rocketmq\.namesrv\.addr'"):
        parse({"subscribe": "orders"})
    with pytest.raises(SettingsError, match="write it as host:port"):
        parse({**BASE, "rocketmq.namesrv.addr": "nowhere"})


def test_files_alone_need_no_name_server_and_are_read_whole() -> None:
    got = parse({"source": "log", "storePath": "/data/store"})

    assert got.is_files_only
    assert got.topic_pattern == ".*"


@pytest.mark.parametrize("name", ["group", "sql92"])
def test_what_needs_a_broker_is_refused_for_files_alone(name: str) -> None:
    with pytest.raises(CometError):
        parse({"source": "log", "storePath": "/data/store", name: "x"})


def test_secrets_are_in_no_text() -> None:
    got = options(accessKey="me", secretKey="hidden-1", securityToken="hidden-2", tls="true")

    assert got.connecting.credentials() is not None
    assert "hidden" not in f"{got!r} {got.connecting!r} {got.connecting.credentials()!r}"


def test_keys_come_from_a_file_or_the_environment(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.properties"  # type: ignore[operator]
    path.write_text("accessKey=from-file\nsecretKey=s\n")
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "from-environment")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "s")

    by_file = Connecting(("h:1",), credentials_file=str(path)).credentials()
    by_environment = Connecting(("h:1",)).credentials()

    assert by_file is not None
    assert by_file.access_key == "from-file"
    assert by_environment is not None
    assert by_environment.access_key == "from-environment"
    with pytest.raises(SettingsError, match="it must be on every machine"):
        Connecting(("h:1",), credentials_file="/nowhere/keys").credentials()


def test_every_option_has_a_meaning_and_a_use() -> None:
    assert {option.use for option in OPTIONS.values()} <= {
        "all",
        "batch",
        "stream",
        "broker",
        "log",
    }
    assert all(option.meaning.endswith(".") for option in OPTIONS.values())
