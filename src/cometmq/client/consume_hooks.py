"""Telling hooks of each call of a handler; what they raise is logged and changes nothing.

Hooks always run on the loop's thread, also when the handler runs on another.
"""

import contextvars
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from cometmq import logs
from cometmq.client.core.message import DecisionKind, Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.handler_runner import (
    ENDING,
    Done,
    Runner,
    TaskRunner,
    ThreadEnded,
    ThreadRunner,
    is_async,
)
from cometmq.client.hooks import ConsumeContext, ConsumeHook, Outcome
from cometmq.clock import Clock

_log = logs.get_logger("cometmq.client")

ConsumeMode = Literal["concurrent", "orderly", "broadcast"]


class HookCalls:
    """The hooks of one consumer; ``group`` is as users know it."""

    def __init__(
        self,
        hooks: Sequence[ConsumeHook],
        *,
        group: str,
        namespace: str,
        mode: ConsumeMode,
        timeout_ms: int,
        clock: Clock,
    ) -> None:
        self.hooks = tuple(hooks)
        self._group = group
        self._namespace = namespace or None
        self._mode = mode
        self._timeout_ms = timeout_ms
        self._clock = clock

    def before(self, item: Any) -> ConsumeContext:
        """A handler begins with a message or a batch of them."""
        messages: Sequence[Message[Any]] = (item,) if isinstance(item, Message) else item
        context = ConsumeContext(
            self._group,
            self._namespace,
            messages[0].queue,
            messages,
            self._mode,
            self._clock.now_ms(),
        )
        for hook in self.hooks:
            self._call(hook, "before_consume", context)
        return context

    def after(self, context: ConsumeContext, error: BaseException | None) -> None:
        """It has ended."""
        context.error = error
        if error is None and isinstance(context.messages, Batch):
            context.messages.settled(has_failed=False)  # a part of it may be left
        context.outcome = self._outcome(context, error)
        context.is_success = context.outcome == "SUCCESS"
        for hook in self.hooks:
            self._call(hook, "after_consume", context)

    def around(
        self, handler: Callable[[Any], Awaitable[object]]
    ) -> Callable[[Any], Awaitable[object]]:
        """The handler with hooks before and after."""

        async def hooked(item: Any) -> None:
            context = self.before(item)
            try:
                await handler(item)
            except BaseException as error:
                self.after(context, error)
                raise
            self.after(context, None)

        return hooked

    def _outcome(self, context: ConsumeContext, error: BaseException | None) -> Outcome:
        if self._clock.now_ms() - context.began_ms >= self._timeout_ms:
            return "TIME_OUT"
        if error is not None:
            return "EXCEPTION"
        for message in context.messages:
            decision = message.decision
            if decision is not None and decision.kind is not DecisionKind.ACK:
                return "FAILED"
        return "SUCCESS"

    def _call(self, hook: ConsumeHook, step: str, context: ConsumeContext) -> None:
        try:
            getattr(hook, step)(context)  # inside: it may lack that
        except Exception:
            _log.exception("group=%s a hook failed, going on", self._group)


class _HookedThreads(TaskRunner[Any]):
    """Plain functions with hooks: tasks call the hooks and wait for threads."""

    def __init__(
        self,
        handler: Callable[[Any], object],
        calls: HookCalls,
        *,
        concurrency: int,
        on_done: Done[Any],
        clock: Clock,
    ) -> None:
        @functools.wraps(handler)
        def in_context(call: tuple[contextvars.Context, Any]) -> object:
            context, item = call
            return context.run(handler, item)

        self._pool: ThreadRunner[Any] = ThreadRunner(
            in_context, concurrency=concurrency, on_done=on_done, clock=clock
        )

        async def on_thread(item: Any) -> None:
            # What hooks have set, such as the current span, counts on the thread, too.
            error = await self._pool.call((contextvars.copy_context(), item))
            if isinstance(error, ENDING):
                raise ThreadEnded(repr(error)) from error
            if error is not None:
                raise error

        hooked = calls.around(on_thread)
        super().__init__(hooked, concurrency=concurrency, on_done=on_done, clock=clock)

    async def stop(self) -> None:
        await super().stop()
        await self._pool.stop()


def make_runner(
    handler: Callable[[Any], Any],
    calls: HookCalls,
    *,
    concurrency: int,
    on_done: Done[Any],
    clock: Clock,
) -> Runner[Any]:
    """Whoever suits the handler: tasks for coroutine functions, threads for all others."""
    if is_async(handler):
        function = calls.around(handler) if calls.hooks else handler
        return TaskRunner(function, concurrency=concurrency, on_done=on_done, clock=clock)
    if not calls.hooks:
        return ThreadRunner(handler, concurrency=concurrency, on_done=on_done, clock=clock)
    return _HookedThreads(handler, calls, concurrency=concurrency, on_done=on_done, clock=clock)
