"""Our message store beside Apache's, each in a process of its own, in one run.

Append, read, synchronous flush, transient pool, reopening after an unclean stop, and what many
queues and many log files cost. Rounds alternate between the stores; the JVMs are warmed up first.
``CPU`` is that of the whole process, dispatching and flushing included; ``put`` that of the thread
that appends. Targets, against Apache 4.9.7: a single append of 128 B costs no more CPU, and at most
10 times the assignment of the same bytes to a slice of a mapping; a batch of 32 half; reads of 32
and an unclean reopen of 1 GiB take no longer; 10,000 queues or 50 log files make nothing dearer
than 1.5 times, nor by more than Apache's; syncs per second do not grow with waiting senders.

    python -m bench.store [--quick] [--row PATTERN]
"""

import argparse
import contextlib
import fnmatch
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.rounds import ROUNDS, Result, line, save
from bench.store_cases import (
    Bench,
    Case,
    Load,
    Row,
    Series,
    append_case,
    compared,
    flush_case,
    pool_case,
    read_case,
    reopen_case,
)
from bench.store_growth import log_files_case, queues_case
from bench.store_subject import SubjectFailed
from cometmq.codec import core


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.store", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, 4.9.7 only")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="only rows that match")
    chosen = parser.parse_args()
    if core.active() != "compiled":
        print("error: the compiled core is not active", file=sys.stderr)
        print("  next: make setup, and unset COMETMQ_PURE", file=sys.stderr)
        return 1
    wanted = list(matching(cases(is_quick=chosen.quick), chosen.row))
    if not wanted:
        print(f"error: no row matches '{chosen.row}'", file=sys.stderr)
        return 2
    try:
        return run(wanted, is_quick=chosen.quick)
    except SubjectFailed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1


def cases(*, is_quick: bool) -> Iterator[Case]:
    apaches = compared(is_quick)
    for load in (Load(), Load(batch=32), Load(body=1024), Load(body=1024, batch=32)):
        yield append_case(load, apaches)
    yield pool_case()
    for has_tag in (False, True):
        for is_cold in (False, True):
            yield read_case(apaches, has_tag=has_tag, is_cold=is_cold)
    yield flush_case()
    yield reopen_case(apaches)
    yield queues_case()
    yield log_files_case()


def matching(all_cases: Iterator[Case], pattern: str) -> Iterator[Case]:
    """The cases with a row that matches, left with these rows."""
    for case in all_cases:
        rows = tuple(row for row in case.rows if fnmatch.fnmatch(row.name, pattern))
        if rows:
            yield case._replace(rows=rows)


def run(wanted: list[Case], *, is_quick: bool) -> int:
    """Measure, print a table, keep the results; exit status 1 when a target is missed."""
    print(f"store: {ROUNDS} alternating rounds, ratio of ours to what is named behind the slash")
    print(f"{'row':<44} {'ratio':>7} {'quartiles':>15} {'ns':>9} {'target':>7}", flush=True)
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-store-") as folder,
        contextlib.ExitStack() as stack,
    ):
        bench = Bench(Path(folder), stack, is_quick=is_quick)
        for case in wanted:
            series = case.measure(bench)
            for row in case.rows:
                results.append(result_of(row, series))
                print(line(results[-1]), flush=True)
    save("store", results)
    return 1 if any(result.is_missed for result in results) else 0


def result_of(row: Row, series: Series) -> Result:
    ratios = [work / base for work, base in zip(series[row.work], series[row.base], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    cost_ns = statistics.median(series[row.cost or row.work])
    return Result(row.name, middle, low, high, cost_ns, row.ratio_max)


if __name__ == "__main__":
    sys.exit(main())
