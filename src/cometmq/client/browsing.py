"""Reading a topic without a group: nothing is stored anywhere, and nobody is told.

Messages come in the order they were stored, over all queues. What is there at the beginning is
read page by page, of each queue one; then, if it is to be followed, each queue has a pull waiting
at its broker, and what arrives at the same time is put in order.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from cometmq import logs
from cometmq.client.core.arrivals import arrived, time_ms
from cometmq.client.core.merging import Merge
from cometmq.client.core.message import Message, Source
from cometmq.client.core.names import wrap_queue, wrap_topic
from cometmq.client.core.settings import Start
from cometmq.client.core.subscriptions import subscription
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.instance import Instance
from cometmq.client.pulling import Pulled, Puller, PullFlag
from cometmq.client.queue_offsets import max_offset, min_offset, offset_at
from cometmq.client.shared import Shared
from cometmq.errors import CometError, InvalidArgument, NotRunning
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.model.system_names import TOOLS_GROUP
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

T = TypeVar("T")

Since: TypeAlias = Start | datetime | Mapping[MessageQueue, int]
"""Where to begin: at the first message, at the end, at a time, or at an offset of each queue."""
Until: TypeAlias = int | datetime | Mapping[MessageQueue, int]
"""Before which time, or before which offset of each queue, to end."""

PAGE_MESSAGES = 32
"""Messages of one pull; brokers give no more by default."""
PULL_TIMEOUT_MS = 10_000
HOLD_MS = 20_000
"""How long a broker holds a pull for which there is nothing."""
HELD_PULL_TIMEOUT_MS = 30_000
FAILURE_PAUSE_MS = 1_000
EARLY_ANSWER_MS = 20
"""A broker that answers at once and leads us nowhere is not asked more often than this."""
PAGES_WAITING_MAX = 64
"""Pages of all queues that have arrived and were not asked for yet, when following."""


@dataclass(frozen=True, slots=True)
class _Range:
    """What is wanted of each queue; queues are as on the wire."""

    since: Start | Mapping[MessageQueue, int]
    until: int | Mapping[MessageQueue, int] | None

    @property
    def since_ms(self) -> int:
        """Nothing older: brokers find the offset of a time only about right."""
        return self.since if isinstance(self.since, int) else 0

    async def bounds(self, instance: Instance, queue: MessageQueue) -> tuple[int, int]:
        """The offsets between which a queue is to be read, as it is now.

        Of a queue that is to end before it begins nobody is asked: its broker may be down.
        """
        if isinstance(self.until, Mapping) and self.until.get(queue, 1) <= 0:
            return 0, 0
        end = await max_offset(instance, queue)
        match self.since:
            case "last":
                begin = end
            case "first":
                begin = await min_offset(instance, queue)
            case int(ms):
                # One too early, in case that nobody knows the broker's release: older brokers
                # begin anywhere in a millisecond. What is too old is left out later.
                begin = await offset_at(instance, queue, ms - 1)
            case offsets:
                first = await min_offset(instance, queue)
                begin = max(first, offsets.get(queue, first))
        if isinstance(self.until, Mapping):
            end = min(end, self.until.get(queue, end))
        return begin, end


def browse(
    shared: Shared,
    topic: str,
    *,
    since: Since | None,
    until: Until | None,
    tags: str | Sequence[str] | None,
    codec: ValueCodec[T],
    follow: bool,
) -> AsyncGenerator[Message[T], None]:
    """See ``Client.browse``."""
    if follow and until is not None:
        fact = "until= ends what follow=True would go on with for ever"
        raise InvalidArgument("until", fact, "give one of them")
    namespace = shared.namespace or ""
    wanted = _Range(_since(since, namespace), _until(until, namespace))
    reader = _Reader(
        shared,
        subscription(wrap_topic(namespace, topic), tags=tags, version_ms=0),
        codec,
        wanted,
    )
    return reader.follow() if follow else reader.read()


def _since(since: Since | None, namespace: str) -> Start | Mapping[MessageQueue, int]:
    if since is None:
        return "first"
    if isinstance(since, Mapping):
        return {wrap_queue(namespace, queue): offset for queue, offset in since.items()}
    if isinstance(since, str):
        if since not in ("first", "last"):
            advice = "say 'first', 'last', a time, or an offset for each queue"
            raise InvalidArgument("since", f"{since!r} is no place to begin", advice)
        return since
    return time_ms("since", since)


def _until(until: Until | None, namespace: str) -> int | Mapping[MessageQueue, int] | None:
    if until is None:
        return None
    if isinstance(until, Mapping):
        return {wrap_queue(namespace, queue): offset for queue, offset in until.items()}
    return time_ms("until", until)


class _Reader(Generic[T]):
    """One browse."""

    def __init__(
        self, shared: Shared, wanted: SubscriptionData, codec: ValueCodec[T], range_: _Range
    ) -> None:
        self._shared = shared
        self._instance = shared.main
        self._subscription = wanted
        self._topic = wanted.topic
        self._codec = codec
        self._range = range_
        self._puller = Puller(shared.main, TOOLS_GROUP)
        self._cursors: list[_Cursor[T]] = []

    async def read(self) -> AsyncGenerator[Message[T], None]:
        """What is there now."""
        self._shared.require()
        self._instance.browsed[self._topic] += 1
        try:
            await self._begin()
            merge = await self._first_pages()
            while merge:
                number, message = merge.take()
                yield message
                self._shared.require()
                if merge.is_dry(number):
                    merge.put(number, await self._cursors[number].page())
        finally:
            self._leave()

    async def follow(self) -> AsyncGenerator[Message[T], None]:
        """What is there now, and then what comes."""
        self._instance.browsed[self._topic] += 1
        background = Background()
        arrivals: asyncio.Queue[_Arrival[T]] = asyncio.Queue(PAGES_WAITING_MAX)
        try:
            async with contextlib.aclosing(self.read()) as there:
                async for message in there:
                    yield message
            for cursor in self._cursors:
                background.spawn(f"following {cursor.queue}", self._watch(cursor, arrivals))
            background.spawn(f"queues of {self._topic}", self._grow(background, arrivals))
            while True:
                for message in _ordered(await self._collect(arrivals)):
                    yield message
        finally:
            self._leave()
            await background.stop()

    def _leave(self) -> None:
        browsed = self._instance.browsed
        browsed[self._topic] -= 1
        if not browsed[self._topic]:
            del browsed[self._topic]

    # --- what is there

    async def _begin(self) -> None:
        found = await self._instance.routes.find(self._topic)
        opened = (self._cursor(queue) for queue in found.read_queues)
        self._cursors = list(await asyncio.gather(*opened))

    async def _cursor(self, queue: MessageQueue) -> "_Cursor[T]":
        begin, end = await self._range.bounds(self._instance, queue)
        return _Cursor(self, queue, begin, end)

    async def _first_pages(self) -> Merge[Message[T]]:
        merge: Merge[Message[T]] = Merge()
        pages = await asyncio.gather(*(cursor.page() for cursor in self._cursors))
        for number, page in enumerate(pages):
            merge.put(number, page)
        return merge

    async def pull(self, queue: MessageQueue, offset: int, *, is_held: bool) -> Pulled:
        flags = PullFlag.SUBSCRIPTION
        return await self._puller.pull(
            queue,
            offset,
            self._subscription,
            count=PAGE_MESSAGES,
            flags=flags | PullFlag.SUSPEND if is_held else flags,
            hold_ms=HOLD_MS if is_held else 0,
            timeout_ms=HELD_PULL_TIMEOUT_MS if is_held else PULL_TIMEOUT_MS,
        )

    def messages(self, queue: MessageQueue, pulled: Pulled) -> list[Message[T]]:
        source = Source(queue.broker_name, self._codec, TOOLS_GROUP, self._shared.namespace or "")
        since_ms, until = self._range.since_ms, self._range.until
        messages = arrived(pulled.records, source, self._subscription)
        if since_ms:
            messages = [message for message in messages if message.stored_ms >= since_ms]
        if isinstance(until, int):
            messages = [message for message in messages if message.stored_ms < until]
        return messages

    def is_past(self, pulled: Pulled) -> bool:
        """Whether the time to end at was reached."""
        until = self._range.until
        if not isinstance(until, int) or not pulled.records:
            return False
        return pulled.records[-1].store_timestamp >= until

    # --- what comes

    async def _watch(self, cursor: "_Cursor[T]", arrivals: "asyncio.Queue[_Arrival[T]]") -> None:
        complaint = ""
        while True:
            try:
                self._shared.require()
                page = await cursor.wait()
            except NotRunning as ended:
                await arrivals.put(ended)
                return
            except CometError as error:
                if not self._shared.life.is_running:
                    continue
                if error.fact != complaint:
                    complaint = error.fact
                    _log.warning("queue=%s not read, trying again: %s", cursor.queue, error)
                await asyncio.sleep(FAILURE_PAUSE_MS / 1000)
                continue
            except Exception as error:  # else the others would go on, with a gap in the middle
                await arrivals.put(error)
                return
            complaint = ""
            if page:
                await arrivals.put(page)

    async def _grow(self, background: Background, arrivals: "asyncio.Queue[_Arrival[T]]") -> None:
        """Read queues that are new, from their beginning."""
        interval = self._shared.settings.route_interval_ms / 1000
        while True:
            await asyncio.sleep(interval)
            found = self._instance.routes.known(self._topic)
            known = {cursor.queue for cursor in self._cursors}
            for queue in found.read_queues if found is not None else ():
                if queue not in known:
                    cursor = _Cursor(self, queue, 0, 0)
                    self._cursors.append(cursor)
                    background.spawn(f"following {queue}", self._watch(cursor, arrivals))

    async def _collect(self, arrivals: "asyncio.Queue[_Arrival[T]]") -> list[list[Message[T]]]:
        """Everything that has arrived, at least one page."""
        pages: list[list[Message[T]]] = []
        arrival = await arrivals.get()
        while True:
            if isinstance(arrival, Exception):
                raise arrival
            pages.append(arrival)
            if arrivals.empty():
                return pages
            arrival = arrivals.get_nowait()


_Arrival: TypeAlias = list[Message[T]] | Exception
"""A page, or why there will be no more."""


def _ordered(pages: list[list[Message[T]]]) -> list[Message[T]]:
    """The messages of several pages by the time they were stored; each page stays as it is."""
    merge: Merge[Message[T]] = Merge()
    for number, page in enumerate(pages):
        merge.put(number, page)
    ordered: list[Message[T]] = []
    while merge:
        ordered.append(merge.take()[1])
    return ordered


class _Cursor(Generic[T]):
    """Goes through one queue."""

    def __init__(self, reader: _Reader[T], queue: MessageQueue, begin: int, end: int) -> None:
        self.queue = queue
        self._reader = reader
        self._offset = begin  # of the next pull
        self._end = end

    async def page(self) -> list[Message[T]]:
        """The next messages before the end; none when there are no more."""
        while self._offset < self._end:
            pulled = await self._reader.pull(self.queue, self._offset, is_held=False)
            if pulled.next_offset <= self._offset:
                break  # nothing there although there should be: it was deleted meanwhile
            self._offset = pulled.next_offset
            page = self._reader.messages(self.queue, pulled)
            if page and page[-1].queue_offset >= self._end:
                page = [message for message in page if message.queue_offset < self._end]
                # What lies behind is for those who follow.
                self._offset = self._end
            if self._reader.is_past(pulled):
                self._offset = self._end
            if page:
                return page
        return []

    async def wait(self) -> list[Message[T]]:
        """Messages as they come, without an end; none when nothing came for a while."""
        clock = asyncio.get_running_loop().time
        began, offset = clock(), self._offset
        pulled = await self._reader.pull(self.queue, offset, is_held=True)
        page = self._reader.messages(self.queue, pulled)
        self._offset = pulled.next_offset
        if self._offset == offset and clock() - began < EARLY_ANSWER_MS / 1000:
            await asyncio.sleep(EARLY_ANSWER_MS / 1000)
        return page
