"""Topics as Spark tables: our connector beside a source in memory and Spark's own for Kafka.

Everything runs on this machine on ``local[2]``, with messages of 1 KiB in 8 queues: ``log`` reads
the files of our broker's store, ``broker`` pulls from it. The source in memory gives the same
Arrow batches without fetching or decoding anything, in the same session; rates are ratios to it.
Kafka's side is a Kafka server and PySpark of the release its connector is made for, with the same
rows; where they cannot be had its figures are left out. Rounds alternate; medians are shown, and
CPU seconds for a million rows of all processes of Spark, and of the server.

    python -m bench.spark [--quick] [--row PATTERN] [--no-peer] [--resume]
"""

import argparse
import contextlib
import fnmatch
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import spark_kafka
from bench.broker import concluded
from bench.broker_results import ResultFile, judged
from bench.spark_bench import Bench
from bench.spark_cases import FULL, KAFKA, QUICK, Case, Pace, cases
from bench.spark_results import HEADINGS, show
from bench.spark_subject import SubjectFailed
from cometmq.codec import core
from tests.interop import maven
from tests.interop.cache import Cache, default_cache
from tests.interop.commands import CommandError
from tests.interop.processes import ProcessDiedError, ProcessNotReadyError

FAILURES = (SubjectFailed, CommandError, ProcessDiedError, ProcessNotReadyError, OSError)


def main() -> int:
    chosen = arguments().parse_args()
    if core.active() != "compiled":
        print("error: the compiled core is not active", file=sys.stderr)
        print("  next: make setup, and unset COMETMQ_PURE", file=sys.stderr)
        return 1
    if lack := spark_lack():
        print(f"error: {lack}", file=sys.stderr)
        print("  next: make setup SPARK=1", file=sys.stderr)
        return 1
    wanted = [case for case in cases() if fnmatch.fnmatch(case.name, chosen.row)]
    if not wanted:
        print(f"error: no row matches '{chosen.row}'", file=sys.stderr)
        print(f"  rows: {', '.join(case.name for case in cases())}", file=sys.stderr)
        return 2
    results = ResultFile("spark-quick" if chosen.quick else "spark")
    if chosen.resume or chosen.row != "*":
        results.load()
    missed = []
    if chosen.resume:
        missed = [case.name for case in wanted if case.name in results.missed()]
        wanted = [case for case in wanted if case.name not in results.rows]
    if wanted:
        missed += run(wanted, QUICK if chosen.quick else FULL, results, with_peer=chosen.peer)
    return concluded(missed, results)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and fewer rounds")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="only rows that match")
    parser.add_argument(
        "--no-peer", dest="peer", action="store_false", help="leave Kafka's side out"
    )
    parser.add_argument(
        "--resume", action="store_true", help="only rows that the last run did not come to"
    )
    return parser


def spark_lack() -> str | None:
    """Why there can be no Spark session here."""
    from cometmq.errors import CometError
    from cometmq.spark import java
    from cometmq.spark.spark_session import check_packages

    try:
        check_packages()
        java.find(os.environ, bundled=java.bundled_home())
    except CometError as lack:
        return str(lack)
    return None


def peer_lack(cache: Cache) -> str | None:
    """Why Kafka's side cannot be had; fetches it if this machine lacks it."""
    try:
        spark_kafka.environment(cache)
        maven.jars(cache, spark_kafka.SERVER)
    except (pytest.skip.Exception, pytest.fail.Exception) as lack:
        return str(lack)
    return None


def run(wanted: Sequence[Case], pace: Pace, results: ResultFile, *, with_peer: bool) -> list[str]:
    """Measure row after row; gives those that missed a target or could not be had."""
    cache = default_cache()
    if with_peer and (lack := peer_lack(cache)):
        print(f"spark: without Kafka: {lack}")
        with_peer = False
    print(
        f"spark: {pace.rounds} alternating rounds, medians; {pace.rows:,} rows of 1 KiB,"
        f" {pace.stream_rows:,} in streams; local[2]"
    )
    print(HEADINGS, flush=True)
    missed = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as folder,
        contextlib.ExitStack() as stack,
    ):
        bench = Bench(Path(folder), stack, pace, cache)
        for case in wanted:
            names = [name for name, way in case.ways.items() if with_peer or way.side != KAFKA]
            if not measured(case, names, bench, results):
                missed.append(case.name)
    return missed


def measured(case: Case, names: Sequence[str], bench: Bench, results: ResultFile) -> bool:
    """Measure and show one row; whether it was had and met its targets."""
    try:
        series = bench.measure(case, names)
    except FAILURES as failure:
        print(f"{case.name}\n  error: {failure}", flush=True)
        bench.forget()
        return False
    result = judged(case.name, series, case.targets, ())
    show(result)
    results.add(result)
    return not result.is_missed


if __name__ == "__main__":
    sys.exit(main())
