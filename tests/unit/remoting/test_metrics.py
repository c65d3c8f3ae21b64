"""Numbers in Prometheus's text form."""

import math

import pytest

from cometmq.remoting import metrics
from cometmq.remoting.metrics import Registry


def test_everything_is_shown_in_the_form_prometheus_reads() -> None:
    registry = Registry()
    requests = registry.counter("cometmq_requests_total", "Requests served.", labels=("code",))
    registry.gauge("cometmq_connections", "Open connections.", lambda: 3)
    seconds = registry.histogram(
        "cometmq_request_seconds", "Time to answer.", bounds=(0.1, 0.5, 1.0)
    )
    requests.child("105").add()
    requests.child("105").add(2)
    requests.child("103").add()
    for value in (0.05, 0.1, 0.3, 2.0):
        seconds.child().observe(value)

    assert registry.expose() == (
        "# HELP cometmq_requests_total Requests served.\n"
        "# TYPE cometmq_requests_total counter\n"
        'cometmq_requests_total{code="105"} 3\n'
        'cometmq_requests_total{code="103"} 1\n'
        "# HELP cometmq_connections Open connections.\n"
        "# TYPE cometmq_connections gauge\n"
        "cometmq_connections 3\n"
        "# HELP cometmq_request_seconds Time to answer.\n"
        "# TYPE cometmq_request_seconds histogram\n"
        'cometmq_request_seconds_bucket{le="0.1"} 2\n'
        'cometmq_request_seconds_bucket{le="0.5"} 3\n'
        'cometmq_request_seconds_bucket{le="1.0"} 3\n'
        'cometmq_request_seconds_bucket{le="+Inf"} 4\n'
        "cometmq_request_seconds_sum 2.45\n"
        "cometmq_request_seconds_count 4\n"
    )


def test_a_metric_without_labels_is_there_from_the_start() -> None:
    registry = Registry()
    registry.counter("a_total", "A.")
    registry.counter("b_total", "B.", labels=("x",))

    assert [line for line in registry.expose().splitlines() if line[0] != "#"] == ["a_total 0"]


def test_names_and_texts_from_anywhere_cannot_break_the_form() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "Two\nlines \\ and more", labels=("topic",))

    counter.child('quote " backslash \\ line\nfeed').add()

    assert registry.expose() == (
        "# HELP a_total Two\\nlines \\\\ and more\n"
        "# TYPE a_total counter\n"
        'a_total{topic="quote \\" backslash \\\\ line\\nfeed"} 1\n'
    )


def test_a_gauge_may_have_labels() -> None:
    registry = Registry()
    lag: dict[tuple[str, ...], float] = {("orders", "0"): 5, ("orders", "1"): 0.5}
    registry.gauge("lag", "Messages behind.", lambda: lag, labels=("topic", "queue"))

    assert 'lag{topic="orders",queue="0"} 5\nlag{topic="orders",queue="1"} 0.5\n' in (
        registry.expose()
    )


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (1e20, "1e+20")]
)
def test_numbers_beyond_the_usual_are_written_as_prometheus_wants(value: float, text: str) -> None:
    registry = Registry()
    registry.gauge("a", "A.", lambda: value)

    assert f"\na {text}\n" in registry.expose()


def test_label_values_beyond_the_limit_share_one_child() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "A.", labels=("topic", "queue"))

    for number in range(metrics.CHILDREN_MAX + 50):
        counter.child(f"topic-{number}", "0").add()
    counter.child("topic-3", "0").add()

    lines = registry.expose().splitlines()
    assert len(lines) == metrics.CHILDREN_MAX + 3
    assert 'a_total{topic="other",queue="other"} 50' in lines
    assert 'a_total{topic="topic-3",queue="0"} 2' in lines


def test_a_name_is_given_once() -> None:
    registry = Registry()
    registry.counter("a_total", "A.")

    with pytest.raises(AssertionError):
        registry.gauge("a_total", "A again.", lambda: 0)


def test_bounds_must_grow() -> None:
    with pytest.raises(AssertionError):
        Registry().histogram("a_seconds", "A.", bounds=(1.0, 0.5))


def test_a_truth_is_written_as_a_number() -> None:
    registry = Registry()
    registry.gauge("cometmq_is_up", "Up.", lambda: True)

    assert registry.expose().endswith("cometmq_is_up 1\n")


def test_what_is_counted_elsewhere_is_a_counter_all_the_same() -> None:
    registry = Registry()
    registry.total("cometmq_puts_total", "Puts.", lambda: {("a",): 2}, ("topic",))

    assert registry.expose() == (
        "# HELP cometmq_puts_total Puts.\n"
        "# TYPE cometmq_puts_total counter\n"
        'cometmq_puts_total{topic="a"} 2\n'
    )


def test_a_distribution_tells_counts_and_quantiles() -> None:
    times = metrics.Distribution((0.1, 0.5, 1.0))
    empty = times.quantile(0.99)

    for value in (0.05, 0.05, 0.3, 0.7):
        times.observe(value)

    assert empty == 0.0
    assert times.count == 4
    assert (times.count_to(0.1), times.count_to(0.5), times.count_to(1.0)) == (2, 3, 4)
    assert times.quantile(0.5) == 0.1
    assert times.quantile(0.75) == 0.5
    assert times.quantile(0.99) == times.largest == 0.7, "not more than the largest"


def test_what_is_above_all_bounds_counts_for_quantiles() -> None:
    times = metrics.Distribution((0.1,))

    times.observe(7.0)

    assert times.count_to(0.1) == 0
    assert times.quantile(0.5) == 7.0
