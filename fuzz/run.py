"""Fuzzes every decoder: ``python -m fuzz.run [--seconds N] [--target NAME ...]``.

The time is split between the targets, which run one after the other. An input that makes a target
raise, or takes too long or too much memory, is kept in ``fuzz/crashes``; the exit status is then 1.
``--target NAME --replay FILE`` runs one such input again, without atheris.
"""

import argparse
import importlib.util
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fuzz import corpus
from fuzz.mutation import DICTIONARY
from fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parent.parent
CRASHES = ROOT / "fuzz" / "crashes"

INPUT_BYTES_MAX = 8_192
INPUT_SECONDS_MAX = 2
INPUT_MEMORY_MB_MAX = 512

_GRACE_SECONDS = 60
_EXECUTIONS = re.compile(r"stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", re.MULTILINE)
_COVERAGE = re.compile(r"\bcov: (\d+)")
_PEAK = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
_TAIL_LINES = 25


class Outcome(NamedTuple):
    """What became of one target; ``log`` is all that libFuzzer and Python said."""

    executions: int
    coverage: int
    crashes: list[Path]
    is_clean: bool
    log: str


def main() -> int:
    options = _options()
    if options.replay is not None:
        return replay(options.target[0], options.replay)
    if importlib.util.find_spec("atheris") is None:
        print(
            "fuzzing needs the package 'atheris', which is not installed (it exists for Linux and"
            " Python 3.11 to 3.13); install it with: pip install 'cometmq[dev]'",
            file=sys.stderr,
        )
        return 2
    names = options.target or list(TARGETS)
    seconds = max(1, options.seconds // len(names))
    print(f"{len(names)} targets, {seconds} s each")
    outcomes = [_report(name, fuzz(name, seconds)) for name in names]
    return 0 if all(outcome.is_clean for outcome in outcomes) else 1


def fuzz(name: str, seconds: int) -> Outcome:
    """Run one target in a child process, starting from its seeds."""
    CRASHES.mkdir(exist_ok=True)
    prefix = CRASHES / f"{name}-"
    before = set(CRASHES.iterdir())
    with tempfile.TemporaryDirectory(prefix="cometmq-fuzz-") as directory:
        arguments = _arguments(Path(directory), name, seconds, prefix)
        command = [sys.executable, "-m", "fuzz.child", name, *arguments]
        status, log = _run(command, seconds + _GRACE_SECONDS)
    crashes = sorted(set(CRASHES.iterdir()) - before)
    executions = max((int(a or b) for a, b in _EXECUTIONS.findall(log)), default=0)
    coverage = max(map(int, _COVERAGE.findall(log)), default=0)
    return Outcome(executions, coverage, crashes, status == 0 and not crashes, log)


def replay(name: str, file: Path) -> int:
    """Run one target over one file here and now; what it raises is shown as it is."""
    began = time.monotonic()
    TARGETS[name](file.read_bytes())
    spent = time.monotonic() - began
    memory_mb = _peak_memory_mb()
    is_good = spent <= INPUT_SECONDS_MAX and memory_mb <= INPUT_MEMORY_MB_MAX
    print(f"{name}: {spent:.2f} s, {memory_mb} MB, {'good' if is_good else 'too much'}")
    return 0 if is_good else 1


def _peak_memory_mb() -> int:
    """The most that this program has had: Linux's ``ru_maxrss`` counts who started it, too."""
    status = Path("/proc/self/status")
    found = _PEAK.search(status.read_text()) if status.exists() else None
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if found is None else found[1]
    return int(kilobytes) // 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="repeatable")
    parser.add_argument("--replay", type=Path, help="a file from fuzz/crashes; needs --target")
    options = parser.parse_args()
    if options.replay is not None and len(options.target or ()) != 1:
        parser.error("--replay needs exactly one --target")
    return options


def _arguments(directory: Path, name: str, seconds: int, prefix: Path) -> list[str]:
    seeds = directory / "corpus"
    seeds.mkdir()
    for number, seed in enumerate(corpus.seeds(name)):
        (seeds / f"{number:04}").write_bytes(seed)
    words = directory / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in DICTIONARY))
    return [
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_SECONDS_MAX}",
        f"-rss_limit_mb={INPUT_MEMORY_MB_MAX}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-dict={words}",
        f"-artifact_prefix={prefix}",
        "-print_final_stats=1",
        str(seeds),
    ]


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _run(command: list[str], seconds: int) -> tuple[int, str]:
    """Exit status and output; a child that does not end by itself is ended."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 1, (error.output or b"").decode(errors="replace") + f"\nno end after {seconds} s\n"
    return done.returncode, done.stdout.decode(errors="replace")


def _report(name: str, outcome: Outcome) -> Outcome:
    print(
        f"{name:<16}{outcome.executions:>10} executions{outcome.coverage:>7} covered"
        f"{len(outcome.crashes):>4} crashes",
        flush=True,
    )
    if not outcome.is_clean:
        print("\n".join(outcome.log.splitlines()[-_TAIL_LINES:]))
    for crash in outcome.crashes:
        file = crash.relative_to(ROOT)
        print(f"replay: python -m fuzz.run --target {name} --replay {file}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
