"""A cluster in the test's own process: there when entered, gone when left, whatever happens."""

import asyncio
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from cometmq.codec import bodies, core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.offsets import GetMaxOffset, OffsetResponse
from cometmq.codec.headers.send import SendMessageResponse, SendMessageV2
from cometmq.errors import BrokerError, SettingsError, StoreLocked, Unreachable
from cometmq.model.route import TopicRoute
from cometmq.remoting.client import connect
from cometmq.remoting.running import BackgroundTaskDied
from cometmq.remoting.server import PortInUse
from cometmq.testing import ClusterError, FakeClock, LocalCluster
from cometmq.testing.local_cluster import THREAD_NAME

pytestmark = pytest.mark.slow


async def ask(
    address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
) -> Command:
    channel = await connect(address)
    try:
        return await channel.request(code, header, body, timeout_ms=5_000)
    finally:
        channel.close()


async def send(address: str, topic: str, body: bytes = b"body") -> int:
    """Send to queue 0; the offset it was acknowledged with."""
    header = SendMessageV2("producers", topic, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, "")
    answer = await ask(address, RequestCode.SEND_MESSAGE_V2, header, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return core.read(answer, SendMessageResponse).queue_offset


async def max_offset(address: str, topic: str) -> int:
    answer = await ask(address, RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic, 0))
    return core.read(answer, OffsetResponse).offset


async def route(namesrv: str, topic: str) -> TopicRoute | None:
    answer = await ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoByTopic(topic))
    return bodies.decode(TopicRoute, answer.body) if answer.code == ResponseCode.SUCCESS else None


