"""What went through a broker lately: by topic, by group and in all.

Nothing is recorded per message. Whoever handles messages keeps plain counters that only grow, and
they are looked at here from time to time::

    every 10 s      7 samples kept      the last minute
    every 10 min    7                   the last hour
    every hour     25                   the last day

A figure is the difference between now and the oldest sample of its window, so that what has just
happened counts. All counters are sampled together: the times are kept once, and a counter that was
0 at a sample needs none for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cometmq.codec.bodies.stats import BrokerStatsData, BrokerStatsItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cometmq.clock import Clock

SAMPLE_SECONDS: Final = 10.0

KEYS_MAX: Final = 20_000
"""Keys of one kind that are sampled; what comes after them has figures since the last sample."""

SLICE_KEYS: Final = 500
"""Keys sampled in one turn of the loop: about half a millisecond."""

RATE_SAMPLES: Final = 61
"""Samples of the totals: ten minutes of them."""

_EARLY_SECONDS: Final = 0.5
_MINUTE, _HOUR, _DAY = (SAMPLE_SECONDS, 7), (600.0, 7), (3600.0, 25)


class Counts(NamedTuple):
    """Messages and their bytes since the start."""

    messages: int
    bytes: int


ZERO: Final = Counts(0, 0)


class Source(Protocol):
    """Counters by key; only keys that have counted something are there."""

    def keys(self) -> Iterable[str]: ...

    def read(self, key: str) -> Counts | None: ...


class Sources(NamedTuple):
    """All counters that statistics are made of."""

    topic_puts: Source
    group_gets: Source
    send_backs: Source
    broker_puts: Source
    broker_gets: Source
    dead_letters: Source
    user_puts: Source
    user_gets: Source


class _Item(NamedTuple):
    """Where the figures of a name come from: which source, and which of its two counters."""

    source: str
    is_bytes: bool = False


ITEMS: Final[Mapping[str, _Item]] = {
    "TOPIC_PUT_NUMS": _Item("topic_puts"),
    "TOPIC_PUT_SIZE": _Item("topic_puts", is_bytes=True),
    "GROUP_GET_NUMS": _Item("group_gets"),
    "GROUP_GET_SIZE": _Item("group_gets", is_bytes=True),
    "SNDBCK_PUT_NUMS": _Item("send_backs"),
    "BROKER_PUT_NUMS": _Item("broker_puts"),
    "BROKER_GET_NUMS": _Item("broker_gets"),
    "SNDBCK2DLQ_TIMES": _Item("dead_letters"),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": _Item("user_puts"),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": _Item("user_gets"),
}
"""Apache's names. Keys are ``topic``, ``topic@group``, the cluster's name, and ``DeadLetters``'.

