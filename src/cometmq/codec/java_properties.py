"""Java's properties text: ``broker.conf``, and the bodies of the four configuration requests.

Read as ``java.util.Properties`` reads it: comments, three kinds of separators, continued lines,
escapes. Written as Java writes those bodies, one ``key=value`` a line, plus the escapes without
which its reader would see another value (Java itself forgets them).
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping

from cometmq.codec.fastjson_reader import whole_characters
from cometmq.errors import RemoteProtocolError

_LINE_END = re.compile(r"\r\n|\n|\r")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {character: "\\" + letter for letter, character in _NAMED.items()} | {"\\": "\\\\"}
_VALUE_SPECIAL = re.compile(r"[\\\t\n\r\f]|[^ -~]")
_KEY_SPECIAL = re.compile(r"[\\\t\n\r\f =:#!]|[^ -~]")
_BLANKS = " \t\f"


def loads(data: bytes | str) -> dict[str, str]:
    """Read properties in their order; of a repeated key the last value counts.

    Bytes are UTF-8 or, failing that, Latin-1, which is all that Java's reader knows. The only
    thing that can be wrong with properties is a ``\\u`` without four digits.
    """
    return dict(map(_entry, _logical_lines(_text(data))))


def dumps(properties: Mapping[str, str]) -> bytes:
    """Write one ``key=value`` line for each entry, pure ASCII."""
    lines = (f"{_written_key(key)}={_written_value(value)}\n" for key, value in properties.items())
    return "".join(lines).encode("ascii")


def changed(data: bytes, changes: Mapping[str, str]) -> bytes:
    """A file with other values: only their lines differ, comments stay, new keys come last."""
    if data.startswith(BOM_UTF8):
        return BOM_UTF8 + changed(data.removeprefix(BOM_UTF8), changes)
    text = _text(data)
    missing = dict(changes)
    pieces: list[str] = []
    position = 0
    for line, begin, end in _entries(text):
        key, _ = _entry(line)
        if key in changes:
            missing.pop(key, None)
            written = f"{_written_key(key)}={_written_value(changes[key])}"
            pieces += (text[position:begin], written)
            position = end
    pieces.append(text[position:])
    kept = "".join(pieces)
    if missing and kept and kept[-1] not in "\r\n":
        kept += "\n"
    encoding = "utf-8" if data == text.encode() else "latin-1"
    return kept.encode(encoding) + dumps(missing)


def _text(data: bytes | str) -> str:
    if isinstance(data, str):
        return data
    data = data.removeprefix(BOM_UTF8)  # which editors on Windows write
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, blank ones and indentation, continued ones joined."""
    return (line for line, _, _ in _entries(text))


def _entries(text: str) -> Iterator[tuple[str, int, int]]:
    """Each logical line, and where it begins and ends; its line end is not part of it."""
    pending: list[str] = []
    begin = 0
    for line, line_begin, line_end in _physical_lines(text):
        rest = line.lstrip(_BLANKS)
        if not pending:
            begin = line_begin
            if not rest or rest[0] in "#!":
                continue
        is_continued = len(_trailing_backslashes(rest)) % 2 == 1
        pending.append(rest[:-1] if is_continued else rest)
        if not is_continued:
            yield "".join(pending), begin, line_end
            pending = []
    if pending:
        yield "".join(pending), begin, len(text)


def _physical_lines(text: str) -> Iterator[tuple[str, int, int]]:
    position = 0
    for match in _LINE_END.finditer(text):
        yield text[position : match.start()], position, match.start()
        position = match.end()
    yield text[position:], position, len(text)


def _trailing_backslashes(line: str) -> str:
    return line[len(line.rstrip("\\")) :]


def _entry(line: str) -> tuple[str, str]:
    key = _KEY.match(line)
    assert key is not None
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    return _unescaped(key.group()), _unescaped(line[separator.end() :])


def _unescaped(text: str) -> str:
    return whole_characters(_ESCAPE.sub(_plain, text)) if "\\" in text else text


def _plain(match: re.Match[str]) -> str:
    escape = match.group(1)
    if escape == "u":
        raise RemoteProtocolError("properties have a \\u without four hexadecimal digits")
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _NAMED.get(escape, escape)


def _written_key(key: str) -> str:
    return _KEY_SPECIAL.sub(_escaped, key)


def _written_value(value: str) -> str:
    text = _VALUE_SPECIAL.sub(_escaped, value)
    return "\\" + text if text.startswith(" ") else text


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if character in _WRITTEN:
        return _WRITTEN[character]
    if character.isascii() and character.isprintable():
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[begin : begin + 4]}" for begin in range(0, len(units), 4))
