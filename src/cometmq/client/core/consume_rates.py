"""How fast a consumer is, per topic: counters that only grow, and samples of them."""

from collections import deque
from typing import NamedTuple

from cometmq.codec.bodies.clients import ConsumeStatus

SAMPLE_MS = 10_000
_MINUTE_SAMPLES = 7
_HOUR_SAMPLE_MS = 600_000
_HOUR_SAMPLES = 7


class Tally:
    """What happened with the messages of one topic; whoever does it counts here."""

    __slots__ = ("failed", "handled", "handled_seconds", "ok", "pull_seconds", "pulled", "pulls")

    def __init__(self) -> None:
        self.pulls = 0
        self.pulled = 0
        self.pull_seconds = 0.0
        self.handled = 0
        self.handled_seconds = 0.0
        self.ok = 0
        self.failed = 0


class _Sample(NamedTuple):
    time_ms: int
    pulls: int
    pulled: int
    pull_seconds: float
    handled: int
    handled_seconds: float
    ok: int
    failed: int


class ConsumeRates:
    """Tallies by topic, with the last minute and the last hour of each."""

    def __init__(self, now_ms: int) -> None:
        self.tallies: dict[str, Tally] = {}
        self._began_ms = now_ms
        self._minute: dict[str, deque[_Sample]] = {}
        self._hour: dict[str, deque[_Sample]] = {}

    def tally(self, topic: str) -> Tally:
        found = self.tallies.get(topic)
        if found is None:
            found = self.tallies[topic] = Tally()
            self._minute[topic] = deque([_sample(found, self._began_ms)], _MINUTE_SAMPLES)
            self._hour[topic] = deque([_sample(found, self._began_ms)], _HOUR_SAMPLES)
        return found

    def sample(self, now_ms: int) -> None:
        """Remember where the counters are; to be called every ``SAMPLE_MS``."""
        for topic, tally in self.tallies.items():
            self._minute[topic].append(_sample(tally, now_ms))
            if now_ms - self._hour[topic][-1].time_ms >= _HOUR_SAMPLE_MS:
                self._hour[topic].append(_sample(tally, now_ms))

    def statuses(self, now_ms: int) -> dict[str, ConsumeStatus]:
        """Rates of the last minute; times of the last hour where the minute had nothing."""
        return {topic: self._status(topic, now_ms) for topic in self.tallies}

    def _status(self, topic: str, now_ms: int) -> ConsumeStatus:
        now = _sample(self.tallies[topic], now_ms)
        minute, hour = self._minute[topic][0], self._hour[topic][0]
        seconds = max(now_ms - minute.time_ms, 1) / 1000
        times = minute if now.handled > minute.handled else hour
        return ConsumeStatus(
            pull_rt=_mean_ms(now.pull_seconds - minute.pull_seconds, now.pulls - minute.pulls),
            pull_tps=(now.pulled - minute.pulled) / seconds,
            consume_rt=_mean_ms(
                now.handled_seconds - times.handled_seconds, now.handled - times.handled
            ),
            consume_ok_tps=(now.ok - minute.ok) / seconds,
            consume_failed_tps=(now.failed - minute.failed) / seconds,
            consume_failed_msgs=now.failed - hour.failed,
        )


def _sample(tally: Tally, time_ms: int) -> _Sample:
    return _Sample(
        time_ms,
        tally.pulls,
        tally.pulled,
        tally.pull_seconds,
        tally.handled,
        tally.handled_seconds,
        tally.ok,
        tally.failed,
    )


def _mean_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0
