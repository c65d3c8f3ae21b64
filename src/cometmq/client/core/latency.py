"""Brokers that are slow or fail, and for how long they are kept away from.

Off unless asked for. Java has two sets of rules: those up to 5.1.3 leave a broker out for ten
minutes after a single failure, those since are gentler, and know brokers that cannot be reached.
A broker that is banned is chosen when no other is left, and one out of reach comes last. Order by
key is not touched by any of this.
"""

import bisect
import enum
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from cometmq.client.core.queue_selection import RoundRobin
from cometmq.model.offsets import MessageQueue

PROBE_ROUND_MS: Final = 3_000
"""Between two rounds of the detector."""
PROBE_INTERVAL_MS: Final = 2_000
"""Least time between two probes of one broker."""
PROBE_TIMEOUT_MS: Final = 200
BROKERS_MAX: Final = 16_384
"""Brokers that are remembered; beyond it those that are not banned are forgotten."""


class Failure(enum.Enum):
    """How a try went wrong."""

    CLIENT = "client"
    """Something here: no address, a selector that raised."""
    REMOTING = "remoting"
    """Connecting, writing or waiting."""
    BROKER = "broker"
    """The broker answered with a code that means failure."""


class FaultRules(msgspec.Struct, frozen=True):
    """How long a broker is left out after a send that took ``latencies_ms`` or longer."""

    latencies_ms: tuple[int, ...]
    bans_ms: tuple[int, ...]
    failure_ms: int
    """What a failed send counts as."""
    only_longer: bool
    """A ban is never cut short by a later send."""
    knows_reach: bool
    """Brokers that cannot be reached are kept apart from those that are banned."""

    def ban_ms(self, latency_ms: int) -> int:
        """For how long a broker is left out after a send that took so long."""
        step = bisect.bisect_right(self.latencies_ms, latency_ms) - 1
        return self.bans_ms[step] if step >= 0 else 0


