"""Named clusters, so that nobody types an address twice: ``~/.config/cometmq/contexts.toml``.

::

    current = "test"

    [contexts.test]
    namesrv = "mq1.example:9876;mq2.example:9876"
    access_key = "admin"
    secret_key_file = "~/.secrets/test"
    tls = true

The file is readable by its owner only. It names the file that holds a secret, never a secret.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.errors import NotFound, SettingsError

_MODE = 0o600


class ContextEntry(NamedTuple):
    """One cluster; what is None is not said."""

    namesrv: str | None = None
    access_key: str | None = None
    secret_key_file: str | None = None
    tls: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    timeout_ms: int | None = None

    def said(self) -> dict[str, Any]:
        """The fields that are said."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Contexts(NamedTuple):
    """All of them, and the one that holds when none is named."""

    current: str | None = None
    entries: Mapping[str, ContextEntry] = {}

    def entry(self, name: str) -> ContextEntry:
        """The context with this name. Raises NotFound."""
        if name not in self.entries:
            known = ", ".join(self.entries) or "there are none; make one with 'cometmq context set'"
            raise NotFound("context", name, f"known are: {known}" if self.entries else known)
        return self.entries[name]

    def with_entry(self, name: str, entry: ContextEntry) -> "Contexts":
        return self._replace(entries={**self.entries, name: entry})

    def without(self, name: str) -> "Contexts":
        """Without one of them; when it was the current one, there is none."""
        self.entry(name)
        rest = {known: entry for known, entry in self.entries.items() if known != name}
        return Contexts(current=None if self.current == name else self.current, entries=rest)

    def using(self, name: str) -> "Contexts":
        """With another one as the current one. Raises NotFound."""
        self.entry(name)
        return self._replace(current=name)


def contexts_path(environment: Mapping[str, str]) -> Path:
    """Where the file is, whether it exists or not."""
    base = environment.get("XDG_CONFIG_HOME")
    home = Path(environment.get("HOME") or Path.home())
    return (Path(base) if base else home / ".config") / "cometmq" / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """What the file says; no file means no contexts. Raises SettingsError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise SettingsError(str(path), f"cannot read it: {error.strerror}") from error
    import tomllib  # most have no such file, and need no parser

    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        advice = "repair it, or remove it to start without contexts"
        raise SettingsError(str(path), f"not a TOML file: {error}", advice) from error
    return _contexts(path, document)


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file; after a crash it is the old one or the new one."""
    from cometmq import saved_file

    lines = []
    if contexts.current is not None:
        lines += [f"current = {_quoted(contexts.current)}", ""]
    for name, entry in contexts.entries.items():
        lines.append(f"[contexts.{_quoted(name)}]")
        lines += [f"{key} = {_value(value)}" for key, value in entry.said().items()]
        lines.append("")
    saved_file.make_folder(path.parent)
    if not path.exists():  # a replaced file keeps its mode, and a new one must never be readable
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, _MODE))
    saved_file.replace_file(path, "\n".join(lines).encode())


def _contexts(path: Path, document: Mapping[str, Any]) -> Contexts:
    tables, current = document.get("contexts", {}), document.get("current")
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise SettingsError(str(path), "'contexts' is no table of tables")
    if current is not None and not isinstance(current, str):
        raise SettingsError(str(path), "'current' is no name")
    return Contexts(
        current=current, entries={name: _entry(path, name, table) for name, table in tables.items()}
    )


def _entry(path: Path, name: str, table: Mapping[str, Any]) -> ContextEntry:
    kinds = dict.fromkeys(ContextEntry._fields, str) | {"tls": bool, "timeout_ms": int}
    for key, value in table.items():
        if key not in kinds:
            known = ", ".join(kinds)
            raise SettingsError(str(path), f"context '{name}' has an unknown '{key}'", known)
        if type(value) is not kinds[key]:
            wanted = kinds[key].__name__
            raise SettingsError(str(path), f"'{key}' of context '{name}' is no {wanted}")
    return ContextEntry(**table)


def _value(value: str | bool | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _quoted(value)


def _quoted(text: str) -> str:
    """A string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
