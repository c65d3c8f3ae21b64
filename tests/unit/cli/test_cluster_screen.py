import json

import msgspec

from cometmq.admin.brokers import NameServerState
from cometmq.cli.cluster_screen import cut, fields_of, lines_of
from cometmq.cli.cluster_view import BrokerView, ClusterView, GroupView, Totals
from cometmq.cli.table import display_width

BROKER = BrokerView(
    broker_name="broker-a",
    address="10.0.1.1:10911",
    cluster="east",
    is_master=True,
    version="5.5.0",
    in_tps=12_345.0,
    out_tps=0.5,
    put_p99_ms=1.25,
    flush_p99_ms=18.04,
    flush_max_ms=40.5,
    unflushed_bytes=1536,
    dispatch_behind_bytes=0,
    disk_ratio=0.24,
    booted_ms=1_000,
    put_total=7,
)
LOST = BrokerView(
    broker_name="broker-b",
    address="10.0.1.2:10911",
    cluster="east",
    is_master=False,
    problem="Connection refused",
)
VIEW = ClusterView(
    time_ms=126_000,
    name_servers=(NameServerState("10.0.0.1:9876", 2),),
    brokers=(BROKER, LOST),
    groups=(
        GroupView(
            group="billing",
            lag=70,
            lag_change_tps=-3.2,
            out_tps=4.0,
            members=2,
            topics=("orders", "refunds"),
        ),
        GroupView(group="audit", lag=0),
    ),
    totals=Totals(in_tps=12_345.0, out_tps=0.5, lag=70, producers=1, consumers=2),
)


def test_the_screen_shows_brokers_and_groups() -> None:
    assert lines_of(VIEW) == [
        "1 name server, 2 brokers, in 12.3k/s, out 0.5/s, lag 70, 1 producer, 2 consumers",
        "",
        "BROKER             IN/S  OUT/S  P99 MS  FLUSH MS  UNFLUSHED  BEHIND  DISK    UP  RELEASE",
        "broker-a          12.3k    0.5     1.2      18.0    1.5 KiB     0 B   24%  2m5s  5.5.0",
        "broker-b (slave)      -      -       -         -          -       -     -     -  down",
        "broker-b: Connection refused",
        "",
        "GROUP    LAG  CHANGE/S  OUT/S  MEMBERS  TOPICS",
        "billing   70        -3    4.0        2  orders refunds",
        "audit      0         -      -        -  -",
    ]


def test_a_narrow_screen_cuts_lines_and_never_wraps_them() -> None:
    lines = lines_of(VIEW, width=30)

    assert len(lines) == len(lines_of(VIEW))
    assert max(map(display_width, lines)) == 30
    assert lines[2] == "BROKER             IN/S  OUT/…"


def test_what_needs_attention_is_painted() -> None:
    full = msgspec.structs.replace(BROKER, disk_ratio=0.9)
    view = msgspec.structs.replace(VIEW, brokers=(full, LOST))

    painted = [line for line in lines_of(view, paint=lambda kind, _: f"<{kind}>") if "<" in line]

    assert painted == ["<>", "<full>", "<down>", "<down>", "<>"]


def test_a_cluster_without_groups_says_so() -> None:
    assert lines_of(msgspec.structs.replace(VIEW, groups=()))[-1] == "no groups"


def test_the_fields_for_programs_do_not_change() -> None:
    fields = json.loads(json.dumps(fields_of(VIEW)))

    assert list(fields) == ["time", "totals", "name_servers", "brokers", "groups"]
    assert list(fields["totals"]) == ["in_tps", "out_tps", "lag", "producers", "consumers"]
    assert list(fields["name_servers"][0]) == ["address", "broker_count", "problem"]
    assert list(fields["brokers"][0]) == [
        *("broker_name", "address", "cluster", "is_master", "problem", "version"),
        *("in_tps", "out_tps", "in_today", "out_today", "put_p99_ms", "put_max_ms"),
        *("flush_p99_ms", "flush_max_ms"),
        *("unflushed_bytes", "dispatch_behind_bytes", "disk_ratio", "uptime_ms"),
    ]
    assert list(fields["groups"][0]) == [
        *("group", "lag", "lag_change_tps", "out_tps", "members", "topics")
    ]
    assert fields["brokers"][0]["flush_p99_ms"] == 18.04
    assert fields["brokers"][0]["flush_max_ms"] == 40.5
    assert fields["brokers"][1]["flush_p99_ms"] is None
    assert fields["brokers"][0]["uptime_ms"] == 125_000
    assert fields["brokers"][1]["uptime_ms"] is None


def test_cutting_knows_how_wide_characters_are() -> None:
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語", 5) == "日本…"
    assert cut("abc", None) == "abc"
