"""Sends that somebody looks at: guards that may refuse them, hooks before and after."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from cometmq import logs
from cometmq.client.core import names
from cometmq.client.core.outgoing import Outgoing
from cometmq.client.core.results import SendResult
from cometmq.client.hooks import SendContext, SendGuard, SendHook, SendMode
from cometmq.client.sending import Place, Sending
from cometmq.clock import Clock
from cometmq.codec.codes import RequestCode

_log = logs.get_logger("cometmq.client")

SEND: Final = int(RequestCode.SEND_MESSAGE_V2)


class Watched:
    """Sends through ``sending``, and calls hooks and guards if there are any.

    What hooks raise is logged, the first time with its trace, and changes nothing.
    """

    def __init__(self, sending: Sending, group: str, namespace: str, clock: Clock) -> None:
        self._sending = sending
        self._group = group
        self._namespace = namespace
        self._clock = clock
        self._hooks: tuple[SendHook, ...] = ()
        self._guards: tuple[SendGuard, ...] = ()
        self._complaints: set[tuple[int, str]] = set()  # which hook, by its id, has failed where

    @property
    def is_watching(self) -> bool:
        return bool(self._hooks or self._guards)

    def add(self, hooks: Sequence[SendHook] = (), guards: Sequence[SendGuard] = ()) -> None:
        """Call these too, after the others."""
        self._hooks += tuple(hooks)
        self._guards += tuple(guards)

    async def send(
        self,
        message: Outgoing,
        timeout_ms: int,
        place: Place | None = None,
        *,
        mode: SendMode = "send",
        code: int = SEND,
    ) -> SendResult:
        """As ``Sending.send``."""
        if not self.is_watching:
            return await self._sending.send(message, timeout_ms, place, None, code)
        context, message = self._before(message, mode)
        try:
            result = await self._sending.send(message, timeout_ms, place, context, code)
            context.result = result
            return result
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._after(context)

    async def send_oneway(
        self, message: Outgoing, timeout_ms: int, place: Place | None = None
    ) -> None:
        """As ``Sending.send_oneway``."""
        if not self.is_watching:
            await self._sending.send_oneway(message, timeout_ms, place)
            return
        context, message = self._before(message, "oneway")
        try:
            await self._sending.send_oneway(message, timeout_ms, place, context)
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._after(context)

    def _before(self, message: Outgoing, mode: SendMode) -> tuple[SendContext, Outgoing]:
        kind: Literal["normal", "half", "delay", "reply", "batch"] = message.kind.value
        context = SendContext(
            self._group,
            names.unwrap_topic(self._namespace, message.topic),
            mode,
            "batch" if mode == "batch" else kind,
            message.body,
            message.properties,
            message.unique_id,
            message.tag or None,
            tuple(message.keys.split()),
            began_ms=self._clock.now_ms(),
        )
        for guard in self._guards:
            guard.check(context)
        for hook in self._hooks:
            try:
                hook.before_send(context)
            except Exception as error:
                self._complain(hook, "before_send", error)
        if context.properties != message.properties:
            message = msgspec.structs.replace(message, properties=context.properties)
        return context, message

    def _after(self, context: SendContext) -> None:
        for hook in self._hooks:
            try:
                hook.after_send(context)
            except Exception as error:
                self._complain(hook, "after_send", error)

    def _complain(self, hook: SendHook, step: str, error: Exception) -> None:
        if (id(hook), step) in self._complaints:
            _log.debug("hook=%r %s failed again: %r", hook, step, error)
            return
        self._complaints.add((id(hook), step))
        _log.error("hook=%r %s failed, going on without it", hook, step, exc_info=error)
