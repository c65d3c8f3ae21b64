"""Our client beside others, all against one broker of ours, in one run.

Our asyncio and blocking clients, the C++ client in its Python wrapper (``rocketmq`` of PyPI) and
Apache's Java client, each in a process of its own on one core; the broker has another. Rounds
alternate between the clients, JVMs are warmed up first; medians are shown: messages a second, CPU
seconds of the client for a million messages, and how long sends take at a fixed rate. Targets: the
asyncio producer with 64 sends in flight and the asyncio consumer are ahead of the C++ wrapper;
messages per CPU second are at least half of Java's, and a quarter for a consumer without the
compiled core.

    python -m bench.client [--quick] [--row PATTERN] [--subject PATTERN] [--resume]
"""

import argparse
import contextlib
import fnmatch
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import broker_subject, store_subject
from bench.broker import concluded
from bench.broker_results import HEADINGS, ResultFile, judged, show
from bench.client_cases import FULL, QUICK, Bench, Case, Pace, cases
from bench.client_subject import Clients, Server, cores, on_core
from cometmq.codec import core
from tests.interop.processes import ProcessDiedError, ProcessNotReadyError

FAILURES = (
    broker_subject.SubjectFailed,
    store_subject.SubjectFailed,
    ProcessDiedError,
    ProcessNotReadyError,
    OSError,
)


def main() -> int:
    chosen = arguments().parse_args()
    if core.active() != "compiled":
        print("error: the compiled core is not active", file=sys.stderr)
        print("  next: make setup, and unset COMETMQ_PURE", file=sys.stderr)
        return 1
    if cores() is None:
        print("error: broker and clients need a core each, and there is only one", file=sys.stderr)
        return 1
    wanted = [case for case in cases() if fnmatch.fnmatch(case.name, chosen.row)]
    if not wanted:
        print(f"error: no row matches '{chosen.row}'", file=sys.stderr)
        print(f"  rows: {', '.join(case.name for case in cases())}", file=sys.stderr)
        return 2
    results = ResultFile("client-quick" if chosen.quick else "client")
    if chosen.resume or chosen.row != "*":
        results.load()
    missed = []
    if chosen.resume:
        missed = [case.name for case in wanted if case.name in results.missed()]
        wanted = [case for case in wanted if case.name not in results.rows]
    kept = None if chosen.subject else results
    if wanted:
        missed += run(wanted, chosen.subject or ["*"], QUICK if chosen.quick else FULL, kept)
    return concluded(missed, kept)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="only rows that match")
    parser.add_argument(
        "--subject",
        action="append",
        metavar="PATTERN",
        help="only clients that match; keeps no results",
    )
    parser.add_argument(
        "--resume", action="store_true", help="only rows that the last run did not come to"
    )
    return parser


def run(
    wanted: Sequence[Case], patterns: Sequence[str], pace: Pace, results: ResultFile | None
) -> list[str]:
    """Measure row after row; gives those that missed a target or could not be had."""
    found = cores()
    assert found is not None
    server_core, client_core = found
    print(
        f"client: {pace.rounds} alternating rounds, medians; 8 queues;"
        f" the broker on core {server_core}, each client on core {client_core}"
    )
    print(HEADINGS, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-client-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        with on_core(server_core):
            server = stack.enter_context(Server(folder / "server"))
        clients = Clients(folder / "clients", server, client_core)
        stack.callback(clients.stop_all)
        bench = Bench(clients, pace)
        return [case.name for case in wanted if not measured(case, bench, patterns, results)]


def measured(case: Case, bench: Bench, patterns: Sequence[str], results: ResultFile | None) -> bool:
    """Measure and show one row; whether it was had and met its targets."""
    names = [
        name for name in case.ways if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    if not names:
        return True
    try:
        series, notes = bench.measure(case, names)
    except FAILURES as failure:
        print(f"{case.name}\n  error: {failure}", flush=True)
        bench.forget()
        return False
    result = judged(case.name, series, case.targets, notes)
    show(result)
    if results is not None:
        results.add(result)
    return not result.is_missed


if __name__ == "__main__":
    sys.exit(main())
