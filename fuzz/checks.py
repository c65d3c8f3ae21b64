"""What targets are made of: attempts that may be refused, and the claim that two are the same."""

from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from cometmq.errors import LocalProtocolError, RemoteProtocolError

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN_CHARACTERS_MAX = 2_000


class Refused(NamedTuple):
    """A protocol error by its text: equal for two decoders that refuse for the same reason."""

    text: str


def attempt(decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Refused:
    """What ``decode`` returns, or its RemoteProtocolError; any other exception is a finding."""
    try:
        return decode(*args, **kwargs)
    except RemoteProtocolError as error:
        return Refused(str(error))


def attempt_to_write(encode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Refused:
    """As ``attempt``, for the other direction: what a format cannot carry may be refused."""
    try:
        return encode(*args, **kwargs)
    except LocalProtocolError as error:
        return Refused(str(error))


def require_same(found: Any, expected: Any, what: str) -> None:
    """Claim that both are equal and look the same: ``True`` is not 1, ``1.0`` is not 1."""
    shown, wanted = repr(found), repr(expected)
    assert shown == wanted, (
        f"{what}:\n  {shown[:_SHOWN_CHARACTERS_MAX]}\nis not\n  {wanted[:_SHOWN_CHARACTERS_MAX]}"
    )