What would have to be counted with each send or pull is not here: by queue, and how long it took.
"""


class _Window:
    """Times of the samples of one length; ``due`` is when the next is taken."""

    __slots__ = ("due", "interval", "times")

    def __init__(self, interval: float, count: int, now: float) -> None:
        self.interval = interval
        self.due = now + interval
        # Counters had nothing at the start.
        self.times: deque[float] = deque([now], maxlen=count)

    def take(self, now: float) -> bool:
        """Whether a sample is due; its time is noted then."""
        # A timer may be early by a hair, and the sample would come a whole round later.
        if now < self.due - _EARLY_SECONDS:
            return False
        # After a long sleep of the machine one sample is enough.
        self.due = max(self.due + self.interval, now + self.interval / 2)
        self.times.append(now)
        return True


Samples = tuple["deque[Counts]", "deque[Counts]", "deque[Counts]"]


class _Kind:
    """The samples of one source: per key and window, the newest last, where the times have it."""

    def __init__(self, source: Source, windows: Sequence[_Window]) -> None:
        self.source = source
        self._windows = windows
        self.samples: dict[str, Samples] = {}

    def sample(self, is_taken: Sequence[bool]) -> Iterator[None]:
        """Look at all counters; a generator, so that others get a turn."""
        keys = list(self.source.keys())
        for number, key in enumerate(keys, 1):
            if key in self.samples or len(self.samples) < KEYS_MAX:
                self._sample_one(key, is_taken)
            if number % SLICE_KEYS == 0:
                yield
        for key in self.samples.keys() - set(keys):
            del self.samples[key]

    def oldest(self, key: str, number: int, now_counts: Counts) -> tuple[float, Counts]:
        """Time and counts of the oldest sample of a window."""
        window = self._windows[number]
        samples = self.samples.get(key)
        if samples is None or now_counts < samples[0][-1]:
            return window.times[-1], ZERO
        kept = samples[number]
        return window.times[-len(kept)], kept[0]

    def _sample_one(self, key: str, is_taken: Sequence[bool]) -> None:
        counts = self.source.read(key)
        if counts is None:
            return
        samples = self.samples.get(key)
        if samples is None or counts < samples[0][-1]:
            # New since the last sample, or gone and made again.
            samples = self.samples[key] = (
                deque([ZERO], maxlen=self._windows[0].times.maxlen),
                deque([ZERO], maxlen=self._windows[1].times.maxlen),
                deque([ZERO], maxlen=self._windows[2].times.maxlen),
            )
        elif counts == samples[0][-1]:
            counts = samples[0][-1]  # the same object: what rests costs no memory
        for kept, is_now in zip(samples, is_taken, strict=True):
            if is_now:
                kept.append(counts)


class Traffic(NamedTuple):
    """What the whole broker did since the start."""

    put: int
    got: int
    """Messages handed out."""
    found: int
    """Pulls that found something."""
    missed: int
    timed: int
    """Messages entered into the wheel of timers."""
    timed_out: int
    """Messages that left it, to where they were sent or once more into it."""


class Rates(NamedTuple):
    """Something per second, over the last ten seconds, minute and ten minutes."""

    ten_seconds: float
    minute: float
    ten_minutes: float


class Days(NamedTuple):
    """Totals at the beginning of yesterday and of today."""

    yesterday_morning: Traffic
    today_morning: Traffic


class Statistics:
    """All figures; ``run`` keeps them up to date, and everything else only reads.

    ``traffic`` tells the totals of the broker.
    """

    def __init__(self, clock: Clock, sources: Sources, traffic: Callable[[], Traffic]) -> None:
        self._clock = clock
        self._traffic = traffic
        now = clock.monotonic()
        self._windows = [_Window(*shape, now) for shape in (_MINUTE, _HOUR, _DAY)]
        self._kinds = {
            name: _Kind(source, self._windows) for name, source in sources._asdict().items()
        }
        self._totals = deque([(now, traffic())], maxlen=RATE_SAMPLES)
        nothing = Traffic(*[0] * len(Traffic._fields))
        self.days = Days(nothing, nothing)
        self._today = _day(clock.now_ms())

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            for _ in self.steps():
                await asyncio.sleep(0)

    def sample(self) -> None:
        """Take the samples that are due, in one go."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Take the samples that are due, a slice at a time."""
        now = self._clock.monotonic()
        self._note_day()
        is_taken = [window.take(now) for window in self._windows]
        if not is_taken[0]:
            return
        self._totals.append((now, self._traffic()))
        for kind in self._kinds.values():
            yield from kind.sample(is_taken)

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """The figures of an item; None when there is no such item or it never counted."""
        item = ITEMS.get(name)
        kind = None if item is None else self._kinds[item.source]
        counts = None if kind is None else kind.source.read(key)
        if item is None or kind is None or counts is None:
            return None
        now = self._clock.monotonic()
        figures = (
            _figure(item, counts, *kind.oldest(key, number, counts), now)
            for number in range(len(self._windows))
        )
        return BrokerStatsData(*figures)

    def tps(self, name: str, key: str) -> float:
        """How many per second in the last minute; 0.0 of what never was."""
        found = self.view(name, key)
        return 0.0 if found is None or found.stats_minute is None else found.stats_minute.tps

    @property
    def traffic(self) -> Traffic:
        """Totals since the start."""
        return self._traffic()

    def rates(self) -> tuple[Rates, Rates, Rates, Rates, Rates, Rates]:
        """What ``Traffic`` counts, per second."""
        now, traffic = self._clock.monotonic(), self._traffic()
        begins = [self._total_before(now - seconds) for seconds in (10, 60, 600)]
        put, got, found, missed, timed, timed_out = (
            Rates(*(_per_second(traffic[n] - then[n], now - began) for began, then in begins))
            for n in range(len(traffic))
        )
        return put, got, found, missed, timed, timed_out

    def _total_before(self, moment: float) -> tuple[float, Traffic]:
        """The newest sample of the totals that is not later than ``moment``, or the oldest."""
        found = self._totals[0]
        for sample in self._totals:
            if sample[0] > moment:
                break
            found = sample
        return found

    def _note_day(self) -> None:
        today = _day(self._clock.now_ms())
        if today != self._today:
            self._today = today
            self.days = Days(self.days.today_morning, self._traffic())


def _figure(
    item: _Item, counts: Counts, began: float, oldest: Counts, now: float
) -> BrokerStatsItem:
    messages = counts.messages - oldest.messages
    amount = counts.bytes - oldest.bytes if item.is_bytes else messages
    mean = amount / messages if messages else 0.0
    return BrokerStatsItem(amount, _per_second(amount, now - began), mean)


