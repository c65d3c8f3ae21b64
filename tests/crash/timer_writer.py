"""The program that is killed while timed messages wait, go round and are delivered.

It tells over a pipe what it is about to do and what it has done; time is what it says it is.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cometmq.broker.config import BrokerSettings
from cometmq.broker.delay.timer_log import TimerLog
from cometmq.broker.delay.timer_rules import TimerRules
from cometmq.broker.delay.timer_wheel import TimerWheel
from cometmq.broker.delay.timers import Timers
from cometmq.codec import properties, record
from cometmq.codec.properties import Property
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.store import MessageStore, StoreSettings
from cometmq.store.results import NewMessage
from cometmq.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

TOPIC = "Timed"
WHEEL_SLOTS = 4096
HOST = record.pack_host("10.0.0.5", 10911)
DELAY_MS_MAX = 20_000
BROKER = BrokerSettings(broker_name="broker-a", timer_log_file_bytes=4096, timer_roll_window_slot=8)

AIMS = (
    "any moment",
    "before a delivery",
    "after a delivery",
    "before a unit",
    "between unit and slot",
    "before the check page",
    "after the check page",
    "opening",
)


class TimerPlan(msgspec.Struct, frozen=True):
    """What the program is to do, and at which of the moments it ends itself (``AIMS``)."""

    root: str
    first: int
    count: int
    clock_ms: int
    seed: int
    aim: str
    nth: int


class TimerGround:
    """A store and its timers, at a time of their own."""

    def __init__(self, root: Path, clock_ms: int) -> None:
        settings = StoreSettings(
            root=root,
            log_file_bytes=64 * 1024,
            queue_file_bytes=100 * ENTRY_BYTES,
            index_slots=100,
            index_entries=400,
        )
        self.clock = FakeClock(clock_ms)
        self.store = MessageStore.open(root, settings, clock=self.clock, threads=False)
        self.rules = TimerRules(BROKER, self.clock, random.Random(1))
        self.timers = Timers(
            self.store, BROKER, self.clock, self.store.put, wheel_slots=WHEEL_SLOTS
        )

    def send(self, number: int, delay_ms: int) -> int:
        """Send a message; the time of its slot."""
        text = {Property.UNIQ_KEY: f"K{number}", Property.TIMER_DELAY_MS: str(delay_ms)}
        message = self._put(b"%d" % number, text)
        return int(properties.get(message.properties, b"TIMER_OUT_MS") or 0)

    def recall(self, number: int, out_ms: int) -> None:
        key = f"K{number}"
        text = {Property.TIMER_DEL_UNIQKEY: key, Property.UNIQ_KEY: key}
        self._put(b"0", {**text, Property.TIMER_DELIVER_MS: str(out_ms + 1)})

    def save(self) -> None:
        self.store.flush()
        self.timers.save()

    def steps(self, count: int) -> None:
        for _ in range(count):
            if self.timers.step(self.clock.now_ms()) != self.clock.now_ms():
                return

    def pass_time(self, seconds: float) -> None:
        """Deliver everything that is due until then."""
        for _ in range(round(seconds * 2)):
            self.clock.advance(0.5)
            self.steps(10_000)

    def close(self) -> None:
        self.save()
        self.timers.close()
        self.store.close()

    def _put(self, body: bytes, text: dict[str, str]) -> NewMessage:
        plain = NewMessage(TOPIC, 0, body, properties.encode(text).encode(), store_host=HOST)
        message = self.rules.diverted(plain)
        result = self.store.put(message)
        assert result.status.is_stored, result
        return message


class _Aim:
    """Ends the process at the nth of some moments."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: Any, name: str) -> None:
        self._wrap(owner, name, self, _nothing)

    def after(self, owner: Any, name: str) -> None:
        self._wrap(owner, name, _nothing, self)

    def _wrap(
        self, owner: Any, name: str, first: Callable[[], None], last: Callable[[], None]
    ) -> None:
        plain = getattr(owner, name)

        def wrapped(*args: Any) -> Any:
            first()
            result = plain(*args)
            last()
            return result

        setattr(owner, name, wrapped)


def run(plan: TimerPlan, says: Connection) -> None:
    """Carry out a plan, to its end unless it is killed before."""
    chance = random.Random(plan.seed)
    aim = _Aim(plan.nth)
    if plan.aim == "opening":
        _aim_at_opening(aim)
    ground = TimerGround(Path(plan.root), plan.clock_ms)
    # Wheel and log are there only once there was a message.
    is_aimed = plan.aim in ("any moment", "opening")
    says.send(("opened",))
    waiting: dict[int, int] = {}
    for number in range(plan.first, plan.first + plan.count):
        if not is_aimed and ground.timers._index is not None:
            is_aimed = True
            _take_aim(aim, plan.aim, ground)
        says.send(("sending", number))
        waiting[number] = ground.send(number, chance.randint(1, DELAY_MS_MAX))
        says.send(("sent", number))
        if chance.random() < 0.1:
            _recall_one(ground, waiting, chance, says)
        if chance.random() < 0.4:
            seconds = chance.choice((0.05, 0.3, 1.2))
            says.send(("time", ground.clock.now_ms() + round(seconds * 1000)))
            ground.clock.advance(seconds)
            ground.steps(chance.randint(1, 30))
        if chance.random() < 0.05:
            ground.save()
    ground.close()
    says.send(("closed",))


def _recall_one(
    ground: TimerGround, waiting: dict[int, int], chance: random.Random, says: Connection
) -> None:
    number = chance.choice(list(waiting))
    out_ms = waiting.pop(number)
    if out_ms > ground.clock.now_ms():
        says.send(("recalling", number))
        ground.recall(number, out_ms)
        says.send(("recalled", number))


def _take_aim(aim: _Aim, where: str, ground: TimerGround) -> None:
    timers, index = ground.timers, ground.timers._index
    assert index is not None
    if where == "before a delivery":
        aim.before(timers, "_put")
    elif where == "after a delivery":
        aim.after(timers, "_put")
    elif where == "before a unit":
        aim.before(index.log, "append")
    elif where == "between unit and slot":
        aim.after(index.log, "append")
    elif where == "before the check page":
        aim.before(index._checkpoint, "save")
    else:
        aim.after(index._checkpoint, "save")


def _aim_at_opening(aim: _Aim) -> None:
    aim.before(TimerLog, "cut")
    aim.after(TimerWheel, "add")


def _nothing() -> None:
    """Nothing ends."""
