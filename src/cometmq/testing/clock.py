"""Time that stands still until a test moves it."""

EPOCH_MS = 1_700_000_000_000
"""Where a fake clock starts (2023-11-14T22:13:20Z): recent enough to look real in output."""


class FakeClock:
    """A ``cometmq.clock.Clock`` for tests: both of its times move only when told to.

    ``advance`` is time passing; ``set_back`` is someone turning the machine's clock, which the
    monotonic time does not notice.
    """

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._now_ms = now_ms
        # Not zero: code that takes 0 for "never" must not pass its tests by accident.
        self._monotonic_ms = 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, rounded to whole milliseconds; time never runs backwards."""
        if seconds < 0:
            raise ValueError(f"cannot advance by {seconds} s: use set_back() to turn the clock")
        step_ms = round(seconds * 1000)
        self._now_ms += step_ms
        self._monotonic_ms += step_ms

    def set_back(self, seconds: float) -> None:
        """Turn the wall clock back (forward when negative) while no time passes."""
        self._now_ms -= round(seconds * 1000)
