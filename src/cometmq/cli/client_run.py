"""Running a command's work with a client of the cluster that its command line means."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from cometmq.cli.connection import explained, run, target_of
from cometmq.cli.frame import Frame

if TYPE_CHECKING:
    from cometmq.aio import Client

T = TypeVar("T")


def with_client(frame: Frame, work: "Callable[[Client], Awaitable[T]]") -> T:
    """Enter a client, let ``work`` use it, leave it."""
    target = target_of(frame)

    async def entered() -> T:
        async with target.async_client() as mq:
            return await work(mq)

    with explained(target):
        return run(entered())
