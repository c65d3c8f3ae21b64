"""Asking a running broker how it is, and changing its settings, over the wire."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cometmq.codec import bodies, java_properties
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.bodies.stats import BrokerStatsData, HAClientInfo, HARuntimeInfo
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.properties import encode
from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import SUBSCRIPTION, SUSPEND, Peer, bodies_of, connected

FILE = "# written by a person\nfileReservedTime=72\n"


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the broker was started with."""
    return tmp_path_factory.mktemp("conf") / "broker.conf"


@pytest.fixture(scope="module")
def asked(conf: Path) -> Iterator[BlockingCluster]:
    settings = {"brokerConfigPath": conf, "tls.server.keyPassword": "geheim"}
    with LocalCluster(settings=settings) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def peer(asked: BlockingCluster, conf: Path) -> Iterator[Peer]:
    conf.write_text(FILE)
    with connected(asked.broker.address) as found:
        yield found


def change(peer: Peer, text: str) -> Command:
    return peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())


def settings_of(peer: Peer) -> dict[str, str]:
    return java_properties.loads(peer.ask(RequestCode.GET_BROKER_CONFIG).body)


def stats(peer: Peer, name: str, key: str) -> Command:
    return peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})


def test_runtime_info_counts_what_was_sent(peer: Peer) -> None:
    before = bodies.decode(KVTable, peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table

    peer.send("orders")
    peer.send("orders")

    after = bodies.decode(KVTable, peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    key = "msgPutTotalTodayNow"
    assert int(after[key]) - int(before[key]) == 2
    assert after["brokerActive"] == "true"
    assert after["dispatchBehindBytes"] == "0"


def test_runtime_info_tells_how_long_flushes_take(tmp_path: Path) -> None:
    settings = {"flushDiskType": "SYNC_FLUSH"}
    with LocalCluster(folder=tmp_path, settings=settings) as cluster:
        cluster.create_topic("orders")
        with connected(cluster.broker.address) as peer:
            for _ in range(50):  # one of them takes a hundredth of a millisecond on any disk
                peer.send("orders")
            table = bodies.decode(KVTable, peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table

    assert 0 < float(table["flushLatency99"]) <= float(table["flushLatencyMax"])


@pytest.mark.slow
def test_runtime_info_tells_how_many_timed_messages_come_and_go(
    asked: BlockingCluster, peer: Peer
) -> None:
    asked.create_topic("reminders")
    waiting = {"queueId": "0", "sysFlag": str(SUBSCRIPTION | SUSPEND)}
    timed = encode({"TIMER_DELAY_MS": "500"})
    assert peer.send("reminders", i=timed, e="0").code == ResponseCode.SUCCESS

    delivered = peer.pull("reminders", suspendTimeoutMillis="9000", **waiting)

    assert bodies_of(delivered) == [b"body"]
    table = bodies.decode(KVTable, peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert float(table["timerEnqueueTps"]) > 0
    assert float(table["timerDequeueTps"]) > 0


def test_statistics_of_a_topic_are_there_at_once(peer: Peer) -> None:
    peer.send("orders")

    found = bodies.decode(BrokerStatsData, stats(peer, "TOPIC_PUT_NUMS", "orders").body)

    assert found.stats_minute is not None
    assert found.stats_minute.sum >= 1
    assert found.stats_minute.tps > 0


def test_statistics_of_a_group_and_of_the_broker_are_there(peer: Peer) -> None:
    peer.send("orders")
    peer.max_offset("orders")
    peer.pull("orders", consumerGroup="billing")

    assert stats(peer, "GROUP_GET_NUMS", "orders@billing").code == ResponseCode.SUCCESS
    assert stats(peer, "BROKER_PUT_NUMS", "DefaultCluster").code == ResponseCode.SUCCESS


def test_a_delayed_message_counts_for_the_topic_of_all_that_are_delayed(peer: Peer) -> None:
    name, topic = "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX"
    assert stats(peer, name, topic).code == ResponseCode.SYSTEM_ERROR

    peer.send("orders", i=encode({"DELAY": "18"}))

    found = bodies.decode(BrokerStatsData, stats(peer, name, topic).body)
    assert found.stats_minute is not None
    assert found.stats_minute.sum == 1


def test_statistics_that_do_not_exist_are_refused_in_apache_s_words(peer: Peer) -> None:
    answer = stats(peer, "GROUP_GET_NUMS", "orders@nobody")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "The stats <GROUP_GET_NUMS> <orders@nobody> not exist"


def test_settings_are_shown_with_what_the_broker_found_out_and_without_secrets(
    asked: BlockingCluster, peer: Peer
) -> None:
    shown = settings_of(peer)

    assert shown["brokerName"] == "broker-0"
    assert shown["brokerIP1"] == "127.0.0.1"
    assert shown["listenPort"] == str(asked.broker.port)
    assert shown["sendMessageThreadPoolNums"] == "2", "Apache's keys without effect are there"
    assert "geheim" not in "".join(shown.values())


def test_the_version_of_the_settings_is_told_and_advances(peer: Peer) -> None:
    before = msgspec.json.decode(peer.ask(RequestCode.GET_BROKER_CONFIG).ext_fields["version"])

    change(peer, "fileReservedTime=71\n")

    after = msgspec.json.decode(peer.ask(RequestCode.GET_BROKER_CONFIG).ext_fields["version"])
    assert after["counter"] == before["counter"] + 1
    assert after.keys() == {"counter", "stateVersion", "timestamp"}


def test_a_live_change_is_kept_in_the_file_and_in_effect(peer: Peer, conf: Path) -> None:
    answer = change(peer, "autoCreateTopicEnable=false\n")
    refused = peer.send("made-by-nobody")
    change(peer, "autoCreateTopicEnable=true\n")

    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert peer.send("made-by-a-sender").code == ResponseCode.SUCCESS
    assert conf.read_text() == FILE + "autoCreateTopicEnable=true\n"


@pytest.mark.parametrize("line", ["brokerIP1=not an ip", "messageDelayLevel=", "deleteWhen="])
def test_what_the_broker_could_not_start_with_is_refused(peer: Peer, conf: Path, line: str) -> None:
    before = conf.read_text()

    answer = change(peer, f"{line}\n")

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert line.partition("=")[0] in (answer.remark or "")
    assert conf.read_text() == before


def test_topics_may_be_made_by_sends_from_now_on(tmp_path: Path) -> None:
    settings = {"autoCreateTopicEnable": "false"}
    with LocalCluster(folder=tmp_path, settings=settings) as cluster:
        with connected(cluster.broker.address) as peer:
            before = peer.send("made-later")
            change(peer, "autoCreateTopicEnable=true\n")
            after = peer.send("made-later")

    assert (before.code, after.code) == (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS)


def test_a_change_is_made_whole_though_the_one_who_asked_has_gone(
    asked: BlockingCluster, peer: Peer, conf: Path
) -> None:
    with connected(asked.broker.address) as other:
        other.tell(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=42\n", flag=0)

    deadline = time.monotonic() + 10
    while "fileReservedTime=42\n" not in conf.read_text():
        assert time.monotonic() < deadline, conf.read_text()
    change(peer, "deleteFileBatchMax=11\n")  # waits for the one before
    assert settings_of(peer)["fileReservedTime"] == "42"


def test_a_change_counts_for_consumers_that_are_pulling(peer: Peer) -> None:
    for _ in range(5):
        peer.send("steps")
    peer.max_offset("steps")
    before = [len(bodies_of(peer.pull("steps"))) for _ in range(2)]

    change(peer, "maxTransferCountOnMessageInMemory=2\n")

    after = [len(bodies_of(peer.pull("steps"))) for _ in range(2)]
    change(peer, "maxTransferCountOnMessageInMemory=32\n")
    assert (before, after) == ([5, 5], [2, 2])


def test_a_change_that_needs_a_restart_is_kept_and_said_so(peer: Peer, conf: Path) -> None:
    answer = change(peer, "defaultTopicQueueNums=3\nfileReservedTime=48\n")

    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "takes effect after a restart: defaultTopicQueueNums"
    assert "fileReservedTime=48\n" in conf.read_text()
    assert "defaultTopicQueueNums=3\n" in conf.read_text()
    assert settings_of(peer)["defaultTopicQueueNums"] == "3"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("fileReservedTime=many", ResponseCode.INVALID_PARAMETER, "'many' is not an integer"),
        ("noSuchKey=1", ResponseCode.INVALID_PARAMETER, "there is no such setting"),
        ("aclEnable=true", ResponseCode.INVALID_PARAMETER, "is not possible"),
        ("brokerConfigPath=/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("fileReservedTime=1\nconfigBlackList=", ResponseCode.NO_PERMISSION, "in black list."),
        ("a=\\u12", ResponseCode.SYSTEM_ERROR, "\\u without four hexadecimal digits"),
        ("a" * 300_000, ResponseCode.INVALID_PARAMETER, "make no sense"),
    ],
    ids=["value", "unknown", "unsafe", "path", "list", "text", "size"],
)
def test_what_cannot_be_set_is_refused_and_nothing_is_changed(
    peer: Peer, conf: Path, text: str, code: int, words: str
) -> None:
    before = settings_of(peer)

    answer = change(peer, text)

    assert answer.code == code
    assert words in (answer.remark or "")
    assert settings_of(peer) == before
    assert conf.read_text() == FILE


def test_nothing_is_changed_when_the_file_cannot_be_written(peer: Peer, conf: Path) -> None:
    before = settings_of(peer)
    conf.unlink()
    conf.mkdir()

    answer = change(peer, "fileReservedTime=17\n")
    conf.rmdir()

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("nothing is changed, the broker's file cannot be")
    assert settings_of(peer) == before


def test_a_master_without_slaves_says_so(peer: Peer) -> None:
    answer = peer.ask(RequestCode.GET_BROKER_HA_STATUS)

    found = bodies.decode(HARuntimeInfo, answer.body)
    assert found == HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=found.master_commit_log_max_offset,
        ha_client_runtime_info=HAClientInfo(),
    )


@pytest.mark.parametrize("code", [27, 306, 329])
def test_cleaning_is_answered_at_once_and_harms_nothing(peer: Peer, code: int) -> None:
    peer.send("orders", b"still there")

    assert peer.ask(code).code == ResponseCode.SUCCESS
    assert peer.is_served()
    assert peer.pull("orders").code == ResponseCode.SUCCESS


def test_timer_metrics_are_answered(peer: Peer) -> None:
    answer = peer.ask(RequestCode.GET_TIMER_METRICS)

    assert answer.code == ResponseCode.SUCCESS
    assert b"timingCount" in answer.body
