"""Which client can do what: ``matrix.toml``, and tests made from it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "matrix.toml"
CAN = "yes"
CANNOT = "no: "


def load() -> Mapping[str, Mapping[str, str]]:
    """The answer of each client to each feature: ``yes`` or ``no: `` and the reason."""
    return tomllib.loads(FILE.read_text())


MATRIX = load()
CLIENTS = tuple(MATRIX)
FEATURES = tuple(next(iter(MATRIX.values())))


def reason(client: str, feature: str) -> str | None:
    """Why the client cannot do it, or None if it can."""
    answer = MATRIX[client][feature]
    return None if answer == CAN else answer.removeprefix(CANNOT)


def every_client(feature: str) -> pytest.MarkDecorator:
    """Run a test once per client, as ``name``; who cannot do it is skipped, with the reason.

    Such a skip is a fact about the client, not about this machine: it is never a failure.
    """
    return pytest.mark.parametrize("name", [_parameter(client, feature) for client in CLIENTS])


def _parameter(client: str, feature: str) -> "pytest.ParameterSet":
    why = reason(client, feature)
    if why is None:
        return pytest.param(client)
    return pytest.param(client, marks=pytest.mark.skip(reason=f"{client} has no {feature}: {why}"))
