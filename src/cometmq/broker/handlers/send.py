"""Taking messages: single ones and batches, all those of one read at once.

Theory of operation. Nearly every send is of one kind: a known topic that anybody may send to, one
message, nothing asked for but to be stored. ``send`` carries these out by itself, in a few lines
that are run for every message; whatever is different is prepared elsewhere (``send_plans``) and
then takes the same way. A message is in the log when its answer is written; whoever wants to know
it on disk is answered when the flusher has got there, all messages of one read together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cometmq.broker.send_plans import illegal
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.send import SendMessage, SendMessageResponse, SendMessageV2
from cometmq.codec.sent_properties import Asks
from cometmq.codec.sysflag import (
    BORN_HOST_V6,
    INNER_BATCH,
    NEED_UNWRAP,
    STORE_HOST_V6,
    TRANSACTION_MASK,
)
from cometmq.remoting.routes import Answer, failure
from cometmq.store.results import NewMessage, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.broker.durability import Durability
    from cometmq.broker.send_plans import SendPlan, SendPlans
    from cometmq.codec.command import Command
    from cometmq.remoting.channel import Channel
    from cometmq.remoting.routes import Routes
    from cometmq.store import MessageStore
    from cometmq.store.results import PutResult

    Stored = tuple[Command, SendMessageResponse]

SYSTEM_FLAGS: Final = TRANSACTION_MASK | BORN_HOST_V6 | STORE_HOST_V6 | NEED_UNWRAP | INNER_BATCH
"""Bits of ``sysFlag`` that are the broker's to set; a send that has one is looked at closely."""

_OK = PutStatus.PUT_OK
_ASKS_MORE = ~int(Asks.NO_WAIT)


class SendHandlers:
    """Requests 10, 310 and 320."""

    def __init__(
        self,
        store: MessageStore,
        plans: SendPlans,
        durability: Durability | None,
        *,
        region: str,
        is_traced: bool,
    ) -> None:
        self._store = store
        self._plans = plans
        # None when nobody waits for the disk.
        self._durability = durability
        self._region = region
        self._trace_on = "true" if is_traced else "false"
        # Messages taken since the start.
        self.count = 0

    def add_to(self, routes: Routes) -> None:
        routes.add_batch(RequestCode.SEND_MESSAGE, self.send_long)
        routes.add_batch(RequestCode.SEND_MESSAGE_V2, self.send)
        routes.add_batch(RequestCode.SEND_BATCH_MESSAGE, self.send)

    def send_long(self, channel: Channel, commands: Sequence[Command]) -> None:
        """Sends whose header has long names."""
        self._send(channel, commands, SendMessage)

    def send(self, channel: Channel, commands: Sequence[Command]) -> None:
        """Sends whose header has short names."""
        self._send(channel, commands, SendMessageV2)

    def _send(
        self, channel: Channel, commands: Sequence[Command], header_type: type[SendMessage]
    ) -> None:
        plans, durability = self._plans, self._durability
        plain_topics, addition = plans.plain_topics, plans.addition
        store_host, id_prefix = plans.store_host, plans.id_prefix
        region, trace_on = self._region, self._trace_on
        read, read_properties, put = core.read, core.read_sent_properties, self._store.put
        succeed = channel.succeed
        born_host, host_flags = plans.born_host(channel)
        waiting: list[Stored] = []
        end = 0
        for command in commands:
            try:
                header = read(command, header_type)
                queue_id, sys_flag, body = header.queue_id, header.sys_flag, command.body
                asks, key, properties = read_properties(header.properties or "", addition)
                topic = plain_topics.get(header.topic)
                if durability is not None and durability.is_full and not asks & Asks.NO_WAIT:
                    channel.reply(command, _too_many(durability))
                    continue
                if (
                    topic is not None
                    and 0 <= queue_id < topic.queue_count
                    and not (asks & _ASKS_MORE or sys_flag & SYSTEM_FLAGS or header.batch)
                    and key is not None
                    and 0 < len(body) <= plans.body_bytes_max
                ):
                    topic.put_count += 1
                    result = put(
                        NewMessage(
                            header.topic,
                            queue_id,
                            body,
                            properties,
                            header.born_timestamp,
                            born_host,
                            store_host,
                            header.flag,
                            sys_flag | host_flags,
                            header.reconsume_times or 0,
                        )
                    )
                    ids = f"{id_prefix}{result.physical_offset:016X}"
                else:
                    plan = plans.prepare(channel, command, header)
                    key, queue_id = plan.unique_key, plan.queue_id
                    result = self._put_planned(plan)
                    ids = plans.ids(result)
                if result.status is not _OK:
                    channel.reply(command, refusal(result, plans.body_bytes_max))
                    continue
                answer = SendMessageResponse(
                    ids, queue_id, result.queue_offset, key, region, trace_on
                )
                if durability is None or asks & Asks.NO_WAIT:
                    succeed(command, answer)
                else:
                    command.body = b""
                    waiting.append((command, answer))
                    end = result.end
            except Exception as error:
                channel.reply(command, failure(command, error))
        self.count += len(commands)
        if waiting and durability is not None:
            durability.after(
                end, len(waiting), lambda is_safe: _answer_all(channel, waiting, is_safe=is_safe)
            )

    def _put_planned(self, plan: SendPlan) -> PutResult:
        put = self._store.put_batch if plan.is_batch else self._store.put
        result = put(plan.message)
        if result.status is _OK:
            plan.topic.put_count += len(result.offsets) or 1
        return result


def refusal(result: PutResult, body_bytes_max: int) -> Answer:
    """The answer for a message that the store did not take."""
    reason = result.reason
    match result.status:
        case PutStatus.MESSAGE_ILLEGAL | PutStatus.PROPERTIES_SIZE_EXCEEDED:
            code, remark = ResponseCode.MESSAGE_ILLEGAL, illegal(reason, body_bytes_max)
        case PutStatus.SERVICE_NOT_AVAILABLE:
            code, remark = (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: {reason}",
            )
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
