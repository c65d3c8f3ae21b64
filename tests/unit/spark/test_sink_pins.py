"""Brokers of a query, fixed in its checkpoint."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from cometmq.spark.sink_pins import (
    FILE,
    TOPICS_MAX,
    Document,
    Pin,
    PinFile,
    brokers_for,
    extended,
    is_astray,
    uri_of,
    with_topics,
)

A, AB = ("a",), ("a", "b")


def test_a_batch_has_the_brokers_of_the_last_pin_before_it() -> None:
    pins = (Pin(0, A), Pin(5, AB))

    assert brokers_for(pins, 0) == A
    assert brokers_for(pins, 4) == A
    assert brokers_for(pins, 5) == AB
    assert brokers_for((), 5) is None


def test_a_new_broker_takes_part_from_the_batch_after_the_committed_one() -> None:
    assert extended((Pin(0, A),), 7, ["b", "a"]) == (Pin(0, A), Pin(8, AB))


def test_a_broker_that_is_away_stays() -> None:
    pins = (Pin(0, AB),)

    assert extended(pins, 7, ["a"]) == pins
    assert extended(pins, 7, ["a", "c"]) == (Pin(0, AB), Pin(8, ("a", "b", "c")))


def test_a_batch_that_is_committed_again_changes_nothing_for_the_next_one() -> None:
    """The next one may have begun with what was said the first time."""
    pins = (Pin(0, A), Pin(8, AB))

    assert extended(pins, 7, ["a", "b", "c"]) == pins


def test_topics_that_rows_name_are_fixed_when_they_were_first_sent_to() -> None:
    known = {"orders": (Pin(0, A), Pin(3, AB))}

    pins = with_topics(known, {"orders": ("c",), "bills": AB})

    assert pins == {"orders": (Pin(0, A), Pin(3, AB)), "bills": (Pin(0, AB),)}
    assert known == {"orders": (Pin(0, A), Pin(3, AB))}


def test_no_more_topics_are_fixed_than_a_file_should_hold() -> None:
    used = {f"topic-{number}": A for number in range(TOPICS_MAX + 5)}

    assert len(with_topics({}, used)) == TOPICS_MAX


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_pins_are_kept_in_the_checkpoint(tmp_path: Path, form: str) -> None:
    checkpoint = tmp_path / "check point"
    file = PinFile.at(form.format(checkpoint if form == "{}" else str(checkpoint)))
    assert file is not None
    document = Document(topics={"orders": (Pin(0, A), Pin(3, AB))})

    assert file.load() == Document()
    file.save(document)

    assert (checkpoint / FILE).is_file()
    assert file.load() == document
    assert [path.name for path in checkpoint.iterdir()] == [FILE]


def test_a_place_that_cannot_be_reached_from_python_has_no_pins() -> None:
    assert PinFile.at(None) is None
    assert PinFile.at("viewfs://nowhere/checkpoint") is None
    assert PinFile.at("dbfs:/checkpoint") is None


@pytest.mark.parametrize(
    ("checkpoint", "uri"),
    [
        ("hdfs:/x", "hdfs:///x"),
        ("hdfs:///x", "hdfs:///x"),
        ("hdfs://host:8020/x", "hdfs://host:8020/x"),
        ("dbfs:/x", "dbfs:///x"),
        ("s3a://bucket/x", "s3://bucket/x"),
        ("abfss://box@account/x", "abfss://box@account/x"),
        ("file:/x", None),
        ("file:///x", None),
        ("/x", None),
        ("x", None),
        ("a:b/x", None),
    ],
)
def test_a_place_with_a_scheme_is_not_on_this_machine(checkpoint: str, uri: str | None) -> None:
    assert uri_of(checkpoint) == uri


def test_a_folder_without_the_notes_of_spark_is_not_its_checkpoint(tmp_path: Path) -> None:
    before = is_astray(str(tmp_path)), is_astray(f"file:{tmp_path}")
    (tmp_path / "offsets").mkdir()
    after = is_astray(str(tmp_path)), is_astray(f"file:{tmp_path}")

    assert before == (True, True)
    assert after == (False, False)
    assert not is_astray("hdfs:/nowhere")
