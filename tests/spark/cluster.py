"""A standalone Spark cluster on this machine: a master and two workers, each a process of its own.

The package that pip installs has no scripts to start them; their classes are there all the same.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.interop.ports import LOOPBACK, free_port
from tests.interop.processes import Process

START_SECONDS_MAX = 120
WORKERS = 2
_SPARK_HOME = Path(pyspark.__file__).parent


@contextmanager
def standalone(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a master with two workers of one core each, for as long as the block."""
    port = free_port()
    master = f"spark://{LOOPBACK}:{port}"
    env = {
        **environment,
        "SPARK_HOME": str(_SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        # As on another machine: executors have this package only if it is sent to them.
        "PYTHONPATH": "",
    }
    with ExitStack() as stack:
        address = ["--host", LOOPBACK, "--port", str(port), "--webui-port", "0"]
        argv = _command("master.Master", *address)
        started = stack.enter_context(Process("spark-master", argv, folder=folder, env=env))
        for number in range(WORKERS):
            place = folder / f"worker-{number}"
            room = ["--cores", "1", "--memory", "700m", "--work-dir", str(place)]
            argv = _command("worker.Worker", "--host", LOOPBACK, "--webui-port", "0", *room, master)
            stack.enter_context(Process(f"spark-worker-{number}", argv, folder=folder, env=env))
        registered = "(?s)" + "Registering worker .*" * WORKERS
        started.wait_until_printed(registered, timeout_s=START_SECONDS_MAX)
        yield master


def _command(name: str, *arguments: str) -> list[str]:
    script = str(_SPARK_HOME / "bin" / "spark-class")
    return [script, f"org.apache.spark.deploy.{name}", *arguments]
