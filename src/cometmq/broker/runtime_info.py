"""How a broker is doing, under the keys that Apache's tools print and calculate with.

Where they ask for something that does not exist here (queues of thread pools, page cache locks),
the answer is what an idle broker of theirs says. Keys of our own come on top.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cometmq.broker.inert_keys import INERT_KEYS
from cometmq.codec.codes import VERSION, version_name
from cometmq.codec.digest import store_timestamp
from cometmq.codec.java import INT32_MAX
from cometmq.model.topic import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cometmq.broker.broker_config import BrokerConfig
    from cometmq.broker.recent_times import RecentTimes
    from cometmq.broker.statistics import Rates, Statistics
    from cometmq.clock import Clock
    from cometmq.codec.bodies.stats import TimerMetrics
    from cometmq.codec.timer import TimerCheck
    from cometmq.remoting.metrics import Distribution
    from cometmq.store import MessageStore
    from cometmq.store.files import DiskUsage

TIME_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5,
    1.0, 2.0, 3.0, 4.0, 5.0, 10.0,
)  # fmt: skip
"""Upper bounds of times in seconds; those below have to be among them."""

_DISTRIBUTION: Final = (
    ("<=0ms", 0.001),
    ("0~10ms", 0.01),
    ("10~50ms", 0.05),
    ("50~100ms", 0.1),
    ("100~200ms", 0.2),
    ("200~500ms", 0.5),
    ("500ms~1s", 1.0),
    ("1~2s", 2.0),
    ("2~3s", 3.0),
    ("3~4s", 4.0),
    ("4~5s", 5.0),
    ("5~10s", 10.0),
)
_POOLS: Final = ("send", "pull", "query", "litePull", "ack")
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Timers(Protocol):
    """Messages with a time of delivery, as far as somebody asks about them."""

    def figures(self) -> Mapping[str, str]:
        """What runtime info says under the keys that begin with ``timer``."""
        ...

    def metrics(self) -> TimerMetrics: ...

    def check(self) -> TimerCheck: ...


class Times(NamedTuple):
    """How long reads with sends, and with pulls, took their handlers."""

    put: Distribution
    get: Distribution


class RuntimeInfo:
    """Makes the table; the disk is measured by whoever asks, since that may take a while."""

    def __init__(
        self,
        store: MessageStore,
        statistics: Statistics,
        times: Times,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        *,
        failed_sends: Callable[[], int],
        waiting_sends: Callable[[], int],
        delay_offsets: Callable[[], Mapping[int, int]],
        flushes: RecentTimes,
        timers: Timers | None = None,
    ) -> None:
        self._store = store
        self._statistics = statistics
        self._times = times
        self._config = config
        self._clock = clock
        self._failed_sends = failed_sends
        self._waiting_sends = waiting_sends
        self._delay_offsets = delay_offsets
        self._flushes = flushes
        self._timers = timers
        self._boot_ms = clock.now_ms()
        self._booted = clock.monotonic()
        # Where the log ended at the start.
        self._begin = store.log_end

    def log_folders(self) -> tuple[str, ...]:
        """Where the log lies, as the settings say it."""
        settings = self._config().store
        return settings.log_paths or (str(settings.root / "commitlog"),)

    def table(self, usages: Mapping[str, DiskUsage], root: DiskUsage) -> dict[str, str]:
        """All keys; ``usages`` are of the log's folders, ``root`` is of the store's."""
        return {
            **self._life(),
            **self._traffic(),
            **self._puts(),
            **self._own_times(),
            **self._log(),
            **_disk(usages, root),
            **self._delays(),
            **self._pools(),
            **_no_timers(),
            **({} if self._timers is None else self._timers.figures()),
        }

    def _life(self) -> dict[str, str]:
        return {
            "bootTimestamp": str(self._boot_ms),
            "runtime": _duration(int(self._clock.monotonic() - self._booted)),
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": version_name(VERSION),
            "brokerActive": "true",
            "startAcceptSendRequestTimeStamp": str(
                self._config().broker.start_accept_send_request_ms
            ),
        }

    def _traffic(self) -> dict[str, str]:
        put, got, found, missed, timed, timed_out = self._statistics.rates()
        total = type(found)(*map(sum, zip(found, missed, strict=True)))
        days, now = self._statistics.days, self._statistics.traffic
        return {
            "putTps": _rates(put),
            "getFoundTps": _rates(found),
            "getMissTps": _rates(missed),
            "getTotalTps": _rates(total),
            "getTransferredTps": _rates(got),
            "getTransferedTps": _rates(got),  # as 4.x writes it
            "timerEnqueueTps": str(timed.ten_seconds),
            "timerDequeueTps": str(timed_out.ten_seconds),
            "msgPutTotalYesterdayMorning": str(days.yesterday_morning.put),
            "msgPutTotalTodayMorning": str(days.today_morning.put),
            "msgPutTotalTodayNow": str(now.put),
            "msgGetTotalYesterdayMorning": str(days.yesterday_morning.got),
            "msgGetTotalTodayMorning": str(days.today_morning.got),
            "msgGetTotalTodayNow": str(now.got),
        }

    def _puts(self) -> dict[str, str]:
        times, count = self._times.put, self._statistics.traffic.put
        size = self._store.log_end - self._begin
        return {
            "putMessageTimesTotal": str(count),
            "putMessageFailedTimes": str(self._failed_sends()),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / count if count else 0.0),
            "putMessageEntireTimeMax": str(_whole_ms(times.largest)),
            "putMessageDistributeTime": _distribution(times),
            "putLatency99": _exact_ms(times.quantile(0.99)),
            "putLatency999": _exact_ms(times.quantile(0.999)),
            "getMessageEntireTimeMax": str(_whole_ms(self._times.get.largest)),
        }

    def _own_times(self) -> dict[str, str]:
        """What Apache's brokers have no keys for: times of handlers are without the disk here."""
        flushes = self._flushes.last_minute()
        return {
            "putLatencyMax": _exact_ms(self._times.put.largest),
            "flushLatency99": _exact_ms(flushes.quantile(0.99)),
            "flushLatencyMax": _exact_ms(flushes.largest),
        }

    def _log(self) -> dict[str, str]:
        store, marks = self._store, self._store.watermarks
        store.dispatch()  # messages that were only gathered are not behind
        log = {
            "commitLogMinOffset": str(store.log_begin),
            "commitLogMaxOffset": str(store.log_end),
            "dispatchBehindBytes": str(marks.appended - marks.dispatched),
            "dispatchMaxBuffer": "0",
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "remainTransientStoreBufferNumbs": str(INT32_MAX),
            "remainHowManyDataToFlush": human_bytes(marks.appended - marks.flushed),
        }
        if store.settings.has_transient_pool:
            log["remainTransientStoreBufferNumbs"] = str(store.settings.transient_pool_size)
            log["remainHowManyDataToCommit"] = human_bytes(marks.appended - marks.committed)
        return log

    def _earliest_ms(self) -> int:
        view = self._store.record_at(self._store.log_begin)
        if view is None:
            return -1
        with view:
            return store_timestamp(view, 0)

    def _delays(self) -> dict[str, str]:
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in self._delay_offsets().items()
        }

    def _pools(self) -> dict[str, str]:
        pools = {"EndTransactionQueueSize": "0"}
        for pool in _POOLS:
            pools[f"{pool}ThreadPoolQueueSize"] = "0"
            pools[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
            capacity = f"{pool}ThreadPoolQueueCapacity"
            pools[capacity] = self._inert(capacity)
        pools["sendThreadPoolQueueSize"] = str(self._waiting_sends())
        capacity = self._inert("endTransactionPoolQueueCapacity")
        pools["EndTransactionThreadPoolQueueCapacity"] = capacity
        return pools

    def _inert(self, key: str) -> str:
        return self._config().given.get(key, INERT_KEYS[key].default)


def _disk(usages: Mapping[str, DiskUsage], root: DiskUsage) -> dict[str, str]:
    roomiest = min(usages.values(), key=lambda usage: usage.percent)
    whole = sum(usage.used + usage.free for usage in usages.values())
    free = sum(usage.free for usage in usages.values())
    ratios = {f"commitLogDiskRatio_{path}": _ratio(usage) for path, usage in usages.items()}
    return {
        **ratios,
        "commitLogDiskRatio": _ratio(roomiest),
        "consumeQueueDiskRatio": _ratio(root),
        "commitLogDirCapacity": f"Total : {human_bytes(whole)}, Free : {human_bytes(free)}.",
    }


def _no_timers() -> dict[str, str]:
    return dict.fromkeys(("timerReadBehind", "timerOffsetBehind", "timerCongestNum"), "0")


def _ratio(usage: DiskUsage) -> str:
    return str(usage.percent / 100)


def _rates(rates: Rates) -> str:
    return " ".join(str(rate) for rate in rates)


def _whole_ms(seconds: float) -> int:
    return math.floor(seconds * 1000)


def _exact_ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"


def _distribution(times: Distribution) -> str:
    """As Apache's brokers print it; what takes less than a millisecond takes 0 for them."""
    parts, before = [], 0
    for name, bound in _DISTRIBUTION:
        count = times.count_to(bound)
        parts.append(f"[{name}]:{count - before} ")
        before = count
    return "".join(parts) + f"[10s~]:{times.count - before} "


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def human_bytes(count: int) -> str:
    """A size as Apache's tools show it: ``0 B``, ``1.5 KiB``."""
    if count < 1024:
        return f"{count} B"
    value, unit = count / 1024, 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"
