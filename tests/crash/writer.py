"""The program that is killed: puts numbered messages and says which ones it was promised to keep.

``python -m tests.crash.writer PLAN`` with the plan as JSON. It prints a line, unbuffered, for
everything that happens:

::

    opened                          the store is open
    begin 17 20                     these numbers are about to be put
    kept 17 3 40960                 acknowledged: number, queue offset, physical offset
    refused 18 STATUS reason        not stored, or not known to be on disk
    cleaned 65536                   a round of retention ended; the log now begins there
    state ...                       what the store says of itself after a refusal
    read 120                        so many messages could be read
    closed

With synchronous flush a message is ``kept`` when it was flushed, otherwise when it was put.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from cometmq.store import MessageStore
from cometmq.store.results import NewMessage, PutResult, PutStatus
from tests.crash import messages
from tests.crash.aim import Aim, AimedFiles
from tests.crash.fast_clock import FastClock
from tests.crash.reading import read_all
from tests.crash.sizes import LOG_FILE_BYTES, small

RETRY_SECONDS = 0.02

Say = Callable[[str], None]


class Plan(msgspec.Struct, frozen=True):
    """What the program is to do; chances are per group of messages."""

    root: str
    first: int
    count: int
    clock_ms: int
    """Since when time runs fast."""
    seed: int = 0
    is_sync: bool = True
    group_max: int = 8
    """Messages put before the program waits for the disk."""
    is_cleaning: bool = False
    clean_chance: float = 0.0
    reopen_chance: float = 0.0
    dispatch_chance: float = 0.5
    aim: Aim | None = None
    queue_count: int = 0
    """Spread the messages over so many queues, whatever their numbers say; 0: do not."""
    log_file_bytes: int = LOG_FILE_BYTES
    refusals_max: int = 1
    """Give up after so many refusals."""
    patience_seconds: float = 0.0
    """How long to try again after a refusal until a message is kept."""


class Writer:
    """One run of a plan."""

    def __init__(self, plan: Plan, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._chance = Random(plan.seed)
        self._files = AimedFiles(plan.aim)
        self._refusals = 0
        self._store = self._open()

    def run(self) -> None:
        plan = self._plan
        number = plan.first
        while number < plan.first + plan.count and self._refusals < plan.refusals_max:
            size = min(self._chance.randint(1, plan.group_max), plan.first + plan.count - number)
            self._put_group(range(number, number + size))
            number += size
            self._do_other_things()
        if self._refusals:
            self._show_that_it_can_read()
        self._close()

    def _open(self) -> MessageStore:
        plan = self._plan
        self._files.stage = "open"
        settings = small(
            is_sync=plan.is_sync,
            is_cleaning=plan.is_cleaning,
            log_file_bytes=plan.log_file_bytes,
        )
        store = MessageStore.open(
            Path(plan.root), settings, clock=FastClock(plan.clock_ms), files=self._files
        )
        self._files.stage = "run"
        self._say("opened")
        return store

    def _close(self) -> None:
        self._files.stage = "close"
        self._store.close()
        self._say("closed")

    def _put_group(self, numbers: range) -> None:
        self._say(f"begin {numbers[0]} {numbers[-1]}")
        waiting: list[tuple[int, PutResult]] = []
        for piece in self._pieces(numbers):
            waiting += self._put(piece)
        for number, result in waiting:
            if self._plan.is_sync and result.status is PutStatus.PUT_OK:
                result = self._store.wait_flushed(result)
            if result.status is PutStatus.PUT_OK:
                self._say(f"kept {number} {result.queue_offset} {result.physical_offset}")
            else:
                self._refuse(number, result)

    def _pieces(self, numbers: range) -> list[range]:
        """Cut into single messages and batches, which must share topic and queue."""
        pieces = []
        begin = numbers.start
        while begin < numbers.stop:
            block_end = begin - begin % messages.BATCH_COUNT + messages.BATCH_COUNT
            longest = min(block_end, numbers.stop) - begin
            length = self._chance.randint(1, longest) if self._chance.random() < 1 / 3 else 1
            pieces.append(range(begin, begin + length))
            begin += length
        return pieces

    def _put(self, numbers: range) -> list[tuple[int, PutResult]]:
        if len(numbers) == 1:
            return [(numbers[0], self._patiently(self._placed(numbers[0])))]
        result = self._store.put_batch(messages.batch_of(numbers))
        if not result.status.is_stored:
            return [(numbers[0], result)]
        return [
            (
                number,
                msgspec.structs.replace(
                    result,
                    physical_offset=result.offsets[index],
                    queue_offset=result.queue_offset + index,
                ),
            )
            for index, number in enumerate(numbers)
        ]

    def _placed(self, number: int) -> NewMessage:
        message = messages.message(number)
        if not self._plan.queue_count:
            return message
        return msgspec.structs.replace(message, queue_id=number % self._plan.queue_count)

    def _patiently(self, message: NewMessage) -> PutResult:
        result = self._store.put(message)
        deadline = time.monotonic() + self._plan.patience_seconds
        if not result.status.is_stored and self._plan.patience_seconds:
            self._refuse(message.born_timestamp, result)
            self._show_that_it_can_read()
        while not result.status.is_stored and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)
            self._store.clean()  # looks at the disk again, as a broker does now and then
            result = self._store.put(message)
        return result

    def _refuse(self, number: int, result: PutResult) -> None:
        self._refusals += 1
        self._say(f"refused {number} {result.status.name} {result.reason}")
        self._say(f"state {self._store.state}")

    def _show_that_it_can_read(self) -> None:
        self._say(f"read {sum(1 for _ in read_all(self._store))}")

    def _do_other_things(self) -> None:
        plan = self._plan
        if self._chance.random() < plan.dispatch_chance:
            self._store.dispatch()
        if self._chance.random() < plan.clean_chance:
            self._files.stage = "clean"
            self._store.clean()
            self._files.stage = "run"
            self._say(f"cleaned {self._store.log_begin}")
        if self._chance.random() < plan.reopen_chance:
            self._close()
            self._store = self._open()


def run(plan: Plan, descriptor: int) -> None:
    """Carry the plan out and write what happens to a descriptor."""

    def say(line: str) -> None:
        # One write per line: shorter than a pipe's atomic size, so never half a line.
        os.write(descriptor, line.replace("\n", " ")[:1000].encode() + b"\n")

    Writer(plan, say).run()


if __name__ == "__main__":
    run(msgspec.json.decode(sys.argv[1], type=Plan), sys.stdout.fileno())
