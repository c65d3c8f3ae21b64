"""Times and durations as people type them: ``10m``, ``2026-11-17T10:00``, ``now``, ``2h ago``.

Both arrive at a command as milliseconds; a time counts from 1970, as RocketMQ's do.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cometmq.clock import SystemClock

if TYPE_CHECKING:
    MillisecondsType = click.ParamType[int]
else:
    MillisecondsType = click.ParamType  # generic for type checkers only, before click 8.4

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STEP = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_STEP.pattern})+")
_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_MS_MAX = 2**63 - 1
DURATION_HINT = "write it as 500ms, 10s, 5m, 1h30m or 2d"
TIME_HINT = "write it as 2026-11-17T10:00:00, 10:00 (today), 'now', '5m ago' or milliseconds"


def parse_duration(text: str) -> int | None:
    """Milliseconds, or None for what is no duration; a bare number means seconds."""
    text = text.strip().lower().replace(" ", "")
    if re.fullmatch(r"\d+(\.\d+)?", text):
        text += "s"
    if not _DURATION.fullmatch(text):
        return None
    total = sum(float(count) * _UNITS_MS[unit] for count, unit in _STEP.findall(text))
    return round(total) if total <= _MS_MAX else None


def parse_time(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970, or None for what is no time; without a zone it is the local one."""
    text = text.strip()
    if text.lower() == "now":
        return now_ms
    if re.fullmatch(r"\d{9,19}", text):
        return min(int(text), _MS_MAX)
    ago = re.fullmatch(r"(?:-(?P<before>.+)|(?P<ago>.+?)\s*ago)", text, re.IGNORECASE)
    if ago:
        duration = parse_duration(ago["before"] or ago["ago"])
        return None if duration is None else max(0, now_ms - duration)
    try:
        if _CLOCK_TIME.fullmatch(text):
            today = _local(now_ms).date().isoformat()
            text = f"{today}T{text.zfill(5) if text.count(':') == 1 else text.zfill(8)}"
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(ms: int | None) -> str | None:
    """A time as ISO 8601 in the local zone; None where there is none (RocketMQ writes 0)."""
    if not ms or ms <= 0:
        return None
    try:
        stamp = _local(ms)
    except (ValueError, OverflowError, OSError):
        return None
    return stamp.isoformat(timespec="milliseconds")


def local_time(ms: int | None) -> str | None:
    """A time for tables: local, to the second, as ``--since`` and its like read it back."""
    full = iso_time(ms)
    return None if full is None else full[:19].replace("T", " ")


def brief_duration(ms: float) -> str:
    """``3h12m``, ``5m3s``, ``1.2s``: at most two units, for tables."""
    seconds = max(0.0, ms / 1000)
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h"


def _local(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone()


class Duration(MillisecondsType):
    """An option's value that is a duration; the command gets milliseconds, at least so many."""

    name = "duration"

    def __init__(self, minimum_ms: int = 0) -> None:
        self._minimum_ms = minimum_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = parse_duration(value)
        if found is None:
            self.fail(f"'{value}' is no duration; {DURATION_HINT}", param, ctx)
        if found < self._minimum_ms:
            self.fail(f"'{value}' is less than {self._minimum_ms}ms", param, ctx)
        return found


class Time(MillisecondsType):
    """An option's value that is a time; the command gets milliseconds since 1970."""

    name = "time"

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or SystemClock().now_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = parse_time(value, self._now_ms())
        if found is None:
            self.fail(f"'{value}' is no time; {TIME_HINT}", param, ctx)
        return found


DURATION = Duration()
TIME = Time()
