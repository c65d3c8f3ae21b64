"""Spark's benchmark: what is measured, of whom, how drivers are asked and what they cost."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import spark_kafka
from bench.broker_results import RowResult
from bench.spark import arguments
from bench.spark_cases import (
    BROKER,
    COPY,
    FIRST,
    FULL,
    KAFKA,
    LOG,
    LOG_ONE_CORE,
    MEMORY,
    OURS,
    PEER,
    PEER_TUNED,
    PLAN,
    QUICK,
    READ,
    STREAM,
    Pace,
    cases,
)
from bench.spark_data import BODY_BYTES, body, properties
from bench.spark_driver import answers, progress_of
from bench.spark_results import figures_line, show
from bench.spark_subject import ProcessTimes, below, times_of, tree, tree_cpu_seconds
from cometmq.codec.properties import decode

# Rows and targets


def limits() -> dict[tuple[str, str, str, str], tuple[float | None, float | None]]:
    return {
        (case.name, target.figure, target.work, target.base): (target.at_least, target.at_most)
        for case in cases()
        for target in case.targets
    }


def test_every_row_has_a_name_and_a_work_that_is_known() -> None:
    names = [case.name for case in cases()]

    assert len(set(names)) == len(names)
    assert {case.work for case in cases()} == {READ, STREAM, COPY, FIRST, PLAN}


def test_rates_are_held_to_a_share_of_the_source_in_memory() -> None:
    found = limits()

    assert found["all columns", "rate", LOG, MEMORY] == (0.35, None)
    assert found["all columns", "rate", BROKER, MEMORY] == (0.25, None)
    assert found["header columns", "rate", LOG, MEMORY] == (0.65, None)
    assert found["topic to topic", "rate", LOG, MEMORY] == (0.08, None)
    assert found["one core and two", "rate", LOG, LOG_ONE_CORE] == (1.3, None)


def test_the_peer_is_to_be_beaten_or_nearly_reached() -> None:
    found = limits()

    assert found["all columns", "rate", LOG, PEER] == (1.5, None)
    assert found["all columns", "rate", BROKER, PEER] == (0.7, None)
    assert found["topic to topic", "rate", BROKER, PEER] == (1.0, None)
    assert found["first row", "first_row_s", BROKER, PEER] == (None, 1.0)


def test_targets_speak_of_ways_that_are_in_their_row() -> None:
    for case in cases():
        for target in case.targets:
            assert {target.work, target.base} <= set(case.ways), (case.name, target)


def test_what_is_in_memory_has_the_columns_of_what_is_held_against_it() -> None:
    for case in cases():
        if MEMORY in case.ways and LOG in case.ways:
            assert case.ways[MEMORY].columns == case.ways[LOG].columns, case.name


def test_without_the_peer_every_row_still_has_ways_of_ours() -> None:
    for case in cases():
        assert [way for way in case.ways.values() if way.side == OURS], case.name


@pytest.mark.parametrize(("pace", "seconds_max"), [(FULL, 15 * 60), (QUICK, 5 * 60)])
def test_a_run_ends_in_time(pace: Pace, seconds_max: int) -> None:
    """With rates that are half of what was measured on two cores."""
    start_s, query_s = 12.0, 1.0
    rates = {READ: 200_000, STREAM: 140_000, COPY: 45_000}
    seconds = 8 * start_s  # sessions, servers, rows
    for case in cases():
        if case.work == FIRST:
            seconds += pace.first_rounds * len(case.ways) * start_s
        elif case.work == PLAN:
            seconds += (pace.warm_ups + pace.rounds) * len(case.ways) * 2
        else:
            for way in case.ways.values():
                is_read = case.work == READ or way.source == MEMORY
                rows = pace.rows if is_read else pace.stream_rows
                once_s = query_s + rows / rates[READ if is_read else case.work]
                seconds += (pace.warm_ups + pace.rounds) * once_s

    assert seconds < seconds_max


def test_rows_and_the_peer_are_chosen_by_options() -> None:
    chosen = arguments().parse_args(["--row", "stream*", "--no-peer", "--quick"])

    assert (chosen.row, chosen.peer, chosen.quick) == ("stream*", False, True)
    assert arguments().parse_args([]).peer


# Drivers


class FakeDriver:
    """Knows one command, and one that fails."""

    def double(self, number: int) -> dict[str, Any]:
        return {"number": 2 * number}

    def fail(self) -> dict[str, Any]:
        raise ValueError("no such topic")


def test_a_driver_answers_every_line_also_after_a_failure() -> None:
    asked = [{"command": "fail"}, {"command": "double", "number": 4}]
    lines: Iterator[str] = (json.dumps(line) + "\n" for line in asked)

    found = [json.loads(line) for line in answers(FakeDriver(), lines)]

    assert found == [{"error": "ValueError: no such topic"}, {"number": 8}]


def test_only_micro_batches_with_rows_count() -> None:
    batches = [
        {"numInputRows": 100, "durationMs": {"triggerExecution": 1500}},
        {"numInputRows": 50, "durationMs": {"triggerExecution": 500}},
        {"numInputRows": 0, "durationMs": {"triggerExecution": 10_000}},
    ]

    assert progress_of(batches) == {"rows": 150, "seconds": 2.0, "batches": 2}


def test_progress_that_comes_as_an_object_is_read_by_its_json() -> None:
    class Progress:
        json = '{"numInputRows": 7, "durationMs": {"triggerExecution": 250}}'

    assert progress_of([Progress()]) == {"rows": 7, "seconds": 0.25, "batches": 1}


# CPU of trees of processes


def test_a_process_is_read_from_the_kernels_line_whatever_its_name() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    numbers = " ".join(["0"] * 9 + [str(number * ticks) for number in (1, 2, 3, 4)])
    line = f"42 (a) S 1 (b) S 7 {numbers} 20 0 5 0 99887 0 0"

    assert times_of(line) == ProcessTimes(42, 7, 99887, 10.0)


def test_a_tree_is_a_process_and_all_below_it_in_any_order() -> None:
    everybody = [
        ProcessTimes(5, 3, 0, 1.0),
        ProcessTimes(3, 2, 0, 1.0),
        ProcessTimes(2, 1, 0, 1.0),
        ProcessTimes(9, 1, 0, 1.0),
    ]

    assert {process.pid for process in below(2, everybody)} == {2, 3, 5}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_this_process_is_in_its_own_tree_and_has_spent_time() -> None:
    assert os.getpid() in {process.pid for process in tree(os.getpid())}
    assert tree_cpu_seconds(os.getpid()) > 0


# Rows, servers, tables


def test_every_message_has_a_body_of_a_kibibyte_and_a_key_of_its_own() -> None:
    bodies = [body(number) for number in (0, 1, 599_999)]
    keys = [decode(properties(number))["KEYS"] for number in (0, 1, 599_999)]

    assert {len(one) for one in bodies} == {BODY_BYTES}
    assert len(set(bodies)) == len(set(keys)) == 3


def test_kafkas_server_listens_on_loopback_only() -> None:
    settings = spark_kafka.settings_of(Path("data"), 19092, 19093)

    listeners = settings["listeners"].split(",")
    assert listeners == ["PLAINTEXT://127.0.0.1:19092", "CONTROLLER://127.0.0.1:19093"]
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:19093"


def test_the_peers_packages_are_pinned_with_hashes() -> None:
    lines = spark_kafka.PACKAGES.read_text().splitlines()

    assert [line.split("==")[0] for line in lines] == ["py4j", "pyspark"]
    assert all("--hash=sha256:" in line for line in lines)


def test_a_row_shows_rates_with_quartiles_and_what_they_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {
        "rate": [100_000.0, 200_000.0, 300_000.0],
        "cpu_us": [5.0],
        "server_cpu_us": [1.5],
        "start_s": [0.25],
    }

    show(RowResult("stream", {PEER_TUNED: figures}, (), ("so it is",)))

    shown = capsys.readouterr().out
    assert "200,000" in shown
    assert "150,000 - 250,000" in shown
    assert "5.00     1.50" in shown
    assert "query start 0.25 s" in shown
    assert "note: so it is" in shown


def test_figures_without_a_rate_are_shown_by_name() -> None:
    assert figures_line({"plan_s": [1.0, 2.0, 3.0]}) == "plan_s 2 (1.5 - 2.5)"


def test_both_sides_have_their_ways_in_the_row_that_all_is_about() -> None:
    ways = next(case for case in cases() if case.name == "all columns").ways

    assert [name for name, way in ways.items() if way.side == KAFKA] == [PEER, PEER_TUNED]
