"""Time that runs faster than it does, so that a test of a second sees minutes pass."""

import time

SPEED = 100


class FastClock:
    """The machine's clock up to ``start_ms`` and a hundred times as fast after it.

    Recovery does not trust a checkpoint that is younger than three seconds; with real time no short
    test would see it trusted.
    """

    def __init__(self, start_ms: int) -> None:
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + SPEED * (time.time_ns() // 1_000_000 - self._start_ms)

    def monotonic(self) -> float:
        return time.monotonic()
