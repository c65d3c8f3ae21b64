"""Warnings in Spark's Python processes, where no program sets up logging."""

import logging

import pytest

from cometmq import logs
from cometmq.logs import LogSettings
from cometmq.spark.unheard import Unheard

LOGGER = logs.get_logger("cometmq.spark")


def stop_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (None, "cometmq"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])


def test_a_warning_that_nobody_would_hear_is_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_listening(monkeypatch)

    LOGGER.warning("topic=%s %d messages are gone", "orders", 3)
    LOGGER.debug("something else")

    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING cometmq.spark topic=orders 3 messages are gone")


def test_a_program_that_listens_hears_it_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_listening(monkeypatch)
    logs.configure(LogSettings())

    LOGGER.warning("once")

    logs.reset()
    assert capsys.readouterr().err.count("once") == 1


def test_the_connector_has_one_such_handler() -> None:
    handlers = logging.getLogger("cometmq.spark").handlers

    assert [type(handler) for handler in handlers] == [Unheard]
