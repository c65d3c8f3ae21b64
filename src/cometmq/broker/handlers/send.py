"""Taking messages: single ones and batches, all those of one read at once.

Theory of operation. Nearly every send is plain: a known topic that anybody may send to, one
message, nothing asked for but to be stored. The store takes these by itself, as many as follow each
other (``codec.sends``); whatever is different is looked at closely (``send_plans``) and stored one
by one. A message is in the log when its answer is written; whoever wants to know it on disk is
answered when the flusher has got there, all messages of one read together.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from cometmq.broker.send_plans import BORN_HOST, illegal
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessage, SendMessageV2
from cometmq.remoting.routes import Answer, failure
from cometmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.broker.durability import Durability
    from cometmq.broker.idempotence import IdempotentSends
    from cometmq.broker.send_plans import SendPlans
    from cometmq.codec.command import Command
    from cometmq.codec.headers.send import SendMessageResponse
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes, ShortWay
    from cometmq.store import MessageStore
    from cometmq.store.results import PutResult

    Stored = tuple[Command, SendMessageResponse]


class SendHandlers:
    """Requests 10, 310 and 320."""

    def __init__(
        self,
        store: MessageStore,
        plans: SendPlans,
        durability: Durability | None,
        idempotent: IdempotentSends | None = None,
    ) -> None:
        self._store = store
        self._plans = plans
        # None when nobody waits for the disk.
        self._durability = durability
        # Stores sends with a sequence; never plain ones.
        self._idempotent = idempotent
        # Takes plain sends; not when somebody waits for the disk.
        self._tail = None
        if durability is None:
            self._tail = store.send_tail(
                plans.plain_topics,
                addition=plans.addition,
                store_host=plans.store_host,
                id_prefix=plans.id_prefix,
                answer=self._written,
            )

    def add_to(self, routes: Routes) -> None:
        long, short = (
            functools.partial(self.send, header_type)
            for header_type in (SendMessage, SendMessageV2)
        )
        routes.add_batch(RequestCode.SEND_MESSAGE, long)
        routes.add_batch(RequestCode.SEND_MESSAGE_V2, short)
        routes.add_batch(RequestCode.SEND_BATCH_MESSAGE, short)
        if self._tail is not None:
            routes.add_short_way(RequestCode.SEND_MESSAGE, self._short_way(self._tail, SendMessage))
            routes.add_short_way(
                RequestCode.SEND_MESSAGE_V2, self._short_way(self._tail, SendMessageV2)
            )

    def _short_way(self, tail: core.SendTail, header_type: type[SendMessage]) -> ShortWay:
        """Takes plain sends from the front of a read."""
        take_sends, plans = self._store.take_sends, self._plans

        def take(channel: Channel, commands: Sequence[Command], frames: list[bytes]) -> int:
            host, flags = channel.attributes.get(BORN_HOST) or plans.born_host(channel)
            return take_sends(tail, commands, 0, header_type, host, flags, frames)

        return take

    def send(
        self, header_type: type[SendMessage], channel: Channel, commands: Sequence[Command]
    ) -> None:
        """Take sends with headers of one kind, of which the first is not plain, and answer them."""
        born_host, host_flags = self._plans.born_host(channel)
        count = len(commands)
        waiting: list[Stored] = []
        position = 0
        while position < count:
            try:
                self._send_one(channel, commands[position], header_type, waiting)
            except Exception as error:
                channel.reply(commands[position], failure(commands[position], error))
            position += 1
            if self._tail is not None and position < count:
                heads: list[bytes] = []
                position = self._store.take_sends(
                    self._tail, commands, position, header_type, born_host, host_flags, heads
                )
                if heads:
                    channel.answer_with(heads)
        if waiting and self._durability is not None:
            end = self._store.log_end
            self._durability.after(
                end, len(waiting), lambda is_safe: _answer_all(channel, waiting, is_safe=is_safe)
            )

    def _send_one(
        self,
        channel: Channel,
        command: Command,
        header_type: type[SendMessage],
        waiting: list[Stored],
    ) -> None:
        """Take one send of whatever kind; if its sender waits for the disk, it is in ``waiting``.

        Raises BrokerError with the refusal.
        """
        plans, durability = self._plans, self._durability
        header = core.read(command, header_type)
        plan = plans.prepare(channel, command, header)
        if durability is not None and plan.is_waiting and durability.is_full:
            channel.reply(command, _too_many(durability))
            return
        if self._idempotent is not None and header.is_extended:
            plan, result, count = self._idempotent.put(header, plan)
        else:
            put = self._store.put_batch if plan.is_batch else self._store.put
            result = put(plan.message)
            count = len(result.offsets) or 1
        if result.status is not PutStatus.PUT_OK:
            channel.reply(command, refusal(result, plans.body_bytes_max))
            return
        if count:
            plan.topic.put_count += count
        if count == (len(result.offsets) or 1):  # else there are others between them
            plan.topic.put_bytes += result.end - result.physical_offset
        answer = plans.answer(
            plans.ids(result),
            plan.queue_id,
            result.queue_offset,
            plan.unique_key,
            plan.recall_handle,
        )
        if durability is None or not plan.is_waiting:
            channel.succeed(command, answer)
        else:
            command.body = b""
            waiting.append((command, answer))

    def _written(
        self, form: int, opaque: int, message_id: str, queue_id: int, offset: int, key: str
    ) -> bytes:
        """The frame of an answer."""
        answer = self._plans.answer(message_id, queue_id, offset, key)
        return core.encode_head(form, ResponseCode.SUCCESS, opaque, 1, None, answer, 0)


def refusal(result: PutResult, body_bytes_max: int) -> Answer:
    """The answer for a message that the store did not take."""
    reason = result.reason
    match result.status:
        case PutStatus.MESSAGE_ILLEGAL | PutStatus.PROPERTIES_SIZE_EXCEEDED:
            code, remark = ResponseCode.MESSAGE_ILLEGAL, illegal(reason, body_bytes_max)
        case PutStatus.SERVICE_NOT_AVAILABLE:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            remark = f"service not available now: {reason}"
        case PutStatus.TRANSIENT_POOL_EMPTY:
            code, remark = ResponseCode.SYSTEM_BUSY, busy("REJECTREQUEST", reason)
        case PutStatus.OS_PAGE_CACHE_BUSY:
            code, remark = ResponseCode.SYSTEM_BUSY, busy("PC_SYNCHRONIZED", reason)
        case PutStatus.CREATE_MAPPED_FILE_FAILED:
            code = ResponseCode.SYSTEM_ERROR
            remark = f"create mapped file failed, server is busy or broken: {reason}"
        case _:
            code, remark = ResponseCode.SYSTEM_ERROR, f"{result.status.name}: {reason}"
    return Answer(code, remark=remark)


def busy(mark: str, reason: str) -> str:
    """The remark that makes producers slow down, with its cause."""
    return f"[{mark}]system busy, start flow control for a while: {reason}"


def _too_many(durability: Durability) -> Answer:
    reason = f"{durability.waiting_count} messages wait for the disk"
    return Answer(ResponseCode.SYSTEM_BUSY, remark=busy("OVERLOAD", reason))


def _answer_all(channel: Channel, waiting: list[Stored], *, is_safe: bool) -> None:
    code = ResponseCode.SUCCESS if is_safe else ResponseCode.FLUSH_DISK_TIMEOUT
    for command, answer in waiting:
        channel.reply_parts(command, code, None, answer, ())
