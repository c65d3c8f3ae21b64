"""Our broker beside Apache's, each in a process of its own with its own name server, in one run.

Capacity is measured by a generator of ours that sends requests encoded beforehand and counts the
answers (``bench.capacity``); rows that begin with ``client`` run Apache's own benchmark programs.
Rounds alternate between the brokers, the JVMs are warmed up first; medians are shown, and what CPU
the broker needed for a million messages. Targets, against Apache 4.9.7: capacity at least 2 times
on sends and 1.5 times on pulls with at most a third of the CPU per message, and no less without
the compiled core when headers are JSON; under Apache's clients at least 1.2 times with 64 threads
and 0.9 times otherwise; 100 MB of anonymous memory after a million messages, and 1 second from the
start of the process to the first acknowledged send.

    python -m bench.broker [--quick] [--row PATTERN] [--subject NAME] [--resume]
"""

import argparse
import contextlib
import fnmatch
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.broker_cases import (
    FULL,
    QUICK,
    Bench,
    Case,
    Pace,
    capacity_cases,
    growth_cases,
    memory_case,
    start_case,
)
from bench.broker_clients import client_cases
from bench.broker_results import HEADINGS, ResultFile, judged, show
from bench.broker_subject import APACHE, APACHE_LATER, OURS, PURE, SUBJECTS, SubjectFailed
from cometmq.codec import core
from tests.interop.processes import ProcessDiedError, ProcessNotReadyError

SHORT_NAMES = {"ours": OURS, "plain": PURE, "4.9.7": APACHE, "5.5.0": APACHE_LATER}


def main() -> int:
    chosen = arguments().parse_args()
    if core.active() != "compiled":
        print("error: the compiled core is not active", file=sys.stderr)
        print("  next: make setup, and unset COMETMQ_PURE", file=sys.stderr)
        return 1
    names = [name for name in SUBJECTS if not chosen.quick or name != APACHE_LATER]
    if chosen.subject:
        names = [SHORT_NAMES[name] for name in chosen.subject]
    wanted = [case for case in cases() if fnmatch.fnmatch(case.name, chosen.row)]
    if not wanted:
        print(f"error: no row matches '{chosen.row}'", file=sys.stderr)
        print(f"  rows: {', '.join(case.name for case in cases())}", file=sys.stderr)
        return 2
    results = ResultFile("broker-quick" if chosen.quick else "broker")
    if chosen.resume or chosen.row != "*":
        results.load()
    missed = []
    if chosen.resume:
        missed = [case.name for case in wanted if case.name in results.missed()]
        wanted = [case for case in wanted if case.name not in results.rows]
    pace = QUICK if chosen.quick else FULL
    kept = None if chosen.subject else results
    missed += run(wanted, names, pace, kept)
    return concluded(missed, kept)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.broker", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, without 5.5.0")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="only rows that match")
    parser.add_argument(
        "--subject", action="append", choices=SHORT_NAMES, help="only this one; keeps no results"
    )
    parser.add_argument(
        "--resume", action="store_true", help="only rows that the last run did not come to"
    )
    return parser


def cases() -> Iterator[Case]:
    yield from capacity_cases()
    yield memory_case()
    yield from client_cases()
    yield from growth_cases()
    yield start_case()


def run(
    wanted: Sequence[Case], names: Sequence[str], pace: Pace, results: ResultFile | None
) -> list[str]:
    """Measure row after row; gives those that missed a target or could not be had."""
    print(f"broker: at least {pace.rounds} alternating rounds, medians; 8 queues, async flush")
    print(HEADINGS, flush=True)
    missed = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-broker-") as folder,
        contextlib.ExitStack() as stack,
    ):
        bench = Bench(Path(folder), stack, pace)
        for case in wanted:
            subjects = [name for name in names if name in case.subjects]
            if not subjects:
                continue
            try:
                measured = case.measure(bench, subjects)
            except (SubjectFailed, ProcessDiedError, ProcessNotReadyError) as failure:
                print(f"{case.name}\n  error: {failure}", flush=True)
                missed.append(case.name)
                continue
            result = judged(case.name, measured.series, case.targets, measured.notes)
            show(result)
            if result.is_missed:
                missed.append(case.name)
            if results is not None:
                results.add(result)
    return missed


def concluded(missed: Sequence[str], results: ResultFile | None) -> int:
    if results is not None:
        print(f"results: {results}")
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
