"""Bodies of requests, read without keeping the other connections waiting."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cometmq.codec import bodies
from cometmq.codec.codes import ResponseCode
from cometmq.codec.command import Command
from cometmq.errors import BrokerError
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer

QUICK_BODY_BYTES: Final = 32 * 1024
"""What is read at once, even when it is not standard JSON: some 40 ms at the very worst.

Larger bodies are read on a thread, where the interpreter shares its time with the loop.
"""

BODY_BYTES_MAX: Final = 256 * 1024
"""More than any client has to say about its groups, subscriptions or queues."""

T = TypeVar("T")


def with_body(
    channel: Channel, command: Command, kind: type[T], then: Callable[[T], Answer]
) -> Answer | Awaitable[Answer]:
    """Answer a request by what ``then`` makes of its body.

    Raises BrokerError when the body is larger than makes sense, RemoteProtocolError when it is not
    what it has to be.
    """
    size = len(command.body)
    if size > BODY_BYTES_MAX:
        remark = f"body of {size} bytes: more than {BODY_BYTES_MAX} make no sense"
        raise BrokerError(ResponseCode.INVALID_PARAMETER, remark)
    if size <= QUICK_BODY_BYTES:
        return then(bodies.decode(kind, command.body))
    return _read_later(channel, command, kind, then)


async def _read_later(
    channel: Channel, command: Command, kind: type[T], then: Callable[[T], Answer]
) -> Answer:
    body = await asyncio.to_thread(bodies.decode, kind, command.body)
    # Who is gone must not be noted as present: nobody would come to take it out again.
    if not channel.is_open:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, "the connection ended")
    return then(body)
