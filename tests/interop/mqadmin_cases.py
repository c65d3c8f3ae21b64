"""What ``mqadmin.toml`` says: which commands are compared, and how their answers may differ."""

import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.interop.mqadmin_text import Fields

PATH = Path(__file__).with_name("mqadmin.toml")
RELEASES = ("4.9.7", "5.5.0")


@dataclass(frozen=True, slots=True)
class Step:
    """One command: what is run, and what must come of it on both sides."""

    run: str
    refused: int | None = None  # the code of a refusal that is right
    file: str = ""  # the answer is this file of the folder the command was given
    within_ms: int = 0  # ends a command that would run for ever
    must: Mapping[str, str] = field(default_factory=dict)  # field -> regular expression
    is_eventual: bool = False  # looked at again while something is wrong
    ours_lacks: str = ""  # no such field may be in the answer of ours, whatever Apache's has

    def argv(self, places: Mapping[str, str]) -> list[str]:
        return [word.format_map(places) for word in shlex.split(self.run)]


@dataclass(frozen=True, slots=True)
class Case:
    """A command, the ones that look at its effect, and what in their answers may differ."""

    name: str
    releases: tuple[str, ...]
    steps: tuple[Step, ...]
    volatile: Mapping[str, str]  # field -> the form it has on both sides
    differs: Mapping[str, Mapping[str, str]]  # release -> field -> why ours differs
    ours_alone: Mapping[str, Mapping[str, str]]  # release -> field -> why Apache's has none

    @property
    def command(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class Book:
    """The whole file."""

    cases: tuple[Case, ...]
    with_name_servers: Mapping[str, str]  # compared in test_nameserver_mqadmin.py
    not_compared: Mapping[str, str]  # command -> why


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not as it must be; None where a side has no such field."""

    field: str
    ours: str | None
    apaches: str | None
    wanted: str

    def __str__(self) -> str:
        return f"{self.field}: ours {self.ours!r}, Apache's {self.apaches!r}; {self.wanted}"


def load(path: Path = PATH) -> Book:
    """Read the file; a word nobody knows is a mistake."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    forms: dict[str, str] = document.pop("forms")
    common: dict[str, str] = document.pop("volatile")
    book = Book(
        tuple(_case(entry, forms, common) for entry in document.pop("case")),
        document.pop("with_name_servers"),
        document.pop("not_compared"),
    )
    assert not document, f"unknown tables in {path.name}: {list(document)}"
    return book


def _case(entry: dict[str, Any], forms: Mapping[str, str], common: Mapping[str, str]) -> Case:
    releases = tuple(entry.pop("releases", RELEASES))
    volatile = {**entry.pop("volatile", {}), **common}
    differs, ours_alone = _by_release("differs", entry), _by_release("ours_alone", entry)
    name, steps = entry.pop("name"), entry.pop("steps")
    assert not entry, f"unknown words in case {name}: {list(entry)}"
    return Case(
        name,
        releases,
        tuple(Step(**step) for step in steps),
        {path: forms[form] for path, form in volatile.items()},
        differs,
        ours_alone,
    )


def _by_release(word: str, entry: dict[str, Any]) -> dict[str, dict[str, str]]:
    """``differs`` is for every release, ``differs_4`` for 4.9.7 alone."""
    everywhere = entry.pop(word, {})
    return {
        release: {**everywhere, **entry.pop(f"{word}_{release[0]}", {})} for release in RELEASES
    }


class Comparison:
    """Holds answers against each other; remembers which of the differences named were met."""

    def __init__(self, case: Case, release: str, *, is_with_itself: bool) -> None:
        self._volatile = case.volatile
        self._differs = {} if is_with_itself else case.differs[release]
        self._ours_alone = {} if is_with_itself else case.ours_alone[release]
        self._met: set[str] = set()

    def differences(self, ours: Fields, apaches: Fields) -> list[Difference]:
        """Every field that is not the same, or has not the form it must have on both sides."""
        found = []
        for path in sorted(ours.keys() | apaches.keys()):
            difference = self._difference(path, ours.get(path), apaches.get(path))
            if difference is not None:
                found.append(difference)
        return found

    def unmet(self) -> list[str]:
        """Differences that were named and are none."""
        return [
            f"{pattern} is named as different, but is equal or in neither"
            for pattern in {*self._differs, *self._ours_alone} - self._met
        ]

    def _difference(self, path: str, ours: str | None, apaches: str | None) -> Difference | None:
        wanted = self._wanted(path, ours, apaches)
        if wanted is None:
            return None
        for pattern in (*self._differs, *(self._ours_alone if apaches is None else ())):
            if fnmatchcase(path, pattern):
                self._met.add(pattern)
                return None
        return Difference(path, ours, apaches, wanted)

    def _wanted(self, path: str, ours: str | None, apaches: str | None) -> str | None:
        if ours is None or apaches is None:
            return "wanted on both sides"
        for pattern, form in self._volatile.items():
            if fnmatchcase(path, pattern):
                has_form = re.fullmatch(form, ours) and re.fullmatch(form, apaches)
                return None if has_form else f"wanted in the form {form}"
        return None if ours == apaches else "wanted equal"


def lacks(found: Fields, must: Mapping[str, str]) -> list[str]:
    """What the answer of one side lacks of what it must have."""
    missing = []
    for pattern, form in must.items():
        values = [value for path, value in found.items() if fnmatchcase(path, pattern)]
        if not values or not all(re.fullmatch(form, value) for value in values):
            missing.append(f"{pattern} must be {form}, is {values}")
    return missing
