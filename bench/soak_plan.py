"""What a soak does and when: how long, how often the broker goes down, and what is allowed."""

import random
from typing import NamedTuple

from bench.soak_ledger import Cause, View, view
from cometmq.testing.history import ProblemKind, Rules

MIXED = "SoakMixed"
"""Single messages, batches and idempotent sends of everybody; read by everybody."""
ORDERLY = "SoakOrderly"
"""Messages with a sharding key, for orderly consumers."""
DELAYED = "SoakDelayed"
"""Messages with a delay level."""
TIMED = "SoakTimed"
"""Messages with a delivery time of their own."""
RETRIED = "SoakRetried"
"""Messages whose handling fails the first time."""
TOPICS = (MIXED, ORDERLY, DELAYED, TIMED, RETRIED)
QUEUES = 4

PYTHON = "G_soak_python"
SHARED = "G_soak_shared"
ORDERED = "G_soak_ordered"
LATER = "G_soak_later"
AGAIN = "G_soak_again"
MOVED = "G_soak_moved"
"""The group whose offsets are reset now and then."""

LEVELS_S = (1, 2, 1, 3, *[1] * 14)
"""Seconds of each delay level; what a consumer sends back starts at level 3."""

_MIB = 1 << 20
_ENTRY_BYTES = 20


def views() -> tuple[View, ...]:
    """Who reads what, and what the protocol allows to go wrong there, and when.

    A member that gets a queue from another one begins where that one last committed: repeats, and
    two at work at a time, around everything that makes a group share its queues anew. How far
    delay levels are is saved every few seconds, so a kill makes some of them come twice; messages
    with a time of their own never do, as the broker indexes messages and so can ask the log. A
    reader of ours that keeps its own position has no excuse for anything.
    """
    anew = frozenset({Cause.RESTART, Cause.KILL, Cause.REBALANCE})
    killed = frozenset({Cause.KILL})
    concurrently = Rules(may_reorder=True, may_share_queues=True)
    repeated = {ProblemKind.REPEATED: anew}
    moved = {ProblemKind.REPEATED: anew | {Cause.RESET}}
    ordered = {ProblemKind.REPEATED: anew, ProblemKind.OVERLAPPED: anew}
    doubled = {ProblemKind.DOUBLED: killed}
    return (
        view(MIXED, PYTHON, Rules()),
        view(MIXED, SHARED, concurrently, repeated),
        view(MIXED, MOVED, concurrently, moved),
        view(ORDERLY, PYTHON, Rules()),
        view(ORDERLY, ORDERED, Rules(slack_ms=5), ordered),
        view(DELAYED, PYTHON, Rules(), doubled),
        view(DELAYED, LATER, concurrently, {**repeated, **doubled}),
        view(TIMED, PYTHON, Rules()),
        # A handling that fails is handed back, and comes again by way of a delay level.
        view(RETRIED, AGAIN, concurrently, repeated),
    )


class Outage(NamedTuple):
    """When the broker goes down, from the beginning of the traffic, and how."""

    at_s: float
    cause: Cause


class Plan(NamedTuple):
    """One soak. Periods are those of single members, topics and resets."""

    traffic_s: float
    outages: tuple[Outage, ...]
    warm_up_s: float
    sample_s: float
    churn_s: float
    reset_s: float
    topic_s: float
    keep_s: float
    """How long the log is kept behind the oldest message that somebody still waits for."""
    log_file_bytes: int
    rebalance_ms: int
    drain_s: float

    @property
    def settings(self) -> dict[str, str]:
        """A broker whose files are small and go as soon as the archive's watermark lets them."""
        return {
            "messageDelayLevel": " ".join(f"{seconds}s" for seconds in LEVELS_S),
            "mappedFileSizeCommitLog": str(self.log_file_bytes),
            "mappedFileSizeConsumeQueue": str(1_000 * _ENTRY_BYTES),
            "mappedFileSizeTimerLog": str(64 << 10),
            "maxMessageSize": str(64 << 10),
            "maxHashSlotNum": "1000",
            "maxIndexNum": "4000",
            "fileReservedTime": "0",
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "cleanResourceInterval": "2000",
            "traceOn": "false",
        }


def planned(minutes: float, dice: random.Random) -> Plan:
    """Four outages in the first part, a long life to measure memory in, and one more at the end."""
    traffic_s = minutes * 60
    spacing_s = traffic_s / 12
    causes = [Cause.RESTART, Cause.KILL, *dice.choices([Cause.RESTART, Cause.KILL], k=2)]
    dice.shuffle(causes)
    times = [spacing_s * number * dice.uniform(0.9, 1.1) for number in range(1, 5)]
    last = Outage(traffic_s * 0.92, dice.choice([Cause.RESTART, Cause.KILL]))
    outages = (*map(Outage, times, causes), last)
    return Plan(
        traffic_s=traffic_s,
        outages=outages,
        warm_up_s=min(180.0, traffic_s / 10),
        sample_s=2.0,
        churn_s=45.0,
        reset_s=60.0,
        topic_s=5.0,
        keep_s=30.0,
        log_file_bytes=2 * _MIB,
        rebalance_ms=20_000,
        drain_s=120.0,
    )


def quick(dice: random.Random) -> Plan:
    """Both kinds of outage within some seconds; memory cannot be judged by it.

    Early, because a Java client of 4.x waits for half a minute for pulls that a killed broker had.
    """
    causes = [Cause.RESTART, Cause.KILL]
    dice.shuffle(causes)
    return Plan(
        traffic_s=15.0,
        outages=tuple(map(Outage, (3.0, 7.0), causes)),
        warm_up_s=0.0,
        sample_s=0.5,
        churn_s=3.0,
        reset_s=9.0,
        topic_s=2.0,
        keep_s=3.0,
        log_file_bytes=128 << 10,
        rebalance_ms=2_000,
        drain_s=32.0,
    )
