"""How costs grow with the number of queues and of log files, ours beside Apache's."""

import functools
from typing import NamedTuple

from bench.store_cases import (
    APACHE,
    CHUNK,
    OURS,
    Bench,
    Case,
    Load,
    Row,
    Series,
    alternate,
    append,
    read,
)
from bench.store_subject import Sizes, Subject

GROWTH_MAX, GROWTH_TO_APACHES_MAX = 1.5, 1.0

QUEUES = (1, 100, 10_000)
LOG_FILES = 50

_MIB = 1 << 20


class Variant(NamedTuple):
    """A store of a certain shape, filled before it is measured; ``step`` is from read to read."""

    name: str
    sizes: Sizes
    load: Load
    step: int = 32


def queues_case() -> Case:
    # Small queue files: the kernel reads all of a fresh one when Apache first touches it.
    sizes = Sizes(log=512 * _MIB, queue=600_000)
    variants = [
        Variant(f"{count:,} queue{'s' * (count > 1)}", sizes, Load(queues=count))
        for count in QUEUES
    ]
    # As many in each of 10,000 queues as one read takes, and some.
    return growth_case(variants, filled=QUEUES[-1] * 40)


def log_files_case() -> Case:
    file_bytes, step = 16 * _MIB, 32 * 1009
    variants = [
        Variant("1 log file", Sizes(log=1 << 30), Load(), step),
        Variant(f"{LOG_FILES} log files", Sizes(log=file_bytes), Load(), step),
    ]
    return growth_case(variants, filled=LOG_FILES * file_bytes // 320)


def growth_case(variants: list[Variant], *, filled: int) -> Case:
    first = variants[0].name
    rows = []
    for figure in ("append", "read"):
        for variant in variants[1:]:
            work = f"{variant.name} {figure}"
            named = f"{figure}, {variant.name} / {first}"
            growth, growth_apache = f"{OURS} growth {work}", f"{APACHE} growth {work}"
            rows += [
                Row(named, f"{OURS} {work}", f"{OURS} {first} {figure}", GROWTH_MAX),
                Row(f"{named}, Apache", f"{APACHE} {work}", f"{APACHE} {first} {figure}"),
                Row(f"{figure}, {variant.name}, growth / Apache's", growth, growth_apache,
                    GROWTH_TO_APACHES_MAX, cost=f"{OURS} {work}"),
            ]  # fmt: skip
    measure = functools.partial(measure_growth, variants=variants, filled=filled)
    return Case(measure, tuple(rows))


def measure_growth(bench: Bench, *, variants: list[Variant], filled: int) -> Series:
    measures = {}
    for variant in variants:
        for subject in (bench.subject(OURS, variant.name), bench.subject(APACHE, variant.name)):
            subject.open(variant.sizes)
            filling = variant.load
            if filling.queues == 1:
                filling = filling._replace(batch=32)
            append(subject, filling, -(-filled // CHUNK) * CHUNK)
            work = functools.partial(grown, bench, subject, variant, filled)
            bench.warm_up(subject, "growth", work)
            measures[f"{subject.name} {variant.name}"] = work
    series = alternate(measures)
    for variant in variants:
        for name in (OURS, APACHE):
            bench.subject(name, variant.name).ask("destroy")
            add_growth(series, name, variants[0].name, variant.name)
    return series


def add_growth(series: Series, name: str, first: str, last: str) -> None:
    for figure in ("append", "read"):
        pairs = zip(
            series[f"{name} {last} {figure}"], series[f"{name} {first} {figure}"], strict=True
        )
        series[f"{name} growth {last} {figure}"] = [work / base for work, base in pairs]


def grown(bench: Bench, subject: Subject, variant: Variant, filled: int) -> dict[str, float]:
    queues = variant.load.queues
    appended = append(subject, variant.load, bench.scaled(100_000))
    span = filled // queues // 32 * 32
    times = read(subject, bench.scaled(20_000), queues=queues, step=variant.step, span=span)
    return {"append": appended["CPU"], **times}
