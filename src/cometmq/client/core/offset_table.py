"""How far a consumer is in each of its queues, in memory; others write it to broker or file."""

from collections.abc import Collection, Mapping

from cometmq.model.offsets import MessageQueue


class OffsetTable:
    """Offsets of queues: the next message that has not been consumed.

    An offset that was corrected can be frozen: handlers that still run must not bring back the
    offset from before. It thaws when the queue is forgotten.
    """

    __slots__ = ("_frozen", "_offsets")

    def __init__(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        self._offsets: dict[MessageQueue, int] = dict(offsets or {})
        self._frozen: set[MessageQueue] = set()

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, queue: MessageQueue) -> int | None:
        """None when nothing is known in memory."""
        return self._offsets.get(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Move forward; an offset that is further already stays."""
        assert offset >= 0, (queue, offset)
        if offset > self._offsets.get(queue, -1) and queue not in self._frozen:
            self._offsets[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Move, also back."""
        assert offset >= 0, (queue, offset)
        if queue not in self._frozen:
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Move, also back, and stay there until the queue is forgotten or frozen elsewhere."""
        assert offset >= 0, (queue, offset)
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not ours any more, or begins anew."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def due(self, owned: Collection[MessageQueue]) -> dict[MessageQueue, int]:
        """What is to be written now; entries of queues that are not ``owned`` are forgotten.

        Everything, also what did not change: a write whose answer nobody waits for may be lost.
        """
        mine = set(owned)
        for queue in self._offsets.keys() - mine:
            self.forget(queue)
        return dict(self._offsets)

    def of_topic(self, topic: str = "") -> dict[MessageQueue, int]:
        """Offsets of a topic, of all topics if none is named: what request 221 asks for."""
        return {q: offset for q, offset in self._offsets.items() if topic in ("", q.topic)}
