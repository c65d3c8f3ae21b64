"""Any life of a group: members come, go and are killed, and no message is passed over.

The members are made of the pure parts of consumers: the plan of a rebalance, the place where a
queue begins, the process queue and the table of offsets. The broker is two dictionaries.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from cometmq.client.core.offset_table import OffsetTable
from cometmq.client.core.positions import Ask, StartRule, Step
from cometmq.client.core.process_queue import NOTHING, ProcessQueue
from cometmq.client.core.rebalance import Member
from cometmq.client.core.strategies import Average, AverageByCircle, ConsistentHash, Strategy
from cometmq.model.offsets import MessageQueue

TOPIC = "orders"
STRATEGIES: tuple[Strategy, ...] = (Average(), AverageByCircle(), ConsistentHash())
PULL_MAX = 4

picks = st.integers(0, 7)


@dataclass(frozen=True, slots=True)
class Message:
    queue_offset: int
    body_bytes: int = 1


@dataclass(eq=False, slots=True)
class Consumer:
    """One member and what it has in memory."""

    member: Member
    table: OffsetTable = field(default_factory=OffsetTable)
    owned: dict[MessageQueue, ProcessQueue[Message]] = field(default_factory=dict)
    messages: dict[MessageQueue, dict[int, Message]] = field(default_factory=dict)
    next_offsets: dict[MessageQueue, int] = field(default_factory=dict)

    def forget(self, queue: MessageQueue) -> None:
        self.table.forget(queue)
        del self.owned[queue], self.messages[queue], self.next_offsets[queue]


class GroupMachine(RuleBasedStateMachine):
    """``done`` is the model: which messages a handler has acknowledged, whoever's it was."""

    members = Bundle("members")

    @initialize(queues=st.integers(1, 5), strategy=st.sampled_from(STRATEGIES))
    def start(self, queues: int, strategy: Strategy) -> None:
        self.strategy = strategy
        self.count = 0
        self.alive: list[Consumer] = []
        self.ends: dict[MessageQueue, int] = {}  # the log
        self.stored: dict[MessageQueue, int] = {}  # offsets, as the broker has them
        self.done: dict[MessageQueue, set[int]] = {}
        for _ in range(queues):
            self.add_queue()

    # --- the cluster

    @rule()
    def add_queue(self) -> None:
        if len(self.ends) < 8:
            queue = MessageQueue(TOPIC, "broker-a", len(self.ends))
            self.ends[queue] = 0
            self.done[queue] = set()

    @rule(count=st.integers(1, 6))
    def produce(self, count: int) -> None:
        for queue in self.ends:
            self.ends[queue] += count

    # --- members

    @rule(target=members)
    def join(self) -> Consumer:
        """It looks for its queues at once; the others do when they hear of it."""
        self.count += 1
        member = Consumer(Member("group", f"client-{self.count}", self.strategy))
        self.alive.append(member)
        self.rebalance(member, are_known=True)
        return member

    @rule(member=consumes(members), is_killed=st.booleans())
    def leave(self, member: Consumer, is_killed: bool) -> None:
        if not is_killed:
            self.persist(member)
        self.alive.remove(member)

    @rule(member=members, are_known=st.sampled_from((True, True, True, False)))
    def rebalance(self, member: Consumer, are_known: bool) -> None:
        """With the lists of now, or without them: then nothing changes."""
        before = set(member.owned)
        ids = [one.member.client_id for one in self.alive] if are_known else None
        plan = member.member.plan(TOPIC, member.owned, list(self.ends), ids)
        assert bool(plan.problem) is not are_known
        assert set(plan.stay) | set(plan.go) == before
        assert not before & set(plan.come)
        for queue in plan.go:
            self._persist(member, queue)
            member.forget(queue)
        for queue in plan.come:
            self._begin(member, queue)
        assert set(member.owned) == set(plan.mine)

    @rule(member=members)
    def pull(self, member: Consumer) -> None:
        for queue, cached in member.owned.items():
            begin = member.next_offsets[queue]
            found = [Message(offset) for offset in range(begin, self.ends[queue])][:PULL_MAX]
            cached.put(found)
            member.messages[queue].update({one.queue_offset: one for one in found})
            member.next_offsets[queue] = begin + len(found)

    @rule(member=members)
    def pull_what_nobody_wants(self, member: Consumer) -> None:
        """All of it has another tag: it is passed over, unless something before it waits."""
        for queue, cached in member.owned.items():
            begin = member.next_offsets[queue]
            end = min(begin + PULL_MAX, self.ends[queue])
            self.done[queue].update(range(begin, end))
            member.next_offsets[queue] = end
            if not len(cached):
                member.table.advance(queue, end)

    @rule(member=members, which=picks)
    def acknowledge(self, member: Consumer, which: int) -> None:
        """Of each queue one message, not always the first."""
        for queue, messages in member.messages.items():
            if messages:
                self._done(member, queue, sorted(messages)[which % len(messages)])

    @rule(member=members)
    def persist(self, member: Consumer) -> None:
        for queue in member.owned:
            self._persist(member, queue)

    @rule(member=members, pick=picks, back=st.integers(0, 9))
    def reset(self, member: Consumer, pick: int, back: int) -> None:
        """Somebody sets the group back; a handler that still runs does not undo that."""
        if not member.owned:
            return
        queue = sorted(member.owned)[pick % len(member.owned)]
        offset = max(0, self.stored.get(queue, 0) - back)
        member.table.freeze(queue, offset)
        member.table.advance(queue, self.ends[queue] + 1)
        self._persist(member, queue)
        assert self.stored[queue] == offset
        member.forget(queue)

    # --- claims

    @invariant()
    def nothing_is_passed_over(self) -> None:
        """Whatever was stored, by whomever: everything before it has been handled."""
        for queue, offset in getattr(self, "stored", {}).items():
            assert set(range(offset)) <= self.done[queue], (queue, offset)

    def teardown(self) -> None:
        """When the group comes to rest each queue has one member, and all is handled."""
        if not hasattr(self, "alive"):
            return
        self.join()
        for _ in range(2):
            for member in self.alive:
                self.rebalance(member, are_known=True)
        owners = [queue for member in self.alive for queue in member.owned]
        assert sorted(owners) == sorted(self.ends)
        for member in self.alive:
            self._finish(member)
        for queue, end in self.ends.items():
            assert set(range(end)) <= self.done[queue]
            assert self.stored[queue] == end

    # --- the inside

    def _begin(self, member: Consumer, queue: MessageQueue) -> None:
        rule_ = StartRule("first")
        step: Step = rule_.begin()
        while isinstance(step, Ask):
            step = rule_.next(TOPIC, step, self.stored.get(queue))
        member.table.set(queue, step.offset)
        member.owned[queue] = ProcessQueue(0)
        member.messages[queue] = {}
        member.next_offsets[queue] = step.offset

    def _done(self, member: Consumer, queue: MessageQueue, offset: int) -> None:
        message = member.messages[queue].pop(offset)
        self.done[queue].add(offset)
        committed = member.owned[queue].remove(message, 0)
        if committed != NOTHING:
            member.table.advance(queue, committed)

    def _persist(self, member: Consumer, queue: MessageQueue) -> None:
        offset = member.table.get(queue)
        if offset is not None:
            self.stored[queue] = offset

    def _finish(self, member: Consumer) -> None:
        while any(offset < self.ends[queue] for queue, offset in member.next_offsets.items()):
            self.pull(member)
        while any(member.messages.values()):
            self.acknowledge(member, which=-1)
        self.pull_what_nobody_wants(member)
        self.persist(member)


TestGroupMachine = GroupMachine.TestCase
