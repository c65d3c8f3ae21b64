"""What it costs to begin: CPU time of fresh processes, beside one that does nothing.

Each row is a short program that prints how much CPU time its process has used when it is ready, of
all threads and from the start of the interpreter. Rounds alternate between the rows and the floor,
``python -c pass``. All find compiled modules in a cache of their own, as an installed package has
them. Targets: a client can be made within 200 ms, a cluster is ready within 300, ``cometmq topic
ls`` has printed its list within 250.

    python -m bench.startup [--quick] [--row PATTERN]
"""

import argparse
import fnmatch
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.rounds import RESULTS, ROUNDS

CLIENT_MS_MAX = 200.0
CLUSTER_MS_MAX = 300.0
COMMAND_MS_MAX = 250.0
RUN_SECONDS_MAX = 60
FLOOR = "nothing"


class Row(NamedTuple):
    """A program, and what it may cost in milliseconds; ``code`` leaves the cost in ``spent``.

    One that ``needs_cluster`` finds it as any client does, by ``NAMESRV_ADDR``.
    """

    name: str
    code: str
    ms_max: float | None = None
    needs_cluster: bool = False


_READY = "import time; spent = time.process_time()"
_CLIENT = "from cometmq import Client; client = Client('127.0.0.1:9876')"
_COMMAND = (
    "import os, sys; sys.stdout = open(os.devnull, 'w'); from cometmq.cli.app import app;"
    " assert app.run({arguments}) == 0"
)
_CLUSTER = "from cometmq.testing import LocalCluster; plan = LocalCluster()"

ROWS = (
    Row(FLOOR, _READY),
    Row("import cometmq", f"import cometmq; {_READY}"),
    Row("client made", f"{_CLIENT}; {_READY}", CLIENT_MS_MAX),
    Row("client entered", f"{_CLIENT}; client.__enter__(); {_READY}; client.close()"),
    Row("asyncio client made", f"{_CLIENT.replace('cometmq ', 'cometmq.aio ')}; {_READY}"),
    Row("test kit imported", f"{_CLUSTER}; {_READY}"),
    Row(
        "cluster ready",
        f"{_CLUSTER}; import time; began = time.process_time(); plan.__enter__();"
        " spent = time.process_time() - began; plan.__exit__(None, None, None)",
        CLUSTER_MS_MAX,
    ),
    Row("cluster ready, fresh process", f"{_CLUSTER}; plan.__enter__(); {_READY}"),
    Row("cometmq --help", f"{_COMMAND.format(arguments=['--help'])}; {_READY}"),
    Row(
        "cometmq topic ls",
        f"{_COMMAND.format(arguments=['topic', 'ls'])}; {_READY}",
        COMMAND_MS_MAX,
        needs_cluster=True,
    ),
)


class Result(NamedTuple):
    name: str
    milliseconds: float
    low: float
    high: float
    ratio: float
    ms_max: float | None

    @property
    def is_missed(self) -> bool:
        """As in ``rounds``: by the median, for one bad round is not a verdict."""
        return self.ms_max is not None and self.milliseconds > self.ms_max


def cost_ms(row: Row, cache: Path, namesrv: str = "") -> float:
    """The CPU time of one run; the process ends without cleaning up, which is not our subject."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(cache)}
    if row.needs_cluster:
        environment |= {"NAMESRV_ADDR": namesrv, "XDG_CONFIG_HOME": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    code = f"{row.code}; import os; os.write(1, repr(spent).encode()); os._exit(0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        check=True,
        timeout=RUN_SECONDS_MAX,
    )
    return float(done.stdout) * 1000


def measure(rows: Sequence[Row], rounds: int) -> list[Result]:
    costs: dict[str, list[float]] = {row.name: [] for row in rows}
    with tempfile.TemporaryDirectory() as folder, _cluster(rows) as namesrv:
        for row in rows:
            cost_ms(row, Path(folder), namesrv)  # fills the cache
        for _ in range(rounds):
            for row in rows:
                costs[row.name].append(cost_ms(row, Path(folder), namesrv))
    return [summary(row, costs[row.name], costs[FLOOR]) for row in rows]


@contextmanager
def _cluster(rows: Sequence[Row]) -> Iterator[str]:
    """The address of a cluster in this process, where a row needs one."""
    if not any(row.needs_cluster for row in rows):
        yield ""
        return
    from cometmq.testing import LocalCluster

    with LocalCluster() as cluster:
        yield cluster.namesrv


def summary(row: Row, costs: Sequence[float], floors: Sequence[float]) -> Result:
    """Quartiles of the costs, and how often the floor fits into them."""
    low, middle, high = statistics.quantiles(costs, n=4, method="inclusive")
    ratio = statistics.median(cost / floor for cost, floor in zip(costs, floors, strict=True))
    return Result(row.name, middle, low, high, ratio, row.ms_max)


def report(results: Sequence[Result]) -> int:
    """Print a table, keep the results as JSON; 1 when a target is missed."""
    print(f"{'row':<32} {'CPU ms':>7} {'quartiles':>15} {'x floor':>8} {'target':>7}")
    for result in results:
        target = "" if result.ms_max is None else f"≤ {result.ms_max:g}"
        spread = f"{result.low:.0f} - {result.high:.0f}"
        print(
            f"{result.name:<32} {result.milliseconds:>7.0f} {spread:>15} {result.ratio:>8.1f}"
            f" {target:>7}{'  MISSED' if result.is_missed else ''}"
        )
    RESULTS.mkdir(exist_ok=True)
    document = {
        "benchmark": "startup",
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "rows": [result._asdict() for result in results],
    }
    (RESULTS / "startup.json").write_text(json.dumps(document, indent=2) + "\n")
    print("results: bench/results/startup.json")
    return 1 if any(result.is_missed for result in results) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a first look")
    parser.add_argument("--row", default="*", metavar="PATTERN", help="names of rows")
    chosen = parser.parse_args()
    rows = [row for row in ROWS if row.name == FLOOR or fnmatch.fnmatch(row.name, chosen.row)]
    if len(rows) == 1 and chosen.row != FLOOR:
        print(f"error: no row matches '{chosen.row}'", file=sys.stderr)
        return 2
    return report(measure(rows, ROUNDS if chosen.quick else 3 * ROUNDS))


if __name__ == "__main__":
    sys.exit(main())