RULES_4_9: Final = FaultRules(
    (50, 100, 550, 1_000, 2_000, 3_000, 15_000),
    (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
    failure_ms=30_000,
    only_longer=False,
    knows_reach=False,
)
"""Up to 5.1.3."""

RULES_5_1_4: Final = FaultRules(
    (50, 100, 550, 1_800, 3_000, 5_000, 15_000),
    (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000),
    failure_ms=10_000,
    only_longer=True,
    knows_reach=True,
)
"""Since 5.1.4."""

RULES: Final = {"4.9": RULES_4_9, "5.1.4": RULES_5_1_4}
"""By the names that settings use."""


class _Fault:
    """What is known of one broker."""

    __slots__ = ("banned_until_ms", "is_reachable", "latency_ms", "probe_due_ms")

    def __init__(self) -> None:
        self.latency_ms = 0
        self.banned_until_ms = 0
        self.is_reachable = True
        self.probe_due_ms = 0


class BrokerFaults:
    """The brokers of one producer, by name; times are in ms of a clock that never goes back."""

    def __init__(self, rules: FaultRules = RULES_5_1_4, *, is_probing: bool = False) -> None:
        self._rules = rules
        self._is_probing = is_probing
        self._faults: dict[str, _Fault] = {}
        # Whose turn it is among the least bad ones.
        self._worst = 0

    def sent(self, broker: str, took_ms: int, now_ms: int) -> None:
        """A send was answered."""
        self._note(broker, took_ms, self._rules.ban_ms(took_ms), now_ms, is_reachable=True)

    def failed(self, broker: str, took_ms: int, now_ms: int, failure: Failure) -> None:
        """A send was not, or with a failure."""
        rules = self._rules
        if not rules.knows_reach:
            self._note(broker, took_ms, rules.ban_ms(rules.failure_ms), now_ms, is_reachable=True)
            return
        is_ours = failure is Failure.CLIENT
        counted_ms = took_ms if is_ours else rules.failure_ms
        # Without a detector a broker out of reach would be found again only by sending to it.
        is_reachable = is_ours or (failure is Failure.REMOTING and not self._is_probing)
        self._note(broker, took_ms, rules.ban_ms(counted_ms), now_ms, is_reachable=is_reachable)

    def choose(
        self,
        turns: RoundRobin,
        queues: Sequence[MessageQueue],
        now_ms: int,
        last_broker: str | None = None,
        restart: int | None = None,
    ) -> MessageQueue:
        """The queue of the next try; ``last_broker`` had the one before, if there was one.

        ``restart`` is a random place at which newer producers begin anew when they try again.
        """
        if not self._rules.knows_reach:
            found = turns.take_where(queues, lambda name: self.is_available(name, now_ms))
            return found or self._least_bad(turns, queues, now_ms)
        if last_broker is not None and restart is not None:
            turns.restart(restart)
        return (
            turns.take_where(
                queues, lambda name: name != last_broker and self.is_available(name, now_ms)
            )
            or turns.take_where(
                queues, lambda name: name != last_broker and self.is_reachable(name)
            )
            or turns.take(queues)
        )

    def is_available(self, broker: str, now_ms: int) -> bool:
        """Whether a broker is not banned now."""
        fault = self._faults.get(broker)
        return fault is None or now_ms >= fault.banned_until_ms

    def is_reachable(self, broker: str) -> bool:
        """Whether the last send or probe reached the broker."""
        fault = self._faults.get(broker)
        return fault is None or fault.is_reachable

    def due_probes(self, now_ms: int) -> list[str]:
        """Who must be probed now; each is due again after the interval. Empty without detector."""
        if not self._is_probing:
            return []
        due = [name for name, fault in self._faults.items() if now_ms >= fault.probe_due_ms]
        for name in due:
            self._faults[name].probe_due_ms = now_ms + PROBE_INTERVAL_MS
        return due

    def probed(self, broker: str) -> None:
        """A probe was answered: the broker can be reached. One that fails changes nothing."""
        fault = self._faults.get(broker)
        if fault is not None:
            fault.is_reachable = True

    def forget(self, broker: str) -> None:
        """The broker has no address any more."""
        self._faults.pop(broker, None)

    def _note(
        self, broker: str, latency_ms: int, ban_ms: int, now_ms: int, *, is_reachable: bool
    ) -> None:
        fault = self._faults.get(broker)
        if fault is None:
            self._make_room(now_ms)
            fault = self._faults[broker] = _Fault()
        fault.latency_ms = latency_ms
        fault.is_reachable = is_reachable
        if not self._rules.only_longer:
            fault.banned_until_ms = now_ms + ban_ms
        elif ban_ms:
            fault.banned_until_ms = max(fault.banned_until_ms, now_ms + ban_ms)

    def _make_room(self, now_ms: int) -> None:
        if len(self._faults) >= BROKERS_MAX:
            kept = [name for name in self._faults if not self.is_available(name, now_ms)]
            self._faults = {name: self._faults[name] for name in kept[: BROKERS_MAX // 2]}

    def _least_bad(
        self, turns: RoundRobin, queues: Sequence[MessageQueue], now_ms: int
    ) -> MessageQueue:
        """Everybody is banned: one of the better half, in turn."""
        ranked = sorted(_names(queues), key=lambda name: self._badness(name, now_ms))
        better = ranked[: max(1, len(ranked) // 2)]
        self._worst += 1
        chosen = better[self._worst % len(better)]
        return turns.take_where(queues, lambda name: name == chosen) or turns.take(queues)

    def _badness(self, broker: str, now_ms: int) -> tuple[bool, int, int]:
        fault = self._faults.get(broker)
        if fault is None:
            return False, 0, 0
        return now_ms < fault.banned_until_ms, fault.latency_ms, fault.banned_until_ms


def _names(queues: Iterable[MessageQueue]) -> list[str]:
    return list(dict.fromkeys(queue.broker_name for queue in queues))
