"""What ``mqadmin`` prints, taken apart into fields.

The tool ends with status 0 whatever happened, so each reader here first looks for a complaint and
raises ``AdminFailure`` with it, and then insists on the form it knows: ``FormError`` for any other.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cometmq.codec import fastjson

Row = dict[str, str]

_COMPLAINT = re.compile(r"^(?:Caused by: )?[\w.$]+(?:Exception|Error)(?::.*)?$", re.MULTILINE)
_CODE = re.compile(r"CODE: (\d+) +DESC: (.*)")
# A cell may have blanks, but only between its parentheses: ``1-0(0.0w, 0.0, 0.0)``.
_CELL = re.compile(r"(?:[^\s(]|\([^)]*\))+")
_HEADING = re.compile(r"=+(\S+?)=+$")


class AdminFailure(Exception):
    """The command failed: the code and description of the server's refusal, if it was one."""

    def __init__(self, code: int | None, description: str) -> None:
        super().__init__(code, description)
        self.code = code
        self.description = description


class FormError(Exception):
    """The text is not what the command is known to print."""


@dataclass(frozen=True, slots=True)
class PermissionChange:
    """What wipeWritePerm and addWritePerm tell."""

    action: str
    broker: str
    namesrv: str
    topics: int


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """What updateNamesrvConfig tells."""

    namesrvs: tuple[str, ...]
    key: str
    value: str


def failure(text: str) -> AdminFailure | None:
    """Why the command failed, or None if it did not."""
    complaints = _COMPLAINT.findall(text)
    if not complaints:
        return None
    refusal = _CODE.search(text)
    if refusal is None:
        return AdminFailure(None, complaints[-1])
    return AdminFailure(int(refusal.group(1)), refusal.group(2).strip())


def table(text: str) -> list[Row]:
    """The rows of a table by column; a missing last cell is empty."""
    header, *lines = _lines(text)
    if not header.startswith("#"):
        raise FormError(text)
    columns = [name.strip() for name in header.split("#")[1:]]
    return [_row(columns, line) for line in lines]


def lines(text: str) -> list[str]:
    """A list of names, one on each line, sorted: the tool prints them in no order."""
    return sorted(line.strip() for line in _lines(text))


def sentences(text: str) -> list[str]:
    """What a command says about its success, a sentence on each line."""
    return [line.strip() for line in _lines(text)]


def route(text: str) -> dict[str, Any]:
    """The route of a topic, its lists in order of broker names."""
    value = fastjson.loads("\n".join(_lines(text)))
    if not isinstance(value, dict):
        raise FormError(text)
    for name in ("brokerDatas", "queueDatas"):
        value[name] = sorted(value[name], key=lambda entry: str(entry["brokerName"]))
    return value


def permission_change(text: str) -> PermissionChange:
    form = r"(wipe|add) write perm of broker\[(.*?)\] in name server\[(.*?)\] OK, (\d+)"
    action, broker, namesrv, count = _match(form, text)
    return PermissionChange(action, broker, namesrv, int(count))


def config_update(text: str) -> ConfigUpdate:
    form = r"update name server config success!\[(.*?)\]\n(\S+) : (.*)"
    namesrvs, key, value = _match(form, text)
    return ConfigUpdate(tuple(namesrvs.split(", ")), key, value)


def namesrv_configs(text: str) -> dict[str, Row]:
    """Settings by key, by address of the name server."""
    found: dict[str, Row] = {}
    address = ""
    for line in _lines(text):
        if heading := _HEADING.match(line):
            address = heading.group(1)
            found[address] = {}
            continue
        key, separator, value = line.partition("=")
        if not address or not separator:
            raise FormError(text)
        found[address][key.strip()] = value.strip()
    return found


def _lines(text: str) -> Sequence[str]:
    if (problem := failure(text)) is not None:
        raise problem
    filled = [line for line in text.splitlines() if line.strip()]
    if not filled:
        raise FormError(text)
    return filled


def _row(columns: list[str], line: str) -> Row:
    cells = _CELL.findall(line)
    if len(cells) == len(columns) - 1:
        cells.append("")
    if len(cells) != len(columns):
        raise FormError(line)
    return dict(zip(columns, cells, strict=True))


def _match(form: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(form, "\n".join(_lines(text)))
    if found is None:
        raise FormError(text)
    return found.groups()
