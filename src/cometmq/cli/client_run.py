"""Running a command's work with a client of the cluster that its command line means."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from cometmq.cli.connection import explained, run, target_of
from cometmq.cli.frame import Frame

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.aio import Client

T = TypeVar("T")


def with_client(frame: Frame, work: "Callable[[Client, Admin], Awaitable[T]]") -> T:
    """Enter a client, and an admin of the same cluster, let ``work`` use them, leave them.

    The client's own admin would not know of ``--timeout``. This one connects when it is asked.
    """
    target = target_of(frame)

    async def entered() -> T:
        async with target.async_client() as mq, target.admin() as admin:
            return await work(mq, admin)

    with explained(target):
        return run(entered())
