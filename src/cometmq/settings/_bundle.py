"""Several settings classes that are read from one file: all there is to set about one program."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from cometmq.settings._declare import Settings, describe
from cometmq.settings._load import KeyReview, as_properties, load, review_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What a program is built from: each field of a subclass is the settings of one component.

    A field's default may differ from that of its class, and is then the default of the program.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    """The file as it was, by key."""

    @classmethod
    def classes(cls) -> tuple[type[Settings], ...]:
        """Everything the program's file may set."""
        return tuple(type(part) for part in cls().parts)

    @classmethod
    def load(
        cls,
        *,
        file: Mapping[str, str],
        environment: Mapping[str, str],
        flags: Mapping[str, object],
    ) -> Self:
        """Read everything; ``flags`` are named as ``Row.flag`` has it. Raises SettingsError."""
        parts: dict[str, Any] = {
            name: load(
                type(part),
                file=file,
                environment=environment,
                flags={row.name: flags.get(row.flag) for row in describe(type(part))},
                base=part,
            ).settings
            for name, part in cls()._named()
        }
        return cls(given=dict(file), **parts)

    @property
    def parts(self) -> tuple[Settings, ...]:
        """The settings of each component, in the order of the fields."""
        return tuple(part for _, part in self._named())

    def review(self) -> KeyReview:
        """Keys of the file that nobody knows, and those that have no effect here."""
        return review_keys(self.given, *self.classes())

    def shown(self) -> dict[str, str]:
        """All keys and values in order, without secrets, as a program shows them."""
        return shown_properties(self.given, *self.parts)

    def _named(self) -> Iterator[tuple[str, Settings]]:
        for spec in dataclasses.fields(self):
            part = getattr(self, spec.name)
            if isinstance(part, Settings):
                yield spec.name, part


def shown_properties(given: Mapping[str, str], *settings: Settings) -> dict[str, str]:
    """All keys and values of ``settings`` in order; secrets are left out.

    Keys without effect have the value ``given`` in the file, or else Apache's default.
    """
    shown: dict[str, str] = {}
    for part in settings:
        for key, inert in type(part).accepted_without_effect.items():
            shown[key] = inert.default if inert.secret else given.get(key, inert.default)
    for part in settings:
        shown |= as_properties(part)
    return dict(sorted(shown.items()))
