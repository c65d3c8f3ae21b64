"""Which consumer may read a queue while a group consumes in order.

A lock ends when its owner gives it back or has not renewed it for a while; that its connection
ended is no reason, since the owner may still be busy with messages of the queue.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from cometmq import logs
from cometmq.clock import Clock
from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue

LOCKS_MAX: Final = 100_000
"""Locks at a time, over all groups."""

_log = logs.get_logger("cometmq.broker")


class _Lock(NamedTuple):
    client_id: str
    renewed_at: float


class QueueLocks:
    """The locks of all groups, in memory only: after a restart everybody locks anew."""

    def __init__(self, clock: Clock, expiry_ms: int, *, count_max: int = LOCKS_MAX) -> None:
        self._clock = clock
        self._expiry_ms = expiry_ms
        self._count_max = count_max
        self._by_group: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0  # the expired ones included that nobody has missed yet

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock queues for a client, or go on doing so; those that are its own now.

        Raises BrokerError when there are too many locks, and then has locked nothing.
        """
        asked = list(dict.fromkeys(queues))
        self._make_room(group, asked)
        now = self._clock.monotonic()
        locks = self._by_group.setdefault(group, {}) if asked else {}
        granted, taken_over = [], []
        for queue in asked:
            known = locks.get(queue)
            if known is not None and known.client_id != client_id:
                if self._is_alive(known, now):
                    continue
                taken_over.append(queue)
            self._count += known is None
            locks[queue] = _Lock(client_id, now)
            granted.append(queue)
        if taken_over:
            _log.info(
                "group=%s client=%s locks %d queues whose locks had expired, %s the first",
                group, client_id, len(taken_over), _described(taken_over[0]),
            )  # fmt: skip
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give queues back; those of others stay locked."""
        locks = self._by_group.get(group)
        if locks is None:
            return
        for queue in queues:
            known = locks.get(queue)
            if known is not None and known.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._by_group[group]

    def has_lock(self, group: str) -> bool:
        """Whether a group consumes in order: some queue is locked for one of its members."""
        now = self._clock.monotonic()
        locks = self._by_group.get(group, {})
        return any(self._is_alive(lock, now) for lock in locks.values())

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """The client for which a queue is locked now."""
        lock = self._by_group.get(group, {}).get(queue)
        if lock is None or not self._is_alive(lock, self._clock.monotonic()):
            return None
        return lock.client_id

    def drop_expired(self) -> None:
        """Forget the locks that have ended by themselves."""
        now = self._clock.monotonic()
        for group, locks in list(self._by_group.items()):
            for queue in [q for q, lock in locks.items() if not self._is_alive(lock, now)]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._by_group[group]

    def _make_room(self, group: str, asked: Sequence[MessageQueue]) -> None:
        if not self._has_room(group, asked):
            self.drop_expired()
            if not self._has_room(group, asked):
                remark = f"{self._count} queues are locked: no more than {self._count_max} can be"
                raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)

    def _has_room(self, group: str, asked: Sequence[MessageQueue]) -> bool:
        known = self._by_group.get(group, {})
        return self._count + sum(queue not in known for queue in asked) <= self._count_max

    def _is_alive(self, lock: _Lock, now: float) -> bool:
        return (now - lock.renewed_at) * 1000 <= self._expiry_ms


def _described(queue: MessageQueue) -> str:
    return f"topic={queue.topic} queue={queue.queue_id}"
