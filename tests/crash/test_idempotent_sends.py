"""A producer that repeats what it was not answered, and a broker that is killed again and again.

Aimed are the kills at what could go wrong: a message is stored and its sender not answered, a batch
is stored in part, the table is half saved. Whatever happens, each message is there once, and a
repeat is answered with what was answered before.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from cometmq.broker.config import BrokerSettings
from cometmq.broker.idempotence import IdempotentSends, KeptProducers
from cometmq.broker.idempotence_snapshot import SnapshotFile
from cometmq.broker.send_plans import SendPlan
from cometmq.broker.topics import Topic
from cometmq.clock import SystemClock
from cometmq.codec import batch, core, record
from cometmq.codec.batch import BatchItem
from cometmq.codec.headers.send import SendMessageV2
from cometmq.model.topic import TopicConfig
from cometmq.store import GetLimits, MessageStore
from cometmq.store.check import check
from cometmq.store.results import NewMessage, PutStatus
from tests.crash.aim import Aim, AimedFiles, Moment, die
from tests.crash.rounds import note, rounds
from tests.crash.sizes import small

TOPIC, NOISE = "orders", "noise"
QUEUES = 3
PRODUCERS = ("p", "q")
SENDS = 40
BATCH_MAX = 12
SERIES_ROUNDS = 12
ROUNDS_FULL = 300
SECONDS = 12.0
MOMENTS: tuple[Moment, ...] = ("before", "within", "after")

Result = tuple[int, int, list[int]]
"""What a send is answered with: queue id, queue offset and log positions."""


class Plan(msgspec.Struct, frozen=True):
    """What a broker lives through; numbers are counts until it dies, 0 for never."""

    root: str
    seed: int
    next: dict[str, int]
    """For each producer the sequence it sends next."""
    death_after_put: int = 0
    death_in_batch: int = 0
    snapshot_chance: float = 0.2
    is_sync: bool = False
    aim: Aim | None = None


KINDS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "between store and answer": lambda chance: {"death_after_put": chance.randint(1, SENDS)},
    "within a batch": lambda chance: {"death_in_batch": chance.randint(1, SENDS // 4)},
    "while the table is saved": lambda chance: {
        "snapshot_chance": 0.5,
        "aim": Aim(
            "replace",
            "*/cometProducers.json*",
            "run",
            nth=chance.randint(1, 8),
            moment=chance.choice(MOMENTS),
        ),
    },
    "while a log file is made": lambda chance: {
        "aim": Aim("create", "*/commitlog/*", "run", moment=chance.choice(MOMENTS))
    },
    "while the store is opened": lambda chance: {
        "aim": Aim(stage="open", nth=chance.randint(1, 8), moment=chance.choice(MOMENTS))
    },
}


def size_of(who: str, sequence: int) -> int:
    """How many messages a producer sends at once from a sequence on: always the same."""
    return Random(f"{who} {sequence}").choice([1, 1, Random(sequence).randint(2, BATCH_MAX)])


def text(who: str, sequence: int) -> bytes:
    return f"{who} {sequence} ".encode() + b"x" * Random(sequence).randint(0, 400)


class Life:
    """One broker until it dies; what it answers goes to ``say``."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._chance = Random(plan.seed)
        self._files = AimedFiles(plan.aim)
        settings = small(is_sync=plan.is_sync)
        self._store = MessageStore.open(Path(plan.root), settings, files=self._files)
        file = SnapshotFile(Path(plan.root), self._files)
        self._sends = IdempotentSends(self._store, file, BrokerSettings(), SystemClock())
        self._kept = KeptProducers(self._store, file)
        self._files.stage = "run"
        self._topic = Topic(TopicConfig(TOPIC, QUEUES, QUEUES), is_system=False)
        self._puts = 0
        if plan.death_in_batch:
            core.encode_batch_into = self._dying_encoder(core.encode_batch_into)

    def run(self) -> None:
        upcoming = dict(self._plan.next)
        # What was answered before is asked once more, by those who did not get the answer.
        for who, sequence in upcoming.items():
            for first in self._repeated(who, sequence):
                self._send(who, first)
        for _ in range(SENDS):
            who = self._chance.choice(PRODUCERS)
            upcoming[who] += self._send(who, upcoming[who])
            if self._chance.random() < 0.5:
                self._store.put(NewMessage(NOISE, 0, b"noise"))
            if self._chance.random() < self._plan.snapshot_chance:
                self._kept.save(self._sends.snapshot())
        self._files.stage = "close"
        self._store.flush()
        self._kept.save(self._sends.snapshot())
        self._store.close()

    def _repeated(self, who: str, upcoming: int) -> list[int]:
        firsts, first = [], 0
        while first < upcoming:
            firsts.append(first)
            first += size_of(who, first)
        return firsts[-self._chance.randint(1, 8) :]

    def _send(self, who: str, first: int) -> int:
        count, queue_id = size_of(who, first), self._chance.randrange(QUEUES)
        body = text(who, first)
        if count > 1:
            texts = (text(who, first + n) for n in range(count))
            body = batch.encode(BatchItem(0, item, b"") for item in texts)
        message = NewMessage(TOPIC, queue_id, body)
        plan = SendPlan(message, self._topic, queue_id, None, is_batch=count > 1)
        header = SendMessageV2("g", TOPIC, "", 4, queue_id, 0, 0, 0)
        header.producer_id, header.sequence = who, str(first)
        plan, result, stored_count = self._sends.put(header, plan)
        assert result.status is PutStatus.PUT_OK, result
        self._puts += 1
        if self._puts == self._plan.death_after_put:
            die()
        offsets = list(result.offsets) or [result.physical_offset]
        assert len(offsets) == count
        fact = [who, first, plan.queue_id, result.queue_offset, offsets, stored_count]
        self._say(json.dumps(fact))
        return count

    def _dying_encoder(self, encode: Callable[..., Any]) -> Callable[..., Any]:
        batches = 0

        def write(target: Any, position: int, topic: bytes, data: bytes, *rest: Any) -> Any:
            nonlocal batches
            batches += 1
            if batches == self._plan.death_in_batch:
                items = batch.decode(data)
                some = items[: self._chance.randint(0, len(items))]
                encode(target, position, topic, batch.encode(some), *rest)
                die()
            return encode(target, position, topic, data, *rest)

        return write


