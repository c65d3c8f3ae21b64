"""How fast a consumer is."""

from cometmq.client.core.consume_rates import SAMPLE_MS, ConsumeRates


def test_rates_are_those_of_the_last_minute() -> None:
    rates = ConsumeRates(0)
    tally = rates.tally("orders")
    for step in range(1, 13):
        tally.pulls += 10
        tally.pulled += 100
        tally.pull_seconds += 0.05
        tally.ok += 90
        tally.failed += 10
        tally.handled += 100
        tally.handled_seconds += 2.0
        rates.sample(step * SAMPLE_MS)

    status = rates.statuses(12 * SAMPLE_MS)["orders"]

    assert status.pull_tps == 10
    assert status.consume_ok_tps == 9
    assert status.consume_failed_tps == 1
    assert round(status.pull_rt, 6) == 5
    assert round(status.consume_rt, 6) == 20
    assert status.consume_failed_msgs == 120


def test_a_quiet_minute_shows_the_times_of_the_hour() -> None:
    rates = ConsumeRates(0)
    tally = rates.tally("orders")
    tally.handled, tally.handled_seconds, tally.failed = 4, 0.2, 4
    for step in range(1, 30):
        rates.sample(step * SAMPLE_MS)

    status = rates.statuses(30 * SAMPLE_MS)["orders"]

    assert status.consume_rt == 50
    assert status.consume_ok_tps == 0
    assert status.consume_failed_msgs == 4


def test_failures_of_more_than_an_hour_ago_are_forgotten() -> None:
    rates = ConsumeRates(0)
    rates.tally("orders").failed = 4
    for step in range(1, 500):
        rates.sample(step * SAMPLE_MS)

    assert rates.statuses(500 * SAMPLE_MS)["orders"].consume_failed_msgs == 0
    assert rates.tally("orders") is rates.tally("orders")
