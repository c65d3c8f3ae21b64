"""What any ``mqadmin`` command prints, taken apart into one flat table of fields.

The tool prints tables with a ``#Header``, pairs (``key : value``), headings, Java objects as
``toString`` shows them, and sentences, often several of these in one answer. Each value gets a path
that says what it is about and not where it stood, as the tool prints many lists in no order:

    #Broker Name  #QID  #Max Offset
    broker-a      0     35            ->  {"broker-a/0.Max Offset": "35"}
    MessageTrack [consumerGroup=G, trackType=CONSUMED]
                                      ->  {"MessageTrack/G.trackType": "CONSUMED"}
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cometmq.codec import fastjson
from tests.interop.mqadmin_fields import FormError

Fields = dict[str, str]
Found = Iterator[tuple[str, str]]

# What tells one row or one object from another, most important first.
ROW_NAMES = (
    *("Cluster Name", "Topic", "Group", "Consumer Group", "ProducerGroup", "ConsumerGroup"),
    *("Broker Name", "brokerName", "QID", "queueId", "Offset", "ClientId"),
)
OBJECT_NAMES = ("consumerGroup", "clientId", "topic", "queueId", "queueOffset", "brokerName")

_DATE = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)")
_CELL = re.compile(r"(?:[^\s(]|\([^)]*\))+")
_LAST_OBJECT = re.compile(r"(.*?)\s(\w+ \[\w+=.*\])")
_HEADING = re.compile(r"=+\s*([^=]*?)\s*=+|#([^#]+)#")
_PAIR = re.compile(r"([^:=\[{]{1,90}?)\s*[:=](?:\s+(.*)|$)")
_CLIENT = re.compile(r"(\d{4})\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)")
_MESSAGE = re.compile(r"^MSGID: (\S+) (.*\]) BODY: (.*)$", re.MULTILINE)
_OBJECT = re.compile(r"(.*?)\b(\w+) ?[\[{](\w+='?.*)[\]}]\.?")
_ITEMS = re.compile(r"\w+=\S.*, ?\w+=.*")
_NAMED = re.compile(r"([\w()]+)=?\[([^\]]*)\]")
_NESTED = re.compile(r"(?:\w* ?)[\[{](\w[^=,]*=.*)[\]}]")
_FACTS = ("address", "language", "version")
_ONE_LINE_TRACKS = re.compile(r"(?<!\n)(?=MessageTrack \[)")


def fields(text: str) -> Fields:
    """Every field by its path; what is there twice is counted (``path``, ``path ~2``)."""
    stripped = _ONE_LINE_TRACKS.sub("\n", _DATE.sub(r"\1T\2", text)).strip()
    stripped = _MESSAGE.sub(r"MSGID \1 \2\nBODY of \1: \3", stripped)
    if stripped.startswith("{"):
        return json_fields(stripped)
    found: Fields = {}
    seen: Counter[str] = Counter()
    for path, value in sorted(_Reader().read(stripped), key=_without_digits):
        seen[path] += 1
        found[path if seen[path] == 1 else f"{path} ~{seen[path]}"] = value
    return found


def json_fields(text: str | bytes) -> Fields:
    """The leaves of a document; an entry of a list is known by its names, not by its place."""
    return dict(_leaves("", fastjson.loads(text)))


class _Reader:
    """Reads line by line; remembers under which heading and in which table it is."""

    def __init__(self) -> None:
        self._heading = ""
        self._columns: list[str] = []

    def read(self, text: str) -> Found:
        for line in map(str.strip, text.splitlines()):
            if not line:
                self._columns = []
            elif heading := _HEADING.fullmatch(line):
                name = heading.group(1) or heading.group(2)
                self._heading = f"{name}/" if name else self._heading
                self._columns = []
            elif line.startswith("#") and "\t" in line:
                yield self._pair(line.lstrip("#"), "\t")
            elif line.startswith("#"):
                self._columns = [name.strip() for name in line.split("#")[1:]]
                yield f"{self._heading}columns", ", ".join(self._columns)
            else:
                yield from ((f"{self._heading}{path}", value) for path, value in self._line(line))

    def _line(self, line: str) -> Found:
        if self._columns and (row := _row(self._columns, line)) is not None:
            yield from row
        elif client := _CLIENT.fullmatch(line):
            number, client_id, *facts = client.groups()
            yield f"{client_id}.number", number
            yield from zip((f"{client_id}.{name}" for name in _FACTS), facts, strict=True)
        elif pair := _PAIR.fullmatch(line):
            yield from _value(" ".join(pair.group(1).split()), pair.group(2) or "")
        elif shown := _OBJECT.fullmatch(line):
            yield from _object(shown.group(1), shown.group(2), shown.group(3))
        elif _ITEMS.fullmatch(line):
            yield from _object("", "", line)
        elif len(named := _NAMED.findall(line)) > 1:
            yield f"says {line[: line.index('[')]}", ""
            yield from named
        else:
            yield f"says {line}", ""

    def _pair(self, line: str, separator: str) -> tuple[str, str]:
        name, _, value = line.partition(separator)
        return f"{self._heading}{name.strip()}", value.strip()


def _row(columns: list[str], line: str) -> Found | None:
    """The cells of a row; None for a line below a table that is none of its rows."""
    begin = found.group(1) if (found := _LAST_OBJECT.fullmatch(line)) else line
    cells = [*_CELL.findall(begin), *(found.groups()[1:] if found else ())]
    lacking = len(columns) - len(cells)
    if lacking and "  " not in line and _PAIR.fullmatch(line):
        return None
    if lacking and "Type" in columns and "Model" in columns:
        # A group that is offline has neither, in the middle of its row.
        place = columns.index("Type")
        cells[place:place] = [""] * lacking
    elif lacking == 1:
        cells.append("")
    if len(cells) != len(columns):
        raise FormError(line)
    row = dict(zip(columns, cells, strict=True))
    name = "/".join(row[column] for column in ROW_NAMES if row.get(column))
    return (field for column, cell in row.items() for field in _value(f"{name}.{column}", cell))


def _object(before: str, kind: str, inside: str) -> Found:
    items = dict(_items(inside))
    name = "/".join([kind, *(items[key] for key in OBJECT_NAMES if key in items)])
    if before := before.strip():
        yield f"says {name} after", before
    for key, value in items.items():
        yield from _value(f"{name}.{key}", value)


def _value(path: str, text: str) -> Found:
    """A value, or those inside of it."""
    nested = _NESTED.fullmatch(text)
    if nested is None and _ITEMS.fullmatch(text):
        yield from _object("", path, text)
    elif nested is None:
        yield path, text
    else:
        for key, value in _items(nested.group(1)):
            yield from _value(f"{path}.{key}", value)


def _items(text: str) -> Iterator[tuple[str, str]]:
    """``a=1, b=X [c=2, d=3], e={}`` by name, brackets kept together."""
    for part in _parts(text):
        name, _, value = part.partition("=")
        yield name.strip(), value.strip()


def _parts(text: str) -> Iterator[str]:
    depth = begin = 0
    for place, sign in enumerate(text):
        depth += (sign in "[{") - (sign in "]}")
        if sign == "," and depth == 0 and re.match(r" ?[\w.()]+=", text[place + 1 :]):
            yield text[begin:place]
            begin = place + 1
    yield text[begin:]


def _leaves(path: str, value: Any) -> Found:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
        for entry in value:
            name = "/".join(str(entry[key]) for key in OBJECT_NAMES if key in entry)
            yield from _leaves(f"{path}/{name}", entry)
    elif isinstance(value, list):
        yield path, " ".join(sorted(map(str, value)))
    else:
        yield path, str(value)


def _without_digits(found: tuple[str, str]) -> tuple[str, str]:
    """An order that does not depend on what is different each time."""
    path, value = found
    return path, re.sub(r"\d", "", value)
