"""Time as an argument: whoever needs the time takes a ``Clock``, so that tests can turn it."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of the package may ask of time."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; for durations and deadlines."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
