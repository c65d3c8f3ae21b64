"""Logging: one logger per package, silent in a library, readable in a program.

Packages take their logger from ``get_logger``, so that a program which merely uses the client
hears nothing unless it sets up logging itself. Our own programs call ``configure``: records then go
to standard error or, on request, to a rotating file, as text or as one JSON object per line::

    2026-03-01T09:30:00.250Z WARNING cometmq.broker topic=orders queue=3 offset 17 is gone, using 20

A record stays on one line whatever a peer put into it; only the traceback of an exception follows.
"""

import contextlib
import enum
import logging
import logging.handlers
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from cometmq.errors import SettingsError
from cometmq.settings import Settings, setting, settings_class

ROOT = "cometmq"
# The event loop reports lost exceptions under a name of its own; they are ours to show.
_LOGGERS = (ROOT, "asyncio")
_STANDARD_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class LogLevel(enum.StrEnum):
    """How much is said; each level includes those after it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    """The form of a record."""

    TEXT = "text"
    JSON = "json"


@settings_class
class LogSettings(Settings):
    """What is logged, in which form, to which place."""

    prefix: ClassVar[str] = "log"

    level: LogLevel = setting(LogLevel.INFO, doc="Least severe level that is logged.")
    format: LogFormat = setting(LogFormat.TEXT, doc="Form of a record, one on each line.")
    file: Path | None = setting(
        None, doc="File that gets the log instead of standard error; rotated by size."
    )
    file_bytes_max: int = setting(
        64 * 1024 * 1024, doc="Size in bytes at which the log file is rotated.", minimum=1024
    )
    file_count: int = setting(
        8,
        doc="Log files kept, the current one included.",
        minimum=2,  # with one file there is nothing to rotate to: it would grow for ever
        maximum=1000,
    )


def get_logger(name: str) -> logging.Logger:
    """The logger of a package, by its full name (``cometmq.broker``)."""
    assert name == ROOT or name.startswith(ROOT + "."), name
    root = logging.getLogger(ROOT)
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    return logging.getLogger(name)


def configure(settings: LogSettings) -> None:
    """Log as ``settings`` say, replacing what an earlier call set up.

    Touches no logger but ours and the event loop's. Raises ``SettingsError`` when the log file
    cannot be opened; the earlier set-up then stays.
    """
    handler = _handler(settings)
    handler.setFormatter(JsonFormatter() if settings.format is LogFormat.JSON else TextFormatter())
    reset()
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(settings.level.upper())
        logger.propagate = False


def reset() -> None:
    """Undo ``configure``: silent again, as a library should be."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        for handler in [h for h in logger.handlers if isinstance(h, _StandardError | _File)]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    get_logger(ROOT)


def _handler(settings: LogSettings) -> logging.Handler:
    if settings.file is None:
        return _StandardError()
    try:
        if not settings.file.parent.exists():
            settings.file.parent.mkdir(parents=True)
        return _File(
            settings.file,
            maxBytes=settings.file_bytes_max,
            backupCount=settings.file_count - 1,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError as error:
        raise SettingsError(
            "--log-file",
            f"cannot open '{settings.file}': {error.strerror}",
            "choose a file in a folder you may write to",
        ) from error


class _StandardError(logging.StreamHandler[Any]):
    """Writes to what standard error is now, not to what it was when logging was set up."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _File(logging.handlers.RotatingFileHandler):
    """Says once that the file cannot be written, instead of a traceback for every record."""

    _has_complained = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._has_complained:
            self._has_complained = True
            print(
                f"error: cannot write log file '{self.baseFilename}': {error.strerror}",
                "  next: make room or permit writing; records are lost until then",
                sep="\n",
                file=sys.stderr,
            )

    def close(self) -> None:
        # What the file did not take was reported when it was logged.
        with contextlib.suppress(OSError):
            super().close()


class TextFormatter(logging.Formatter):
    """Time, level, logger, message, then the extra fields as ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        head = f"{_time(record)} {record.levelname:<7} {record.name}"
        line = f"{head} {one_line(record.getMessage() + extra)}"
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, the extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _extra(record).items():
            fields[f"{name}_" if name in (*fields, "exception") else name] = value
        trace = _trace(record)
        if trace:
            fields["exception"] = trace
        return _json(fields)


def one_line(text: str) -> str:
    """``text`` with everything that is not printable escaped, so that it stays on its line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _json(fields: dict[str, Any]) -> str:
    # Imported here: the command line sets up text logs without ever needing it.
    import msgspec

    try:
        return msgspec.json.encode(fields, enc_hook=repr).decode()
    except (ValueError, OverflowError, TypeError, RecursionError):
        # Lone surrogates, endless nesting: a log line must come out all the same.
        safe = {name: value if name == "time" else ascii(value) for name, value in fields.items()}
        return msgspec.json.encode(safe).decode()


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


def _trace(record: logging.LogRecord) -> str:
    formatter = logging.Formatter()
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
