import asyncio

import msgspec
import pytest

from cometmq.admin.brokers import BrokerState, GroupBacklog
from cometmq.cli.cluster_view import (
    BrokerView,
    ClusterView,
    GroupView,
    Totals,
    broker_view,
    bytes_in,
    look,
    merged_groups,
    p99_of,
    since,
)
from cometmq.codec.bodies.clients import ProducerInfo, ProducerTable
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.bodies.offsets import ConsumeStatsList
from cometmq.codec.codes import RequestCode, ResponseCode
from tests.unit.admin.fake_cluster import BROKER_B, FakeCluster, body, refused

VALUES = {
    "brokerVersionDesc": "V5_5_0",
    "putTps": "12.5 11.0 10.0",
    "getTransferredTps": "8.5 7.0 6.0",
    "putLatency99": "1.25",
    "putMessageEntireTimeMax": "89",
    "remainHowManyDataToFlush": "1.5 KiB",
    "dispatchBehindBytes": "10",
    "commitLogDiskRatio": "0.24",
    "bootTimestamp": "1000",
    "msgPutTotalTodayNow": "500",
    "msgGetTotalTodayNow": "400",
}


def state(values: dict[str, str], **facts: object) -> BrokerState:
    told = BrokerState("east", "broker-a", 0, "10.0.1.1:10911", True, values=values)
    return msgspec.structs.replace(told, **facts)


def test_a_broker_is_shown_as_it_tells_about_itself() -> None:
    view = broker_view(state(VALUES, put_tps=12.5, get_tps=8.5, disk_ratio=0.24, booted_ms=1000))

    assert (view.in_tps, view.out_tps, view.disk_ratio) == (12.5, 8.5, 0.24)
    assert (view.put_p99_ms, view.put_max_ms) == (1.25, 89.0)
    assert (view.flush_p99_ms, view.flush_max_ms) == (None, None), "Apache's tell nothing of it"
    assert (view.unflushed_bytes, view.put_total, view.get_total) == (1536, 500, 400)


def test_what_our_brokers_tell_of_times_goes_together() -> None:
    own = {"putLatency99": "10.82", "putLatencyMax": "10.82", "putMessageEntireTimeMax": "10"}
    flushes = {"flushLatency99": "250.00", "flushLatencyMax": "331.50"}

    view = broker_view(state({**VALUES, **own, **flushes}))

    assert (view.put_p99_ms, view.put_max_ms) == (10.82, 10.82)
    assert (view.flush_p99_ms, view.flush_max_ms) == (250.0, 331.5)


def test_the_bound_of_a_bucket_is_not_more_than_the_longest_time() -> None:
    told = {"putMessageDistributeTime": "[<=0ms]:2 [0~10ms]:3 ", "putMessageEntireTimeMax": "7"}

    view = broker_view(state(told))

    assert (view.put_p99_ms, view.put_max_ms) == (7.0, 7.0)


def test_what_a_broker_does_not_tell_is_not_made_up() -> None:
    view = broker_view(state({}, problem="no answer"))

    told = msgspec.to_builtins(view)
    known = {name for name, value in told.items() if value is not None}
    assert known == {"broker_name", "address", "cluster", "is_master", "problem"}


@pytest.mark.parametrize(
    ("text", "count"),
    [("0 B", 0), ("249 B", 249), ("1.5 KiB", 1536), ("2 MiB", 2**21), ("", None), ("x B", None)],
)
def test_sizes_are_read_with_their_units(text: str, count: int | None) -> None:
    assert bytes_in(text) == count


@pytest.mark.parametrize(
    ("distribution", "bound"),
    [
        ("[<=0ms]:100 [0~10ms]:0 [10~50ms]:0 ", 0.0),
        ("[<=0ms]:98 [0~10ms]:1 [10~50ms]:1 ", 10.0),
        ("[<=0ms]:0 [500ms~1s]:1 [1~2s]:0 [10s~]:0", 1000.0),
        ("[<=0ms]:0 [3~4s]:5", 4000.0),
        ("[<=0ms]:0 [10s~]:3", None),
        ("[<=0ms]:0 [0~10ms]:0 ", None),
        ("", None),
    ],
)
def test_the_times_of_4_9_give_the_bound_of_the_99th_percentile(
    distribution: str, bound: float | None
) -> None:
    assert p99_of(distribution) == bound


