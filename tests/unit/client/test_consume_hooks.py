"""Hooks around handlers."""

import contextvars
import sys
from typing import Any

import pytest

from cometmq.client.consume_hooks import HookCalls, make_runner
from cometmq.client.core.message import ACK, RETRY
from cometmq.client.core.message_batch import Batch
from cometmq.client.handler_runner import ThreadEnded
from cometmq.client.hooks import ConsumeContext, ConsumeHook
from cometmq.client.metrics import ClientMetrics
from cometmq.testing import FakeClock
from tests.unit.client.consumer_kit import messages_for, owned_by, setup_of, until


class Outcomes:
    """A hook that keeps how handlers ended."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen.append("before")

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen.append(context.outcome)


def calls_of(hook: ConsumeHook, clock: FakeClock) -> HookCalls:
    return HookCalls(
        [hook], group="group", namespace="", mode="concurrent", timeout_ms=1_000, clock=clock
    )


async def test_a_hook_that_lacks_its_methods_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else no message would reach its handler, and all of them become dead letters."""
    clock, ends, handled = FakeClock(), list[tuple[Any, BaseException | None]](), list[Any]()
    (message,) = messages_for(owned_by(setup_of(clock)), 0)

    async def handle(item: Any) -> None:
        handled.append(item)

    hook: Any = object()
    runner = make_runner(
        handle,
        calls_of(hook, clock),
        concurrency=1,
        on_done=lambda _context, item, error, _seconds: ends.append((item, error)),
        clock=clock,
    )
    runner.submit("context", [message])
    await until(lambda: len(ends) == 1)
    await runner.stop()

    assert handled == [message]
    assert ends == [(message, None)]
    assert "a hook failed, going on" in caplog.text


async def test_a_thread_that_a_handler_ends_does_not_end_the_loop() -> None:
    hook, clock = Outcomes(), FakeClock()
    message, other = messages_for(owned_by(setup_of(clock)), 0, 1)
    ends: list[tuple[Any, BaseException | None]] = []

    def handle(item: Any) -> None:
        if item is message:
            sys.exit(3)

    runner = make_runner(
        handle,
        calls_of(hook, clock),
        concurrency=1,
        on_done=lambda _context, item, error, _seconds: ends.append((item, error)),
        clock=clock,
    )
    runner.submit("context", [message, other])
    await until(lambda: len(ends) == 2)
    await runner.stop()

    assert isinstance(ends[0][1], ThreadEnded)
    assert "SystemExit(3)" in str(ends[0][1])
    assert ends[1] == (other, None)
    assert hook.seen == ["before", "EXCEPTION", "before", "SUCCESS"]


async def test_a_call_whose_handler_ends_its_thread_returns() -> None:
    """Calls are how messages in order are handled: one that raised would stop their queue."""
    hook, clock = Outcomes(), FakeClock()
    (message,) = messages_for(owned_by(setup_of(clock)), 0)
    runner = make_runner(
        lambda _: sys.exit(3),
        calls_of(hook, clock),
        concurrency=1,
        on_done=lambda *_: None,
        clock=clock,
    )

    error = await runner.call(message)
    await runner.stop()

    assert isinstance(error, ThreadEnded)
    assert hook.seen == ["before", "EXCEPTION"]


async def test_a_handler_on_a_thread_sees_what_hooks_have_set() -> None:
    """Such as the span that is current: what it sends belongs to the same trace."""
    current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="nothing")

    class Setting(Outcomes):
        def before_consume(self, context: ConsumeContext) -> None:
            current.set(context.messages[0].message_id)

    clock = FakeClock()
    first, second = messages_for(owned_by(setup_of(clock)), 0, 1)
    seen: list[tuple[str, str]] = []
    runner = make_runner(
        lambda item: seen.append((item.message_id, current.get())),
        calls_of(Setting(), clock),
        concurrency=2,
        on_done=lambda *_: None,
        clock=clock,
    )

    runner.submit("context", [first, second])
    await until(lambda: len(seen) == 2)
    await runner.stop()

    assert sorted(seen) == [("U0", "U0"), ("U1", "U1")]
    assert current.get() == "nothing"


async def test_a_call_that_took_too_long_is_told_as_such() -> None:
    hook, clock = Outcomes(), FakeClock()
    (message,) = messages_for(owned_by(setup_of(clock)), 0)

    async def handle(item: Any) -> None:
        clock.advance(1)

    await calls_of(hook, clock).around(handle)(message)

    assert hook.seen == ["before", "TIME_OUT"]


async def test_a_batch_that_is_acknowledged_in_part_has_failed() -> None:
    hook, clock, metrics = Outcomes(), FakeClock(), ClientMetrics()
    batch = Batch(messages_for(owned_by(setup_of(clock)), 0, 1, 2))

    async def handle(item: Any) -> None:
        item.ack_up_to(0)

    await calls_of(hook, clock).around(handle)(batch)
    await calls_of(metrics, clock).around(handle)(batch)

    assert hook.seen == ["before", "FAILED"]
    assert (metrics.value("consumed"), metrics.value("consume_failed")) == (1, 2)
    assert metrics.value("sent_back") == 2
    assert batch.settled(has_failed=False) == [ACK, RETRY, RETRY]
