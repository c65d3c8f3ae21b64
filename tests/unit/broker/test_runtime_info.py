"""How a broker is doing, under Apache's keys."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from cometmq.broker.broker_config import BrokerConfig
from cometmq.broker.recent_times import RecentTimes
from cometmq.broker.runtime_info import TIME_BOUNDS, RuntimeInfo, Times, human_bytes
from cometmq.broker.statistics import PairCounts, Sources, Statistics, Traffic
from cometmq.codec.bodies.stats import TimerMetrics
from cometmq.codec.codes import RequestCode
from cometmq.codec.timer import TimerCheck
from cometmq.remoting.metrics import Distribution
from cometmq.store import MessageStore, StoreSettings
from cometmq.store.config import FlushMode
from cometmq.store.files import DiskFile, DiskFiles, DiskUsage
from cometmq.testing import FakeClock
from tests.golden.wire_frames import frames
from tests.unit.broker.data_path import DataPath, sending
from tests.unit.store.builders import message

GIB = 1 << 30


class FakeTimers:
    def figures(self) -> dict[str, str]:
        return {"timerCongestNum": "7"}

    def metrics(self) -> TimerMetrics:
        return TimerMetrics()

    def check(self) -> TimerCheck:
        return TimerCheck()


@dataclass
class Scene:
    """Runtime info of a broker that was told what has happened."""

    store: MessageStore
    clock: FakeClock
    traffic: Traffic = field(default_factory=lambda: Traffic(0, 0, 0, 0, 0, 0))
    times: Times = field(
        default_factory=lambda: Times(Distribution(TIME_BOUNDS), Distribution(TIME_BOUNDS))
    )
    delays: dict[int, int] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    timers: FakeTimers | None = None
    failed: int = 0

    def __post_init__(self) -> None:
        self.flushes = RecentTimes(TIME_BOUNDS, self.clock)
        root = {"storePathRootDir": str(self.store.root)}
        config = BrokerConfig.load(file={**root, **self.given}, environment={}, flags={})
        nothing = PairCounts({})
        sources = Sources(*[nothing] * len(Sources._fields))
        self.info = RuntimeInfo(
            self.store,
            Statistics(self.clock, sources, lambda: self.traffic),
            self.times,
            lambda: config,
            self.clock,
            failed_sends=lambda: self.failed,
            waiting_sends=lambda: 0,
            delay_offsets=lambda: self.delays,
            flushes=self.flushes,
            timers=self.timers,
        )

    def table(self) -> dict[str, str]:
        usage = DiskUsage(used=14 * GIB, free=86 * GIB)
        return self.info.table(dict.fromkeys(self.info.log_folders(), usage), usage)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    settings = StoreSettings(root=tmp_path, log_file_bytes=1 << 20, has_index=False)
    with MessageStore.open(tmp_path, settings, clock=FakeClock(), threads=False) as opened:
        yield opened


@pytest.fixture
def scene(store: MessageStore) -> Scene:
    return Scene(store, FakeClock())


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_all_keys_of_both_releases_are_there(scene: Scene, release: str) -> None:
    scene.delays = {1: 0, 3: 0}
    recorded: set[str] = set()
    for frame in frames(f"mqadmin-{release}"):
        if frame.kind == "response" and frame.request_code == RequestCode.GET_BROKER_RUNTIME_INFO:
            recorded |= msgspec.json.decode(frame.body)["table"].keys()

    missing = recorded - scene.table().keys()

    assert recorded, "nothing was recorded"
    assert missing == {"commitLogDiskRatio_store/commitlog"}, "which is the path of that broker"


def test_messages_that_are_only_gathered_are_not_behind(store: MessageStore, scene: Scene) -> None:
    store.put(message(b"0"))
    marks = store.watermarks
    was_behind = marks.dispatched < marks.appended

    table = scene.table()

    assert was_behind
    assert table["dispatchBehindBytes"] == "0"


def test_an_empty_broker_says_what_an_empty_broker_of_apache_says(scene: Scene) -> None:
    table = scene.table()

    assert table["earliestMessageTimeStamp"] == "-1"
    assert table["putTps"] == "0.0 0.0 0.0"
    assert table["putMessageAverageSize"] == "0.0"
    assert table["putLatency99"] == "0.00"
    assert (table["flushLatency99"], table["flushLatencyMax"]) == ("0.00", "0.00")
    assert table["remainHowManyDataToFlush"] == "0 B"
    assert table["remainTransientStoreBufferNumbs"] == "2147483647"
    assert table["sendThreadPoolQueueCapacity"] == "10000"
    assert table["timerReadBehind"] == "0"
    assert (table["timerEnqueueTps"], table["timerDequeueTps"]) == ("0.0", "0.0")
    assert table["brokerVersionDesc"] == "V5_5_0"


def test_the_disk_is_shown_as_apache_shows_it(scene: Scene) -> None:
    table = scene.table()

    assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "0.14"
    assert table[f"commitLogDiskRatio_{scene.store.root}/commitlog"] == "0.14"
    assert table["commitLogDirCapacity"] == "Total : 100.0 GiB, Free : 86.0 GiB."


def test_log_and_messages_are_shown(scene: Scene) -> None:
    scene.store.put(message(body=b"x" * 500))
    scene.store.put(message(body=b"x" * 500))
    scene.traffic = Traffic(put=2, got=1, found=1, missed=3, timed=6, timed_out=4)
    scene.failed = 4
    scene.clock.advance(2)

    table = scene.table()

    size = scene.store.log_end
    assert table["commitLogMaxOffset"] == table["putMessageSizeTotal"] == str(size)
    assert table["putMessageAverageSize"] == str(size / 2)
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "2"
    assert table["putMessageFailedTimes"] == "4"
    assert table["putTps"] == "1.0 1.0 1.0"
    assert table["getFoundTps"] == "0.5 0.5 0.5"
    assert table["getTotalTps"] == "2.0 2.0 2.0"
    assert (table["timerEnqueueTps"], table["timerDequeueTps"]) == ("3.0", "2.0")
    assert table["earliestMessageTimeStamp"] == str(FakeClock().now_ms())
    assert table["remainHowManyDataToFlush"] == human_bytes(size)


def test_times_are_spread_over_apache_s_classes(scene: Scene) -> None:
    for seconds in (0.0002, 0.0002, 0.004, 0.15, 12.0):
        scene.times.put.observe(seconds)
    scene.times.get.observe(0.0199)

    table = scene.table()

    assert table["putMessageDistributeTime"] == (
        "[<=0ms]:2 [0~10ms]:1 [10~50ms]:0 [50~100ms]:0 [100~200ms]:1 [200~500ms]:0 [500ms~1s]:0 "
        "[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert table["putMessageEntireTimeMax"] == "12000"
    assert table["getMessageEntireTimeMax"] == "19"
    assert table["putLatency99"] == "12000.00"


def test_the_longest_put_is_told_as_exactly_as_the_others(scene: Scene) -> None:
    scene.times.put.observe(0.01082)

    table = scene.table()

    assert table["putLatency99"] == table["putLatencyMax"] == "10.82"
    assert table["putMessageEntireTimeMax"] == "10", "whole ones are what Apache's tools expect"


def test_flushes_are_those_of_the_last_minute(scene: Scene) -> None:
    for _ in range(99):
        scene.flushes.observe(0.004)
    scene.flushes.observe(0.3)
    table = scene.table()
    scene.clock.advance(61)
    later = scene.table()

    assert (table["flushLatency99"], table["flushLatencyMax"]) == ("5.00", "300.00")
    assert (later["flushLatency99"], later["flushLatencyMax"]) == ("0.00", "0.00")


class SlowFile(DiskFile):
    """On a disk that takes its time, by the clock of the test."""

    def __init__(self, path: Path, wait: Callable[[], None]) -> None:
        super().__init__(path)
        self._wait = wait

    def sync(self) -> None:
        self._wait()
        super().sync()


class SlowDisk(DiskFiles):
    seconds = 0.0

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def open(self, path: Path) -> SlowFile:
        return SlowFile(path, lambda: self._clock.advance(self.seconds))


def test_senders_who_wait_for_a_slow_disk_find_it_in_the_flushes(tmp_path: Path) -> None:
    """The times of handlers are over before the disk is asked."""
    clock = FakeClock()
    disk = SlowDisk(clock)
    sync = {"flush_mode": FlushMode.SYNC_FLUSH}
    with DataPath(tmp_path, store=sync, files=disk, clock=clock) as path:
        scene = Scene(path.store, clock)
        path.store.on_flushed(scene.flushes.observe)
        path.send_frames(sending())
        path.store.flush_step()
        before = scene.table()
        disk.seconds = 0.7
        path.send_frames(sending())
        path.store.flush_step()
        after = scene.table()
        path.loop.turn()

    assert len(path.later()) == 2
    assert (before["flushLatency99"], before["flushLatencyMax"]) == ("0.00", "0.00")
    assert (after["flushLatency99"], after["flushLatencyMax"]) == ("700.00", "700.00")


def test_how_long_it_runs_is_said_in_words(scene: Scene) -> None:
    scene.clock.advance(2 * 86_400 + 3 * 3600 + 4 * 60 + 5)

    assert scene.table()["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


def test_delay_levels_show_how_far_they_are(scene: Scene) -> None:
    scene.store.put(message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2))
    scene.delays = {3: 0}

    assert scene.table()["scheduleMessageOffset_3"] == "0,1"


def test_a_key_without_effect_is_shown_as_the_file_has_it(store: MessageStore) -> None:
    scene = Scene(store, FakeClock(), given={"sendThreadPoolQueueCapacity": "5"})

    assert scene.table()["sendThreadPoolQueueCapacity"] == "5"


def test_timers_have_the_last_word_on_their_figures(store: MessageStore) -> None:
    scene = Scene(store, FakeClock(), timers=FakeTimers())

    table = scene.table()

    assert table["timerCongestNum"] == "7"
    assert table["timerReadBehind"] == "0"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (252 * GIB, "252.0 GiB"),
        (1 << 62, "4.0 EiB"),
    ],
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text
