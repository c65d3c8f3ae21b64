"""What ``bench.store`` measures: cases, each with the load it puts on the stores and its rows.

How costs grow with queues and log files is in ``store_growth``.
"""

import contextlib
import functools
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from bench.rounds import ROUNDS
from bench.store_subject import Sizes, Subject, SubjectFailed, apache_store, our_store, sync_files
from tests.interop.cache import default_cache

OURS, APACHE = "ours", "Apache 4.9.7"
APACHE_LATER = "Apache 5.5.0"

CHUNK = 4096
"""Messages made before the clock runs and then appended: few enough to stay in the caches."""

APPEND_CPU_MAX, BATCH_CPU_MAX = 1.0, 0.5
APPEND_SLICES_MAX = 10.0
READ_MAX = REOPEN_MAX = 1.0
SYNC_RATE_GROWTH_MAX = 1.1

SENDERS = (1, 16, 256)

_MIB = 1 << 20
_LOG_256_MIB = Sizes(log=256 * _MIB)

Series = dict[str, list[float]]
"""Figures by name, one a round; costs are nanoseconds per message, per read or per opening."""


class Row(NamedTuple):
    """The ratio of two series; ``cost`` is the one whose nanoseconds are shown, if not ``work``."""

    name: str
    work: str
    base: str
    ratio_max: float | None = None
    cost: str = ""


class Case(NamedTuple):
    measure: Callable[["Bench"], Series]
    rows: tuple[Row, ...]


class Load(NamedTuple):
    """Messages of ``body`` bytes, alone or in batches, going round a number of queues."""

    body: int = 128
    batch: int = 1
    queues: int = 1

    def __str__(self) -> str:
        size = "128 B" if self.body == 128 else "1 KiB"
        return f"{size}, {'single' if self.batch == 1 else f'batch of {self.batch}'}"


