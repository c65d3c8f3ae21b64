"""What the writer of a stream keeps when a batch did not end well."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructField, StructType

from cometmq.errors import InvalidArgument
from cometmq.spark import sink_options
from cometmq.spark.sink import StreamWriter, Written, stream_writer
from cometmq.spark.sink_pins import Pin, PinFile

BODY = StructType([StructField("body", StringType())])
NAMESRV = {"rocketmq.namesrv.addr": "127.0.0.1:1"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint in which Spark has begun a batch."""
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    return tmp_path / "checkpoint"


def writer_at(checkpoint: Path, **options: str) -> StreamWriter:
    given = {**NAMESRV, "checkpointLocation": str(checkpoint)}
    return StreamWriter(sink_options.parse({**given, **options}), {})


def pins_at(checkpoint: Path) -> dict[str, tuple[Pin, ...]]:
    file = PinFile.at(str(checkpoint))
    assert file is not None
    return file.load().topics


def test_a_batch_that_failed_fixes_the_brokers_that_its_tasks_know_of(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)

    writer.abort([Written(0, 5, {"bills": ("a", "b")}), None], 3)

    assert pins_at(tmp_path) == {"bills": (Pin(0, ("a", "b")),)}


def test_brokers_that_options_name_are_not_fixed(checkpoint: Path) -> None:
    writer = writer_at(checkpoint, brokers="a")

    writer.abort([Written(0, 5, {"bills": ("a",)})], 3)
    writer.commit([Written(0, 5, {"bills": ("a",)})], 3)

    assert pins_at(checkpoint) == {}


def test_a_name_server_that_is_away_does_not_undo_a_batch(checkpoint: Path) -> None:
    """Nothing answers at this address; the batch is in the brokers all the same."""
    writer_at(checkpoint).commit([Written(0, 5, {"bills": ("a", "b")})], 3)

    assert pins_at(checkpoint) == {"bills": (Pin(0, ("a", "b")),)}


def test_a_checkpoint_that_cannot_be_written_does_not_undo_a_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    writer_at(tmp_path / "file" / "checkpoint").abort([Written(0, 5, {"bills": ("a",)})], 3)

    assert "brokers are not noted in the checkpoint" in caplog.text


def test_a_path_that_spark_takes_for_another_disk_is_refused(tmp_path: Path) -> None:
    """Without a scheme it may be of HDFS for Spark; then its notes are not where ours are."""
    writer = writer_at(tmp_path / "checkpoint")

    with pytest.raises(InvalidArgument, match="write it with its scheme"):
        writer.commit([Written(0, 5, {"bills": ("a",)})], 0)


@pytest.mark.parametrize(
    "options", [{"delivery": "at-least-once"}, {"brokers": "a"}], ids=["repeats", "brokers"]
)
def test_who_does_not_rest_on_the_checkpoint_may_have_it_anywhere(
    tmp_path: Path, options: dict[str, str]
) -> None:
    writer = writer_at(tmp_path / "checkpoint", **options)

    writer.commit([Written(0, 5, {"bills": ("a",)})], 0)
    stream_writer({**NAMESRV, "brokers": "a", **options, "topic": "bills"}, BODY, False)


def test_a_checkpoint_that_only_the_session_names_is_asked_for() -> None:
    with pytest.raises(InvalidArgument, match="set it on the writer"):
        stream_writer({**NAMESRV, "topic": "bills"}, BODY, False)
