"""The reference of Spark is current, and no option or column is left out of it."""

import re
from collections import Counter

import pytest

pytest.importorskip("pyarrow")

from cometmq.spark.connecting import CONNECTION_OPTIONS
from cometmq.spark.options import OPTIONS
from cometmq.spark.schema import COLUMNS
from cometmq.spark.sink_options import COLUMNS as SINK_COLUMNS
from cometmq.spark.sink_options import SINK_OPTIONS
from scripts import spark_reference


def names_below(heading: str) -> set[str]:
    """The first cells of the tables below a heading and the headings below that."""
    text = spark_reference.PAGE.read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split(f"\n## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)
    return set(re.findall(r"^\| `([\w.]+)` \|", section[0], re.MULTILINE))


def test_the_page_is_current() -> None:
    page = spark_reference.PAGE.read_text(encoding="utf-8")

    assert page == spark_reference.page(), "run: python -m scripts.spark_reference"


def test_every_option_of_the_source_is_on_the_page_once() -> None:
    listed = Counter(name for names in spark_reference.SOURCE_SECTIONS.values() for name in names)

    assert listed == Counter(OPTIONS.keys() - CONNECTION_OPTIONS.keys())
    assert names_below("Source") == set(listed)
    assert names_below("Connection") == set(CONNECTION_OPTIONS)


def test_every_option_of_the_sink_is_on_the_page() -> None:
    assert names_below("Sink") | names_below("Connection") == set(SINK_OPTIONS)


def test_every_column_is_on_the_page() -> None:
    assert names_below("Columns of the source") == set(COLUMNS)
    assert names_below("Columns of the sink") == set(SINK_COLUMNS)
