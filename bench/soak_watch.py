"""What a process holds while it runs: anonymous memory and open files, as its system says."""

import contextlib
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.capacity import cpu_seconds
from bench.memory import memory_mb

DELETED = " (deleted)"
ERROR_LINE = re.compile(r"\d{4}-\S+ (?:ERROR|CRITICAL) |Traceback ")
WARNING_LINE = re.compile(r"\d{4}-\S+ WARNING (.*)")
_TEN_MINUTES_S = 600


class Sample(NamedTuple):
    """A process at one time of its life."""

    age_s: float
    anonymous_mb: float
    sockets: int
    store_files: int
    other_files: int
    deleted: tuple[str, ...]
    """Files held open or mapped that have no name any more."""
    cpu_s: float = 0.0


@dataclass(slots=True)
class Life:
    """A process from its start to its end."""

    number: int
    pid: int
    began_s: float
    samples: list[Sample] = field(default_factory=list)
    ended_by: str = "the end"
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.samples[-1].age_s if self.samples else 0.0

    def after(self, warm_up_s: float) -> list[Sample]:
        return [sample for sample in self.samples if sample.age_s >= warm_up_s]


def sample(pid: int, age_s: float, store: Path) -> Sample:
    """Raises OSError when the process has ended."""
    anonymous_mb = memory_mb(pid).anonymous
    targets = list(_targets(pid))
    sockets = sum(target.startswith("socket:") for target in targets)
    kept = sum(target.startswith(str(store)) for target in targets)
    nameless = {target for target in targets if target.endswith(DELETED)} | _nameless_maps(pid)
    others = len(targets) - sockets - kept
    deleted = tuple(sorted(nameless))
    return Sample(age_s, anonymous_mb, sockets, kept, others, deleted, cpu_seconds(pid))


def _targets(pid: int) -> Iterator[str]:
    """What the descriptors are of; one that is closed meanwhile is passed over."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(descriptor.readlink())


def _nameless_maps(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = (line.split(maxsplit=5)[5] for line in lines if line.endswith(DELETED))
    return {path for path in paths if not path.startswith(("/dev/zero", "/memfd:"))}


def slope_mb(samples: Sequence[Sample]) -> float:
    """How many megabytes of anonymous memory come in ten minutes, by the line that fits best."""
    ages = [sample.age_s for sample in samples]
    if len(set(ages)) < 2:
        return 0.0
    line = statistics.linear_regression(ages, [sample.anonymous_mb for sample in samples])
    return line.slope * _TEN_MINUTES_S


def read_log(life: Life, text: str) -> None:
    """Keep what the process complained of; a traceback with the line that follows from it."""
    lines = text.splitlines()
    life.errors += [line for line in lines if ERROR_LINE.match(line)]
    life.warnings += [found.group(1) for line in lines if (found := WARNING_LINE.match(line))]
