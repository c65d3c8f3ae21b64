"""``async for message in consumer``: messages are handed out instead of being given to a handler.

A message is acknowledged when the next one is asked for. Whoever stops asking (``break``, an
exception, a cancelled task) has not acknowledged the last one: it is delivered again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from cometmq.client.consume_hooks import HookCalls
from cometmq.client.core.message import RETRY, SUSPEND, Message, Mode, settle
from cometmq.client.handler_runner import Done, Left, Running
from cometmq.client.hooks import ConsumeContext
from cometmq.client.life import closing_task
from cometmq.clock import Clock

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Loan:
    """A message that somebody has, from the moment it is handed out until it is returned."""

    context: Any
    item: Message[Any]
    began: float
    task: "asyncio.Task[Any] | None"
    hooks: ConsumeContext | None


class Handout:
    """The runner of consumers that are iterated over: iterators take from it."""

    def __init__(self, calls: HookCalls, *, on_done: Done[Any], clock: Clock) -> None:
        self._calls = calls
        self._on_done = on_done
        self._monotonic = clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._ready: deque[tuple[Any, Message[Any]]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()  # iterators
        self._loans: set[Loan] = set()
        self._is_closing = False
        self._rest: asyncio.Future[None] | None = None

    # --- as a runner

    def submit(self, context: Any, items: Iterable[Any]) -> None:
        if not self._is_closing:
            self._ready.extend([(context, item) for item in items])
            self._wake()

    async def call(self, item: Any) -> BaseException | None:
        if self._is_closing:
            return Left()
        future: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._ready.append((future, item))
        self._wake()
        return await future

    def withdraw(self, item: Any) -> None:
        for entry in self._ready:
            if entry[1] is item:
                self._ready.remove(entry)
                _leave(entry[0])
                return

    def discard(self, context: Any) -> None:
        self._ready = deque(entry for entry in self._ready if entry[0] is not context)

    def running(self) -> list[Running[Any]]:
        return [
            (loan.context, loan.item, loan.began)
            for loan in self._loans
            if not isinstance(loan.context, asyncio.Future)
        ]

    def owns_this_task(self) -> bool:
        return False

    async def drain(self, seconds: float) -> None:
        self._is_closing = True
        while self._ready:
            _leave(self._ready.popleft()[0])
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        task = closing_task()
        for loan in [loan for loan in self._loans if loan.task is task]:
            self.leave(loan)
        if self._loans:
            self._rest = self._loop.create_future()
            await asyncio.wait((self._rest,), timeout=seconds)

    async def stop(self) -> None:
        self._is_closing = True
        for loan in tuple(self._loans):
            self.leave(loan)

    # --- as seen by iterators

    @property
    def waiting_count(self) -> int:
        """Iterators that wait for a message."""
        return len(self._waiting)

    async def take(self) -> Loan | None:
        """The next message; None when there will be none any more."""
        while not self._ready:
            if self._is_closing:
                return None
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future in self._waiting:
                    self._waiting.remove(future)
                elif not future.cancelled():
                    self._wake()  # it was told of a message that somebody else must take now
                raise
        context, item = self._ready.popleft()
        if self._ready:
            self._wake()
        hooks = self._calls.before(item) if self._calls.hooks else None
        loan = Loan(context, item, self._monotonic(), asyncio.current_task(), hooks)
        self._loans.add(loan)
        return loan

    def done(self, loan: Loan) -> None:
        """The message is acknowledged, unless something else was decided about it."""
        self._end(loan, None)

    def leave(self, loan: Loan) -> None:
        """Nobody has acknowledged the message."""
        item = loan.item
        if item.source.mode is Mode.BROADCAST and item.decision is None:
            self._end(loan, Left())
            return
        settle(item, SUSPEND if item.source.mode is Mode.ORDERLY else RETRY)
        self._end(loan, None)

    def leave_from_anywhere(self, loan: Loan) -> None:
        """The same from any thread; nothing happens when the loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self.leave, loan)
        except RuntimeError:
            self._loans.discard(loan)

    def _end(self, loan: Loan, error: BaseException | None) -> None:
        if loan not in self._loans:
            return
        self._loans.discard(loan)
        if loan.hooks is not None:
            self._calls.after(loan.hooks, error)
        if isinstance(loan.context, asyncio.Future):
            if not loan.context.done():
                loan.context.set_result(error)
        else:
            self._on_done(loan.context, loan.item, error, self._monotonic() - loan.began)
        if self._rest is not None and not self._loans and not self._rest.done():
            self._rest.set_result(None)

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return


def _leave(context: Any) -> None:
    """Tell who waits for a call that nobody takes it."""
    if isinstance(context, asyncio.Future) and not context.done():
        context.set_result(Left())


class Lender(Protocol):
    """Who has messages to hand out."""

    async def begin_iteration(self) -> Handout: ...


class MessageIterator(Generic[T]):
    """One ``async for``; several may share a consumer, and each message goes to one of them."""

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._handout: Handout | None = None
        self._loan: Loan | None = None
        self._is_closed = False
        self._is_asked = False  # somebody waits for the next message

    def __aiter__(self) -> "MessageIterator[T]":
        return self

    async def __anext__(self) -> Message[T]:
        if self._is_closed:
            raise StopAsyncIteration
        if self._is_asked:  # of two messages that are out, one would be with nobody
            raise RuntimeError("this iterator is asked already; make one per task with aiter()")
        self._is_asked = True
        try:
            return await self._next()
        finally:
            self._is_asked = False

    async def _next(self) -> Message[T]:
        if self._handout is None:
            self._handout = await self._lender.begin_iteration()
        loan, self._loan = self._loan, None
        if loan is not None:
            self._handout.done(loan)
        self._loan = await self._handout.take()
        if self._loan is None:
            self._is_closed = True
            raise StopAsyncIteration
        return self._loan.item

    async def aclose(self) -> None:
        """Take no more; the message that is out is delivered again."""
        self._is_closed = True
        self._give_up(lambda handout, loan: handout.leave(loan))

    def __del__(self) -> None:
        self._give_up(lambda handout, loan: handout.leave_from_anywhere(loan))

    def _give_up(self, leave: Callable[[Handout, Loan], None]) -> None:
        loan, self._loan = self._loan, None
        if loan is not None and self._handout is not None:
            leave(self._handout, loan)
