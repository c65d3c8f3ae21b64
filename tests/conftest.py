"""What all tests share: the rounds of random tests, the core that must run, and what failed."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cometmq.codec import core

# No deadline: this suite also runs on busy machines, and a slow example is no wrong example.
_COMMON = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ordinary", max_examples=50, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("full", max_examples=400, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("full" if os.environ.get("COMETMQ_ROUNDS") == "full" else "ordinary")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background so, and whatever is started from here would
    # not notice Ctrl-C either.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The suite's summary repeats what is in this file: the end of a long log is all that is read.
FAILURES_VARIABLE = "COMETMQ_FAILURES"
FAILURE_LINES = 2
FAILURE_LINE_MAX = 300


def pytest_report_header() -> str:
    return f"cometmq: {core.active()} core"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get(FAILURES_VARIABLE)
    if path is None or not report.failed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    told = crash.message if crash else report.longreprtext
    reason = [line[:FAILURE_LINE_MAX] for line in told.splitlines() if line.strip()][:FAILURE_LINES]
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("\n        ".join([f"{report.nodeid} ({report.when})", *reason]) + "\n")


@pytest.fixture(scope="session", autouse=True)
def _the_expected_core_is_active() -> None:
    """The suite runs once per core; it must not run twice with the same one without notice."""
    expected = os.environ.get("COMETMQ_EXPECT_CORE", core.active())
    assert core.active() == expected, f"this run is for the {expected} core"
