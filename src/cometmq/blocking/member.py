"""What all blocking classes have in common: the threads of their client."""

import abc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from cometmq import logs
from cometmq.blocking.callbacks import CallbackThreads
from cometmq.blocking.loop_thread import CALL_MS_MAX, GRACE_MS, LoopThread
from cometmq.errors import NotRunning

if TYPE_CHECKING:
    from cometmq.blocking.streams import Stream

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")
E = TypeVar("E", bound="Enterable")


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of one client."""

    loop: LoopThread
    drain_timeout_ms: int
    callbacks: CallbackThreads = field(default_factory=CallbackThreads)
    streams: "weakref.WeakSet[Stream[Any]]" = field(default_factory=weakref.WeakSet)
    # One thread, because listeners are told of one change after the other.
    listeners: CallbackThreads = field(default_factory=lambda: CallbackThreads(threads_max=1))

    # Of members that have some of their own.
    pools: list[CallbackThreads] = field(default_factory=list)
    # Threads that run a handler now, with the consumer it belongs to.
    handling: dict[int, object] = field(default_factory=dict)

    @property
    def is_handler(self) -> bool:
        """Whether this is the thread of a handler, whose end closing the client would wait for."""
        return threading.get_ident() in self.handling or any(
            pool.is_current for pool in tuple(self.pools)
        )

    def pool(self, threads_max: int) -> CallbackThreads:
        """Threads for a member, which end with the client at the latest."""
        made = CallbackThreads(threads_max)
        self.pools.append(made)
        return made

    def end_pool(self, pool: CallbackThreads) -> None:
        """Its member is closed; may be said again."""
        pool.close(0)
        if pool in self.pools:
            self.pools.remove(pool)

    def call(self, work: Coroutine[Any, Any, T], bound_ms: int | None = CALL_MS_MAX) -> T:
        """What a coroutine returns or raises on the loop."""
        return self.loop.call(work, bound_ms)

    def do(self, work: Callable[[], T]) -> T:
        """What a function returns or raises on the loop; it must not wait for anything."""

        async def on_loop() -> T:
            return work()

        return self.loop.call(on_loop())

    def close(
        self, member: "Member | None", close: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Close a member, or all for None.

        Nothing is left to be closed when the client is, or is the parent's.
        """
        if self.loop.is_running and not self.loop.is_foreign:
            self._leave_streams(member)
            self.loop.call(close(), self.drain_timeout_ms + GRACE_MS)

    def _leave_streams(self, member: "Member | None") -> None:
        """Who closes in the middle of a loop over messages will not ask for the next one."""
        for stream in tuple(self.streams):
            is_concerned = member is None or stream.owner is member
            if is_concerned and stream.used_by == threading.get_ident():
                try:
                    stream.close()
                except Exception:  # consumers must be closed in any case
                    _log.exception("an iterator was not closed to the end, going on")

    def listener(self, told: Callable[..., object]) -> Callable[..., None]:
        """The same function, called on a thread of its own instead of the loop's."""
        return lambda *arguments: self.listeners.submit(lambda: told(*arguments))

    def finish(self) -> None:
        """The loop has ended: let callbacks that wait run, unless nobody wants to wait."""
        timeout_ms = 0 if self.loop.is_hurried else self.drain_timeout_ms
        for pool in tuple(self.pools):
            self.end_pool(pool)
        self.callbacks.close(timeout_ms)
        self.listeners.close(timeout_ms)


class ClosedOnExit(abc.ABC):
    """``with`` ends with ``close``, whatever happened inside."""

    @abc.abstractmethod
    def close(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except NotRunning as late:
            if error is None:
                raise
            # What ended the block, Ctrl-C for one, is what its caller must see.
            _log.warning("not closed to the end: %s", late)


class Enterable(Protocol):
    """What a blocking class stands for."""

    async def __aenter__(self) -> object: ...


class Member:
    """Made from a client, which lives as long as anything made from it."""

    def __init__(self, owner: object, threads: Threads) -> None:
        self._owner = owner
        self._threads = threads
        self._call = threads.call
        self._do = threads.do


class Entered(Member, ClosedOnExit, Generic[E]):
    """A member that may be entered, which stands for ``inner`` on the loop."""

    def __init__(self, owner: object, threads: Threads, inner: E) -> None:
        super().__init__(owner, threads)
        self._inner = inner

    def __enter__(self) -> Self:
        self._call(self._inner.__aenter__())
        return self


def listed(tags: str | Iterable[str] | None) -> str | tuple[str, ...] | None:
    """Tags, collected here: it may be the caller's code that makes them, and the loop is busy."""
    if tags is None or isinstance(tags, str) or not isinstance(tags, Iterable):
        return tags  # what is none of them is refused where it is read
    return tuple(tags)
