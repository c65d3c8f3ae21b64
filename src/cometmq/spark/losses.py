"""Messages that a query was to read and that are gone: never passed over in silence."""

from __future__ import annotations

from cometmq import logs
from cometmq.errors import CometError
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.spark")


class MessagesLost(CometError):
    """Messages ``[begin, end)`` of a queue are not there any more."""

    def __init__(self, queue: MessageQueue, begin: int, end: int, reason: str) -> None:
        super().__init__(queue, begin, end, reason)
        self.queue = queue
        self.begin = begin
        self.end = end
        self.reason = reason
        self.fact = (
            f"{end - begin} messages of topic '{queue.topic}', queue {queue.queue_id} of"
            f" {queue.broker_name}, are gone: offsets {begin} to {end - 1} ({reason})"
        )
        self.next_step = "read on without them with option failOnDataLoss=false"


class Losses:
    """What is done about messages that are gone."""

    def __init__(self, *, is_fatal: bool) -> None:
        self._is_fatal = is_fatal

    def report(self, queue: MessageQueue, begin: int, end: int, reason: str) -> None:
        """Raise MessagesLost, or write a warning and let the reader go on behind the gap."""
        if begin >= end:
            return
        lost = MessagesLost(queue, begin, end, reason)
        if self._is_fatal:
            raise lost
        _log.warning("topic=%s queue=%d %s", queue.topic, queue.queue_id, lost.fact)
