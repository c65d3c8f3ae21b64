"""What the writer of a stream keeps when a batch did not end well."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from cometmq.spark import sink_options
from cometmq.spark.sink import StreamWriter, Written
from cometmq.spark.sink_pins import Pin, PinFile


def writer_at(checkpoint: Path, **options: str) -> StreamWriter:
    given = {"rocketmq.namesrv.addr": "127.0.0.1:1", "checkpointLocation": str(checkpoint)}
    return StreamWriter(sink_options.parse({**given, **options}), {})


def pins_at(checkpoint: Path) -> dict[str, tuple[Pin, ...]]:
    file = PinFile.at(str(checkpoint))
    assert file is not None
    return file.load().topics


def test_a_batch_that_failed_fixes_the_brokers_that_its_tasks_know_of(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)

    writer.abort([Written(0, 5, {"bills": ("a", "b")}), None], 3)

    assert pins_at(tmp_path) == {"bills": (Pin(0, ("a", "b")),)}


def test_brokers_that_options_name_are_not_fixed(tmp_path: Path) -> None:
    writer = writer_at(tmp_path, brokers="a")

    writer.abort([Written(0, 5, {"bills": ("a",)})], 3)
    writer.commit([Written(0, 5, {"bills": ("a",)})], 3)

    assert pins_at(tmp_path) == {}


def test_a_name_server_that_is_away_does_not_undo_a_batch(tmp_path: Path) -> None:
    """Nothing answers at this address; the batch is in the brokers all the same."""
    writer_at(tmp_path).commit([Written(0, 5, {"bills": ("a", "b")})], 3)

    assert pins_at(tmp_path) == {"bills": (Pin(0, ("a", "b")),)}


def test_a_checkpoint_that_cannot_be_written_does_not_undo_a_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()

    writer_at(tmp_path / "file" / "checkpoint").abort([Written(0, 5, {"bills": ("a",)})], 3)

    assert "brokers are not noted in the checkpoint" in caplog.text
