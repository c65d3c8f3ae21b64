"""The numbers a broker shows to Prometheus, and how they are come by.

Nothing here is done per message: handlers are timed around all requests of one read, totals are
read from counters that are kept anyway, and lags are looked up from time to time, a slice of the
groups at a time.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cometmq.broker.runtime_info import TIME_BOUNDS, Times
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.model.topic import SCHEDULE_TOPIC
from cometmq.store.files import DiskFiles, DiskUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cometmq.broker.name_server_link import NameServerState
    from cometmq.broker.statistics import Counts
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.metrics import Count, Labels, Registry
    from cometmq.remoting.routes import Answer, BatchHandler, Routes, ShortWay
    from cometmq.store import MessageStore

PREFIX: Final = "cometmq_broker"
WATCH_SECONDS: Final = 10.0
"""Time between two looks at lags and disks."""

SLICE_LOOKUPS: Final = 500
"""Queues, and pairs of topic and group, that are looked up for lags in one turn of the loop."""

_PROC: Final = Path("/proc/self")
_SENDS: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
_FLUSH_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class RequestMeter:
    """Counts and times requests by kind, and counts refusals by request and reason."""

    def __init__(self, numbers: Registry) -> None:
        labels = ("kind",)
        self._requests = numbers.counter(
            f"{PREFIX}_requests_total", "Requests, refused ones included.", labels
        )
        self._seconds = numbers.histogram(
            f"{PREFIX}_request_seconds",
            "Time that handlers took for the requests of one read, without any waiting.",
            labels,
            TIME_BOUNDS,
        )
        self._refused = numbers.counter(
            f"{PREFIX}_requests_refused_total",
            "Requests not answered with success, by what was asked for and why not.",
            ("request", "code"),
        )
        for kind in ("send", "pull", "other"):
            self._requests.child(kind)
        self.times = Times(self._seconds.child("send"), self._seconds.child("pull"))
        # Sends that were refused.
        self.failed_sends = 0

    @property
    def pull_count(self) -> int:
        """Requests for messages, refused ones included."""
        return int(self._requests.child("pull").value)

    def add_to(self, routes: Routes) -> None:
        """Measure all handlers there are."""
        routes.wrap(self._measured, self._measured_way)

    def on_refused(self, command: Command, answer: Answer) -> None:
        """A request was answered with something else than success."""
        if command.code in _SENDS:
            self.failed_sends += 1
        self._refused.child(_request_name(command.code), _response_name(answer.code)).add()

    def _measured(self, code: int, handler: BatchHandler) -> BatchHandler:
        count, observe = self._measures(code)
        clock = time.perf_counter

        def serve(channel: Channel, commands: Sequence[Command]) -> None:
            began = clock()
            try:
                handler(channel, commands)
            finally:
                observe(clock() - began)
                count.value += len(commands)

        return serve

    def _measured_way(self, code: int, way: ShortWay) -> ShortWay:
        """What is left for the handler is measured there."""
        count, observe = self._measures(code)
        clock = time.perf_counter

        def take(channel: Channel, commands: Sequence[Command], frames: list[bytes]) -> int:
            began = clock()
            taken = way(channel, commands, frames)
            if taken:
                observe(clock() - began)
                count.value += taken
            return taken

        return take

    def _measures(self, code: int) -> tuple[Count, Callable[[float], None]]:
        kind = "send" if code in _SENDS else "pull" if code in _PULLS else "other"
        return self._requests.child(kind), self._seconds.child(kind).observe


class Consumption(Protocol):
    """What lags need to know of groups."""

    def groups(self) -> Sequence[str]: ...

    def topics_of(self, group: str) -> Sequence[tuple[str, int]]:
        """Topics, each with how many queues can be read."""
        ...

    def offsets_of(self, group: str, topic: str) -> Mapping[int, int]: ...


class Lags:
    """How many messages groups have not consumed; the largest of them each, and the sum of all.

    A queue of which a group has no offset is not consumed at all.
    """

    def __init__(
        self, consumption: Consumption, max_offset: Callable[[str, int], int], *, series_max: int
    ) -> None:
        self._consumption = consumption
        self._max_offset = max_offset
        self._series_max = series_max
        # By topic and group, as of the last look.
        self.largest: dict[Labels, float] = {}
        self.total = 0

    def steps(self) -> Iterator[None]:
        """Look at all groups, a slice at a time."""
        if not self._series_max:
            return
        found: list[tuple[int, str, str]] = []
        total = lookups = 0
        for group, topic, queue_count in self._pairs():
            lag = 0
            lookups += 1
            offsets = self._consumption.offsets_of(group, topic)
            for queue in range(queue_count):
                lag += max(0, self._max_offset(topic, queue) - max(offsets.get(queue, 0), 0))
                lookups += 1
                if lookups >= SLICE_LOOKUPS:
                    lookups = 0
                    yield
            total += lag
            heapq.heappush(found, (lag, topic, group))
            if len(found) > self._series_max:
                heapq.heappop(found)
        self.largest = {(topic, group): lag for lag, topic, group in sorted(found, reverse=True)}
        self.total = total

    def _pairs(self) -> Iterator[tuple[str, str, int]]:
        for group in self._consumption.groups():
            for topic, queue_count in self._consumption.topics_of(group):
                yield group, topic, queue_count


class Disks:
    """How full the disks are, as last measured."""

    def __init__(
        self, folders: Sequence[str], usage: Callable[[Path], DiskUsage] | None = None
    ) -> None:
        self._folders = folders
        self._usage = usage or DiskFiles().usage
        self.usages: dict[str, DiskUsage] = {}

    def measure(self) -> None:
        """Look; may block. What cannot be measured is left out."""
        usages = {}
        for folder in self._folders:
            try:
                usages[folder] = self._usage(Path(folder))
            except OSError:
                continue
        self.usages = usages


class BrokerMetrics:
    """Everything else there is to show; ``run`` keeps up to date what cannot be asked at any time.

    Each ``add_`` names what it needs; the program calls them all.
    """

    def __init__(self, numbers: Registry, lags: Lags, disks: Disks) -> None:
        self._numbers = numbers
        self._lags = lags
        self._disks = disks

    async def run(self) -> None:
        """Look at lags and disks until cancelled."""
        while True:
            await asyncio.to_thread(self._disks.measure)
            for _ in self._lags.steps():
                await asyncio.sleep(0)
            await asyncio.sleep(WATCH_SECONDS)

    def add_store(self, store: MessageStore) -> None:
        """Positions of the log, flushes, and what the disk allows."""
        marks = store.watermarks
        self._gauge("log_begin_bytes", "Where the log begins.", lambda: store.log_begin)
        self._gauge("log_end_bytes", "Where the log ends.", lambda: marks.appended)
        self._gauge("log_flushed_bytes", "How far it is on disk.", lambda: marks.flushed)
        self._gauge("log_dispatched_bytes", "How far it is in queues.", lambda: marks.dispatched)
        self._gauge("is_writable", "1 while messages are taken.", lambda: store.state.is_writable)
        text = "0 normal, 1 cleaning at any hour, 2 deleting unexpired files, 3 refusing messages."
        self._gauge("disk_state", text, lambda: int(store.state.disk))
        for name, text, read in (
            ("disk_used_ratio", "Used share of the disk.", lambda it: it.percent / 100),
            ("disk_free_bytes", "Free space of the disk.", lambda it: it.free),
        ):
            self._numbers.gauge(f"{PREFIX}_{name}", text, self._by_disk(read), ("path",))
        flushes = self._numbers.histogram(
            f"{PREFIX}_flush_seconds", "Time that flushes of the log took.", (), _FLUSH_BOUNDS
        )
        store.on_flushed(flushes.child().observe)

    def add_extensions(
        self, store: MessageStore, *, producers: Callable[[], int], behind_bytes: Callable[[], int]
    ) -> None:
        """Idempotent producers, and archives of the log."""
        retention = store.retention
        self._gauge("idempotent_producers", "Producers with remembered sends.", producers)
        self._gauge("archive_behind_bytes", "Log that no archive has yet.", behind_bytes)
        self._gauge(
            "archive_holds_log",
            "1 while an archive keeps expired log files.",
            lambda: retention.held_back is not None,
        )
        self._numbers.total(
            f"{PREFIX}_archive_overridden_total",
            "Log files deleted before they were archived, because the disk was full.",
            lambda: retention.overridden_count,
        )

    def add_traffic(self, puts: Callable[[], Counts], gets: Callable[[], Counts]) -> None:
        """Messages and bytes in and out."""
        for name, text, read in (
            ("messages_put_total", "Messages taken.", lambda: puts().messages),
            ("put_bytes_total", "Bytes of messages taken.", lambda: puts().bytes),
            ("messages_got_total", "Messages handed out.", lambda: gets().messages),
            ("got_bytes_total", "Bytes of messages handed out.", lambda: gets().bytes),
        ):
            self._numbers.total(f"{PREFIX}_{name}", text, read)
        self._numbers.gauge(
            f"{PREFIX}_consumer_lag_messages",
            "Messages not consumed yet; of the groups and topics where it is most.",
            lambda: self._lags.largest,
            ("topic", "group"),
        )
        self._gauge(
            "consumer_lag_sum_messages", "The same of all groups.", lambda: self._lags.total
        )

    def add_people(
        self,
        *,
        connections: Callable[[], int],
        topics: Callable[[], int],
        groups: Callable[[], int],
        held_pulls: Callable[[], int],
        waiting_sends: Callable[[], int],
    ) -> None:
        """Who is there, and who waits."""
        self._gauge("connections", "Open connections.", connections)
        self._gauge("topics", "Topics.", topics)
        self._gauge("consumer_groups", "Consumer groups online.", groups)
        self._gauge("pulls_held", "Pulls that wait for a message.", held_pulls)
        self._gauge("sends_waiting", "Messages whose senders wait for the disk.", waiting_sends)

    def add_delays(
        self,
        store: MessageStore,
        *,
        levels: int,
        offsets: Callable[[], Mapping[int, int]],
        delivered: Callable[[], int],
        timers: Callable[[], int] = lambda: 0,
    ) -> None:
        """What is delivered later: ``offsets`` by delay level, and how many ``timers`` wait."""

        def waiting() -> dict[Labels, float]:
            reached = offsets()
            return {
                (str(level),): max(0, queue.max_offset - reached.get(level, queue.min_offset))
                for level in range(1, levels + 1)
                if (queue := store.queue(SCHEDULE_TOPIC, level - 1)) is not None
            }

        text = "Messages of a delay level that are not delivered yet."
        self._numbers.gauge(f"{PREFIX}_delayed_messages", text, waiting, ("level",))
        text = "Delayed messages that were delivered."
        self._numbers.total(f"{PREFIX}_delayed_delivered_total", text, delivered)
        self._gauge("timer_messages", "Messages that wait for a time of their own.", timers)

    def add_registration(self, states: Callable[[], Sequence[NameServerState]]) -> None:
        """Which name servers know the broker."""
        self._numbers.gauge(
            f"{PREFIX}_registered",
            "1 where the broker is registered.",
            lambda: {(state.address,): state.is_registered for state in states()},
            ("name_server",),
        )

    def add_process(self) -> None:
        """What the process needs of the machine, under the names that everybody uses."""
        began = time.time()
        self._numbers.gauge("process_start_time_seconds", "When the broker started.", lambda: began)
        self._numbers.total("process_cpu_seconds_total", "Time on processors.", time.process_time)
        if _PROC.is_dir():  # not so on macOS
            self._numbers.gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
            self._numbers.gauge("process_open_fds", "Open files and sockets.", _open_files)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._numbers.gauge("process_max_fds", "How many of them there may be.", lambda: limit)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._numbers.gauge(f"{PREFIX}_{name}", text, read)

    def _by_disk(self, read: Callable[[DiskUsage], float]) -> Callable[[], dict[Labels, float]]:
        return lambda: {(path,): read(usage) for path, usage in self._disks.usages.items()}


def _request_name(code: int) -> str:
    """What a peer asked for; numbers that nobody knows are all the same."""
    try:
        return RequestCode(code).name
    except ValueError:
        return "unknown"


def _response_name(code: int) -> str:
    """Why not; answers passed on from a client have any code it likes, and each label stays."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return "unknown"


def _resident_bytes() -> int:
    pages = (_PROC / "statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    return sum(1 for _ in (_PROC / "fd").iterdir())
