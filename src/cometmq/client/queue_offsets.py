"""Asking brokers about a queue: where it begins, where it ends, where a group begins to read it."""

from collections.abc import Awaitable, Callable

from cometmq.client.core.advice import NO_ADDRESS
from cometmq.client.core.positions import Ask, Question, StartRule
from cometmq.client.instance import Instance
from cometmq.codec import core
from cometmq.codec.codes import V5_0_0, RequestCode
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    SearchOffsetByTimestamp,
)
from cometmq.errors import Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import MASTER_ID

QUESTION_TIMEOUT_MS = 6_000


async def master_of(instance: Instance, queue: MessageQueue) -> str:
    """Where to ask a queue's master: its address, or its VIP port if the client uses that.

    Raises as ``plain_master_of``.
    """
    return instance.vip(await plain_master_of(instance, queue))


async def plain_master_of(instance: Instance, queue: MessageQueue) -> str:
    """The address of a queue's master; the route is asked for once if it is not known.

    Raises Unreachable: an unknown address is an error before anybody is asked.
    """
    table = instance.routes.table
    address = table.master(queue.broker_name)
    if address is None:
        await instance.routes.refresh(queue.topic)
        address = table.master(queue.broker_name)
    if address is None:
        problem = f"no route of '{queue.topic}' has its master"
        raise Unreachable(queue.broker_name, problem, NO_ADDRESS)
    return address


async def keeper_of(instance: Instance, queue: MessageQueue) -> str:
    """Who keeps offsets of a queue: its master, or anybody while that is away."""
    try:
        return await master_of(instance, queue)
    except Unreachable:
        found = instance.routes.table.reader(queue.broker_name, MASTER_ID)
        if found is None:
            raise
        return instance.vip(found[1])


async def max_offset(instance: Instance, queue: MessageQueue) -> int:
    """The offset after the last message."""
    header = GetMaxOffset(queue.topic, queue.queue_id)
    return await _asked(instance, queue, RequestCode.GET_MAX_OFFSET, header)


async def min_offset(instance: Instance, queue: MessageQueue) -> int:
    """The offset of the first message that is still there."""
    header = GetMinOffset(queue.topic, queue.queue_id)
    return await _asked(instance, queue, RequestCode.GET_MIN_OFFSET, header)


async def offset_at(instance: Instance, queue: MessageQueue, time_ms: int) -> int:
    """The offset of the first message that was stored at this time or later.

    Brokers before 5.0 know it only about right: there it may be of one that is a little older.
    """
    master = instance.routes.table.master(queue.broker_name)
    version = None if master is None else instance.version_of(master)
    if version is not None and version < V5_0_0:
        # They answer with any of those that were stored in the same millisecond, or with the nearer
        # neighbour. A millisecond earlier none that is wanted can be before the answer.
        time_ms -= 1
    header = SearchOffsetByTimestamp(queue.topic, queue.queue_id, time_ms)
    return await _asked(instance, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


async def start_offset(
    instance: Instance,
    queue: MessageQueue,
    rule: StartRule,
    stored: Callable[[MessageQueue], Awaitable[int | None]],
) -> int:
    """Where to begin; ``stored`` finds the stored offset and raises when it cannot be read.

    Raises what asking raises: then the queue is not begun.
    """
    step = rule.begin()
    while isinstance(step, Ask):
        answer: int | None
        match step.question:
            case Question.STORED:
                answer = await stored(queue)
            case Question.END:
                answer = await max_offset(instance, queue)
            case Question.TIME:
                answer = await offset_at(instance, queue, step.time_ms)
        step = rule.next(queue.topic, step, answer)
    return step.offset


async def _asked(instance: Instance, queue: MessageQueue, code: RequestCode, header: Header) -> int:
    address = await master_of(instance, queue)
    answer = await instance.ask(address, code, header, timeout_ms=QUESTION_TIMEOUT_MS)
    return core.read(answer, OffsetResponse).offset