def test_what_brokers_tell_of_a_group_is_added_up() -> None:
    groups = merged_groups(
        [
            [
                GroupBacklog("billing", ("%RETRY%billing", "orders"), 5),
                GroupBacklog("TOOLS_CONSUMER", (), 0),
            ],
            [GroupBacklog("billing", ("refunds",), 2), GroupBacklog("audit", ("orders",), 9)],
        ]
    )

    assert groups == (
        GroupView(group="audit", lag=9, topics=("orders",)),
        GroupView(group="billing", lag=7, topics=("orders", "refunds")),
    )


def view(time_ms: int, put: int, got: int, lag: int, *, booted_ms: int = 1) -> ClusterView:
    broker = BrokerView(
        broker_name="broker-a",
        address="h:1",
        cluster="east",
        is_master=True,
        in_tps=1.0,
        out_tps=1.0,
        booted_ms=booted_ms,
        put_total=put,
        get_total=got,
    )
    totals = Totals(in_tps=1.0, out_tps=1.0, lag=lag, producers=0, consumers=0)
    groups = (GroupView(group="billing", lag=lag),)
    return ClusterView(
        time_ms=time_ms, name_servers=(), brokers=(broker,), groups=groups, totals=totals
    )


def test_rates_are_those_since_the_last_look() -> None:
    shown = since(view(1_000, 100, 50, 7), view(3_000, 300, 60, 3))

    (broker,), (group,) = shown.brokers, shown.groups
    assert (broker.in_tps, broker.out_tps) == (100.0, 5.0)
    assert (shown.totals.in_tps, shown.totals.out_tps) == (100.0, 5.0)
    assert group.lag_change_tps == -2.0


def test_a_broker_that_was_restarted_begins_to_count_anew() -> None:
    shown = since(view(1_000, 100, 50, 7), view(3_000, 3, 1, 7, booted_ms=2))

    assert (shown.brokers[0].in_tps, shown.brokers[0].out_tps) == (1.0, 1.0)


def test_a_clock_that_was_set_back_gives_no_rates() -> None:
    now = view(500, 300, 60, 3)

    assert since(view(1_000, 100, 50, 7), now) is now


def test_a_broker_that_does_not_answer_is_shown_with_its_problem() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_BROKER_RUNTIME_INFO, body(KVTable(VALUES)))
    cluster.on(RequestCode.GET_BROKER_CONSUME_STATS, body(ConsumeStatsList()))
    cluster.on(RequestCode.GET_ALL_PRODUCER_INFO, refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    cluster.hang(BROKER_B)

    shown = asyncio.run(look(cluster.admin, 5_000))

    first, second = shown.brokers
    assert (first.problem, first.in_tps) == (None, 12.5)
    assert second.problem is not None
    assert (shown.totals.in_tps, shown.totals.producers) == (12.5, None)
    assert [one.broker_count for one in shown.name_servers] == [2, 2]


def test_a_client_that_only_consumes_is_no_producer() -> None:
    """Each has one for what it hands back, of a group that all of them share."""
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_BROKER_RUNTIME_INFO, body(KVTable(VALUES)))
    cluster.on(RequestCode.GET_BROKER_CONSUME_STATS, body(ConsumeStatsList()))
    sender, reader = (ProducerInfo(name, "/10.0.2.1:1", "JAVA", 407) for name in ("s", "r"))
    table = ProducerTable({"PG": (sender,), "CLIENT_INNER_PRODUCER": (sender, reader)})
    cluster.on(RequestCode.GET_ALL_PRODUCER_INFO, body(table))

    assert asyncio.run(look(cluster.admin, 5_000)).totals.producers == 1
