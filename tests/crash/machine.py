"""A store on a disk that crashes, in one process, with a ledger of what it promised."""

from pathlib import Path
from random import Random

from cometmq.store import MessageStore, PutResult, PutStatus, StoreSettings
from cometmq.testing import CrashingDisk, FakeClock
from tests.crash import messages
from tests.crash.ledger import Ledger, Place, claim_consistent
from tests.crash.sizes import small

PAUSES_SECONDS = (0.0, 0.01, 0.1, 1.0, 5.0)
"""What passes between two steps: some recoveries must find a checkpoint they can trust, which takes
three seconds, and some must not."""


SET_BACK_CHANCE = 0.03
"""How often somebody turns the clock back between two steps: checkpoints speak of times."""


class Machine:
    """One directory through openings, crashes and everything between them."""

    def __init__(
        self,
        root: Path,
        *,
        settings: StoreSettings | None = None,
        only_queue: tuple[str, int] | None = None,
        sector_bytes: int | None = None,
    ) -> None:
        self.root = root
        self._settings = settings or small(is_cleaning=True)
        # Where all messages go; None when their numbers decide.
        self._only_queue = only_queue
        root.mkdir(parents=True, exist_ok=True)
        self.disk = CrashingDisk(root, sector_bytes=sector_bytes)
        self.clock = FakeClock()
        self.ledger = Ledger()
        self._store: MessageStore | None = None
        # Numbers put, or tried to, since the store was opened; those it took, and where they end.
        self._numbers: list[int] = []
        self._put: list[tuple[int, Place, int]] = []

    @property
    def store(self) -> MessageStore:
        assert self._store is not None
        return self._store

    def open(self) -> None:
        self._numbers = []
        self._put = []
        self._store = MessageStore.open(
            self.root, self._settings, clock=self.clock, files=self.disk, threads=False
        )

    def close(self) -> None:
        self.store.close()
        self._settle(end=self.store.log_end)

    def crash(self, seed: int) -> None:
        """Cut the power, whatever is going on, and find out what was surely on disk by then."""
        if self._store is not None:
            self._settle(end=self._store.watermarks.flushed)
        self.disk.crash(seed)

    def clean(self) -> None:
        self.ledger.is_cleaned = True
        self.store.clean()
        self.ledger.cleaned_begin = self.store.log_begin

    def put(self, count: int) -> None:
        for _ in range(count):
            number = self._next_number()
            self._enter(range(number, number + 1))

    def put_batch(self) -> None:
        number = self._next_number()
        block_begin = number - number % messages.BATCH_COUNT
        self._enter(range(number, block_begin + messages.BATCH_COUNT))

    def step(self, chance: Random) -> None:
        """Do something a program might do."""
        match chance.choices(
            ("put", "batch", "flush", "flush step", "dispatch", "clean", "reopen", "read"),
            (30, 10, 6, 20, 10, 3, 2, 3),
        )[0]:
            case "put":
                self.put(chance.randint(1, 12))
            case "batch":
                self.put_batch()
            case "flush":
                self.store.flush()
            case "flush step":
                self.store.flush_step()
            case "dispatch":
                self.store.dispatch(chance.randint(1, 20))
            case "clean":
                self.clean()
            case "reopen":
                self.close()
                self.open()
            case "read":
                self._note_flushed(self.store.watermarks.flushed)
                self.store.queues()
        self.clock.advance(chance.choice(PAUSES_SECONDS))
        if chance.random() < SET_BACK_CHANCE:
            self.clock.set_back(chance.choice(PAUSES_SECONDS) * 10)

    def recover(self) -> None:
        """Open the directory and claim what must be there."""
        self.open()
        self.ledger.claim(self.store)

    def check(self) -> None:
        """Close the store and claim that nothing is wrong with its files."""
        self.close()
        claim_consistent(self.root, self._settings)

    def _next_number(self) -> int:
        number = self._numbers[-1] + 1 if self._numbers else self.ledger.next_number
        while self._only_queue not in (None, messages.place(number)):
            number += 1
        return number

    def _enter(self, numbers: range) -> None:
        self._numbers += numbers
        result = self._put_one_or_batch(numbers)
        if result.status is PutStatus.TRANSIENT_POOL_EMPTY:
            self.store.flush()
            result = self._put_one_or_batch(numbers)
        assert result.status.is_stored, result
        self._note(numbers, result)

    def _put_one_or_batch(self, numbers: range) -> PutResult:
        if len(numbers) == 1:
            return self.store.put(messages.message(numbers[0]))
        return self.store.put_batch(messages.batch_of(numbers))

    def _note(self, numbers: range, result: PutResult) -> None:
        offsets = result.offsets or (result.physical_offset,)
        ends = (*offsets[1:], result.end)
        for index, (number, offset, end) in enumerate(zip(numbers, offsets, ends, strict=True)):
            self._put.append((number, Place(result.queue_offset + index, offset), end))

    def _settle(self, *, end: int) -> None:
        """The store is gone; what it had on disk up to ``end`` was promised."""
        self._note_flushed(end)
        self.ledger.runs.append(self._numbers)
        self._store = None

    def _note_flushed(self, flushed: int) -> None:
        for number, place, end in self._put:
            if end <= flushed:
                self.ledger.promised[number] = place
