"""How long closing may take, whoever keeps silent meanwhile.

Handlers and sends get what the user has set. Offsets get what they have left of it and a second
more. Brokers find out by themselves who has gone, so good-byes get a second at most. A broker that
hangs must not hold up a program that wants to end.
"""

import asyncio
from typing import Final

FAREWELL_SECONDS: Final = 1.0
"""For brokers, when handlers have used up their time."""
STEP_SECONDS_MIN: Final = 0.3
"""For each thing that is said to them, however late it is."""


class ClosingTime:
    """The time of one closing, which begins when this is made."""

    def __init__(self, drain_timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._drained_at = self._loop.time() + drain_timeout_ms / 1000

    @property
    def handler_seconds(self) -> float:
        """What is left for handlers and sends."""
        return max(0.0, self._drained_at - self._loop.time())

    @property
    def saving_seconds(self) -> float:
        """What is left for offsets."""
        left = self._drained_at + FAREWELL_SECONDS - self._loop.time()
        return max(STEP_SECONDS_MIN, left)

    @property
    def parting_seconds(self) -> float:
        """What is left for giving back locks, or for leaving."""
        return min(FAREWELL_SECONDS, self.saving_seconds)
