"""When something may be used: between its start and its end, on its loop, in its process."""

import abc
import asyncio
import contextlib
import contextvars
import os
import sys
import warnings
import weakref
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from enum import Enum
from types import TracebackType
from typing import Any

from cometmq.errors import NotRunning


class ClosedOnExit(abc.ABC):
    """``async with`` ends with ``close``, whatever happened inside."""

    __slots__ = ()

    @abc.abstractmethod
    async def close(self) -> None: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class State(Enum):
    NEW = "was not entered yet"
    RUNNING = "is running"
    CLOSING = "is being closed"
    CLOSED = "is closed"


_RUNNING = State.RUNNING  # looked up once: reading a member off an Enum class is slow

_ADVICE = {
    State.NEW: "use it inside of 'async with' (or 'with')",
    State.CLOSING: "make a new one",
    State.CLOSED: "make a new one",
}

_fork_count = 0
"""How often this process was forked off; what began with another count is not ours."""

_after_fork: "weakref.WeakSet[Any]" = weakref.WeakSet()

_closer: "contextvars.ContextVar[asyncio.Task[Any] | None]" = contextvars.ContextVar(
    "cometmq.closer", default=None
)


def closing_task() -> "asyncio.Task[Any] | None":
    """Who closes something: this task, or the one that closes the client with all its members."""
    return _closer.get() or asyncio.current_task()


@contextlib.contextmanager
def closing_for_this_task() -> Iterator[None]:
    """Tasks that are made inside close things for this one."""
    token = _closer.set(asyncio.current_task())
    try:
        yield
    finally:
        _closer.reset(token)


class Life:
    """The state of one client, producer or consumer, and where it was made."""

    __slots__ = ("__weakref__", "_fork_count", "_loop", "_place", "state", "what")

    def __init__(self, what: str, *, depth: int = 2) -> None:
        self.what = what
        self.state = State.NEW
        self._place = _caller(depth)
        self._fork_count = _fork_count
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """From now on it may be used, on this loop. Raises NotRunning when it was begun before."""
        if self.state is not State.NEW:
            raise NotRunning(
                self.what, f"{self.state.value} and cannot be started", "make a new one"
            )
        if self._fork_count != _fork_count:
            raise self._forked()
        self._loop = asyncio.get_running_loop()
        self.state = State.RUNNING

    def require(self) -> None:
        """Raise NotRunning unless it may be used here and now."""
        try:
            if (
                self.state is _RUNNING
                and self._fork_count == _fork_count
                and get_running_loop() is self._loop
            ):
                return
        except RuntimeError:  # there is no loop here at all
            pass
        raise self.refusal()

    def refusal(self) -> NotRunning:
        """Why it cannot be used here and now."""
        if self._fork_count != _fork_count:
            return self._forked()
        if self.state is not State.RUNNING:
            return NotRunning(self.what, self.state.value, _ADVICE[self.state])
        problem = "is used outside of the event loop on which it was entered"
        return NotRunning(self.what, problem, "use it there, or make one for each loop")

    @property
    def is_running(self) -> bool:
        return self.state is State.RUNNING and self._fork_count == _fork_count

    @property
    def is_ending(self) -> bool:
        """Whether it is being closed, or was, in this process."""
        return self.state in (State.CLOSING, State.CLOSED) and not self.is_foreign

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to the parent of this process: nothing of it may be touched."""
        return self._fork_count != _fork_count

    @property
    def is_closing_here(self) -> bool:
        """Whether its own loop, which is this one, is about to end it: that can be waited for."""
        if self.state is not State.CLOSING or self.is_foreign:
            return False
        return get_running_loop() is self._loop

    def end(self) -> bool:
        """Begin to close; says whether there is something to close."""
        if self.is_foreign or self.state in (State.CLOSING, State.CLOSED):
            return False
        was_running = self.state is State.RUNNING
        self.state = State.CLOSING if was_running else State.CLOSED
        return was_running

    def end_here(self) -> bool:
        """As ``end``, by its own loop. Raises NotRunning on another one, which cannot end it."""
        self.require_own_loop()
        return self.end()

    def require_own_loop(self) -> None:
        """Raise NotRunning when it runs on another loop than this."""
        if self.is_running:
            self.require()

    def ended(self) -> None:
        self.state = State.CLOSED

    def warn_if_leaked(self, owner: object) -> None:
        """For ``__del__``: say that nobody has closed it, and who made it."""
        if self.state in (State.RUNNING, State.CLOSING) and not self.is_foreign:
            text = f"{self.what} was not closed; it was made at {self._place}"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=owner)

    def _forked(self) -> NotRunning:
        problem = "was made before this process was forked"
        return NotRunning(self.what, problem, "make a new one in each process, after the fork")


def on_fork(forget: "Forgetting") -> None:
    """Let ``forget.forget_after_fork`` be called in children of this process."""
    _after_fork.add(forget)


class Forgetting:
    """Something that holds what a child must not touch."""

    def forget_after_fork(self) -> None:
        """Let go of sockets without a word to the peer."""


def _forked() -> None:
    global _fork_count
    _fork_count += 1
    for owner in tuple(_after_fork):
        owner.forget_after_fork()
    _after_fork.clear()


def _caller(depth: int) -> str:
    frame = sys._getframe(depth)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        ("cometmq.client", "cometmq.aio", "cometmq.blocking")
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_register: Callable[..., None] | None = getattr(os, "register_at_fork", None)
if _register is not None:  # there is no fork on Windows
    _register(after_in_child=_forked)
