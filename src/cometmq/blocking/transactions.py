"""``TransactionProducer``: messages that appear only when a local transaction has succeeded."""

import asyncio
import contextlib
import queue
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from cometmq.blocking.loop_thread import GRACE_MS, LOOK_SECONDS, Call, LoopThread
from cometmq.blocking.member import Entered, Threads
from cometmq.client import transactions
from cometmq.client.core.checks import checked_timeout
from cometmq.client.core.message import Message
from cometmq.client.core.queue_selection import Selector
from cometmq.client.core.results import SendResult, TransactionResult
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.transactions import Outcome
from cometmq.errors import InvalidArgument
from cometmq.model.offsets import MessageQueue

Local = Callable[[SendResult], Outcome]
"""A local transaction: told where the half message is, it says how it ended."""
Check = Callable[[Message[Any]], Outcome]
"""Finds out how the transaction of a half message ended."""


class TransactionProducer(Entered[transactions.TransactionProducer]):
    """Sends messages in transactions; made by ``Client.transaction_producer``, closed with it."""

    def __init__(
        self,
        owner: object,
        threads: Threads,
        inner: transactions.TransactionProducer,
        settings: ProducerSettings,
    ) -> None:
        super().__init__(owner, threads, inner)
        self._timeout_ms = settings.send_timeout_ms

    def close(self) -> None:
        """Begin no more transactions, let those under way end, and leave; may be called again.

        They get ``drain_timeout_ms`` of the client. Of what takes longer the broker is not told;
        it asks another producer of the group.
        """
        self._threads.close(self, self._inner.close)

    def send(
        self,
        topic: str,
        value: Any,
        *,
        local: Local,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        flag: int = 0,
        wait_store: bool = True,
        timeout_ms: int | None = None,
    ) -> TransactionResult:
        """Store a half message, run ``local`` on this thread, and tell the broker how that ended.

        ``local`` gets the result of the send and returns a ``LocalState``. None and an exception,
        which is logged, are ``UNKNOWN``: the broker asks ``check`` later. It does not run at all,
        and the message is dropped, when the half message was not stored as safely as the broker is
        set up for. The other arguments are those of ``Producer.send``; ``timeout_ms`` is for the
        half message. Raises what that does; nothing has run then.
        """
        if not callable(local):
            fact = f"local must be a function, not {type(local).__name__}"
            raise InvalidArgument("local", fact, "give one that returns a LocalState")
        limit_ms = self._timeout_ms if timeout_ms is None else checked_timeout(timeout_ms)
        visit = _Visit(self._threads.loop, local)
        work = self._inner.send(
            topic,
            value,
            local=visit.local,
            tag=tag,
            keys=keys,
            properties=properties,
            ordering_key=ordering_key,
            queue=queue,
            selector=selector,
            flag=flag,
            wait_store=wait_store,
            timeout_ms=timeout_ms,
        )
        return visit.run(work, limit_ms + GRACE_MS)

    @property
    def group(self) -> str:
        """As servers know it, with the namespace."""
        return self._inner.group


class _Visit:
    """One send, in the middle of which the loop asks the calling thread to do something.

    Local transactions use what belongs to a thread (connections, sessions): so they run there.
    """

    def __init__(self, loop: LoopThread, local: Local) -> None:
        self._loop = loop
        self._local = local
        # What to do next, or None when there will be nothing more.
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def local(self, sent: SendResult) -> Outcome:
        """On the loop: what the local transaction says."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def answer() -> None:
            set_outcome = _outcome_of(self._local, sent, future)
            with contextlib.suppress(RuntimeError):  # the client was closed meanwhile
                loop.call_soon_threadsafe(set_outcome)

        self._asked.put(answer)
        return await future

    def run(self, work: Awaitable[TransactionResult], bound_ms: int) -> TransactionResult:
        """On the calling thread; ``bound_ms`` is for all but the local transaction."""

        async def whole() -> TransactionResult:
            try:
                return await work
            finally:
                self._asked.put(None)

        call = Call(whole())
        try:
            self._loop.begin(call)
            answer = self._next(bound_ms)
            if answer is not None:
                answer()
            return self._loop.wait(call, bound_ms)
        except BaseException:
            self._loop.cancel(call)
            raise

    def _next(self, bound_ms: int) -> Callable[[], None] | None:
        left = bound_ms / 1000
        while left > 0 and self._loop.is_running:
            try:
                return self._asked.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                left -= LOOK_SECONDS
        return None  # whoever waits for the call learns why


def _outcome_of(
    local: Local, sent: SendResult, future: "asyncio.Future[Outcome]"
) -> Callable[[], None]:
    """Run a local transaction; what is returned passes its outcome on."""
    try:
        outcome = local(sent)
    except Exception as raised:
        error = raised
        return lambda: None if future.done() else future.set_exception(error)
    return lambda: None if future.done() else future.set_result(outcome)
