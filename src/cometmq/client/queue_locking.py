"""Locks that make one member of a group the only reader of a queue; brokers keep them for 60 s."""

import asyncio
from collections.abc import Iterable

from cometmq import logs
from cometmq.client.instance import Instance
from cometmq.client.queue_offsets import master_of, plain_master_of
from cometmq.codec import bodies
from cometmq.codec.bodies.queues import LockBatchAnswer, LockBatchBody
from cometmq.codec.codes import RequestCode
from cometmq.errors import CometError
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

LOCK_TIMEOUT_MS = 1_000


class QueueLocking:
    """The locks of one member; queues and ``group`` are as servers know them."""

    def __init__(self, instance: Instance, group: str) -> None:
        self.held: set[MessageQueue] = set()  # what brokers may have locked for us
        self._instance = instance
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues, or renew that: which of them are ours now and which are not.

        Queues whose brokers could not be asked are not in the answer.
        """
        by_broker = _by_broker(queues)
        for group in by_broker.values():
            self.held.update(group)
        answers = await asyncio.gather(*(self._lock(group) for group in by_broker.values()))
        found = {queue: is_ours for answer in answers for queue, is_ours in answer.items()}
        self.held.difference_update(queue for queue, is_ours in found.items() if not is_ours)
        return found

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have them at once; a broker that does not hear it waits for 60 s."""
        await self._unlock_all(queues, is_synchronous=False)

    async def unlock_last(self, seconds: float) -> None:
        """``unlock`` whatever is held, and wait until brokers have done it, but not for longer."""
        try:
            async with asyncio.timeout(seconds):
                await self._unlock_all(tuple(self.held), is_synchronous=True)
        except TimeoutError:
            _log.warning("group=%s queues not unlocked within %.1f s", self._group, seconds)

    async def _unlock_all(self, queues: Iterable[MessageQueue], *, is_synchronous: bool) -> None:
        by_broker = _by_broker(queues)
        for group in by_broker.values():
            self.held.difference_update(group)
        await asyncio.gather(*(self._unlock(g, is_synchronous) for g in by_broker.values()))

    async def _lock(self, queues: list[MessageQueue]) -> dict[MessageQueue, bool]:
        try:
            answer = await self._instance.ask(
                await master_of(self._instance, queues[0]),
                RequestCode.LOCK_BATCH_MQ,
                None,
                self._body(queues),
                timeout_ms=LOCK_TIMEOUT_MS,
            )
            ours = bodies.decode(LockBatchAnswer, answer.body).lock_ok_mq_set if answer.body else ()
        except CometError as error:
            _log.warning("group=%s %d queues not locked: %s", self._group, len(queues), error)
            return {}
        return {queue: queue in ours for queue in queues}

    async def _unlock(self, queues: list[MessageQueue], is_synchronous: bool) -> None:
        code, body = RequestCode.UNLOCK_BATCH_MQ, self._body(queues)
        try:
            if is_synchronous:
                address = await master_of(self._instance, queues[0])
                await self._instance.ask(address, code, None, body, timeout_ms=LOCK_TIMEOUT_MS)
            else:  # never to the VIP port, as in Java
                address = await plain_master_of(self._instance, queues[0])
                await self._instance.tell(address, code, None, body)
        except CometError as error:
            _log.warning("group=%s %d queues not unlocked: %s", self._group, len(queues), error)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return bodies.encode(LockBatchBody(self._group, self._instance.client_id, tuple(queues)))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
