"""A store with a fake clock, and the timed messages on it; small files, a small wheel."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cometmq.broker.delay.timer_rules import TimerRules
from cometmq.broker.delay.timers import Timers
from cometmq.codec import properties, record
from cometmq.codec.record import Record
from cometmq.store import MessageStore, NewMessage, PutResult
from cometmq.store.files import DiskFiles, Files
from cometmq.testing import FakeClock
from tests.unit.broker import tables
from tests.unit.store.builders import (
    all_records,
    killed_copy,
    message,
    open_store,
    property_text,
    put,
)

TOPIC, TIMER_TOPIC = "orders", "rmq_sys_wheel_timer"
WHEEL_SLOTS = 4096
"""A little more than an hour."""
STEPS_MAX = 10_000


class Chance:
    """Random numbers that are known."""

    def __init__(self) -> None:
        self.next = 0.5

    def random(self) -> float:
        return self.next


class Ground:
    """What happens on it happens when told to. ``settings`` are the broker's, ``sizes`` the
    store's.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: FakeClock | None = None,
        files: Files | None = None,
        has_index: bool = True,
        sizes: Mapping[str, int] | None = None,
        **settings: Any,
    ) -> None:
        self.root = root
        self.clock = clock or FakeClock()
        self.files = files or DiskFiles()
        self._settings = tables.broker_settings(**{"timer_log_file_bytes": 4096, **settings})
        self._sizes: dict[str, Any] = {"log_file_bytes": 256 * 1024, "queue_file_bytes": 20_000}
        self._sizes |= {"index_slots": 1000, "index_entries": 10_000, "has_index": has_index}
        self._sizes |= sizes or {}
        self.chance = Chance()
        self.rules = TimerRules(self._settings, self.clock, self.chance)  # type: ignore[arg-type]
        # What the store answers instead of taking a message; it takes them when this is empty.
        self.refusals: list[PutResult | OSError] = []
        self.sent = 0
        self.open()

    def open(self) -> None:
        """Begin with what the directory has."""
        self.store = open_store(self.root, clock=self.clock, files=self.files, **self._sizes)
        self.timers = Timers(
            self.store,
            self._settings,
            self.clock,
            self._put,
            files=self.files,
            wheel_slots=WHEEL_SLOTS,
        )
        self.rules.crowd = self.timers

    def close(self) -> None:
        """Stop as a broker does."""
        self.store.flush()
        self.timers.close()
        self.store.close()

    def restart(self) -> None:
        self.close()
        self.open()

    # --- sending

    def send(self, body: bytes = b"later", *, key: str = "", **asked: int | str) -> PutResult:
        """Send a message to ``orders``; ``asked`` are properties."""
        self.sent += 1
        named = {"UNIQ_KEY": key or f"K{self.sent:06d}"}
        text = property_text(**named, **{name: str(value) for name, value in asked.items()})
        return put(self.store, self.rules.diverted(message(body, TOPIC, properties=text)))

    def send_in(self, seconds: float, body: bytes = b"later", **more: Any) -> PutResult:
        return self.send(body, TIMER_DELAY_MS=round(seconds * 1000), **more)

    def recall(self, out_ms: int, key: str, topic: str = TOPIC, mark: str = "") -> None:
        """Take back a message, as the broker does when it is asked to."""
        named = {"TIMER_DEL_UNIQKEY": mark or key, "UNIQ_KEY": key}
        text = property_text(**named, TIMER_DELIVER_MS=str(out_ms + 1))
        put(self.store, self.rules.diverted(message(b"0", topic, properties=text)))

    # --- time

    def step(self) -> int | None:
        """One step now; milliseconds until the next one."""
        now_ms = self.clock.now_ms()
        wake_ms = self.timers.step(now_ms)
        return None if wake_ms is None else wake_ms - now_ms

    def run_out(self) -> int | None:
        """Do all that is due; how long until the next step."""
        for _ in range(STEPS_MAX):
            wait_ms = self.step()
            if wait_ms != 0:
                return wait_ms
        raise AssertionError(f"something is due after {STEPS_MAX} steps")

    def pass_time(self, seconds: float) -> None:
        """Let time pass second by second, doing what is due."""
        end_ms = self.clock.now_ms() + round(seconds * 1000)
        self.run_out()
        while self.clock.now_ms() < end_ms:
            self.clock.advance(min(1000, end_ms - self.clock.now_ms()) / 1000)
            self.run_out()

    # --- what is there

    def delivered(self, topic: str = TOPIC) -> list[bytes]:
        return [found.body for found in self.records(topic)]

    def records(self, topic: str = TOPIC) -> list[Record]:
        return list(all_records(self.store, topic))

    def named(self, topic: str = TOPIC) -> list[dict[str, str]]:
        """Properties of all messages of a topic."""
        return [properties.decode(found.properties) for found in self.records(topic)]

    def _put(self, new: NewMessage) -> PutResult:
        if not self.refusals:
            return self.store.put(new)
        refusal = self.refusals.pop(0)
        if isinstance(refusal, OSError):
            raise refusal
        return refusal


def reopened(ground: Ground, **changes: Any) -> Ground:
    """Another process on the directory as it would be if the first one were killed now."""
    root = killed_copy(ground.root, ground.root.with_name("killed"))
    return Ground(root, clock=ground.clock, **changes)


def text_of(store: MessageStore, result: PutResult) -> dict[str, str]:
    view = store.record_at(result.physical_offset)
    assert view is not None
    with view:
        found = record.parse(view)
    assert isinstance(found, Record)
    return properties.decode(found.properties)
