"""One setting: its facts, how its value is read from text and written back, what it may be."""

import difflib
import enum
import math
import re
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cometmq.errors import SettingsError

# Java's longs have at most 19 digits; what is longer is a mistake, and slow to convert besides.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
_TYPE_WORDS = {int: "an integer", float: "a number", str: "a text", Path: "a path"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All there is to know about one setting."""

    name: str
    type: Any
    doc: str
    key: str
    option: str
    variables: tuple[str, ...]
    default: Any
    shown: str = ""
    separator: str = ";"
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False

    @property
    def flag(self) -> str:
        """Its name among the flags of a program, where several classes meet: ``tls_cert_path``."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def is_optional(self) -> bool:
        return type(None) in typing.get_args(self.type)

    @property
    def kind(self) -> Any:
        """The class of the values: the type without ``| None`` and without what a tuple holds."""
        hints = [hint for hint in typing.get_args(self.type) if hint is not type(None)]
        hint = hints[0] if self.is_optional else self.type
        return typing.get_origin(hint) or hint

    @property
    def choices(self) -> tuple[str, ...]:
        """The words an enum or a boolean accepts, as they are written; empty for other types."""
        if issubclass(self.kind, enum.Enum):
            return tuple(_member_text(member) for member in self.kind)
        return ("true", "false") if self.kind is bool else ()

    @property
    def type_text(self) -> str:
        """The type in a reader's words."""
        if self.choices:
            return " | ".join(self.choices)
        return self._type_words().split(" ", maxsplit=1)[1] + self._limits()

    @property
    def default_text(self) -> str:
        """The default as it would be written in a file, or what is shown instead of it."""
        return self.shown or self.text(self.default)

    def text(self, value: Any) -> str:
        """``value`` as it would be written in a file; a secret is never written."""
        if value is None or self.secret:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, enum.Enum):
            return _member_text(value)
        return self.separator.join(value) if isinstance(value, tuple) else str(value)

    def parse(self, text: str, *, called: str) -> Any:
        """The value written as ``text``, less blanks around it; errors name it as ``called``."""
        text = text.strip()
        if self.is_optional and not text:
            return None
        value = self._read(text)
        if value is None:
            raise self._refusal(text, f"is not {self._type_words()}", called)
        self.check(value, called=called)
        return value

    def check(self, value: Any, *, called: str) -> None:
        """Raise ``SettingsError`` unless this setting may hold ``value``."""
        if value is None and self.is_optional:
            return
        allowed = (int, float) if self.kind is float else self.kind
        is_disguised_bool = isinstance(value, bool) and self.kind is not bool
        if not isinstance(value, allowed) or is_disguised_bool:
            raise self._refusal(value, f"is not {self._type_words()}", called)
        if isinstance(value, float) and not math.isfinite(value):
            raise self._refusal(value, "is not a finite number", called)
        if self.minimum is not None and value < self.minimum:
            raise self._refusal(value, f"is below {self.minimum}", called)
        if self.maximum is not None and value > self.maximum:
            raise self._refusal(value, f"is above {self.maximum}", called)

    def _read(self, text: str) -> Any:
        """The value, or None where ``text`` cannot be one."""
        if issubclass(self.kind, enum.Enum):
            return next((m for m in self.kind if text.lower() in _member_words(m)), None)
        if self.kind is tuple:
            parts = (part.strip() for part in text.split(self.separator))
            return tuple(part for part in parts if part)
        if self.kind is bool:
            return _BOOLEANS.get(text.lower())
        if self.kind is int:
            return int(text) if _INTEGER.fullmatch(text) else None
        if self.kind is float:
            return _float(text)
        if self.kind is Path:
            return _path(text) if text else None
        return text

    def _refusal(self, value: Any, problem: str, called: str) -> SettingsError:
        shown = "the value (hidden)" if self.secret else f"'{value}'"
        if self.choices:
            problem = f"is none of: {', '.join(self.choices)}"
            close = difflib.get_close_matches(str(value).lower(), _lower(self.choices), n=1)
            picked = self.choices[_lower(self.choices).index(close[0])] if close else ""
            advice = f"did you mean '{picked}'?" if picked else "use one of these words"
        else:
            default = f" (default: {self.default_text})" if self.default_text else ""
            advice = f"use {self._type_words()}{self._limits()}{default}"
        return SettingsError(called, f"{shown} {problem}", advice)

    def _type_words(self) -> str:
        return _TYPE_WORDS.get(self.kind) or f"a list separated by '{self.separator}'"

    def _limits(self) -> str:
        if self.minimum is not None and self.maximum is not None:
            return f" from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f" of at least {self.minimum}"
        return f" of at most {self.maximum}" if self.maximum is not None else ""


def _member_text(member: enum.Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name


def _member_words(member: enum.Enum) -> tuple[str, str]:
    return _member_text(member).lower(), member.name.lower()


def _lower(words: tuple[str, ...]) -> list[str]:
    return [word.lower() for word in words]


def _path(text: str) -> Path | None:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # "~name" of nobody here
        return None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
