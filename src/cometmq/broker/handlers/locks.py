"""Consumers that consume in order lock the queues they read."""

from collections.abc import Awaitable

from cometmq.broker.handlers.reading import with_body
from cometmq.broker.queue_locks import QueueLocks
from cometmq.codec import bodies
from cometmq.codec.bodies.queues import LockBatchAnswer, LockBatchBody
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import BrokerError
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

NAME_CHARACTERS_MAX = 1024
"""Of each name in a request: those of clients are the longest."""


class LockHandlers:
    """Requests 41 and 42."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.LOCK_BATCH_MQ, self.lock)
        routes.add(RequestCode.UNLOCK_BATCH_MQ, self.unlock)

    def lock(self, channel: Channel, command: Command) -> Answer | Awaitable[Answer]:
        return with_body(channel, command, LockBatchBody, self._lock)

    def unlock(self, channel: Channel, command: Command) -> Answer | Awaitable[Answer]:
        return with_body(channel, command, LockBatchBody, self._unlock)

    def _lock(self, asked: LockBatchBody) -> Answer:
        group, client_id = _owner(asked)
        locked = self._locks.lock(group, client_id, asked.mq_set)
        return Answer(body=bodies.encode(LockBatchAnswer(tuple(locked))))

    def _unlock(self, asked: LockBatchBody) -> Answer:
        group, client_id = _owner(asked)
        self._locks.unlock(group, client_id, asked.mq_set)
        return Answer()


def _owner(asked: LockBatchBody) -> tuple[str, str]:
    """The group and the client; both are needed, and nothing may be longer than makes sense."""
    group, client_id = asked.consumer_group, asked.client_id
    if not group or not client_id:
        raise _refusal("locks need consumerGroup and clientId")
    queue_names = (name for queue in asked.mq_set for name in (queue.topic, queue.broker_name))
    length = max(map(len, (group, client_id, *queue_names)))
    if length > NAME_CHARACTERS_MAX:
        raise _refusal(f"name of {length} characters: at most {NAME_CHARACTERS_MAX}")
    return group, client_id


def _refusal(remark: str) -> BrokerError:
    return BrokerError(ResponseCode.INVALID_PARAMETER, remark)
