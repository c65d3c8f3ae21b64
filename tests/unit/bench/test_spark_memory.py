"""The source in memory: as many rows as are asked for, in batches of the captured size."""

from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from bench import spark_memory  # noqa: E402

DDL = "`queueId` int"


def batch(rows: int) -> object:
    return pa.RecordBatch.from_pydict({"queueId": pa.array(range(rows), pa.int32())})


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    path = tmp_path / "batch.arrow"
    spark_memory.keep(batch(4), DDL, path)
    return path


@pytest.mark.parametrize(
    ("rows", "tasks", "expected"), [(10, 2, [5, 5]), (10, 3, [4, 3, 3]), (1, 2, [1, 0])]
)
def test_tasks_get_equal_shares_and_together_all_rows(
    rows: int, tasks: int, expected: list[int]
) -> None:
    assert spark_memory.shares(rows, tasks) == expected


def test_a_batch_is_repeated_and_the_last_one_is_cut() -> None:
    sizes = [piece.num_rows for piece in spark_memory.repeated(batch(4), 10)]

    assert sizes == [4, 4, 2]


def test_the_source_gives_what_was_captured(captured: Path) -> None:
    options = {"path": str(captured), "rows": "6", "tasks": "1"}
    source = spark_memory.MemorySource(options)
    reader = source.reader(None)

    (partition,) = reader.partitions()
    values = [piece.column(0).to_pylist() for piece in reader.read(partition)]

    assert source.schema() == DDL
    assert values == [[0, 1, 2, 3], [0, 1]]
