"""How far a group is: in memory, and where it is kept over restarts, with the broker or in a file.

Both stores have the same face. What is read and written costs memory only, except ``load``,
``read`` and ``persist``. Queues have their topics as on the wire.
"""

import abc
import asyncio
from collections.abc import Collection, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol

from cometmq import logs
from cometmq.client.core.offset_table import OffsetTable
from cometmq.client.core.settings import Mode
from cometmq.client.instance import Instance
from cometmq.client.local_offsets import LocalOffsets as OffsetFile
from cometmq.client.local_offsets import default_folder
from cometmq.client.queue_offsets import keeper_of
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from cometmq.errors import CometError, RemoteProtocolError, StoreError
from cometmq.model.offsets import MessageQueue

_log = logs.get_logger("cometmq.client")

NOTHING_STORED = -1
FAILED = -2
OFFSET_TIMEOUT_MS = 5_000

ReadSource = Literal["memory", "store", "memory_first"]


class OffsetStore(Protocol):
    """The offsets of one group, as one consumer sees them."""

    async def load(self) -> None:
        """Once, before anything else. Raises what makes it pointless to start."""
        ...

    async def read(self, queue: MessageQueue, *, source: ReadSource) -> int:
        """The next offset to consume; ``NOTHING_STORED``, or ``FAILED`` when nobody could say.

        What the store says is in memory afterwards, except when the queue is frozen.
        """
        ...

    def peek(self, queue: MessageQueue) -> int:
        """What memory has; ``NOTHING_STORED`` for nothing."""
        ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """What the store has, None for nothing; memory stays as it is. Raises a CometError."""
        ...

    def update(self, queue: MessageQueue, offset: int, *, forward_only: bool) -> None:
        """Note it in memory."""
        ...

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Note a corrected offset that nobody may change until ``remove``."""
        ...

    def remove(self, queue: MessageQueue) -> None:
        """Forget it in memory, frozen or not."""
        ...

    def keep_only(self, queues: Iterable[MessageQueue]) -> None:
        """Forget all others in memory."""
        ...

    async def persist(
        self, queues: Iterable[MessageQueue], *, is_synchronous: bool = False
    ) -> bool:
        """Write what memory has of these queues; says whether nothing went wrong.

        Failures are logged. Without ``is_synchronous`` nobody waits for a broker's answer.
        """
        ...

    def snapshot(self, topic: str = "") -> Mapping[MessageQueue, int]:
        """What memory has of a topic, or of all."""
        ...


def offset_store(
    instance: Instance, group: str, *, mode: Mode, folder: str | PathLike[str] | None = None
) -> OffsetStore:
    """The store for a mode; ``folder`` is where broadcasting consumers keep their progress."""
    if mode == "cluster":
        return RemoteOffsets(instance, group)
    root = default_folder() if folder is None else Path(folder)
    return FileOffsets(OffsetFile(root, instance.client_id, group))


async def persist_last(
    store: OffsetStore, queues: Iterable[MessageQueue], *, group: str, seconds: float
) -> None:
    """Write offsets at the end, within the time that closing may take; failures are logged."""
    try:
        async with asyncio.timeout(seconds):
            await store.persist(queues, is_synchronous=True)
    except TimeoutError:
        _log.warning("group=%s offsets not saved within %.1f s", group, seconds)


class _InMemory(abc.ABC):
    """The part that both stores share."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._table = OffsetTable()

    @abc.abstractmethod
    async def stored(self, queue: MessageQueue) -> int | None: ...

    async def read(self, queue: MessageQueue, *, source: ReadSource) -> int:
        known = self._table.get(queue)
        if source == "memory" or (source == "memory_first" and known is not None):
            return NOTHING_STORED if known is None else known
        try:
            found = await self.stored(queue)
        except CometError as error:
            _log.warning("group=%s queue=%s offset not read: %s", self._group, queue, error)
            return FAILED
        if found is None:
            return NOTHING_STORED
        self._table.set(queue, found)
        return found

    def peek(self, queue: MessageQueue) -> int:
        known = self._table.get(queue)
        return NOTHING_STORED if known is None else known

    def update(self, queue: MessageQueue, offset: int, *, forward_only: bool) -> None:
        if forward_only:
            self._table.advance(queue, offset)
        else:
            self._table.set(queue, offset)

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self._table.freeze(queue, offset)

    def remove(self, queue: MessageQueue) -> None:
        self._table.forget(queue)

    def keep_only(self, queues: Iterable[MessageQueue]) -> None:
        self._table.due(frozenset(queues))

    def snapshot(self, topic: str = "") -> Mapping[MessageQueue, int]:
        return self._table.of_topic(topic)

    def _known(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        found = ((queue, self._table.get(queue)) for queue in queues)
        return {queue: offset for queue, offset in found if offset is not None}


class RemoteOffsets(_InMemory):
    """With the brokers: the members of a group go on where others were."""

    def __init__(self, instance: Instance, group: str) -> None:
        super().__init__(group)
        self._instance = instance
        self._complaint = ""  # said last, so that a lasting problem is one line

    async def load(self) -> None:
        """Nothing to do: each queue is asked for when it becomes ours."""

    async def stored(self, queue: MessageQueue) -> int | None:
        address = await keeper_of(self._instance, queue)
        answer = await self._instance.ask(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            QueryConsumerOffset(self._group, queue.topic, queue.queue_id),
            timeout_ms=OFFSET_TIMEOUT_MS,
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = core.read(answer, OffsetResponse).offset
        return offset if offset >= 0 else None  # some clients store -1 for "nothing"

    async def persist(
        self, queues: Iterable[MessageQueue], *, is_synchronous: bool = False
    ) -> bool:
        due = self._known(queues)
        problems: list[CometError] = []
        # When two queues of a topic come at the same time for a group that has stored nothing yet,
        # Apache's brokers may keep one and forget the other. What nobody waits for is sent again
        # soon; what is waited for may be the last word, so one queue goes ahead of the others.
        for wave in _waves(due) if is_synchronous else (due,):
            writes = (self._write(queue, due[queue], is_synchronous) for queue in wave)
            problems += [error for error in await asyncio.gather(*writes) if error is not None]
        complaint = problems[0].fact if problems else ""
        if complaint and complaint != self._complaint:
            what = "group=%s offsets of %d queues not saved: %s"
            _log.warning(what, self._group, len(problems), problems[0])
        self._complaint = complaint
        return not problems

    async def _write(
        self, queue: MessageQueue, offset: int, is_synchronous: bool
    ) -> CometError | None:
        header = UpdateConsumerOffset(self._group, queue.topic, queue.queue_id, offset)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        try:
            address = await keeper_of(self._instance, queue)
            if is_synchronous:
                await self._instance.ask(address, code, header, timeout_ms=OFFSET_TIMEOUT_MS)
            else:
                await self._instance.tell(address, code, header)
        except CometError as error:
            return error
        return None


def _waves(queues: Collection[MessageQueue]) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """One queue of each topic of each broker, and all others."""
    chosen = set({(queue.broker_name, queue.topic): queue for queue in queues}.values())
    return list(chosen), [queue for queue in queues if queue not in chosen]


class FileOffsets(_InMemory):
    """In a file of this client alone, for broadcasting consumers."""

    def __init__(self, file: OffsetFile) -> None:
        super().__init__(file.path.parent.name)
        self._file = file
        self._using = asyncio.Lock()  # reads and writes run on threads and must not overlap

    async def load(self) -> None:
        """Raises StoreError when there was a file and none of it can be read."""
        self._table = OffsetTable(await self._content())

    async def stored(self, queue: MessageQueue) -> int | None:
        offset = (await self._content()).get(queue, -1)
        return offset if offset >= 0 else None

    async def persist(
        self,
        queues: Iterable[MessageQueue],
        *,
        is_synchronous: bool = False,  # noqa: ARG002  # a file is always waited for
    ) -> bool:
        due = self._known(queues)
        if not due:
            return True
        try:
            async with self._using:
                await asyncio.to_thread(self._file.save, due)
        except OSError as error:
            _log.warning("offsets of %d queues not saved: %s", len(due), error)
            return False
        return True

    async def _content(self) -> dict[MessageQueue, int]:
        async with self._using:
            try:
                return await asyncio.to_thread(self._file.load)
            except (OSError, RemoteProtocolError) as error:
                advice = "mend it, or move it away to begin as a new group"
                raise StoreError(str(self._file.path), str(error), advice) from error
