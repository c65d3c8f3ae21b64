from collections import Counter
from typing import Any

import pytest

from cometmq.client.core import latency
from cometmq.client.core.latency import (
    RULES,
    RULES_4_9,
    RULES_5_1_4,
    BrokerFaults,
    Failure,
)
from cometmq.client.core.queue_selection import RoundRobin
from cometmq.model.offsets import MessageQueue
from tests.interop import vectors

NOW_MS = 1_000_000
BOTH = pytest.mark.parametrize("rules", [RULES_4_9, RULES_5_1_4], ids=["4.9", "5.1.4"])


def queues_of(*brokers: str) -> list[MessageQueue]:
    return [MessageQueue("orders", broker, number) for broker in brokers for number in range(2)]


@pytest.mark.parametrize(
    "vector", vectors.read("client-producer-bans"), ids=lambda one: f"{one['latency']} ms"
)
def test_bans_are_as_long_as_javas(vector: dict[str, Any]) -> None:
    releases = {"4.9.7": RULES["4.9"], "5.5.0": RULES["5.1.4"]}

    for release in vector["releases"]:
        assert releases[release].ban_ms(vector["latency"]) == vector["ban"]


@BOTH
def test_quick_brokers_are_taken_in_turn(rules: latency.FaultRules) -> None:
    faults, turns, queues = BrokerFaults(rules), RoundRobin(0), queues_of("a", "b")
    for broker in ("a", "b"):
        faults.sent(broker, 3, NOW_MS)

    counts = Counter(faults.choose(turns, queues, NOW_MS) for _ in range(400))

    assert counts == dict.fromkeys(queues, 100)


@pytest.mark.parametrize(
    ("rules", "ban_ms"), [(RULES_4_9, 600_000), (RULES_5_1_4, 10_000)], ids=["4.9", "5.1.4"]
)
def test_a_broker_that_failed_is_left_out_until_its_ban_ends(
    rules: latency.FaultRules, ban_ms: int
) -> None:
    faults, turns, queues = BrokerFaults(rules), RoundRobin(0), queues_of("a", "b")

    faults.failed("a", 5, NOW_MS, Failure.REMOTING)

    during = {faults.choose(turns, queues, NOW_MS + ban_ms - 1).broker_name for _ in range(8)}
    after = {faults.choose(turns, queues, NOW_MS + ban_ms).broker_name for _ in range(8)}
    assert during == {"b"}
    assert after == {"a", "b"}


def test_newer_rules_never_shorten_a_ban() -> None:
    faults = BrokerFaults(RULES_5_1_4)
    faults.failed("a", 5, NOW_MS, Failure.REMOTING)

    faults.sent("a", 600, NOW_MS + 1)
    faults.sent("a", 1, NOW_MS + 2)

    assert not faults.is_available("a", NOW_MS + 9_999)
    assert faults.is_available("a", NOW_MS + 10_000)


def test_older_rules_replace_a_ban_with_each_send() -> None:
    faults = BrokerFaults(RULES_4_9)
    faults.failed("a", 5, NOW_MS, Failure.CLIENT)
    assert not faults.is_available("a", NOW_MS + 1)

    faults.sent("a", 1, NOW_MS + 1)

    assert faults.is_available("a", NOW_MS + 1)


def test_our_own_failures_count_by_how_long_they_took() -> None:
    faults = BrokerFaults(RULES_5_1_4)

    faults.failed("a", 10, NOW_MS, Failure.CLIENT)
    faults.failed("b", 600, NOW_MS, Failure.CLIENT)

    assert faults.is_available("a", NOW_MS)
    assert not faults.is_available("b", NOW_MS + 1_999)
    assert faults.is_reachable("b")


@pytest.mark.parametrize(
    ("failure", "is_probing", "is_reachable"),
    [
        (Failure.REMOTING, False, True),
        (Failure.REMOTING, True, False),
        (Failure.BROKER, False, False),
        (Failure.BROKER, True, False),
        (Failure.CLIENT, True, True),
    ],
)
def test_who_is_out_of_reach_depends_on_failure_and_detector(
    failure: Failure, is_probing: bool, is_reachable: bool
) -> None:
    faults = BrokerFaults(RULES_5_1_4, is_probing=is_probing)

    faults.failed("a", 1, NOW_MS, failure)

    assert faults.is_reachable("a") == is_reachable