class Bench:
    """The subjects of one run, started when needed and kept until the end."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack, *, is_quick: bool) -> None:
        self.folder = folder
        self.is_quick = is_quick
        self._stack = stack
        self._subjects: dict[tuple[str, str], Subject] = {}
        self._warmed: set[tuple[Subject, str]] = set()

    def subject(self, name: str, place: str = "") -> Subject:
        """A running subject; those of different places are different processes."""
        key = (name, place)
        if key not in self._subjects:
            self._subjects[key] = self._stack.enter_context(self.started(name, place))
        return self._subjects[key]

    def started(self, name: str, place: str) -> Subject:
        folder = self.folder_of(name, place)
        if name == OURS:
            return our_store(folder)
        return apache_store(default_cache(), name.removeprefix("Apache "), folder)

    def folder_of(self, name: str, place: str) -> Path:
        # Apache takes a comma for the end of one path and the begin of another.
        return self.folder / f"{name}-{place}".replace(" ", "-").replace(",", "")

    def releases(self) -> list[Subject]:
        """Ours and every release of Apache's that is compared with."""
        return [self.subject(name) for name in (OURS, *compared(self.is_quick))]

    def scaled(self, count: int) -> int:
        """A tenth in a quick run, in whole chunks."""
        return max(1, count // (10 if self.is_quick else 1) // CHUNK) * CHUNK

    def warm_up(self, subject: Subject, kind: str, work: Callable[[], object]) -> None:
        """Repeat ``work`` until a JVM has compiled it; what it did before it does sooner again."""
        seconds = 1.0
        if subject.name != OURS:
            seconds = 3.0 if (subject, kind) in self._warmed else 12.0
        self._warmed.add((subject, kind))
        deadline = time.monotonic() + seconds / (4 if self.is_quick else 1)
        while time.monotonic() < deadline:
            work()


def compared(is_quick: bool) -> tuple[str, ...]:
    return (APACHE,) if is_quick else (APACHE, APACHE_LATER)


def alternate(measures: Mapping[str, Callable[[], Mapping[str, float]]]) -> Series:
    """Every measure once a round; their figures are named by both."""
    series: Series = {}
    for _ in range(ROUNDS):
        for name, measure in measures.items():
            for figure, value in measure().items():
                series.setdefault(f"{name} {figure}", []).append(value)
    return series


# Appending


def append(subject: Subject, load: Load, count: int) -> dict[str, float]:
    """Nanoseconds per message: CPU of the process, and of the appending thread alone."""
    cpu_ns, put_ns, chunks = 0, 0, count // CHUNK
    for _ in range(chunks):
        subject.ask("prepare", count=CHUNK, **load._asdict())
        answer = subject.ask("append")
        cpu_ns += answer["cpu_ns"]
        put_ns += answer["put_ns"]
    return {"CPU": cpu_ns / (chunks * CHUNK), "put": put_ns / (chunks * CHUNK)}


def assign_slices(subject: Subject, load: Load) -> dict[str, float]:
    count = 16 * CHUNK
    return {"put": subject.ask("floor", count=count, **load._asdict())["put_ns"] / count}


def append_case(load: Load, apaches: tuple[str, ...]) -> Case:
    target = None
    if load.body == 128:
        target = APPEND_CPU_MAX if load.batch == 1 else BATCH_CPU_MAX
    rows = [
        Row(f"append {load}, CPU / {apache}", f"{OURS} CPU", f"{apache} CPU",
            target if apache == APACHE else None)
        for apache in apaches
    ]  # fmt: skip
    rows += [
        Row(f"append {load}, put / {apache}", f"{OURS} put", f"{apache} put") for apache in apaches
    ]
    slices_max = APPEND_SLICES_MAX if load == Load() else None
    rows.append(Row(f"append {load}, put / slice", f"{OURS} put", "slice put", slices_max))
    return Case(functools.partial(measure_append, load=load), tuple(rows))


def measure_append(bench: Bench, *, load: Load) -> Series:
    # A whole log file a round: what allocating it costs is spread over what goes into it.
    count = bench.scaled(800_000 if load.body == 128 else 200_000)
    subjects = bench.releases()
    for subject in subjects:
        subject.open(_LOG_256_MIB)
        work = functools.partial(append, subject, load, CHUNK)
        bench.warm_up(subject, f"append {load.batch}", work)
    measures: dict[str, Callable[[], Mapping[str, float]]] = {
        subject.name: functools.partial(append, subject, load, count) for subject in subjects
    }
    measures["slice"] = functools.partial(assign_slices, subjects[0], load)
    series = alternate(measures)
    for subject in subjects:
        subject.ask("destroy")
    return series


def pool_case() -> Case:
    return Case(
        measure_pool,
        (
            Row(f"append with pool, CPU / {APACHE}", f"{OURS} CPU", f"{APACHE} CPU"),
            Row(f"append with pool, put / {APACHE}", f"{OURS} put", f"{APACHE} put"),
        ),
    )


def measure_pool(bench: Bench) -> Series:
    subjects = [bench.subject(OURS), bench.subject(APACHE)]
    for subject in subjects:
        subject.open(Sizes(log=64 * _MIB), has_pool=True)
        bench.warm_up(subject, "pool", functools.partial(append, subject, Load(), CHUNK))
    count = bench.scaled(400_000)
    series = alternate({s.name: functools.partial(append, s, Load(), count) for s in subjects})
    for subject in subjects:
        subject.ask("destroy")
    return series


# Reading


def read_case(apaches: tuple[str, ...], *, has_tag: bool, is_cold: bool) -> Case:
    kind = f"read 32, {'by tag' if has_tag else 'all'}, {'cold' if is_cold else 'hot'}"
    figure = "wall" if is_cold else "read"
    rows = tuple(
        Row(f"{kind} / {apache}", f"{OURS} {figure}", f"{apache} {figure}",
            READ_MAX if apache == APACHE else None)
        for apache in apaches
    )  # fmt: skip
    return Case(functools.partial(measure_read, has_tag=has_tag, is_cold=is_cold), rows)


def measure_read(bench: Bench, *, has_tag: bool, is_cold: bool) -> Series:
    """The whole queue is read from its begin, the bytes taken out only when they were on disk."""
    count = bench.scaled(800_000)
    step = 64 if has_tag else 32
    subjects = bench.releases()
    measures = {}
    for subject in subjects:
        subject.open(_LOG_256_MIB)
        append(subject, Load(batch=32), count)
        read_all = functools.partial(
            read, subject, count // step, span=count, step=step, tag=int(has_tag),
            copied=int(is_cold),
        )  # fmt: skip
        bench.warm_up(subject, "read", read_all)
        measures[subject.name] = functools.partial(read_cold, subject, read_all)
        if not is_cold:
            measures[subject.name] = read_all
    series = alternate(measures)
    for subject in subjects:
        subject.ask("destroy")
    return series


def read(subject: Subject, count: int, *, queues: int = 1, **options: int) -> dict[str, float]:
    """Nanoseconds per read of 32 messages: of the reading thread's CPU, and of waiting."""
    answer = subject.ask("read", count=count, queues=queues, **{"tag": 0, "copied": 0, **options})
    if answer["found"] < count * 31:
        raise SubjectFailed(f"{subject.name}: {count} reads found {answer['found']} messages")
    return {"read": answer["read_ns"] / count, "wall": answer["wall_ns"] / count}


def read_cold(subject: Subject, read_all: Callable[[], dict[str, float]]) -> dict[str, float]:
    subject.forget_pages()
    return read_all()


# Synchronous flush


def flush_case() -> Case:
    rows = [
        Row(f"flushed, {senders} sender{'s' * (senders > 1)} / {APACHE}",
            f"{OURS} {senders} message", f"{APACHE} {senders} message")
        for senders in SENDERS
    ]  # fmt: skip
    rows += [
        Row(f"syncs a second, {senders} senders / 1 sender", f"{OURS} {senders} rate",
            f"{OURS} 1 rate", SYNC_RATE_GROWTH_MAX, cost=f"{OURS} {senders} interval")
        for senders in SENDERS[1:]
    ]  # fmt: skip
    return Case(measure_flush, tuple(rows))


def measure_flush(bench: Bench) -> Series:
    measures = {}
    for subject in (bench.subject(OURS), bench.subject(APACHE)):
        subject.open(_LOG_256_MIB, is_sync=True)
        for senders in SENDERS:
            count = (500 if bench.is_quick else 2000) * min(senders, 32)
            work = functools.partial(flushed, subject, senders, count)
            bench.warm_up(subject, "flush", work)
            measures[f"{subject.name} {senders}"] = work
    series = alternate(measures)
    for name in (OURS, APACHE):
        bench.subject(name).ask("destroy")
    return series


def flushed(subject: Subject, senders: int, count: int) -> dict[str, float]:
    """Nanoseconds per message, and for ours how often the log was synced."""
    answer = subject.ask("sync", senders=senders, count=count, **Load()._asdict())
    figures = {"message": answer["wall_ns"] / count}
    if syncs := answer.get("syncs"):
        figures["interval"] = answer["wall_ns"] / syncs
        figures["rate"] = 1e9 / figures["interval"]
    return figures


# Reopening


def reopen_case(apaches: tuple[str, ...]) -> Case:
    rows = tuple(
        Row(f"unclean reopen of 1 GiB / {apache}", f"{OURS} open", f"{apache} open",
            REOPEN_MAX if apache == APACHE else None)
        for apache in apaches
    )  # fmt: skip
    return Case(measure_reopen, rows)


def measure_reopen(bench: Bench) -> Series:
    """Each store is left by a process that is killed, and opened by a new one, as after a crash.

    Every round opens a fresh copy: recovering would spare the next one work.
    """
    sizes = Sizes(log=128 * _MIB) if bench.is_quick else Sizes()
    measures = {}
    for name in (OURS, *compared(bench.is_quick)):
        with bench.started(name, "crashing") as subject:
            subject.open(sizes)
            log_end = fill(subject, sizes.log - 16 * _MIB)
            subject.kill()
        measures[name] = functools.partial(reopen, bench, name, subject.root, sizes, log_end)
    series = alternate(measures)
    for name in (OURS, *compared(bench.is_quick)):
        shutil.rmtree(bench.folder_of(name, "crashing"))
    return series


def fill(subject: Subject, log_bytes: int) -> int:
    """Append in batches until the log has so many bytes; gives where it ends."""
    log_end = 0
    while log_end < log_bytes:
        subject.ask("prepare", count=CHUNK, **Load(batch=32)._asdict())
        log_end = subject.ask("append")["log_end"]
    return log_end


def reopen(bench: Bench, name: str, left: Path, sizes: Sizes, log_end: int) -> dict[str, float]:
    copy = bench.folder / "copy"
    subprocess.run(["cp", "-r", left, copy], check=True)
    sync_files([path for path in copy.rglob("*") if path.is_file()])
    with bench.started(name, "reopening") as subject:
        answer = subject.open(sizes, root=copy)
        subject.kill()
    shutil.rmtree(copy)
    if answer["log_end"] != log_end:
        raise SubjectFailed(
            f"{name}: log ended at {log_end}, and {answer['log_end']} when reopened"
        )
    return {"open": float(answer["wall_ns"])}
