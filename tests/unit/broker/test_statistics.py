"""Figures of the last minute, hour and day, made of counters that only grow."""

import asyncio
from dataclasses import dataclass, field

import pytest

from cometmq.broker import statistics
from cometmq.broker.statistics import (
    ITEMS,
    AlsoPutAside,
    Counts,
    DeadLetters,
    PairCounts,
    Rates,
    Sources,
    Statistics,
    TopicPuts,
    Traffic,
    Whole,
    pair_counter,
)
from cometmq.testing import FakeClock

CLUSTER = "DefaultCluster"


@dataclass
class CountingTopic:
    name: str
    put_count: int = 0
    put_bytes: int = 0
    is_system: bool = False


@dataclass
class Broker:
    """The counters of a broker, and statistics over them."""

    clock: FakeClock = field(default_factory=FakeClock)
    topics: dict[str, CountingTopic] = field(default_factory=dict)
    taken: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    returned: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    buried: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    found: int = 0
    missed: int = 0
    timed: tuple[int, int] = (0, 0)
    delayed: int = 0

    def __post_init__(self) -> None:
        self.puts = TopicPuts(self.topics)
        sources = Sources(
            AlsoPutAside(self.puts, {"SCHEDULE_TOPIC_XXXX": lambda: self.delayed}),
            PairCounts(self.taken),
            PairCounts(self.returned),
            Whole(CLUSTER, lambda: self.puts.total().messages),
            Whole(CLUSTER, lambda: PairCounts(self.taken).total().messages),
            DeadLetters(PairCounts(self.buried)),
            Whole(CLUSTER, self.puts.user_messages),
            Whole(CLUSTER, lambda: PairCounts(self.taken).messages_of(self._is_users)),
        )
        self.figures = Statistics(self.clock, sources, self._traffic)

    def put(self, topic: str, count: int, size: int = 0, *, is_system: bool = False) -> None:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = CountingTopic(topic, is_system=is_system)
            self.puts.learn([found])
        found.put_count += count
        found.put_bytes += size

    def delete(self, topic: str) -> None:
        del self.topics[topic]
        self.puts.forget(topic)

    def live(self, seconds: int, step: int = 10) -> None:
        """Let time pass, and have samples taken as the broker takes them, or more rarely."""
        for _ in range(seconds // step):
            self.clock.advance(step)
            self.figures.sample()

    def sums(self, name: str, key: str) -> tuple[int, int, int]:
        """What an item says of the last minute, hour and day."""
        found = self.figures.view(name, key)
        assert found is not None
        windows = found.stats_minute, found.stats_hour, found.stats_day
        minute, hour, day = (0 if window is None else window.sum for window in windows)
        return minute, hour, day

    def _is_users(self, topic: str) -> bool:
        return topic not in self.topics or not self.topics[topic].is_system

    def _traffic(self) -> Traffic:
        got = PairCounts(self.taken).total().messages
        return Traffic(self.puts.total().messages, got, self.found, self.missed, *self.timed)


def test_what_has_just_happened_counts_before_any_sample_was_taken() -> None:
    broker = Broker()

    broker.clock.advance(2)
    broker.put("orders", 10, 500)

    assert broker.sums("TOPIC_PUT_NUMS", "orders") == (10, 10, 10)
    assert broker.figures.tps("TOPIC_PUT_NUMS", "orders") == 5.0


def test_what_is_put_aside_counts_for_the_topic_it_waits_in() -> None:
    broker = Broker(delayed=1000)  # from before the start
    broker.put("orders", 3)
    before = broker.figures.view("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")

    broker.delayed += 7
    broker.live(20)

    assert before is None
    assert broker.sums("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == (7, 7, 7)
    assert broker.sums("BROKER_PUT_NUMS", CLUSTER) == (3, 3, 3)
    broker.live(70)
    assert broker.sums("TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX") == (0, 7, 7)


def test_a_minute_forgets_after_a_minute_an_hour_after_an_hour_and_a_day_after_a_day() -> None:
    broker = Broker()
    broker.live(20)
    broker.put("orders", 10)

    broker.live(60)
    within = broker.sums("TOPIC_PUT_NUMS", "orders")
    broker.live(70)
    after_a_minute = broker.sums("TOPIC_PUT_NUMS", "orders")
    broker.live(4200)
    after_an_hour = broker.sums("TOPIC_PUT_NUMS", "orders")
    broker.live(26 * 3600, 600)

    assert within == (10, 10, 10)
    assert after_a_minute == (0, 10, 10)
    assert after_an_hour == (0, 0, 10)
    assert broker.sums("TOPIC_PUT_NUMS", "orders") == (0, 0, 0)


def test_a_steady_rate_is_told_as_it_is_in_every_window() -> None:
    broker = Broker()

    for _ in range(400):
        broker.put("orders", 50, 50 * 200)
        broker.live(10)

    counts = broker.figures.view("TOPIC_PUT_NUMS", "orders")
    sizes = broker.figures.view("TOPIC_PUT_SIZE", "orders")
    assert counts is not None
    assert sizes is not None
    assert counts.stats_minute is not None
    assert counts.stats_minute.tps == pytest.approx(5.0)
    assert counts.stats_hour is not None
    assert counts.stats_hour.tps == pytest.approx(5.0)
    assert counts.stats_day is not None
    assert counts.stats_day.tps == pytest.approx(5.0)
    assert sizes.stats_minute is not None
    assert sizes.stats_minute.tps == pytest.approx(1000.0)
    assert sizes.stats_minute.avgpt == pytest.approx(200.0)


def test_groups_count_what_they_were_handed_by_topic() -> None:
    broker = Broker()

    broker.taken["orders", "billing"] = [7, 700]
    broker.returned["orders", "billing"] = [2]

    assert broker.sums("GROUP_GET_NUMS", "orders@billing")[0] == 7
    assert broker.sums("GROUP_GET_SIZE", "orders@billing")[0] == 700
    assert broker.sums("SNDBCK_PUT_NUMS", "orders@billing")[0] == 2
    assert broker.sums("BROKER_GET_NUMS", CLUSTER)[0] == 7


def test_dead_letters_have_the_keys_of_apache_s_brokers() -> None:
    """The owner of a client is known to nobody but a cloud, and is "null" for all others."""
    broker = Broker()

    broker.buried["orders", "billing"] = [3]

    assert broker.sums("SNDBCK2DLQ_TIMES", "null@orders@billing@SEND_BACK_TO_DLQ")[0] == 3
    for key in ("orders@billing", "null@orders@other@SEND_BACK_TO_DLQ", "null@@SEND_BACK_TO_DLQ"):
        assert broker.figures.view("SNDBCK2DLQ_TIMES", key) is None
    broker.live(70)
    assert broker.sums("SNDBCK2DLQ_TIMES", "null@orders@billing@SEND_BACK_TO_DLQ") == (0, 3, 3)


def test_the_whole_broker_is_counted_without_rocketmq_s_own_topics_too() -> None:
    broker = Broker()
    broker.put("orders", 10)
    broker.put("RMQ_SYS_TRACE_TOPIC", 90, is_system=True)
    broker.taken["orders", "billing"] = [4, 0]
    broker.taken["RMQ_SYS_TRACE_TOPIC", "tracers"] = [6, 0]
    broker.taken["", ""] = [1, 0]

    assert broker.sums("BROKER_PUT_NUMS", CLUSTER)[0] == 100
    assert broker.sums("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)[0] == 10
    assert broker.sums("BROKER_GET_NUMS", CLUSTER)[0] == 11
    assert broker.sums("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)[0] == 5


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "nothing"),
        ("TOPIC_PUT_NUMS", "quiet"),
        ("GROUP_GET_NUMS", "orders@nobody"),
        ("GROUP_GET_NUMS", "orders"),
        ("BROKER_PUT_NUMS", "AnotherCluster"),
        ("NO_SUCH_ITEM", "orders"),
    ],
)
def test_what_never_counted_has_no_figures_and_the_rate_0(name: str, key: str) -> None:
    broker = Broker()
    broker.put("quiet", 0)

    assert broker.figures.view(name, key) is None
    assert broker.figures.tps(name, key) == 0.0


def test_a_deleted_topic_has_no_figures_but_its_messages_stay_in_the_total() -> None:
    broker = Broker()
    broker.put("orders", 10, 100)
    broker.put("others", 1, 10)
    broker.live(10)

    broker.delete("orders")

    assert broker.figures.view("TOPIC_PUT_NUMS", "orders") is None
    assert broker.puts.total() == Counts(11, 110)
    assert broker.sums("BROKER_PUT_NUMS", CLUSTER)[0] == 11


def test_a_topic_that_was_made_again_begins_at_0() -> None:
    broker = Broker()
    broker.put("orders", 1000)
    broker.live(30)

    broker.delete("orders")
    broker.put("orders", 3)
    at_once = broker.sums("TOPIC_PUT_NUMS", "orders")
    broker.live(20)
    broker.put("orders", 2)

    assert at_once == (3, 3, 3)
    assert broker.sums("TOPIC_PUT_NUMS", "orders") == (5, 5, 5)


def test_there_are_no_more_samples_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics beyond the limit have figures nevertheless, of what happened since the last sample."""
    monkeypatch.setattr(statistics, "KEYS_MAX", 2)
    broker = Broker()
    for number in range(3):
        broker.put(f"topic-{number}", 5)

    broker.live(10)
    broker.clock.advance(1)

    assert broker.sums("TOPIC_PUT_NUMS", "topic-0") == (5, 5, 5)
    assert broker.sums("TOPIC_PUT_NUMS", "topic-2") == (5, 5, 5)


def test_samples_of_many_topics_are_taken_in_slices() -> None:
    broker = Broker()
    for number in range(statistics.SLICE_KEYS * 2 + 1):
        broker.put(f"topic-{number}", 1)

    broker.clock.advance(10)
    turns = sum(1 for _ in broker.figures.steps())

    assert turns == 2


def test_nothing_is_sampled_before_its_time() -> None:
    broker = Broker()

    broker.clock.advance(3)
    broker.figures.sample()
    broker.put("orders", 13)
    broker.clock.advance(10)

    assert broker.figures.rates()[0].ten_seconds == 1.0, "the oldest sample is not 13 s old"


def test_rates_of_the_whole_broker_are_over_ten_seconds_a_minute_and_ten_minutes() -> None:
    broker = Broker()
    broker.live(600)
    broker.put("orders", 600)
    broker.taken["orders", "billing"] = [60, 0]
    broker.found, broker.missed = 30, 12
    broker.timed = 120, 90

    broker.live(10)

    put, got, found, missed, timed, timed_out = broker.figures.rates()
    assert put == Rates(60.0, 10.0, 1.0)
    assert got == Rates(6.0, 1.0, 0.1)
    assert found == Rates(3.0, 0.5, 0.05)
    assert missed == Rates(1.2, 0.2, 0.02)
    assert timed == Rates(12.0, 2.0, 0.2)
    assert timed_out == Rates(9.0, 1.5, 0.15)


def test_the_totals_of_the_morning_are_kept_for_two_days() -> None:
    broker = Broker()
    broker.put("orders", 10)
    broker.live(24 * 3600, 600)
    broker.put("orders", 5)

    broker.live(24 * 3600, 600)

    assert broker.figures.days.yesterday_morning.put == 10
    assert broker.figures.days.today_morning.put == 15


def test_every_item_has_a_source() -> None:
    assert {item.source for item in ITEMS.values()} <= set(Sources._fields)


def test_it_keeps_itself_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "SAMPLE_SECONDS", 0)
    broker = Broker()

    async def live() -> None:
        broker.clock.advance(10)
        running = asyncio.ensure_future(broker.figures.run())
        for _ in range(5):
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(live())
    broker.put("orders", 20)
    broker.clock.advance(10)

    assert broker.figures.rates()[0].ten_seconds == 2.0


def test_pairs_beyond_the_limit_are_counted_without_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "KEYS_MAX", 1)
    counters: dict[tuple[str, str], list[int]] = {}

    for group in ("a", "a", "b", "c"):
        pair_counter(counters, "orders", group, width=1)[0] += 1

    assert counters == {("orders", "a"): [2], ("", ""): [2]}
    assert list(PairCounts(counters).keys()) == ["orders@a"]
    assert PairCounts(counters).total() == Counts(4, 0)


def test_what_was_counted_for_a_deleted_topic_or_group_stays_in_the_sum_alone() -> None:
    counters = {("orders", "a"): [1, 10], ("orders", "b"): [2, 20], ("bills", "b"): [4, 40]}
    pairs = PairCounts(counters)

    pairs.forget_topic("orders")
    pairs.forget_group("b")

    assert list(pairs.keys()) == []
    assert pairs.read("orders@a") is None
    assert pairs.total() == Counts(7, 70)
    assert list(counters) == [("", "")]
