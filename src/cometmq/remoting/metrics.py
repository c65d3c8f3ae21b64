"""Numbers about a running program, in the text form that Prometheus reads (version 0.0.4).

A program makes one ``Registry`` and its metrics once, keeps them, and counts::

    requests = registry.counter("cometmq_requests_total", "Requests served.", labels=("code",))
    route_queries = requests.child("105")  # looked up once, not per request
    route_queries.add()
"""

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds that suit durations of requests."""

CHILDREN_MAX = 1_000
"""Sets of label values kept per metric: names that come from peers must not fill the memory."""

_OTHERS = "other"

Labels = tuple[str, ...]


class Sample(NamedTuple):
    """One line: what follows the metric's name, label names and values, and the number."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Count:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def samples(self, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        yield Sample("", labels, self.value)


class Distribution:
    """How many observations were at most as large as each bound."""

    __slots__ = ("_bounds", "_counts", "_sum", "largest")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # each on its own; the last is above all bounds
        self._sum = 0.0
        self.largest = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        self._sum += value
        if value > self.largest:
            self.largest = value

    def add(self, other: "Distribution") -> None:
        """Count what ``other`` has observed, too; its bounds must be the same."""
        assert other._bounds == self._bounds, (other._bounds, self._bounds)
        self._counts = [own + its for own, its in zip(self._counts, other._counts, strict=True)]
        self._sum += other._sum
        self.largest = max(self.largest, other.largest)

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self._counts)

    def count_to(self, bound: float) -> int:
        """How many were at most ``bound``, which must be one of the bounds."""
        return sum(self._counts[: self._bounds.index(bound) + 1])

    def quantile(self, share: float) -> float:
        """A bound that this share of the observations does not exceed; 0.0 without any.

        Never more than the largest of them.
        """
        wanted, count = share * self.count, 0
        for bound, own in zip((*self._bounds, math.inf), self._counts, strict=True):
            count += own
            if count >= wanted:
                return min(bound, self.largest)
        return self.largest

    def samples(self, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]:
        count = 0
        for bound, own in zip((*self._bounds, math.inf), self._counts, strict=True):
            count += own
            yield Sample("_bucket", (*labels, ("le", _number(bound))), count)
        yield Sample("_sum", labels, self._sum)
        yield Sample("_count", labels, count)


class _Child(Protocol):
    def samples(self, labels: tuple[tuple[str, str], ...]) -> Iterator[Sample]: ...


C = TypeVar("C", bound=_Child)


class Family(Generic[C]):
    """A metric by label values; without labels it has one child, ``child()``."""

    def __init__(self, labels: Labels, make: Callable[[], C]) -> None:
        self._labels = labels
        self._make = make
        self._children: dict[Labels, C] = {} if labels else {(): make()}

    def child(self, *values: str) -> C:
        """The one with these label values; beyond ``CHILDREN_MAX`` all new ones share one."""
        assert len(values) == len(self._labels), (self._labels, values)
        found = self._children.get(values)
        if found is None:
            if len(self._children) >= CHILDREN_MAX:
                values = (_OTHERS,) * len(values)
            found = self._children.setdefault(values, self._make())
        return found

    def samples(self) -> Iterator[Sample]:
        for values, child in list(self._children.items()):
            yield from child.samples(tuple(zip(self._labels, values, strict=True)))


class Registry:
    """All metrics of a program."""

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[str, str, Callable[[], Iterable[Sample]]]] = {}

    def counter(self, name: str, text: str, labels: Labels = ()) -> Family[Count]:
        """Something that happens: its name ends in ``_total``."""
        family = Family(labels, Count)
        self._register(name, "counter", text, family.samples)
        return family

    def histogram(
        self, name: str, text: str, labels: Labels = (), bounds: Sequence[float] = SECONDS
    ) -> Family[Distribution]:
        """Something that varies: its name ends in a unit."""
        assert list(bounds) == sorted(set(bounds)), bounds
        family = Family(labels, lambda: Distribution(bounds))
        self._register(name, "histogram", text, family.samples)
        return family

    def gauge(
        self,
        name: str,
        text: str,
        read: Callable[[], float | Mapping[Labels, float]],
        labels: Labels = (),
    ) -> None:
        """Something that is: ``read`` is asked each time, with labels for a number by values."""
        self._read(name, "gauge", text, read, labels)

    def total(
        self,
        name: str,
        text: str,
        read: Callable[[], float | Mapping[Labels, float]],
        labels: Labels = (),
    ) -> None:
        """Something that happens and is counted elsewhere: its name ends in ``_total``."""
        self._read(name, "counter", text, read, labels)

    def collect(self) -> Iterator[tuple[str, str, str, Iterable[Sample]]]:
        """Everything as it is now: name, kind, help text and samples of each metric."""
        for name, (kind, text, samples) in self._metrics.items():
            yield name, kind, text, samples()

    def expose(self) -> str:
        """Everything, as text."""
        lines: list[str] = []
        for name, kind, text, samples in self.collect():
            lines += (f"# HELP {name} {_escaped(text)}", f"# TYPE {name} {kind}")
            lines += [_line(name, sample) for sample in samples]
        return "\n".join([*lines, ""])

    def _read(
        self,
        name: str,
        kind: str,
        text: str,
        read: Callable[[], float | Mapping[Labels, float]],
        labels: Labels,
    ) -> None:
        def samples() -> Iterator[Sample]:
            got = read()
            for values, value in (got if isinstance(got, Mapping) else {(): got}).items():
                yield Sample("", tuple(zip(labels, values, strict=True)), value)

        self._register(name, kind, text, samples)

    def _register(
        self, name: str, kind: str, text: str, samples: Callable[[], Iterable[Sample]]
    ) -> None:
        assert name not in self._metrics, name
        self._metrics[name] = kind, text, samples


def _line(name: str, sample: Sample) -> str:
    pairs = (f'{label}="{_quoted(value)}"' for label, value in sample.labels)
    braces = f"{{{','.join(pairs)}}}" if sample.labels else ""
    return f"{name}{sample.suffix}{braces} {_number(sample.value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    # A truth is a number, too, but would be written as a word.
    return repr(int(value) if isinstance(value, bool) else value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')