def _per_second(amount: int, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _day(now_ms: int) -> int:
    """The day of the year where this machine is."""
    return time.localtime(now_ms / 1000).tm_yday


# --- where the counters are


class CountedTopic(Protocol):
    """A topic, as far as it counts."""

    name: str
    put_count: int
    put_bytes: int
    is_system: bool


class TopicPuts:
    """Messages taken by topic, as the topics count them; what deleted ones had stays in ``total``.

    Whoever makes and deletes topics tells ``learn`` and ``forget``.
    """

    def __init__(self, by_name: Mapping[str, CountedTopic]) -> None:
        self._by_name = by_name
        # A topic that is deleted is not in the table any more when that is told.
        self._known = dict(by_name)
        self._gone = ZERO

    def keys(self) -> Iterable[str]:
        return [name for name, topic in self._by_name.items() if topic.put_count]

    def read(self, key: str) -> Counts | None:
        topic = self._by_name.get(key)
        if topic is None or not topic.put_count:
            return None
        return Counts(topic.put_count, topic.put_bytes)

    def total(self) -> Counts:
        messages, size = self._gone
        for topic in self._by_name.values():
            messages += topic.put_count
            size += topic.put_bytes
        return Counts(messages, size)

    def user_messages(self) -> int:
        """All messages but those of RocketMQ's own topics, which nobody deletes."""
        own = sum(topic.put_count for topic in self._by_name.values() if topic.is_system)
        return self.total().messages - own

    def learn(self, topics: Sequence[CountedTopic]) -> None:
        for topic in topics:
            self._known[topic.name] = topic

    def forget(self, name: str) -> None:
        topic = self._known.pop(name, None)
        if topic is not None:
            messages, size = self._gone
            self._gone = Counts(messages + topic.put_count, size + topic.put_bytes)


class AlsoPutAside:
    """Messages by topic, and what was put aside in topics that nobody sends to, as Apache has it.

    ``ends`` tells how many messages such a topic ever had: what it has grown counts, without bytes.
    """

    def __init__(self, puts: Source, ends: Mapping[str, Callable[[], int]]) -> None:
        self._puts = puts
        self._ends = {topic: (end, end()) for topic, end in ends.items()}

    def keys(self) -> Iterable[str]:
        return [*self._puts.keys(), *(topic for topic in self._ends if self._grown(topic))]

    def read(self, key: str) -> Counts | None:
        if key not in self._ends:
            return self._puts.read(key)
        count = self._grown(key)
        return Counts(count, 0) if count else None

    def _grown(self, topic: str) -> int:
        end, begin = self._ends[topic]
        return max(end() - begin, 0)


class PairCounts:
    """Counters by topic and group: a list of messages and perhaps bytes for each pair.

    What has no names is counted in the total only.
    """

    def __init__(self, counters: dict[tuple[str, str], list[int]]) -> None:
        self._counters = counters

    def forget_topic(self, topic: str) -> None:
        """A topic is gone; what was counted for it stays in ``total``."""
        self._forget([pair for pair in self._counters if pair[0] == topic])

    def forget_group(self, group: str) -> None:
        """The same for a group."""
        self._forget([pair for pair in self._counters if pair[1] == group])

    def _forget(self, pairs: Sequence[tuple[str, str]]) -> None:
        for pair in pairs:
            gone = self._counters.pop(pair)
            nameless = self._counters.setdefault(("", ""), [0] * len(gone))
            for index, count in enumerate(gone):
                nameless[index] += count

    def keys(self) -> Iterable[str]:
        pairs = self._counters.items()
        return [f"{topic}@{group}" for (topic, group), count in pairs if topic and count[0]]

    def read(self, key: str) -> Counts | None:
        topic, _, group = key.partition("@")
        counter = self._counters.get((topic, group))
        if counter is None or not topic or not counter[0]:
            return None
        return Counts(counter[0], counter[1] if len(counter) > 1 else 0)

    def total(self) -> Counts:
        pairs = [(c[0], c[1] if len(c) > 1 else 0) for c in self._counters.values()]
        return Counts(sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs))

    def messages_of(self, is_wanted: Callable[[str], bool]) -> int:
        """Messages of some topics; ``is_wanted`` is asked with "" about what has no name."""
        return sum(count[0] for (topic, _), count in self._counters.items() if is_wanted(topic))


class DeadLetters:
    """Counters of pairs under the keys that 5.x has for dead letters.

    Apache's are ``owner@topic@group@SEND_BACK_TO_DLQ``. Clients that are no cloud's have no owner.
    """

    _BEGIN = "null@"
    _END = "@SEND_BACK_TO_DLQ"

    def __init__(self, pairs: PairCounts) -> None:
        self._pairs = pairs

    def keys(self) -> Iterable[str]:
        pairs = self._pairs.keys()
        return [f"{self._BEGIN}{key}{self._END}" for key in pairs]

    def read(self, key: str) -> Counts | None:
        if not (key.startswith(self._BEGIN) and key.endswith(self._END)):
            return None
        return self._pairs.read(key[len(self._BEGIN) : -len(self._END)])


def pair_counter(
    counters: dict[tuple[str, str], list[int]],
    topic: str,
    group: str,
    *,
    width: int,
    pairs_max: int | None = None,
) -> list[int]:
    """Where to count for a pair: ``width`` numbers; when there are too many, without its names."""
    counter = counters.get((topic, group))
    if counter is None:
        is_full = len(counters) >= (KEYS_MAX if pairs_max is None else pairs_max)
        pair = ("", "") if is_full else (topic, group)
        counter = counters.setdefault(pair, [0] * width)
    return counter


class Whole:
    """One counter for all, under one key."""

    def __init__(self, key: str, read: Callable[[], int]) -> None:
        self._key = key
        self._read = read

    def keys(self) -> Iterable[str]:
        return (self._key,)

    def read(self, key: str) -> Counts | None:
        return Counts(self._read(), 0) if key == self._key else None
