"""Settings on a command line: ``KEY=VALUE`` to write them, ``KEY`` to read them."""

import difflib
from collections.abc import Mapping, Sequence

from cometmq.cli.problems import Misuse
from cometmq.errors import NotFound


def assignments(texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` by key; a value may be empty and may have further equal signs."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise Misuse(f"'{text}' sets nothing", "write it as KEY=VALUE")
        if key.strip() in found:
            raise Misuse(f"'{key.strip()}' is set twice", "give it once")
        found[key.strip()] = value
    return found


def wanted_values(values: Mapping[str, str], keys: Sequence[str], where: str) -> dict[str, str]:
    """Those of ``values`` that are asked for, or all. Raises NotFound for others."""
    for key in keys:
        if key not in values:
            similar = difflib.get_close_matches(key, values, 1)
            advice = f"did you mean '{similar[0]}'?" if similar else f"{where} does not have it"
            raise NotFound("setting", key, advice)
    return {key: values[key] for key in keys or values}
