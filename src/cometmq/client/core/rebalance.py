"""Which queues of a topic come to a member, which go and which stay; pure.

Whoever knows the route and the members asks here, one topic after the other, and carries the plan
out. A plan that changes nothing because something was not known says why: losing the route, the
list of members or a strategy must not stop what is being consumed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cometmq.client.core.strategies import Strategy
from cometmq.model.offsets import MessageQueue
from cometmq.model.shares import ordered_names, ordered_queues

NO_LIMIT = -1
"""A limit per topic that was not set."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a member's queues of one topic; each tuple is in order.

    ``known`` are all queues of the topic, for those who listen to changes. ``problem`` says why
    nothing changes although something may have; it is empty when the plan could be made.
    """

    topic: str
    come: tuple[MessageQueue, ...] = ()
    go: tuple[MessageQueue, ...] = ()
    stay: tuple[MessageQueue, ...] = ()
    known: tuple[MessageQueue, ...] = ()
    problem: str = ""

    @property
    def is_change(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.come or self.go)

    @property
    def mine(self) -> tuple[MessageQueue, ...]:
        """What the member has when the plan is carried out."""
        return tuple(ordered_queues((*self.stay, *self.come)))


@dataclass(frozen=True, slots=True)
class Member:
    """Who shares: a client in a group, and how that group shares."""

    group: str
    client_id: str
    strategy: Strategy

    def plan(
        self,
        topic: str,
        owned: Iterable[MessageQueue],
        queues: Collection[MessageQueue] | None,
        client_ids: Collection[str] | None,
    ) -> Plan:
        """For a group whose members share the queues of ``topic``.

        ``owned`` may have queues of other topics too. ``queues`` are those of the route, None
        without one; ``client_ids`` the group's members as a broker lists them, None or empty when
        none could be asked. A list without this member takes everything away from it: the others
        count on that.
        """
        if queues is None:
            return _unchanged(topic, owned, "there is no route")
        known = ordered_queues(queues)
        if not client_ids:
            return _unchanged(topic, owned, "the members of the group are not known", known)
        # Not without repeats: two connections of one id are two members to Java.
        members = ordered_names(client_ids)
        try:
            share = self.strategy.allocate(self.group, self.client_id, known, members)
        except Exception as error:
            # Anything: a strategy may be the user's own.
            problem = f"strategy {self.strategy.name} failed: {type(error).__name__}: {error}"
            return _unchanged(topic, owned, problem, known)
        return _plan(topic, owned, share, known)


def broadcast_plan(
    topic: str, owned: Iterable[MessageQueue], queues: Collection[MessageQueue] | None
) -> Plan:
    """For a group of which each member reads all queues of ``topic``."""
    if queues is None:
        return _unchanged(topic, owned, "there is no route")
    known = ordered_queues(queues)
    return _plan(topic, owned, known, known)


def forgotten(owned: Iterable[MessageQueue], topics: Collection[str]) -> list[MessageQueue]:
    """Queues of topics that are not subscribed any more; they go without being committed."""
    return ordered_queues(queue for queue in owned if queue.topic not in topics)


def queue_limit(queue_max: int, topic_max: int, owned_count: int) -> int:
    """What may be cached of one queue: a part of the limit of its topic, if there is one.

    1 000 for a topic of which we have 3 queues are 333 for each, and never less than 1.
    """
    if topic_max == NO_LIMIT or owned_count == 0:
        return queue_max
    return max(1, topic_max // owned_count)


def _plan(
    topic: str,
    owned: Iterable[MessageQueue],
    share: Iterable[MessageQueue],
    known: list[MessageQueue],
) -> Plan:
    has = {queue for queue in owned if queue.topic == topic}
    wants = set(share)
    return Plan(
        topic,
        come=tuple(ordered_queues(wants - has)),
        go=tuple(ordered_queues(has - wants)),
        stay=tuple(ordered_queues(has & wants)),
        known=tuple(known),
    )


def _unchanged(
    topic: str, owned: Iterable[MessageQueue], problem: str, known: Iterable[MessageQueue] = ()
) -> Plan:
    has = [queue for queue in owned if queue.topic == topic]
    return Plan(topic, stay=tuple(ordered_queues(has)), known=tuple(known), problem=problem)
