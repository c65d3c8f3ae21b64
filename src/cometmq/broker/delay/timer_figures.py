"""What is told about timed messages, under Apache's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.codec.bodies.stats import TimerMetrics
from cometmq.codec.timer import TimerCheck

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cometmq.broker.delay.timers import Timers
    from cometmq.clock import Clock


class TimerFigures:
    """How many wait, and how far behind their delivery is."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock

    def figures(self) -> Mapping[str, str]:
        """What runtime info says; its rates come from the statistics."""
        timers = self._timers
        return {
            "timerReadBehind": str(timers.behind_ms(self._clock.now_ms()) // 1000),
            "timerOffsetBehind": str(timers.unread_count),
            "timerCongestNum": str(timers.waiting_count),
        }

    def metrics(self) -> TimerMetrics:
        """By topic nobody counts them: that would cost memory for each topic ever timed."""
        return TimerMetrics()

    def check(self) -> TimerCheck:
        """What was saved last."""
        return self._timers.saved
