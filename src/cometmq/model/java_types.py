"""What Java's types impose on values that cross its JSON: widths of integers, enums by name."""

import enum
from typing import Annotated, Self

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""An ``int`` of Java; decoding refuses what does not fit, so that packing it later cannot fail."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A ``long`` of Java."""


class JavaEnum(enum.Enum):
    """A closed set whose members are written by name; members stand in Java's order.

    The order matters because C++ clients send positions instead of names: looking up ``"1"``
    gives the second member.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if isinstance(value, str) and value.isdecimal() and len(value) < 3:
            members = list(cls)
            if int(value) < len(members):
                return members[int(value)]
        return None