def test_a_retry_takes_another_broker_even_a_banned_one_that_can_be_reached() -> None:
    faults, turns, queues = BrokerFaults(RULES_5_1_4), RoundRobin(0), queues_of("a", "b", "c")
    faults.failed("b", 1, NOW_MS, Failure.REMOTING)
    faults.failed("c", 1, NOW_MS, Failure.BROKER)

    chosen = {faults.choose(turns, queues, NOW_MS, "a").broker_name for _ in range(6)}

    assert chosen == {"b"}


def test_when_nothing_is_left_it_is_simply_the_next() -> None:
    faults, turns, queues = BrokerFaults(RULES_5_1_4), RoundRobin(0), queues_of("a")
    faults.failed("a", 1, NOW_MS, Failure.BROKER)

    assert faults.choose(turns, queues, NOW_MS, "a") == queues[0]


def test_a_retry_begins_anew_at_a_random_place() -> None:
    faults, turns, queues = BrokerFaults(RULES_5_1_4), RoundRobin(0), queues_of("a", "b")

    assert faults.choose(turns, queues, NOW_MS, "b", 1) == queues[1]
    assert faults.choose(turns, queues, NOW_MS, None, 1) == queues[2]


def test_older_rules_take_the_least_bad_when_all_are_banned() -> None:
    faults, turns = BrokerFaults(RULES_4_9), RoundRobin(0)
    queues = queues_of("a", "b", "c", "d")
    for broker, took_ms in (("a", 4_000), ("b", 600), ("c", 20_000), ("d", 1_500)):
        faults.sent(broker, took_ms, NOW_MS)

    chosen = Counter(faults.choose(turns, queues, NOW_MS).broker_name for _ in range(10))

    assert chosen == {"b": 5, "d": 5}


def test_older_rules_know_brokers_of_other_topics_only() -> None:
    faults, turns = BrokerFaults(RULES_4_9), RoundRobin(0)
    faults.sent("elsewhere", 600, NOW_MS)
    faults.sent("a", 20_000, NOW_MS)

    assert faults.choose(turns, queues_of("a"), NOW_MS).broker_name == "a"


class TestDetector:
    def test_without_it_nobody_is_probed(self) -> None:
        faults = BrokerFaults(RULES_5_1_4)
        faults.failed("a", 1, NOW_MS, Failure.BROKER)

        assert faults.due_probes(NOW_MS + 60_000) == []

    def test_each_broker_is_due_once_in_two_seconds(self) -> None:
        faults = BrokerFaults(RULES_5_1_4, is_probing=True)
        faults.failed("a", 1, NOW_MS, Failure.REMOTING)

        due = [faults.due_probes(NOW_MS + after_ms) for after_ms in (0, 1_999, 2_000)]

        assert due == [["a"], [], ["a"]]

    def test_a_probe_that_is_answered_brings_a_broker_back_into_reach(self) -> None:
        faults = BrokerFaults(RULES_5_1_4, is_probing=True)
        faults.failed("a", 1, NOW_MS, Failure.REMOTING)

        faults.probed("a")

        assert faults.is_reachable("a")
        assert not faults.is_available("a", NOW_MS)

    def test_a_broker_without_address_is_forgotten(self) -> None:
        faults = BrokerFaults(RULES_5_1_4, is_probing=True)
        faults.failed("a", 1, NOW_MS, Failure.REMOTING)

        faults.forget("a")
        faults.probed("a")

        assert faults.due_probes(NOW_MS + 10_000) == []
        assert faults.is_reachable("a")


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "BROKERS_MAX", 4)
    faults = BrokerFaults(RULES_5_1_4)
    faults.failed("bad", 1, NOW_MS, Failure.REMOTING)

    for number in range(50):
        faults.sent(f"broker-{number}", 1, NOW_MS)

    assert len(faults._faults) <= 4
    assert not faults.is_available("bad", NOW_MS)
