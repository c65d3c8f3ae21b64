"""The rows of the broker's benchmark: what is measured, of whom, and against what."""

import json
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from bench.broker import cases
from bench.broker_cases import QUICK, Bench, alternate
from bench.broker_clients import failures_in
from bench.broker_results import NOTHING
from bench.broker_subject import APACHE, OURS, PURE, Place, topics_document
from bench.capacity_frames import Load, requests
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.fastjson import decode


def test_every_row_has_a_name_of_its_own() -> None:
    names = [case.name for case in cases()]

    assert len(set(names)) == len(names)
    assert {"send json 8x32 128", "send binary 64x1 1024", "pull json 8x8 128"} <= set(names)


def test_the_plain_core_is_held_to_its_target_wherever_headers_are_json() -> None:
    rows = {case.name: case for case in cases() if case.name.split()[0] in ("send", "pull")}

    for name, case in rows.items():
        has_target = any(target.work == PURE for target in case.targets)
        assert has_target == (" json " in name), name
        assert (PURE in case.subjects) == (" json " in name), name


def test_sends_are_held_to_twice_the_capacity_and_pulls_to_half_as_much_again() -> None:
    limits = {
        case.name.split()[0]: target.at_least
        for case in cases()
        for target in case.targets
        if (target.figure, target.work, target.base) == ("rate", OURS, APACHE)
    }

    assert limits["send"] == 2.0
    assert limits["pull"] == 1.5


def test_rounds_alternate_between_the_subjects() -> None:
    order: list[str] = []

    def measured(name: str) -> Callable[[], Mapping[str, float]]:
        def measure() -> Mapping[str, float]:
            order.append(name)
            return {"rate": float(len(order))}

        return measure

    series = alternate({name: measured(name) for name in "ab"}, 2)

    assert order == ["a", "b", "a", "b"]
    assert series == {"a": {"rate": [1.0, 3.0]}, "b": {"rate": [2.0, 4.0]}}


class BenchWithoutBrokers:
    """Makes the requests of every load, and sends them nowhere."""

    def __init__(self) -> None:
        self.pace = QUICK

    def subject(self, name: str, place: Place) -> str:
        return name

    def fill(self, subject: str, topic: str, per_queue: int, body: int) -> None: ...

    def warm_up(self, subject: str, kind: str, load: Load, topic: str) -> None: ...

    def answer_bytes(self, subject: str, load: Load, topic: str) -> int:
        return len(requests(load, topic).run(0, 1))

    def window(self, subject: str, load: Load, topic: str) -> dict[str, float]:
        return {
            "rate": 100.0,
            "client_cores": 0.1,
            "bytes": self.answer_bytes(subject, load, topic),
        }

    def ceiling(self, load: Load, answer_bytes: int) -> dict[str, float]:
        return self.window("", load, "idle")


@pytest.mark.slow
def test_a_server_that_does_nothing_has_the_load_of_the_brokers_in_every_round() -> None:
    rows = {case.name: case for case in cases()}

    for name in ("send json 1x1 128", "pull json 1x1 128"):
        measured = rows[name].measure(cast("Bench", BenchWithoutBrokers()), [OURS, APACHE])

        assert list(measured.series) == [OURS, APACHE, NOTHING], name
        assert len(measured.series[NOTHING]["rate"]) == QUICK.rounds, name


def test_failures_are_found_in_what_apaches_programs_print() -> None:
    producer = "Current Time: 1 | Send TPS: 9 | Send Failed: 2 | Response Failed: 5"
    consumer = "Current Time: 1 | Consume TPS: 9 | Consume Fail: 3"

    assert failures_in(f"{producer}\n{producer.replace('5', '7')}\n") == 7
    assert failures_in(consumer) == 3
    assert failures_in("topic: t threadCount: 64") == 0


def test_topics_are_written_as_a_broker_reads_them() -> None:
    table = decode(topics_document(["a", "b"]).encode(), TopicConfigTable)

    assert sorted(table.topic_config_table) == ["a", "b"]
    assert table.topic_config_table["a"].write_queue_nums == 8
    assert json.loads(topics_document(["a"]))["dataVersion"]["counter"] == 1
