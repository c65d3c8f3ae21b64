"""The client's benchmark: what is measured, of whom, and how it is counted."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import bench
from bench.client import arguments
from bench.client_cases import (
    AIO,
    BLOCKING,
    CPP,
    CPP_THREADS,
    FULL,
    JAVA,
    JAVA_SYNC,
    PLAIN,
    QUICK,
    Bench,
    Case,
    Pace,
    cases,
    server_notes,
)
from bench.client_driver import Options, Pacing, Progress, send_from_threads, slept, window
from bench.client_ours import WITH_ASYNCIO, in_a_loop
from bench.client_subject import DRIVERS, Clients, Server, figures_of, on_core
from bench.store_subject import SubjectFailed

CONSUMER_START_S = 1.0
"""How long a consumer may take to get its first message and to leave."""


def limits() -> dict[tuple[str, str, str, str], float | None]:
    return {
        (case.name, target.figure, target.work, target.base): target.at_least
        for case in cases()
        for target in case.targets
    }


def now_options(**values: object) -> Options:
    return Options("send", {name: str(value) for name, value in values.items()})


# Rows


def test_every_row_has_a_name_of_its_own() -> None:
    names = [case.name for case in cases()]

    assert len(set(names)) == len(names)
    assert {"producer 64 128", "producer 1 1024", "consumer 128", "pace 500 128"} <= set(names)


@pytest.mark.parametrize("body", [128, 1024])
def test_producer_and_consumer_must_be_ahead_of_the_cpp_wrapper(body: int) -> None:
    found = limits()

    assert found[f"producer 64 {body}", "rate", AIO, CPP] == 1.0
    assert found[f"producer 64 {body}", "rate", AIO, CPP_THREADS] == 1.0
    assert found[f"consumer {body}", "rate", AIO, CPP] == 1.0


@pytest.mark.parametrize("body", [128, 1024])
def test_costs_are_held_to_half_of_what_java_does_and_a_quarter_for_a_plain_consumer(
    body: int,
) -> None:
    found = limits()

    assert found[f"producer 64 {body}", "per_cpu_s", AIO, JAVA] == 0.5
    assert found[f"consumer {body}", "per_cpu_s", AIO, JAVA] == 0.5
    assert found[f"consumer {body}", "per_cpu_s", PLAIN, JAVA] == 0.25


def test_targets_speak_of_clients_that_are_in_their_row() -> None:
    for case in cases():
        for target in case.targets:
            assert {target.work, target.base} <= set(case.ways), (case.name, target)
        assert {way.driver for way in case.ways.values()} <= set(DRIVERS), case.name


def test_the_blocking_client_is_measured_in_every_kind_of_row() -> None:
    kinds = {
        case.command: [name for name in case.ways if name.startswith(BLOCKING)] for case in cases()
    }

    assert set(kinds) == {"send", "consume", "pace"}
    assert all(kinds.values())


@pytest.mark.parametrize(("pace", "seconds_max"), [(FULL, 600), (QUICK, 180)])
def test_a_run_ends_in_time(pace: Pace, seconds_max: int) -> None:
    window_s = {
        "send": (pace.settle_ms + pace.window_ms) / 1000,
        "consume": (pace.settle_ms + pace.window_ms) / 1000 + CONSUMER_START_S,
        "pace": pace.pace_ms / 1000,
    }

    measuring_s = sum(pace.rounds * len(case.ways) * window_s[case.command] for case in cases())
    warming_s = (pace.warm_up_ms + 2 * pace.warm_up_again_ms) / 1000

    assert measuring_s + warming_s < 0.9 * seconds_max


def test_the_java_program_knows_the_commands_of_ours() -> None:
    source = Path(bench.__file__).parent / "java" / "client" / "ClientBench.java"

    known = set(re.findall(r'case "(\w+)":', source.read_text()))

    assert known == {case.command for case in cases()} == set(WITH_ASYNCIO)


def test_rows_and_clients_are_chosen_by_patterns() -> None:
    chosen = arguments().parse_args(["--row", "consumer*", "--subject", "asyncio*", "--quick"])

    assert (chosen.row, chosen.subject, chosen.quick) == ("consumer*", ["asyncio*"], True)


# Rounds


class FakeServer(Server):
    """Has every topic with as many messages as are asked for."""

    def __init__(self) -> None:
        self.namesrv = "127.0.0.1:9876"

    def backlog(self, body: int, messages: int) -> tuple[str, int]:
        return f"bench-read-{body}", messages


class FakeClients(Clients):
    """Notes what is asked, and answers the same every time."""

    def __init__(self) -> None:
        super().__init__(Path("unused"), FakeServer(), 0)
        self.asked: list[tuple[str, str, Mapping[str, object]]] = []

    def measure(self, name: str, command: str, options: Mapping[str, object]) -> dict[str, float]:
        self.asked.append((name, command, options))
        return {"rate": 1.0, "server_cores": 0.1}


def row(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def test_rounds_alternate_and_a_jvm_is_warmed_up_once_before_the_first() -> None:
    clients = FakeClients()
    runner = Bench(clients, Pace(rounds=2, window_ms=10, warm_up_ms=77))

    series, notes = runner.measure(row("producer 64 128"), [AIO, JAVA])
    runner.measure(row("producer 64 1024"), [JAVA])

    drivers = [(name, options["window_ms"]) for name, _, options in clients.asked]
    rounds = [("asyncio", 10), ("java", 10)] * 2
    assert drivers == [("java", 77), *rounds, ("java", 10), ("java", 10)]
    assert series == {name: {"rate": [1.0] * 2, "server_cores": [0.1] * 2} for name in (AIO, JAVA)}
    assert notes == []


def test_a_jvm_that_is_to_be_slow_is_warmed_up_at_full_speed() -> None:
    clients = FakeClients()

    Bench(clients, Pace(rounds=1)).measure(row("pace 500 128"), [JAVA])

    (_, first, warming), (_, second, _) = clients.asked
    assert (first, second) == ("send", "pace")
    assert warming["in_flight"] == 64


def test_every_reader_is_a_group_of_its_own_and_told_how_much_there_is() -> None:
    clients = FakeClients()

    Bench(clients, Pace(rounds=3, backlog=800)).measure(row("consumer 128"), [AIO, CPP])

    groups = [options["group"] for _, _, options in clients.asked]
    assert len(set(groups)) == len(groups) == 6
    assert {options["backlog"] for _, _, options in clients.asked} == {800}


def test_clients_that_start_anew_are_warmed_up_again() -> None:
    clients = FakeClients()
    runner = Bench(clients, Pace(rounds=1))

    for _ in range(2):
        runner.measure(row("producer 1 128"), [JAVA_SYNC])
        runner.forget()

    assert len(clients.asked) == 4


# Counting


def test_sends_of_several_threads_are_counted_together() -> None:
    answer = send_from_threads(
        lambda: time.sleep(0), now_options(in_flight=2, settle_ms=0, window_ms=1)
    )

    assert answer["count"] > 0
    assert answer["elapsed_ns"] >= 1_000_000


def test_a_send_that_fails_is_told_and_leaves_no_thread_behind() -> None:
    def send() -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        send_from_threads(send, now_options(in_flight=2, settle_ms=0, window_ms=1))


def test_a_window_begins_after_the_first_message_and_has_settled() -> None:
    progress = Progress()
    waits = window(progress, now_options(settle_ms=250, window_ms=1_000))

    polls = [next(waits), next(waits)]
    progress.count = 7
    settling = next(waits)

    assert len(set(polls)) == 1
    assert settling == 0.25


def test_a_window_ends_when_all_messages_have_come() -> None:
    progress = Progress()
    progress.count = 1
    waits = window(progress, now_options(settle_ms=0, window_ms=3_600_000), count_max=10)

    next(waits)
    next(waits)
    progress.count = 10
    answer = slept(waits)

    assert answer["count"] == 9
    assert answer["elapsed_ns"] > 0
    assert answer["window_cpu_ns"] > 0


def test_a_client_that_fails_ends_the_window_with_its_error() -> None:
    progress = Progress()
    waits = window(progress, now_options(settle_ms=0, window_ms=0))
    next(waits)

    progress.failure = ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        next(waits)


def test_pacing_tells_when_sends_are_due_and_how_long_they_took() -> None:
    pacing = Pacing(now_options(rate=500, window_ms=1_000))

    steps = {later - due for due, later in zip(pacing.dues_ns, pacing.dues_ns[1:], strict=False)}
    for due_ns in pacing.dues_ns:
        pacing.done(due_ns - 10**12)
    answer = pacing.answer()

    assert len(pacing.dues_ns) == answer["count"] == 500
    assert steps == {2_000_000}
    assert answer["p50_ns"] <= answer["p99_ns"] <= answer["p999_ns"]


def test_options_are_read_from_a_line() -> None:
    options = Options.read("consume topic=bench namesrv=127.0.0.1:9876 backlog=12\n")

    assert options.command == "consume"
    assert options.text("namesrv") == "127.0.0.1:9876"
    assert options.number("backlog") == 12


def test_a_command_for_asyncio_is_run_to_its_end() -> None:
    async def command(options: Options) -> dict[str, int]:
        return {"count": options.number("count")}

    assert in_a_loop(command)(now_options(count=3)) == {"count": 3}


def test_figures_are_rates_and_costs() -> None:
    answer = {"count": 2_000, "elapsed_ns": 10**9, "window_cpu_ns": 5 * 10**8, "p50_ns": 10**6}

    figures = figures_of("a client", answer)

    assert figures["rate"] == 2_000
    assert figures["cpu_us"] == 250
    assert figures["per_cpu_s"] == 4_000
    assert figures["client_cores"] == 0.5
    assert figures["p50_ms"] == 1.0
    assert "p99_ms" not in figures


def test_a_client_that_did_nothing_has_no_figures() -> None:
    with pytest.raises(SubjectFailed, match="a client: 0 messages"):
        figures_of("a client", {"count": 0, "elapsed_ns": 1, "window_cpu_ns": 1})


def test_a_broker_that_could_do_no_more_is_noted() -> None:
    notes = server_notes({AIO: {"server_cores": [0.95, 0.97]}, CPP: {"server_cores": [0.1]}})

    assert notes == [f"the broker is the limit of {AIO}"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs cores to choose from")
def test_what_is_started_on_a_core_stays_there_and_its_parent_does_not() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)

    with on_core(core):
        inside = os.sched_getaffinity(0)

    assert inside == {core}
    assert os.sched_getaffinity(0) == before
