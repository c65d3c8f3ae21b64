"""``SendFuture``: a send that goes on while its caller does something else."""

import asyncio
import concurrent.futures
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from cometmq import logs
from cometmq.blocking.callbacks import CallbackThreads
from cometmq.client.core.results import SendResult
from cometmq.errors import NotRunning

_log = logs.get_logger("cometmq.client")

Callback = Callable[["concurrent.futures.Future[SendResult]"], object]


class SendFuture(concurrent.futures.Future[SendResult]):
    """What became of a send; ``concurrent.futures.wait`` and ``as_completed`` take it, too.

    Callbacks run on threads of the client, as soon as the send is over or, if it is, at once; what
    they raise is logged. A send that has begun cannot be cancelled.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, SendResult],
        topic: str,
        threads: CallbackThreads,
        release: Callable[[], object],
    ) -> None:
        super().__init__()
        self.work = work
        self.task: asyncio.Task[None] | None = None
        self.context = contextvars.copy_context()
        self._topic = topic
        self._threads = threads
        self._releases = [release]  # of its place among the sends under way; taken out once
        self._has_callbacks = False
        super().add_done_callback(self._over)

    def add_done_callback(self, fn: Callback) -> None:
        """Let ``fn`` be called with this future, on a thread of the client."""
        self._has_callbacks = True
        super().add_done_callback(lambda _: self._hand_over(fn))

    # --- for the client's thread

    async def run(self) -> None:
        """Send, on the loop."""
        if not self.set_running_or_notify_cancel():
            self.work.close()
            return
        try:
            result = await self.work
        except asyncio.CancelledError:
            problem = "was cut short, because the client was closed; it may be stored all the same"
            self.set_exception(NotRunning(f"a send to topic '{self._topic}'", problem))
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def refuse(self, error: Exception) -> None:
        """It never begins."""
        self.work.close()
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    # --- callbacks

    def _over(self, _: object) -> None:
        # With callbacks the place is kept until one of them begins: so there are never more of
        # them waiting than sends may be under way.
        if not self._has_callbacks:
            self._free_place()

    def _hand_over(self, callback: Callback) -> None:
        """Called where the send ended, or where the callback was added when it had."""
        if self.task is not None and not self._threads.has_room and not _is_on_loop():
            self._tell(callback)
        else:
            self._threads.submit(lambda: self._tell(callback))

    def _tell(self, callback: Callback) -> None:
        self._free_place()
        try:
            callback(self)
        except Exception:
            message_id = "-" if self.cancelled() or self.exception() else self.result().message_id
            _log.exception("topic=%s message=%s a callback failed", self._topic, message_id)

    def _free_place(self) -> None:
        if self._releases:
            try:
                release = self._releases.pop()
            except IndexError:  # another thread was quicker
                return
            release()


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
