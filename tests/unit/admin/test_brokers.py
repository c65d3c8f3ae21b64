import msgspec
import pytest

from cometmq.admin.brokers import ConfigChange
from cometmq.codec import java_properties
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.bodies.offsets import ConsumeStats, ConsumeStatsList, OffsetWrapper
from cometmq.codec.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    HAConnectionInfo,
    HARuntimeInfo,
    Metric,
    TimerMetrics,
)
from cometmq.codec.codes import LanguageCode, RequestCode, ResponseCode
from cometmq.errors import NotFound, Refused, Unreachable, Unsupported
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.routes import Answer
from tests.unit.admin.fake_cluster import (
    BROKER_A,
    BROKER_B,
    NAMESRV,
    OTHER_NAMESRV,
    FakeCluster,
    body,
    refused,
)

RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO
STATS = RequestCode.VIEW_BROKER_STATS_DATA
TOLD = {
    "brokerVersionDesc": "V5_5_0",
    "brokerActive": "true",
    "putTps": "12.5 11.0 10.0",
    "getTransferredTps": "3.0 2.0 1.0",
    "msgPutTotalTodayNow": "500",
    "msgPutTotalTodayMorning": "400",
    "msgPutTotalYesterdayMorning": "100",
    "commitLogDiskRatio": "0.42",
    "commitLogMaxOffset": "9000",
    "bootTimestamp": "not a number",
}


async def test_a_cluster_shows_all_servers_and_who_is_down() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable(TOLD)), at=BROKER_A)
    cluster.on(RUNTIME, Unreachable(BROKER_B, "refused"), at=BROKER_B)
    down = Unreachable(OTHER_NAMESRV, "no route")
    cluster.on(RequestCode.GET_BROKER_CLUSTER_INFO, down, at=OTHER_NAMESRV)

    found = await cluster.admin.cluster()

    assert [(one.address, one.broker_count, one.problem) for one in found.name_servers] == [
        (NAMESRV, 2, ""),
        (OTHER_NAMESRV, None, "no route"),
    ]
    assert [(one.broker_name, one.problem) for one in found.brokers] == [
        ("broker-a", ""),
        ("broker-b", "refused"),
    ]
    assert found.clusters == ("east",)
    assert msgspec.json.encode(found)


async def test_a_broker_that_refuses_to_tell_how_it_is_does_not_hide_the_others() -> None:
    """4.9 does so in its first second, when it has counted nothing yet."""
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable(TOLD)), at=BROKER_A)
    cluster.on(RUNTIME, refused(ResponseCode.SYSTEM_ERROR, "NoSuchElement"), at=BROKER_B)

    first, second = await cluster.admin.brokers.states()

    assert (first.problem, first.version) == ("", "5.5.0")
    assert "NoSuchElement" in second.problem


async def test_what_a_broker_tells_becomes_numbers() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable(TOLD)))

    state = await cluster.admin.brokers.state("broker-a")

    assert (state.version, state.is_active, state.is_master) == ("5.5.0", True, True)
    assert (state.put_tps, state.get_tps) == (12.5, 3.0)
    assert (state.put_today_count, state.put_yesterday_count) == (100, 300)
    assert state.get_today_count is None
    assert (state.disk_ratio, state.log_max_offset) == (0.42, 9000)
    assert state.booted_ms is None
    assert state.values == TOLD


async def test_the_older_spelling_of_a_rate_is_understood() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable({"getTransferedTps": "7.0 1 1"})))

    state = await cluster.admin.brokers.state("broker-a")

    assert state.get_tps == 7.0
    assert state.is_active is None


async def test_states_are_of_one_cluster_or_of_all() -> None:
    cluster = FakeCluster()
    cluster.on(RUNTIME, body(KVTable(TOLD)))
    admin = cluster.admin

    assert len(await admin.brokers.states()) == 2
    assert len(await admin.brokers.list(cluster="east")) == 2
    with pytest.raises(NotFound):
        await admin.brokers.states(cluster="west")


async def test_a_statistic_has_three_spans() -> None:
    cluster = FakeCluster()
    cluster.on(STATS, body(BrokerStatsData(BrokerStatsItem(60, 1.0, 2.0))), at=BROKER_A)
    nothing = refused(ResponseCode.SYSTEM_ERROR, "The stats <X> <orders> not exist")
    cluster.on(STATS, nothing, at=BROKER_B)
    admin = cluster.admin

    one = await admin.brokers.statistic("TOPIC_PUT_NUMS", "orders", "broker-a")

    assert (one.minute.sum, one.minute.tps, one.minute.average) == (60, 1.0, 2.0)
    assert one.day.sum == 0
    assert [s.broker_name for s in await admin.brokers.statistics("TOPIC_PUT_NUMS", "orders")] == [
        "broker-a"
    ]
    with pytest.raises(NotFound, match="no such statistic"):
        await admin.brokers.statistic("TOPIC_PUT_NUMS", "orders", "broker-b")


