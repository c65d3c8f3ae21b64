"""How a member computes its share of a topic's queues, in the ways that Java clients know.

Every member of a group must use the same strategy, with the same settings: nobody tells the others
what he chose, and shares of different ones overlap or leave queues without a reader.

All of them expect queues and ids sorted as ``model.shares`` does. A member whose id is not in the
list (the broker has not seen its heartbeat yet) gets nothing.
"""

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from cometmq.errors import LocalProtocolError, SettingsError
from cometmq.model import shares
from cometmq.model.offsets import MessageQueue

T = TypeVar("T")


class Strategy(Protocol):
    """What rebalancing asks of a strategy; one of your own needs just this.

    ``allocate`` must be a function of its arguments alone, or members disagree. When it raises, the
    member keeps what it has.
    """

    @property
    def name(self) -> str:
        """For logs and running info; Java's name where Java has the same strategy."""
        ...

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The queues of one topic that ``client_id`` is to read."""
        ...


class Average:
    """Neighbouring queues, as many for each member as for the others or one more. The default."""

    name = shares.AVERAGE

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        position, count = client_ids.index(client_id), len(client_ids)
        return list(shares.average_share(queues, position, count))


class AverageByCircle:
    """One queue for each member in turn."""

    name = shares.CIRCLE

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        position, count = client_ids.index(client_id), len(client_ids)
        return list(shares.circle_share(queues, position, count))


class Configured:
    """The queues that were given to this member, whatever there is and whoever else is there."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = tuple(queues)

    def allocate(
        self,
        group: str,  # noqa: ARG002
        client_id: str,  # noqa: ARG002
        queues: Sequence[MessageQueue],  # noqa: ARG002
        client_ids: Sequence[str],  # noqa: ARG002
    ) -> list[MessageQueue]:
        return list(self._queues)


class MachineRoom:
    """Only queues of brokers named ``<room>@<name>`` in the given rooms; nobody reads the others.

    Each member gets as many neighbouring ones as fit evenly; what is left over goes to the first
    members, one each, from the end of the list.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        near = [queue for queue in queues if self._is_near(queue)]
        position, count = client_ids.index(client_id), len(client_ids)
        each, rest = divmod(len(near), count)
        share = near[position * each : (position + 1) * each]
        if position < rest:
            share.append(near[count * each + position])
        return share

    def _is_near(self, queue: MessageQueue) -> bool:
        # Java's split drops empty parts at the end: "a@b@" has two parts, "a@" has one.
        parts = queue.broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class MachineRoomNearby:
    """Queues of the member's own room by ``inner``; rooms without members are shared by everybody.

    ``room_of_queue`` and ``room_of_client`` name the rooms; an empty name is an error.
    """

    def __init__(
        self,
        inner: Strategy,
        *,
        room_of_queue: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self.name = f"MACHINE_ROOM_NEARBY-{inner.name}"
        self._inner = inner
        self._room_of_queue = room_of_queue
        self._room_of_client = room_of_client

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        queues_by_room = _by_room(queues, self._room_of_queue)
        members_by_room = _by_room(client_ids, self._room_of_client)
        own = self._room_of_client(client_id)
        share: list[MessageQueue] = []
        if own in queues_by_room:
            near = queues_by_room[own]
            share += self._inner.allocate(group, client_id, near, members_by_room[own])
        for room in shares.ordered_names(queues_by_room):
            if room not in members_by_room:
                share += self._inner.allocate(group, client_id, queues_by_room[room], client_ids)
        return share


class ConsistentHash:
    """Members and queues on a ring: when a member comes or goes, few queues change their reader."""

    name = "CONSISTENT_HASH"

    def __init__(self, node_count: int = 10) -> None:
        if node_count < 1:
            reason = f"{node_count} places of a member on the ring are too few"
            raise SettingsError("node_count", reason, "give 1 or more, the same in every member")
        self._node_count = node_count

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        ring = self._ring(client_ids)
        places = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            place = bisect.bisect_left(places, _ring_place(_java_text(queue)))
            return ring[places[place % len(places)]]

        return [queue for queue in queues if owner(queue) == client_id]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Which member owns which place; of two at one place the later one."""
        ring: dict[int, str] = {}
        known: set[str] = set()
        for client_id in client_ids:
            # An id that is listed twice gets further places, as in Java.
            begin = 0
            if client_id in known:
                begin = sum(owner == client_id for owner in ring.values())
            known.add(client_id)
            for number in range(begin, begin + self._node_count):
                ring[_ring_place(f"{client_id}-{number}")] = client_id
        return ring


def _is_member(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> bool:
    """Raises, as in Java, when a share cannot be told: the member then keeps what it has."""
    for what, value in (("client id", client_id), ("queue", queues), ("member", client_ids)):
        if not value:
            raise LocalProtocolError(f"group {group}: there is no {what} to compute shares with")
    return client_id in client_ids


def _by_room(things: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            next_step = "let room_of_queue and room_of_client name one for each"
            raise SettingsError("strategy", f"there is no room for {thing}", next_step)
        rooms.setdefault(room, []).append(thing)
    return rooms


def _ring_place(text: str) -> int:
    # Not a matter of security: members of every language compute it.
    digest = hashlib.md5(text.encode(errors="replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])


def _java_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )
