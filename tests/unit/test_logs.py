import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq import logs
from cometmq.errors import SettingsError
from cometmq.logs import JsonFormatter, LogFormat, LogLevel, LogSettings, TextFormatter, one_line

SOURCE = Path(logs.__file__).parent


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    yield
    logs.reset()


def record(
    message: str, *args: object, level: int = logging.WARNING, **extra: object
) -> logging.LogRecord:
    made = logging.getLogger("cometmq.broker").makeRecord(
        "cometmq.broker", level, "file.py", 1, message, args, None, extra=extra
    )
    made.created = 1_772_357_400.25
    return made


def test_a_line_of_text_has_time_level_logger_and_message() -> None:
    line = TextFormatter().format(record("topic=%s queue=%d is full", "orders", 3))

    assert line == "2026-03-01T09:30:00.250Z WARNING cometmq.broker topic=orders queue=3 is full"


def test_extra_fields_follow_the_message() -> None:
    line = TextFormatter().format(record("ready", level=logging.INFO, port=9876))

    assert line == "2026-03-01T09:30:00.250Z INFO    cometmq.broker ready port=9876"


def test_a_peer_cannot_forge_a_line_or_reach_the_terminal() -> None:
    line = TextFormatter().format(record("group=%s", "a\nERROR forged \x1b[31m\u2028", tag="x\ny"))

    assert line.endswith(r"group=a\nERROR forged \x1b[31m\u2028 tag=x\ny")


def test_printable_text_of_any_script_stays_as_it_is() -> None:
    assert one_line("Bestellung 订单 ñ") == "Bestellung 订单 ñ"


def test_a_json_line_is_one_object_with_the_extra_fields() -> None:
    line = JsonFormatter().format(record("topic=%s\nfull", "orders", queue=3, where=Path("/x")))

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-03-01T09:30:00.250Z",
        "level": "warning",
        "logger": "cometmq.broker",
        "message": "topic=orders\nfull",
        "queue": 3,
        "where": "PosixPath('/x')",
    }


def test_extra_fields_cannot_replace_the_fixed_ones() -> None:
    fields = json.loads(JsonFormatter().format(record("m", level_="x", time="noon", exception=1)))

    assert fields["time"] == "2026-03-01T09:30:00.250Z"
    assert fields["time_"] == "noon"
    assert fields["exception_"] == 1


def test_what_json_cannot_say_is_logged_all_the_same() -> None:
    endless: list[object] = []
    endless.append(endless)

    surrogate = json.loads(JsonFormatter().format(record("half a pair: \ud800")))
    nested = json.loads(JsonFormatter().format(record("m", value=endless)))

    assert surrogate["message"] == r"'half a pair: \ud800'"
    assert surrogate["time"] == "2026-03-01T09:30:00.250Z"
    assert nested["value"] == "[[...]]"


def test_an_exception_is_logged_with_its_traceback() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        failed = record("cannot go on")
        failed.exc_info = sys.exc_info()

    text = TextFormatter().format(failed)
    fields = json.loads(JsonFormatter().format(failed))

    assert text.splitlines()[0].endswith("cometmq.broker cannot go on")
    assert text.splitlines()[1] == "Traceback (most recent call last):"
    assert text.splitlines()[-1] == "ValueError: broken"
    assert fields["exception"].endswith("ValueError: broken")


def test_logs_go_to_standard_error_from_the_level_on(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(level=LogLevel.WARNING))

    logs.get_logger("cometmq.broker").info("not this")
    logs.get_logger("cometmq.broker").warning("but this")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("WARNING cometmq.broker but this\n")


def test_the_event_loops_complaints_are_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())

    logging.getLogger("asyncio").error("Task exception was never retrieved")

    assert "ERROR   asyncio Task exception" in capsys.readouterr().err


def test_configuring_again_replaces_what_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    logs.configure(LogSettings(format=LogFormat.JSON))

    logs.get_logger("cometmq").info("once")

    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["once"]


def test_other_loggers_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = list(logging.root.handlers), logging.root.level

    logs.configure(LogSettings(level=LogLevel.DEBUG))
    logging.getLogger("somebody.else").debug("private")

    assert (list(logging.root.handlers), logging.root.level) == before
    assert "private" not in capsys.readouterr().err


def test_a_library_says_nothing_unless_it_is_told_to(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    logs.reset()

    logs.get_logger("cometmq.client").error("only for those who listen")

    assert capsys.readouterr().err == ""
    assert caplog.messages == ["only for those who listen"]


def test_loggers_are_taken_from_here_so_that_the_library_stays_silent() -> None:
    sources = (path for path in SOURCE.rglob("*.py") if path.name != "logs.py")

    direct = [path.name for path in sources if "logging.getLogger" in path.read_text()]

    assert direct == []


def test_a_log_file_gets_the_records_instead_of_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "broker.log"
    logs.configure(LogSettings(file=file))

    logs.get_logger("cometmq.broker").info("topic=订单 created")

    assert file.read_text(encoding="utf-8").endswith("INFO    cometmq.broker topic=订单 created\n")
    assert capsys.readouterr().err == ""


def test_a_log_file_is_rotated_by_size_and_old_ones_go(tmp_path: Path) -> None:
    logs.configure(LogSettings(file=tmp_path / "log", file_bytes_max=1024, file_count=3))

    for i in range(100):
        logs.get_logger("cometmq").info("record %d %s", i, "x" * 50)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert all(path.stat().st_size <= 1024 for path in tmp_path.iterdir())
    assert "record 99 " in (tmp_path / "log").read_text()


def test_a_log_file_that_cannot_be_opened_is_refused_and_the_old_log_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    logs.configure(LogSettings())

    with pytest.raises(SettingsError, match="Not a directory") as refused:
        logs.configure(LogSettings(file=tmp_path / "file" / "log"))
    logs.get_logger("cometmq").warning("still here")

    assert refused.value.key == "--log-file"
    assert "still here" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_mentioned_once_and_not_for_every_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure(LogSettings(file=Path("/dev/full")))

    for _ in range(3):
        logs.get_logger("cometmq").error("lost")

    assert capsys.readouterr().err.splitlines() == [
        f"error: cannot write log file '/dev/full': {os.strerror(28)}",
        "  next: make room or permit writing; records are lost until then",
    ]


def test_the_reference_page_shows_lines_as_they_are(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs/reference/logging.md").read_text(encoding="utf-8")
    shown = record("topic=%s queue=%d offset %d is gone, using %d", "orders", 3, 17, 20)

    assert TextFormatter().format(shown) in page
    assert JsonFormatter().format(shown) in page


def test_the_reference_page_describes_every_level(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs/reference/logging.md").read_text(encoding="utf-8")

    assert re.findall(r"^## `(\w+)`", page, re.MULTILINE) == [level.value for level in LogLevel]