class Traces:
    """What a cluster could leave behind: folders and threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = set(threading.enumerate())

    @property
    def folders(self) -> list[Path]:
        return list(self._folder.iterdir())

    @property
    def threads(self) -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - self._threads]

    @property
    def are_gone(self) -> bool:
        return not self.folders and not self.threads


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Traces:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # the place that module has for it
    return Traces(folder)


def is_listening(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_blocking_code_gets_a_cluster_on_a_thread_of_its_own(traces: Traces) -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("orders", queues=2)

        assert asyncio.run(send(cluster.broker.address, "orders")) == 0
        found = asyncio.run(route(cluster.namesrv, "orders"))
        assert found is not None
        assert found.broker_datas[0].master_address == cluster.broker.address
        assert found.queue_datas[0].write_queue_nums == 2
        assert THREAD_NAME in traces.threads


def test_nothing_is_left_of_a_cluster(traces: Traces) -> None:
    with LocalCluster() as cluster:
        addresses = [cluster.namesrv, cluster.broker.address]
        assert len(traces.folders) == 1

    assert traces.are_gone
    assert not any(is_listening(address) for address in addresses)


def test_nothing_is_left_of_a_cluster_whose_test_failed(traces: Traces) -> None:
    with pytest.raises(ZeroDivisionError), LocalCluster():
        _ = 1 / 0

    assert traces.are_gone


def test_asyncio_code_gets_a_cluster_on_its_own_loop(traces: Traces) -> None:
    async def scenario() -> None:
        async with LocalCluster() as cluster:
            await cluster.create_topic("orders")

            assert await send(cluster.broker.address, "orders") == 0
            assert cluster.broker.service.background is not None
            assert THREAD_NAME not in traces.threads
            address = cluster.broker.address
        assert not is_listening(address)

    asyncio.run(scenario())


def test_a_cluster_may_have_several_brokers() -> None:
    async def scenario() -> None:
        async with LocalCluster(brokers=2) as cluster:
            await cluster.create_topic("orders")

            found = await route(cluster.namesrv, "orders")
            assert found is not None
            assert {data.broker_name for data in found.queue_datas} == {"broker-0", "broker-1"}
            assert {data.master_address for data in found.broker_datas} == {
                broker.address for broker in cluster.brokers
            }

    asyncio.run(scenario())


def test_a_cluster_without_brokers_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LocalCluster(brokers=0)


def test_a_topic_may_be_changed() -> None:
    async def scenario() -> None:
        async with LocalCluster() as cluster:
            await cluster.create_topic("orders", queues=2)
            await cluster.create_topic("orders", queues=8, perm=4)

            found = await route(cluster.namesrv, "orders")
            assert found is not None
            (queues,) = found.queue_datas
            assert (queues.read_queue_nums, queues.perm) == (8, 4)

    asyncio.run(scenario())


def test_a_topic_that_the_broker_refuses_is_an_error() -> None:
    with LocalCluster() as cluster:
        with pytest.raises(BrokerError, match="illegal characters"):
            cluster.create_topic("no blanks")


def test_a_topic_is_made_on_brokers_that_allow_less_than_it_does() -> None:
    """Clients are told what both allow."""
    with LocalCluster(settings={"brokerPermission": 4}) as cluster:
        cluster.create_topic("orders")

        found = asyncio.run(route(cluster.namesrv, "orders"))

    assert found is not None
    assert [queues.perm for queues in found.queue_datas] == [4]


@pytest.mark.parametrize("key", ["brokerName", "namesrvAddr", "storePathRootDir"])
def test_what_the_cluster_decides_itself_cannot_be_set(key: str) -> None:
    with pytest.raises(ClusterError, match=f"{key} is the cluster's own"):
        LocalCluster(settings={key: "mine"}).__enter__()


def test_brokers_do_not_share_a_log(tmp_path: Path) -> None:
    with pytest.raises(StoreLocked, match="storePathCommitLog"):
        LocalCluster(brokers=2, settings={"storePathCommitLog": str(tmp_path)}).__enter__()


def test_a_broker_whose_log_lies_elsewhere_cannot_be_killed(tmp_path: Path) -> None:
    """Only its own folder could be left as a killed process leaves it."""
    with LocalCluster(settings={"storePathCommitLog": str(tmp_path / "log")}) as cluster:
        with pytest.raises(ClusterError, match="its log lies elsewhere"):
            cluster.broker.kill()

        cluster.create_topic("orders")


def test_settings_are_those_of_the_brokers_file() -> None:
    settings = {"autoCreateTopicEnable": False, "maxMessageSize": 1000}

    async def scenario() -> None:
        async with LocalCluster(settings=settings) as cluster:
            await cluster.create_topic("orders")

            with pytest.raises(AssertionError, match="not exist"):
                await send(cluster.broker.address, "unknown")
            with pytest.raises(AssertionError, match="limit 1000B"):
                await send(cluster.broker.address, "orders", bytes(1001))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"autoCreateTopicEnabel": True}, "did you mean 'autoCreateTopicEnable'"),
        ({"maxMessageSize": "much"}, "maxMessageSize"),
        ({"messageDelayLevel": "1 minute"}, "messageDelayLevel"),
    ],
)
def test_settings_that_cannot_be_are_errors_before_anything_runs(
    settings: dict[str, object], words: str, traces: Traces
) -> None:
    with pytest.raises(SettingsError, match=words), LocalCluster(settings=settings):
        pass

    assert traces.are_gone


def test_a_broker_keeps_its_messages_and_its_address_over_a_restart() -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("orders")
        address = cluster.broker.address
        assert asyncio.run(send(address, "orders")) == 0

        cluster.broker.restart()

        assert cluster.broker.address == address
        assert asyncio.run(send(address, "orders")) == 1
        assert asyncio.run(route(cluster.namesrv, "orders")) is not None


def test_a_broker_may_be_given_other_settings_when_it_is_restarted() -> None:
    async def scenario() -> None:
        async with LocalCluster() as cluster:
            await cluster.broker.restart({"autoCreateTopicEnable": False})

            with pytest.raises(AssertionError, match="not exist"):
                await send(cluster.broker.address, "unknown")

    asyncio.run(scenario())


def test_a_broker_that_was_killed_goes_on_with_what_it_had_acknowledged() -> None:
    async def scenario() -> None:
        async with LocalCluster() as cluster:
            await cluster.create_topic("orders")
            address = cluster.broker.address
            assert [await send(address, "orders") for _ in range(100)] == list(range(100))
            waiting = await connect(address)

            await cluster.broker.kill()

            assert not waiting.is_open
            assert (cluster.broker.folder / "abort").exists(), "as a process that was killed"
            await cluster.broker.start()
            assert await max_offset(address, "orders") == 100
            assert await send(address, "orders") == 100

    asyncio.run(scenario())


def test_a_broker_that_is_stopped_is_away_until_it_is_started() -> None:
    with LocalCluster() as cluster:
        cluster.broker.stop()
        cluster.broker.stop()  # being stopped already is no fault

        assert not cluster.broker.is_running
        with pytest.raises(Unreachable):
            asyncio.run(send(cluster.broker.address, "orders"))
        with pytest.raises(ClusterError, match="broker-0: is not running"):
            cluster.create_topic("orders")
        cluster.broker.start()
        assert asyncio.run(send(cluster.broker.address, "orders")) == 0
        with pytest.raises(ClusterError, match="is running already"):
            cluster.broker.start()


def test_a_name_server_that_was_restarted_knows_the_brokers_again_when_they_register() -> None:
    async def scenario() -> None:
        async with LocalCluster() as cluster:
            namesrv = cluster.namesrv
            await cluster.nameserver.restart()
            assert cluster.namesrv == namesrv

            await cluster.create_topic("orders")

            assert await route(namesrv, "orders") is not None

    asyncio.run(scenario())


def test_a_folder_of_the_tests_own_is_kept_and_opened_again(tmp_path: Path) -> None:
    for offset in (0, 1):
        with LocalCluster(folder=tmp_path) as cluster:
            assert cluster.broker.folder == tmp_path / "broker-0"
            assert asyncio.run(send(cluster.broker.address, "orders")) == offset

    assert (tmp_path / "broker-0" / "commitlog").is_dir()


def test_one_plan_may_be_entered_again() -> None:
    plan = LocalCluster()
    for _ in range(2):
        with plan as cluster:
            assert asyncio.run(send(cluster.broker.address, "orders")) == 0


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing(traces: Traces) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"listenPort": taken.getsockname()[1]}

        with pytest.raises(PortInUse), LocalCluster(settings=settings):
            pass

    assert traces.are_gone


def test_time_may_be_the_tests_own() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        until = {"startAcceptSendRequestTimeStamp": clock.now_ms() + 60_000}
        async with LocalCluster(settings=until, clock=clock) as cluster:
            with pytest.raises(AssertionError, match="broker unable to service"):
                await send(cluster.broker.address, "orders")
            clock.advance(61)
            assert await send(cluster.broker.address, "orders") == 0

    asyncio.run(scenario())


def test_a_part_of_a_broker_that_died_is_not_passed_over() -> None:
    async def die() -> None:
        raise ZeroDivisionError("as planned")

    async def scenario() -> None:
        async with LocalCluster() as cluster:
            cluster.broker.service.background.spawn("doomed", die())
            await asyncio.sleep(0)

    with pytest.raises(BackgroundTaskDied, match="'doomed' died: ZeroDivisionError: as planned"):
        asyncio.run(scenario())


def test_calls_from_the_clusters_own_thread_are_refused_instead_of_waiting_for_ever() -> None:
    errors: list[ClusterError] = []

    with LocalCluster() as cluster:
        inner, is_done = cluster._thread, threading.Event()

        def misuse() -> None:
            try:
                cluster.create_topic("orders")
            except ClusterError as error:
                errors.append(error)
            is_done.set()

        inner._loop.call_soon_threadsafe(misuse)
        assert is_done.wait(10)

    assert "would wait for itself" in str(errors[0])
