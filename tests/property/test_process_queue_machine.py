"""Any life of a process queue: nothing is lost, and nothing is committed too early."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cometmq.client.core.process_queue import NOTHING, FlowLimits, Full, ProcessQueue

LIMITS = FlowLimits(cached_max=6, cached_mib_max=0, span_max=8)
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    queue_offset: int
    body_bytes: int


sizes = st.sampled_from((0, 1, 7, MIB // 2))
picks = st.lists(st.integers(0, 7), max_size=4)


class ProcessQueueMachine(RuleBasedStateMachine):
    """The model keeps two plain dictionaries and sorts them whenever it wants to know something."""

    @initialize(is_orderly=st.booleans())
    def start(self, is_orderly: bool) -> None:
        self.is_orderly = is_orderly
        self.queue: ProcessQueue[Message] = ProcessQueue(0)
        self.cached: dict[int, Message] = {}
        self.taken: dict[int, Message] = {}
        self.highest = 0
        self.next = 0
        self.now = 0
        self.is_consuming = False

    # --- both ways

    @rule(gaps=st.lists(st.sampled_from((0, 0, 0, 1, 5)), max_size=5), size=sizes)
    def pull(self, gaps: list[int], size: int) -> None:
        """What a broker sends next: rising offsets, with gaps where tags did not match."""
        messages = []
        for gap in gaps:
            messages.append(Message(self.next + gap, size))
            self.next = messages[-1].queue_offset + 1
        self.put(messages)

    @rule(offsets=st.lists(st.integers(0, 30), max_size=5), size=sizes)
    def pull_anything(self, offsets: list[int], size: int) -> None:
        """What no broker sends: back and forth, and what is here already."""
        self.put([Message(offset, size) for offset in offsets])
        self.next = max([self.next, *(offset + 1 for offset in offsets)])

    def put(self, messages: list[Message]) -> None:
        for message in messages:
            if message.queue_offset not in self.cached:
                self.highest = message.queue_offset
            self.cached[message.queue_offset] = message
        begins = bool(self.cached) and not self.is_consuming
        self.is_consuming |= begins

        assert self.queue.put(messages) is begins

    @rule()
    def clear(self) -> None:
        self.queue.clear()

        self.cached, self.taken, self.highest = {}, {}, 0

    @rule(passed_ms=st.integers(1, 100))
    def wait(self, passed_ms: int) -> None:
        self.now += passed_ms

    # --- concurrent

    @precondition(lambda self: not self.is_orderly)
    @rule(picks=picks, is_stranger_among=st.booleans())
    def acknowledge(self, picks: list[int], is_stranger_among: bool) -> None:
        messages = self.picked(self.cached, picks)
        if is_stranger_among:
            messages.append(Message(1_000, 1))
        was_empty = not self.cached
        for message in messages:
            self.forget(message)

        offset = self.queue.remove_all(messages, self.now)

        self.check_offset(offset, was_empty)

    @precondition(lambda self: not self.is_orderly and self.cached)
    @rule(pick=st.integers(0, 7))
    def acknowledge_one(self, pick: int) -> None:
        message = self.picked(self.cached, [pick])[0]
        self.forget(message)

        offset = self.queue.remove(message, self.now)

        self.check_offset(offset, was_empty=False)

    @precondition(lambda self: not self.is_orderly)
    @rule()
    def sweep(self) -> None:
        """What runs too long is stored elsewhere and removed."""
        first = min(self.cached, default=-1)

        message = self.queue.first()

        assert message == self.cached.get(first)
        if message is not None:
            self.forget(message)
            self.check_offset(self.queue.remove_if_first(message, self.now), was_empty=False)

    def forget(self, message: Message) -> None:
        self.cached.pop(message.queue_offset, None)

    def check_offset(self, offset: int, was_empty: bool) -> None:
        if was_empty:
            assert offset == NOTHING
        else:
            assert offset == min(self.cached, default=self.highest + 1)

    # --- orderly

    @precondition(lambda self: self.is_orderly)
    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        firsts = sorted(self.cached)[:count]

        taken = self.queue.take(count, self.now)

        assert taken == [self.cached[offset] for offset in firsts]
        self.taken |= {offset: self.cached.pop(offset) for offset in firsts}
        self.is_consuming = self.is_consuming and bool(firsts)

    @precondition(lambda self: self.is_orderly)
    @rule()
    def commit(self) -> None:
        offset = self.queue.commit()

        if self.taken:
            assert offset == min([max(self.taken) + 1, *self.cached])
        else:
            assert offset == NOTHING
        self.taken = {}

    @precondition(lambda self: self.is_orderly)
    @rule()
    def roll_back(self) -> None:
        self.queue.roll_back()

        self.cached |= self.taken
        self.taken = {}

    @precondition(lambda self: self.is_orderly)
    @rule(picks=picks)
    def again(self, picks: list[int]) -> None:
        messages = self.picked(self.taken, picks)

        self.queue.again(messages)

        for message in messages:
            self.taken.pop(message.queue_offset, None)
            self.cached[message.queue_offset] = message

    @staticmethod
    def picked(table: dict[int, Message], picks: list[int]) -> list[Message]:
        """Some of a table, the lowest offsets more often than the others."""
        offsets = sorted(table)
        return [table[offsets[pick]] for pick in dict.fromkeys(picks) if pick < len(offsets)] or [
            table[offset] for offset in offsets[:1]
        ]

    # --- always

    @invariant()
    def counts_are_right(self) -> None:
        everything = [*self.cached.values(), *self.taken.values()]

        assert len(self.queue) == len(everything)
        assert self.queue.body_bytes == sum(message.body_bytes for message in everything)
        assert self.queue.has_waiting == bool(self.cached)
        assert self.queue.is_consuming == self.is_consuming

    @invariant()
    def the_ends_are_right(self) -> None:
        first, last = min(self.cached, default=0), max(self.cached, default=0)
        info = self.queue.info(0)

        assert self.queue.first() == self.cached.get(first)
        assert (info.cached_msg_min_offset, info.cached_msg_max_offset) == (first, last)
        assert info.transaction_msg_count == len(self.taken)
        # Before the span is asked for, which tidies up.
        assert self.queue.full(LIMITS) is self.expected_verdict(last - first)
        assert self.queue.span == last - first

    def expected_verdict(self, span: int) -> Full | None:
        everything = [*self.cached.values(), *self.taken.values()]
        if len(everything) > 6:
            return Full.COUNT
        if sum(message.body_bytes for message in everything) >= MIB:
            return Full.BYTES
        return Full.SPAN if span > 8 else None


TestProcessQueueMachine = ProcessQueueMachine.TestCase
