"""A broker under mixed traffic for a long time, with restarts and kills: does anything add up?

Java clients of both generations and a Python program send in every way there is and read it all;
members come and go, groups are moved, topics are made and deleted, files of the log roll and
expire. Held to: nothing acknowledged is lost, and order, repeats and copies are as the protocol
allows (``soak_plan.views``); anonymous memory grows by at most 1 MB in 10 minutes after a warm-up;
open files stay as many as they were; nobody falls behind; the broker's log has no error.

    python -m bench.soak [--minutes 30] [--quick] [--seed N] [--keep FOLDER]
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import soak_java, soak_verdicts
from bench.soak_chores import Chores, Place
from bench.soak_java import Host, JavaTraffic
from bench.soak_ledger import Cause, Ledger
from bench.soak_plan import (
    DELAYED,
    MIXED,
    ORDERLY,
    QUEUES,
    TIMED,
    TOPICS,
    Plan,
    planned,
    quick,
    views,
)
from bench.soak_python import Puller, Senders, regularly
from bench.soak_verdicts import LagSample, Verdict
from bench.soak_watch import Life, read_log, sample
from cometmq.admin import Admin
from tests.interop import asking, membership, requirements
from tests.interop.broker import OurBroker
from tests.interop.commands import tail
from tests.interop.nameserver import OurNameServer
from tests.interop.processes import ProcessDiedError

MINUTES = 30.0
PROGRESS_S = 60.0
LONG_S = 300.0


def main() -> int:
    chosen = arguments().parse_args()
    for tool in ("java", "javac", "mvn"):
        if (reason := requirements.lack(tool)) is not None:
            print(f"error: {tool} cannot be used: {reason}", file=sys.stderr)
            return 2
    # Servers run in sessions of their own: whoever ends this program must end them with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 32)
    dice = random.Random(seed)
    plan = quick(dice) if chosen.quick else planned(chosen.minutes, dice)
    outages = ", ".join(f"{outage.cause} at {outage.at_s:.0f} s" for outage in plan.outages)
    print(f"soak: seed {seed}, {plan.traffic_s:.0f} s of traffic; {outages}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as name:
        folder = chosen.keep or Path(name)
        verdicts = run(plan, folder, seed)
    return concluded(verdicts)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of traffic")
    parser.add_argument("--quick", action="store_true", help="half a minute, memory not judged")
    parser.add_argument("--seed", type=int, help="of an earlier run, to do the same again")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave store and logs there")
    return parser


def concluded(verdicts: Sequence[Verdict]) -> int:
    for verdict in verdicts:
        print(verdict)
    missed = [verdict.name for verdict in verdicts if verdict.is_missed]
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if missed else 0


def run(plan: Plan, folder: Path, seed: int) -> list[Verdict]:
    """Start everything, let it run, and judge it; Java must be there."""
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(soak_java.hosts(folder, plan.rebalance_ms))
        namesrv = stack.enter_context(OurNameServer(folder / "namesrv"))
        broker = OurBroker(folder / "broker", namesrv=namesrv.address, settings=plan.settings)
        stack.callback(broker.kill)
        ledger = Ledger(views(), lambda: time.time() * 1000)
        prepare(namesrv.address, broker, ledger)
        soak = Soak(plan, ledger, namesrv=namesrv, broker=broker, hosts=hosts, seed=seed)
        asyncio.run(soak.run())
    soak.save_samples(folder / "samples.json")
    return list(soak.verdicts())


def prepare(namesrv: str, broker: OurBroker, ledger: Ledger) -> None:
    """Topics and groups, so that no member has to wait for a later look at the routes."""
    for topic in TOPICS:
        asking.create_topic(broker.address, topic, queues=QUEUES)
        asking.wait_until_known([namesrv], topic)
    for group in {entry.group for entry in ledger.views.values()}:
        membership.join_and_leave(broker.address, group)
        asking.wait_until_known([namesrv], f"%RETRY%{group}")


class Soak:
    """One run: traffic, outages, and a look at the broker every so often."""

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        *,
        namesrv: OurNameServer,
        broker: OurBroker,
        hosts: Sequence[Host],
        seed: int,
    ) -> None:
        self._plan = plan
        self._ledger = ledger
        self._namesrv = namesrv
        self._broker = broker
        self._senders = Senders(broker.address, ledger, random.Random(seed + 1))
        self._puller = Puller(broker.address, ledger, (MIXED, ORDERLY, DELAYED, TIMED))
        self._java = JavaTraffic(namesrv.address, hosts, ledger=ledger, plan=plan, seed=seed + 2)
        self._began_s = time.monotonic()
        self._lives = [Life(1, broker.process.pid, self._began_s)]
        self._is_up = True
        self._lags: list[LagSample] = []
        self._start_s: list[float] = []
        self._faults_told = 0
        self._log_bytes = 0
        self._expired_bytes = 0

    async def run(self) -> None:
        silence, end = asyncio.Event(), asyncio.Event()
        async with Admin(self._namesrv.address) as admin, asyncio.TaskGroup() as tasks:
            place = Place(self._broker.name, self._broker.address)
            chores = Chores(
                admin, place, ledger=self._ledger, senders=self._senders, plan=self._plan
            )
            await self._java.join_all()
            watching = [
                *self._java.consuming(end),
                *self._puller.commits(end),
                *chores.archiving(end),
                regularly(self._plan.sample_s, self._observe, end),
                regularly(PROGRESS_S, self._tell, end),
            ]
            sending = [*self._senders.loops(silence), *self._java.sending(silence)]
            pulls = [tasks.create_task(pull) for pull in self._puller.pulls()]
            for act in watching:
                tasks.create_task(act)
            await self._traffic([*sending, *chores.loops(silence)], silence)
            await self._wait_until_drained()
            end.set()
            for pull in pulls:
                pull.cancel()
            self._expired_bytes, self._log_bytes = chores.begin_offset, chores.end_offset
        await asyncio.to_thread(self._stop_broker, Cause.RESTART)
        self._senders.close()
        self._puller.close()
        chores.close()

    async def _traffic(
        self, loops: Sequence[Coroutine[Any, Any, None]], silence: asyncio.Event
    ) -> None:
        """Everything that sends, and the outages; returns once nothing is sent any more."""
        async with asyncio.TaskGroup() as tasks:
            for act in loops:
                tasks.create_task(act)
            begin_s = time.monotonic()
            for outage in self._plan.outages:
                await asyncio.sleep(begin_s + outage.at_s - time.monotonic())
                await self._interrupt(outage.cause)
            await asyncio.sleep(begin_s + self._plan.traffic_s - time.monotonic())
            silence.set()

    async def _interrupt(self, cause: Cause) -> None:
        self._ledger.went_down()
        self._is_up = False
        await asyncio.to_thread(self._stop_broker, cause)
        began_s = time.monotonic()
        await asyncio.to_thread(self._broker.start)
        self._start_s.append(time.monotonic() - began_s)
        number = self._lives[-1].number + 1
        self._lives.append(Life(number, self._broker.process.pid, began_s))
        self._is_up = True
        self._ledger.came_back(cause)
        self._ledger.counts[f"{cause}s"] += 1
        if cause is Cause.RESTART:
            await self._puller.check_committed()

    def _stop_broker(self, cause: Cause) -> None:
        life = self._lives[-1]
        code = self._broker.kill() if cause is Cause.KILL else self._broker.stop()
        life.ended_by = str(cause)
        if cause is Cause.RESTART and code != 0:
            self._ledger.fault(f"the broker ended with {code} when it was asked to")
        log_path = self._broker.process.log_path
        read_log(life, log_path.read_text(errors="backslashreplace"))
        # The next life begins a new one under the same name.
        shutil.copy(log_path, log_path.with_suffix(f".{life.number}.log"))

    async def _observe(self) -> None:
        lag_ms, where = self._ledger.lag_ms()
        self._lags.append(LagSample(lag_ms, where, self._ledger.is_settled()))
        if not self._is_up:
            return
        life = self._lives[-1]
        try:
            found = sample(life.pid, time.monotonic() - life.began_s, self._broker.store_path)
        except OSError:
            process = self._broker.process
            raise ProcessDiedError(process.name, process.stop(), tail(process.log())) from None
        life.samples.append(found)

    async def _tell(self) -> None:
        if len(self._lives[-1].samples) > 1:
            now, counts = self._lives[-1].samples[-1], self._ledger.counts
            print(
                f"  {time.monotonic() - self._began_s:5.0f} s  life {self._lives[-1].number}"
                f"  {now.anonymous_mb:.1f} MB  {now.sockets} sockets"
                f"  {now.store_files} store files  {counts['acknowledged']} acknowledged"
                f"  {counts['received']} received  {self._ledger.fault_count} faults",
                *self._ledger.faults[self._faults_told :],
                sep="\n    ",
                flush=True,
            )
            self._faults_told = len(self._ledger.faults)

    async def _wait_until_drained(self) -> None:
        deadline_s = time.monotonic() + self._plan.drain_s
        while self._ledger.waiting_count() and time.monotonic() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)  # for what should not come

    def save_samples(self, path: Path) -> None:
        """What was seen of the broker, life by life: a slope does not tell a step from a leak."""
        lives = {life.number: [seen._asdict() for seen in life.samples] for life in self._lives}
        path.write_text(json.dumps(lives))

    def verdicts(self) -> Iterator[Verdict]:
        warm_up_s = self._plan.warm_up_s
        yield Verdict("traffic", self._summary(), False)
        yield from soak_verdicts.memory(self._lives, warm_up_s)
        yield from soak_verdicts.files(self._lives, warm_up_s)
        yield soak_verdicts.deleted(self._lives)
        yield soak_verdicts.lag(self._lags)
        yield soak_verdicts.drained(self._ledger)
        # A short run ends before anything may go.
        is_long = self._plan.traffic_s > LONG_S
        expired = f"{self._expired_bytes >> 20} MiB of {self._log_bytes >> 20} MiB"
        yield Verdict("expired", expired, is_long and not self._expired_bytes)
        yield from soak_verdicts.history(self._ledger)
        yield from soak_verdicts.complaints(self._lives)
        yield soak_verdicts.faults(self._ledger)

    def _summary(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self._ledger.counts.items())
        cpu_s = sum(life.samples[-1].cpu_s for life in self._lives if life.samples)
        lived_s = sum(life.seconds for life in self._lives)
        starts = max(self._start_s, default=0.0)
        return (
            f"{counts}; {cpu_s / max(lived_s, 1):.2f} cores of the broker;"
            f" back after {starts:.1f} s at most"
        )


if __name__ == "__main__":
    sys.exit(main())
