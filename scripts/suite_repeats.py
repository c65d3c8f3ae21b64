"""Which failed tests the suite runs once more: few, and only such as depend on the machine.

What a failed test says is noted by ``tests/conftest.py``, a line with its name and indented ones
with the reason.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

REPEATED_MAX = 2
"""Of a whole run of the suite: when more tests fail, it is not the machine's fault."""

REPEATABLE = (
    "tests/broker/",
    "tests/interop/",
    "tests/spark/",
    "tests/unit/admin/",
    "tests/unit/blocking/",
    "tests/unit/broker/test_registration.py",
    "tests/unit/cli/",
    "tests/unit/client/",
    "tests/unit/nameserver/test_nameserver.py",
    "tests/unit/remoting/",
    "tests/unit/test_demo.py",
    "tests/unit/test_local_cluster.py",
    "tests/unit/test_pytest_plugin.py",
)
"""Where sockets, processes and clocks take part, which are slow on a busy machine."""

NEVER_REPEATED = (
    "tests/interop/test_soak.py",
    "tests/spark/test_exactly_once.py",
    "tests/unit/client/core/",
    "tests/unit/remoting/test_bad_input.py",
)
"""Of those: what draws at random or kills. A rare fault that they find is real."""

_TESTS_FAILED = 1
"""pytest's exit status when some did, and nothing else went wrong."""


class Failure(NamedTuple):
    """A test that failed, or what was needed for it, and the lines that tell of it."""

    test: str
    lines: Sequence[str]


def noted(path: Path) -> list[Failure]:
    """What was noted in a file; nothing when there is none."""
    failures: list[Failure] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith(" ") and failures:
            test, lines = failures[-1]
            failures[-1] = Failure(test, [*lines, line])
        else:
            failures.append(Failure(line.rpartition(" (")[0], [line]))
    return failures


def is_allowed(failures: Sequence[Sequence[Failure]]) -> bool:
    """Whether so few tests have failed in all parts that any may be repeated."""
    return sum(len({failure.test for failure in part}) for part in failures) <= REPEATED_MAX


def may_be_repeated(status: int, failures: Sequence[Failure]) -> bool:
    """Whether a part that ended with ``status`` has failed in such tests alone that may be."""
    return status == _TESTS_FAILED and all(
        failure.test.startswith(REPEATABLE) and not failure.test.startswith(NEVER_REPEATED)
        for failure in failures
    )