def live(plan: Plan) -> list[str]:
    """What a broker said until it was killed, or came to its end."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            Life(plan, lambda line: _write(write_end, line)).run()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        said = lines.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), f"ended with {status}, see its complaints"
    return [*said, "ended"] if status == 0 else said


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, line.encode() + b"\n")


class Series:
    """Kills on one directory, and what producers were answered meanwhile."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._next = dict.fromkeys(PRODUCERS, 0)
        self._answers: dict[tuple[str, int], Result] = {}

    def kill(self, kind: str, chance: Random) -> bool:
        """Let a broker live and die; False when it came to its end because the aim was off."""
        changes = KINDS[kind](chance)
        plan = Plan(
            root=str(self.root),
            seed=chance.randrange(2**32),
            next=self._next,
            is_sync=chance.random() < 0.3,
            **changes,
        )
        said = live(plan)
        for line in said:
            if line != "ended":
                self._note(*json.loads(line))
        return "ended" not in said

    def _note(
        self, who: str, first: int, queue_id: int, queue_offset: int, offsets: list[int], new: int
    ) -> None:
        result = queue_id, queue_offset, offsets
        known = self._answers.setdefault((who, first), result)
        assert known == result, f"{who} {first} was answered with {known}, now with {result}"
        if first < self._next[who]:
            assert new == 0, f"{who} {first} was stored again"
        self._next[who] = max(self._next[who], first + len(offsets))

    def verify(self) -> None:
        """Everything that was answered is there once, and where the answer says."""
        with MessageStore.open(self.root, small(), threads=False) as store:
            found = dict(_messages(store))
            for (who, first), (_, _, offsets) in self._answers.items():
                for number, offset in enumerate(offsets):
                    assert found[who, first + number] == offset
        report = check(self.root, small())
        assert report.is_consistent, str(report)


def _messages(store: MessageStore) -> Iterator[tuple[tuple[str, int], int]]:
    """Producer, sequence and log position of all messages, each of which is there once."""
    seen = set()
    limits = GetLimits(1000, 1 << 24, 1000, 1 << 24, 1000)
    for queue_id in range(QUEUES):
        offset = 0
        while offset < store.max_offset(TOPIC, queue_id):
            with store.get(TOPIC, queue_id, offset, limits) as result:
                for piece in result.slices:
                    for item in record.parse_all(piece):
                        who, sequence, _ = item.body.split(b" ")
                        key = who.decode(), int(sequence)
                        assert key not in seen, f"{key} is there twice"
                        seen.add(key)
                        yield key, item.physical_offset
                offset = result.next_offset


def test_a_broker_killed_at_any_moment_of_its_first_start_starts_again(tmp_path: Path) -> None:
    deaths = 0
    for nth in range(1, 9):
        for moment in MOMENTS:
            series = Series(tmp_path / f"{nth} {moment}")
            aim = Aim(stage="open", nth=nth, moment=moment)
            deaths += "ended" not in live(Plan(str(series.root), 1, {"p": 0, "q": 0}, aim=aim))

            assert "ended" in live(Plan(str(series.root), 2, {"p": 0, "q": 0}))
            series.verify()
    assert deaths >= len(MOMENTS) * 2, "nothing was hit"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_repeat_is_stored_once_and_answered_as_before_whatever_was_killed(
    tmp_path: Path,
) -> None:
    series, rounds_left = None, 0
    for seed in rounds("idempotent sends", full=ROUNDS_FULL, seconds=SECONDS):
        chance = Random(seed)
        if series is None:
            series, rounds_left = Series(tmp_path / str(seed)), SERIES_ROUNDS
        kind = list(KINDS)[seed % len(KINDS)]

        is_killed = series.kill(kind, chance)
        rounds_left -= 1
        if not rounds_left or chance.random() < 0.4:
            series.verify()

        note("idempotent sends", kind if is_killed else "aimed at what did not happen")
        if not rounds_left:
            shutil.rmtree(series.root)
            series = None
    if series is not None:
        series.verify()
