"""What all tests share: how many rounds random tests take, and which core must be running."""

import os
import signal

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


def pytest_report_header() -> str:
    return f"cometmq: {core.active()} core"


@pytest.fixture(scope="session", autouse=True)
def _the_expected_core_is_active() -> None:
    """The suite runs once per core; it must not run twice with the same one without notice."""
    expected = os.environ.get("COMETMQ_EXPECT_CORE", core.active())
    assert core.active() == expected, f"this run is for the {expected} core"
