"""How long something took within the last minute, however long the program has been running."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from cometmq.remoting.metrics import Distribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.clock import Clock

_SLICE_SECONDS: Final = 10
_SLICES: Final = 6


class RecentTimes:
    """Distributions of slices of the last minute; the oldest is forgotten as a whole.

    One thread at a time observes; any other may look meanwhile.
    """

    def __init__(self, bounds: Sequence[float], clock: Clock) -> None:
        self._bounds = bounds
        self._clock = clock
        # By number of the slice, the newest last.
        self._slices: deque[tuple[int, Distribution]] = deque(maxlen=_SLICES)

    def observe(self, seconds: float) -> None:
        now = self._now()
        if not self._slices or self._slices[-1][0] != now:
            self._slices.append((now, Distribution(self._bounds)))
        self._slices[-1][1].observe(seconds)

    def last_minute(self) -> Distribution:
        """All that was observed in the last 50 to 60 seconds."""
        forgotten = self._now() - _SLICES
        found = Distribution(self._bounds)
        for number, own in tuple(self._slices):
            if number > forgotten:
                found.add(own)
        return found

    def _now(self) -> int:
        return int(self._clock.monotonic() // _SLICE_SECONDS)
