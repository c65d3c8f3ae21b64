"""Tells at the end how many rounds of each kind there were."""

import pytest

from tests.crash import rounds


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in rounds.summary():
        terminalreporter.write_line(line)
