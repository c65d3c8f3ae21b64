"""A cluster's numbers as lines of a terminal, or as fields."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cometmq.cli.cluster_view import BrokerView, ClusterView, GroupView
from cometmq.cli.output import cell
from cometmq.cli.sizes import human_bytes, human_rate
from cometmq.cli.table import BLANK, Paint, Row, display_width, unpainted
from cometmq.cli.times import brief_duration, iso_time
from cometmq.cli.yaml_writer import Plain

_GAP = "  "
_BROKERS = (
    *("broker", "in/s", "out/s", "p99 ms", "flush ms", "unflushed"),
    *("behind", "disk", "up", "release"),
)
_GROUPS = ("group", "lag", "change/s", "out/s", "members", "topics")
_LEFT = frozenset({"broker", "release", "group", "topics"})
_DISK_HIGH = 0.75
_DISK_FULL = 0.85


def fields_of(view: ClusterView) -> dict[str, Any]:
    """Everything, under names that do not change."""
    return {
        "time": iso_time(view.time_ms),
        "totals": msgspec.to_builtins(view.totals),
        "name_servers": [
            {
                "address": one.address,
                "broker_count": one.broker_count,
                "problem": one.problem or None,
            }
            for one in view.name_servers
        ],
        "brokers": [_broker_fields(broker, view.time_ms) for broker in view.brokers],
        "groups": [msgspec.to_builtins(group) for group in view.groups],
    }


def _broker_fields(broker: BrokerView, now_ms: int) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(broker)
    for name in ("booted_ms", "put_total", "get_total"):
        del told[name]
    booted_ms = broker.booted_ms
    return {**told, "uptime_ms": None if booted_ms is None else max(0, now_ms - booted_ms)}


def lines_of(view: ClusterView, *, width: int | None = None, paint: Paint = unpainted) -> list[str]:
    """The whole screen below its first line; what is wider than ``width`` is cut off."""
    brokers = [_broker_row(broker, view.time_ms) for broker in view.brokers]
    groups = [_group_row(group) for group in view.groups]
    problems = [f"{one.broker_name}: {one.problem}" for one in view.brokers if one.problem]
    problems += [f"{one.address}: {one.problem}" for one in view.name_servers if one.problem]
    lines = [cut(_summary(view), width), ""]
    lines += _table(_BROKERS, brokers, width, paint)
    lines += [paint("down", cut(problem, width)) for problem in problems]
    lines += ["", *_table(_GROUPS, groups, width, paint)] if groups else ["", "no groups"]
    return lines


def _summary(view: ClusterView) -> str:
    totals = view.totals
    parts = [
        _count(len(view.name_servers), "name server"),
        _count(len(view.brokers), "broker"),
        f"in {human_rate(totals.in_tps)}/s",
        f"out {human_rate(totals.out_tps)}/s",
        f"lag {totals.lag}",
    ]
    if totals.producers is not None:
        parts.append(_count(totals.producers, "producer"))
    if totals.consumers is not None:
        parts.append(_count(totals.consumers, "consumer"))
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _broker_row(broker: BrokerView, now_ms: int) -> Row:
    name = broker.broker_name if broker.is_master else f"{broker.broker_name} (slave)"
    disk = None if broker.disk_ratio is None else f"{broker.disk_ratio:.0%}"
    values = {
        "broker": name,
        "in/s": human_rate(broker.in_tps),
        "out/s": human_rate(broker.out_tps),
        "p99 ms": _time(broker.put_p99_ms),
        "flush ms": _time(broker.flush_p99_ms),
        "unflushed": _size(broker.unflushed_bytes),
        "behind": _size(broker.dispatch_behind_bytes),
        "disk": disk,
        "up": None if broker.booted_ms is None else brief_duration(now_ms - broker.booted_ms),
        "release": "down" if broker.problem else broker.version,
    }
    return {column: cell(value) for column, value in values.items()}


def _group_row(group: GroupView) -> Row:
    change = group.lag_change_tps
    values: dict[str, Plain] = {
        "group": group.group,
        "lag": group.lag,
        "change/s": None if change is None else f"{change:+.0f}" if abs(change) >= 0.5 else "0",
        "out/s": None if group.out_tps is None else human_rate(group.out_tps),
        "members": group.members,
        "topics": " ".join(group.topics),
    }
    return {column: cell(value) for column, value in values.items()}


def _time(ms: float | None) -> str | None:
    return None if ms is None else f"{ms:.1f}"


def _size(count: int | None) -> str | None:
    return None if count is None else human_bytes(count)


def _table(
    columns: Sequence[str], rows: Sequence[Row], width: int | None, paint: Paint
) -> list[str]:
    """One line for each row: a screen that is read again and again must not jump."""
    heading = {column: column.upper() for column in columns}
    widths = {c: max(display_width(row[c]) for row in [heading, *rows]) for c in columns}
    lines = []
    for row in [heading, *rows]:
        parts = []
        for column in columns:
            padding = " " * (widths[column] - display_width(row[column]))
            text = row[column]
            parts.append(text + padding if column in _LEFT else padding + text)
        line = cut(_GAP.join(parts).rstrip(), width)
        lines.append(paint("", line) if row is heading else _painted(line, row, paint))
    return lines


def _painted(line: str, row: Row, paint: Paint) -> str:
    if row.get("release") == "down":
        return paint("down", line)
    disk = row.get("disk", BLANK)
    if disk != BLANK and float(disk.rstrip("%")) / 100 >= _DISK_HIGH:
        is_full = float(disk.rstrip("%")) / 100 >= _DISK_FULL
        return paint("full" if is_full else "high", line)
    return line


def cut(line: str, width: int | None) -> str:
    """``line`` in at most ``width`` columns, with a mark where something is missing."""
    if width is None or display_width(line) <= width:
        return line
    while line and display_width(line) > width - 1:
        line = line[:-1]
    return line + "…"
