"""What messages with a time of delivery cost while they wait.

``python -m bench.timers [--count N] [--quick]`` puts N of them (a million) into a store, from one
minute to two days ahead, as a broker does; one process for each step, so that memory is that of
the step. Targets: anonymous memory does not grow with their number (at most 16 MB above that of
none), the wheel has the size it always has, the timer log 52 bytes for each, and all of them are
known again after a restart. Times are told, not judged.
"""

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.memory import memory_mb
from cometmq.broker.config import BrokerSettings
from cometmq.broker.delay.timer_rules import TimerRules
from cometmq.broker.delay.timers import Timers
from cometmq.codec import timer
from cometmq.store import MessageStore, NewMessage, StoreSettings
from cometmq.testing import FakeClock

COUNT: Final = 1_000_000
QUICK_COUNT: Final = 50_000
MEMORY_MB_MAX: Final = 16.0
LOG_FILE_BYTES: Final = 100 * 1024 * 1024
BODY: Final = b"x" * 128
SECONDS_AHEAD: Final = (60, 172_000)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.timers", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_COUNT:,} of them")
    parser.add_argument("--step", choices=["put", "open"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    count = QUICK_COUNT if asked.quick else asked.count
    if asked.step is not None:
        asked.folder.mkdir(parents=True, exist_ok=True)
        return asyncio.run(step(asked.step, asked.folder, count))
    folder = Path(tempfile.mkdtemp(prefix="bench-timers-"))
    try:
        return judge(folder, count)
    finally:
        shutil.rmtree(folder)


def judge(folder: Path, count: int) -> int:
    none, _ = run_step("put", folder / "none", 0)
    waiting, put_s = run_step("put", folder / "some", count)
    opened, open_s = run_step("open", folder / "some", count)
    wheel = (folder / "some" / "timerwheel").stat().st_size
    log = sum(file.stat().st_size for file in (folder / "some" / "timerlog").iterdir())
    log_max = (count * timer.UNIT_BYTES // LOG_FILE_BYTES + 2) * LOG_FILE_BYTES
    print(f"{count:,} timed messages")
    print(f"  put and entered     {put_s / max(count, 1) * 1e6:8.1f} µs of CPU each")
    print(f"  opened again        {open_s * 1000:8.0f} ms of CPU")
    print(
        f"  anonymous memory    {none:8.1f} MB with none, {waiting:.1f} MB, opened {opened:.1f} MB"
    )
    print(f"  wheel               {wheel:,} bytes")
    print(f"  timer log           {log:,} bytes, {log / max(count, 1):.1f} each")
    missed = []
    if max(waiting, opened) - none > MEMORY_MB_MAX:
        missed.append(f"memory grows by more than {MEMORY_MB_MAX} MB")
    if wheel != timer.WHEEL_BYTES:
        missed.append(f"the wheel has not {timer.WHEEL_BYTES:,} bytes")
    if log > log_max:
        missed.append(f"the timer log has more than {log_max:,} bytes")
    for fault in missed:
        print(f"  MISSED: {fault}")
    return 1 if missed else 0


def run_step(name: str, folder: Path, count: int) -> tuple[float, float]:
    """Megabytes of anonymous memory at the end of a step, and its seconds of CPU."""
    command = [sys.executable, "-m", "bench.timers", "--step", name]
    said = subprocess.run(
        [*command, "--folder", str(folder), "--count", str(count)],
        check=True,
        capture_output=True,
        text=True,
    )
    memory, seconds = said.stdout.split()[-2:]
    return float(memory), float(seconds)


async def step(name: str, folder: Path, count: int) -> int:
    clock, settings = FakeClock(1_800_000_000_000), BrokerSettings()
    store = MessageStore.open(folder, StoreSettings(root=folder), clock=clock)
    begun = time.process_time()
    timers = Timers(store, settings, clock, store.put)
    if name == "put":
        put_all(store, TimerRules(settings, clock, random.Random(1)), timers, clock, count)
    known = timers.waiting_count
    seconds = time.process_time() - begun
    assert known == count, f"{known} wait, {count} were sent"
    memory = memory_mb().anonymous
    store.flush()
    timers.close()
    store.close()
    print(f"{memory:.2f} {seconds:.3f}")
    return 0


def put_all(
    store: MessageStore, rules: TimerRules, timers: Timers, clock: FakeClock, count: int
) -> None:
    chance = random.Random(count)
    for number in range(count):
        delay = f"TIMER_DELAY_SEC\x01{chance.randint(*SECONDS_AHEAD)}\x02UNIQ_KEY\x01K{number}\x02"
        store.put(rules.diverted(NewMessage("orders", number % 4, BODY, delay.encode())))
        if number % 1000 == 999:
            enter(store, timers, clock)
    enter(store, timers, clock)


def enter(store: MessageStore, timers: Timers, clock: FakeClock) -> None:
    """Bring what has come into the wheel."""
    store.dispatch()
    while timers.step(clock.now_ms()) == clock.now_ms():
        pass


if __name__ == "__main__":
    sys.exit(main())