async def test_a_statistic_that_may_not_be_seen_is_refused() -> None:
    cluster = FakeCluster()
    cluster.on(STATS, refused(ResponseCode.NO_PERMISSION, "no"))

    with pytest.raises(Refused):
        await cluster.admin.brokers.statistic("TOPIC_PUT_NUMS", "orders", "broker-a")


async def test_the_group_that_is_furthest_behind_comes_first() -> None:
    cluster = FakeCluster()

    def stats(topic: str, lag: int) -> ConsumeStats:
        return ConsumeStats({MessageQueue(topic, "broker-a", 0): OffsetWrapper(100, 100 - lag)})

    found = ConsumeStatsList(
        (
            {"idle": (stats("%DLQ%idle", 90),)},  # which nobody consumes
            {"slow": (stats("orders", 30), stats("bills", 5))},
            {"ok": (stats("x", 1),)},
        )
    )
    cluster.on(RequestCode.GET_BROKER_CONSUME_STATS, body(found))

    backlog = await cluster.admin.brokers.backlog("broker-a")

    assert [(one.group, one.lag, one.topics) for one in backlog] == [
        ("slow", 35, ("bills", "orders")),
        ("ok", 1, ("x",)),
        ("idle", 0, ()),
    ]


async def test_replication_and_timers_are_shown() -> None:
    cluster = FakeCluster()
    slave = HAConnectionInfo("10.0.3.1:1", 80, 20, True)
    cluster.on(RequestCode.GET_BROKER_HA_STATUS, body(HARuntimeInfo(True, 100, 1, (slave,))))
    cluster.on(RequestCode.GET_TIMER_METRICS, body(TimerMetrics(None, {"orders": Metric(3, 0)})))
    admin = cluster.admin

    replication = await admin.brokers.replication("broker-a")

    assert (replication.is_master, replication.log_max_offset) == (True, 100)
    assert [(one.address, one.behind_bytes) for one in replication.slaves] == [("10.0.3.1:1", 20)]
    assert await admin.brokers.pending_timers("broker-a") == {"orders": 3}


async def test_ours_does_not_count_timers_by_topic_and_says_where_the_sum_is() -> None:
    cluster = FakeCluster(language=LanguageCode.PYTHON)
    cluster.on(RequestCode.GET_TIMER_METRICS, body(TimerMetrics()))
    cluster.on(RUNTIME, body(KVTable({"timerCongestNum": "17"})))

    with pytest.raises(Unsupported, match=r"by topic; 17 wait in all \(timerCongestNum"):
        await cluster.admin.brokers.pending_timers("broker-a")


async def test_settings_are_read_from_one_broker_and_changed_on_some() -> None:
    cluster = FakeCluster()
    cluster.on(RequestCode.GET_BROKER_CONFIG, Answer(body=b"b=2\na=1\n"))
    remark = "takes effect after a restart: a"
    cluster.on(RequestCode.UPDATE_BROKER_CONFIG, Answer())
    cluster.on(RequestCode.UPDATE_BROKER_CONFIG, Answer(), Answer(remark=remark), at=BROKER_B)
    admin = cluster.admin

    config = await admin.brokers.config("broker-a")
    everywhere = await admin.brokers.set_config({"flushDiskType": "SYNC_FLUSH"}, cluster="east")
    one = await admin.brokers.set_config({"a": "1"}, broker="broker-b")

    assert (config.address, list(config.values)) == (BROKER_A, ["a", "b"])
    assert everywhere == (ConfigChange("broker-a", BROKER_A), ConfigChange("broker-b", BROKER_B))
    assert one == (ConfigChange("broker-b", BROKER_B, remark),)
    asked = cluster.questions(RequestCode.UPDATE_BROKER_CONFIG)
    assert java_properties.loads(asked[0].body) == {"flushDiskType": "SYNC_FLUSH"}


async def test_whose_settings_would_be_changed_is_told_without_asking_them() -> None:
    cluster = FakeCluster()

    planned = await cluster.admin.brokers.set_config({"a": "1"}, is_dry_run=True)

    assert planned == (ConfigChange("broker-a", BROKER_A), ConfigChange("broker-b", BROKER_B))


async def test_brokers_tidy_up_when_told() -> None:
    cluster = FakeCluster()
    codes = (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.DELETE_EXPIRED_COMMITLOG)
    for code in codes:
        cluster.on(code, Answer())
    admin = cluster.admin

    assert await admin.brokers.clean_expired_queues() == (BROKER_A, BROKER_B)
    assert await admin.brokers.delete_expired_log(broker="broker-b") == (BROKER_B,)
