"""Plain pulls on the shortest way: from commands to whole answers with the records in them.

A consumer asks the same again and again: only the offset is another. What was found out about its
first pull (may it, which tags, how much) is kept as a plan, and pulls that find a few records in
one place are answered here by it. The first that is different ends it, and the caller looks at it
closely.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import astuple

from cometmq.codec import queue_entry
from cometmq.codec.answer_pieces import (
    NUMBER,
    OPAQUE,
    SAMPLE_NUMBERS,
    SAMPLE_OPAQUE,
    Piece,
    cut,
    json_writer,
)
from cometmq.codec.headers.base import SMALL_INTEGERS, exact_texts
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from mmap import mmap

    from cometmq.codec.command import Command
    from cometmq.codec.tails import QueueTail

    ReadHeader = Callable[[Command, type[PullMessage]], PullMessage]
    Answer = Callable[[int, int, int, int, int, int], bytes]
    Commit = Callable[[str, str, int, int], object]
    Limits = tuple[int, int, int, int, int]
    Bounds = tuple[int, int, int]
    Chosen = tuple[list[memoryview], int, int, int]
    Place = tuple[str, str, int]
    Asked = tuple["PullPlan", Place, int, int, int]

COMMIT_OFFSET: Final = 0x1
SUSPEND: Final = 0x2
SUBSCRIPTION: Final = 0x4

JOINED_BYTES_MAX: Final = 64 * 1024
"""Records up to here are copied into the answer: that costs less than many pieces."""

GATHERED_BYTES_MAX: Final = 512 * 1024
"""Answers of this size are let go before more are made."""

_VARIES: Final = ~(COMMIT_OFFSET | SUSPEND)
_OTHERS_BEGIN: Final = PullMessage.__struct_fields__.index("max_msg_bytes")
_NO_QUEUES: Final[Mapping[int, QueueTail]] = {}
_OFFSET_DIGITS_MAX: Final = 18

assert PullMessage.__struct_fields__[:8] == (
    "consumer_group", "topic", "queue_id", "queue_offset",
    "max_msg_nums", "sys_flag", "commit_offset", "suspend_timeout_millis",
)  # fmt: skip


class Queue(Protocol):
    """What has to be known about a queue."""

    min_offset: int
    max_offset: int
    file_bytes: int
    extension: object | None

    def bytes_at(self, position: int) -> tuple[mmap, int]:
        """The mapped file that holds a byte position, and where it begins."""


class LogFile(Protocol):
    """A file of the log."""

    begin: int
    view: memoryview


class Log(Protocol):
    """Where records are found."""

    begin: int

    def find(self, offset: int) -> LogFile | None:
        """The file that holds a log position."""


class OnlineGroup(Protocol):
    """What members of a group have said; ``subscriptions`` are by topic and have a ``version``."""

    @property
    def subscriptions(self) -> Mapping[str, Any]: ...

    @property
    def message_model(self) -> object: ...


class PullPlan:
    """How pulls of a group from a topic are answered, as long as they are like ``header``.

    ``online`` is the group when its heartbeats say what it wants, None when its pulls say it.
    ``limits`` are records and bytes, the same for cold ones, and entries to look at. What is handed
    out is added to ``taken``: records and bytes. How far that is, goes to ``pulled`` by queue id.
    """

    def __init__(
        self,
        header: PullMessage,
        queue_count: int,
        tags: frozenset[int] | None,
        limits: Limits,
        taken: list[int],
        pulled: dict[int, int],
        online: OnlineGroup | None,
    ) -> None:
        self.wish = wish(header)
        self.queue_count = queue_count
        self.tags = tags
        self.limits = limits
        self.taken = taken
        self.pulled = pulled
        self.online = online
        subscription: Any = None if online is None else online.subscriptions[header.topic]
        self.subscription = subscription
        self.version = 0 if subscription is None else subscription.version
        self.message_model = None if online is None else online.message_model
        # What the pull said that fitted last, and what its flags are: who says the same fits, too.
        self.said: tuple[str | None, ...] = ()
        self.said_flags = 0

    def fits(self, header: PullMessage, online: Mapping[str, OnlineGroup]) -> bool:
        """Whether a pull is answered by this plan."""
        return (
            0 <= header.queue_id < self.queue_count
            and self.wish == wish(header)
            and (self.online is None or header.sub_version <= self.version)
            and self.holds(header.consumer_group, header.topic, online)
        )

    def holds(self, consumer_group: str, topic: str, online: Mapping[str, OnlineGroup]) -> bool:
        """Whether the group is what it was when the plan was made."""
        group = self.online
        return group is None or (
            online.get(consumer_group) is group
            and group.message_model is self.message_model
            and group.subscriptions.get(topic) is self.subscription
        )


def wish(header: PullMessage) -> tuple[object, ...]:
    """What has to be the same in two pulls so that they are answered alike."""
    flags = header.sys_flag & _VARIES
    said = (header.subscription, header.expression_type) if flags & SUBSCRIPTION else ()
    return flags, header.max_msg_nums, *said, *astuple(header)[_OTHERS_BEGIN:]


class PullTail:
    """Answers pulls from one log.

    ``plans`` are by group and topic; whoever knows that one does not hold any more takes it out.
    ``queues`` are by topic and queue id, ``online`` the groups with members. ``answer`` writes the
    frame of an answer without records, from serialization, opaque, next, first and last offset.
    ``commit`` is told how far a consumer is, with group, topic, queue id and offset, unless that
    is beyond the queue's end.
    """

    def __init__(
        self,
        log: Log,
        queues: Mapping[str, Mapping[int, QueueTail]],
        online: Mapping[str, OnlineGroup],
        read: ReadHeader,
        answer: Answer,
        commit: Commit,
    ) -> None:
        self._log = log
        self._queues = queues
        self._online = online
        self._read = read
        self._answer = answer
        self._json_answer = json_writer(pieces(answer, 0), (NUMBER, NUMBER + 1, NUMBER + 2, OPAQUE))
        self._commit = commit
        self.plans: dict[tuple[str, str], PullPlan] = {}

    def take(
        self,
        commands: Sequence[Command],
        begin: int,
        header_type: type[PullMessage],
        warm_begin: int,
        log_end: int,
        frames: list[bytes],
    ) -> int:
        """Answer pulls from ``commands[begin]`` on; the position of the first that is not plain.

        The answers go to ``frames``. Ends earlier when they are large.
        """
        gathered, texts = 0, exact_texts(header_type)
        for number in range(begin, len(commands)):
            if gathered > GATHERED_BYTES_MAX:
                return number
            command = commands[number]
            asked = self._as_before(command, texts) or self._asked(command, header_type, texts)
            if asked is None or command.flag & 2:
                return number
            plan, place, offset, flags, commit_offset = asked
            frame = self._found(command, place, offset, plan, warm_begin, log_end)
            if frame is None:
                return number
            _, topic, queue_id = place
            if flags & COMMIT_OFFSET and commit_offset <= self._queues[topic][queue_id].max_offset:
                self._commit(*place, commit_offset)
            frames.append(frame)
            gathered += len(frame)
        return len(commands)

    def _as_before(self, command: Command, header_texts: type[Any]) -> Asked | None:
        """What a pull asks that says the same as the last one of its plan, apart from offsets."""
        texts: Any = command.ext
        if type(texts) is not header_texts:
            return None
        said = astuple(texts)
        plan = self.plans.get(said[:2])
        if plan is None or plan.said != _but_offsets(said):
            return None
        _, _, queue_text, offset_text, _, _, commit_text, *_ = said
        queue_id = SMALL_INTEGERS.get(queue_text)
        offset, commit_offset = _offset(offset_text), _offset(commit_text)
        if queue_id is None or queue_id >= plan.queue_count or offset is None:
            return None
        if commit_offset is None or not plan.holds(said[0], said[1], self._online):
            return None
        return plan, (said[0], said[1], queue_id), offset, plan.said_flags, commit_offset

    def _asked(
        self, command: Command, header_type: type[PullMessage], header_texts: type[Any]
    ) -> Asked | None:
        """What any pull asks; None when there is no plan for it."""
        texts: Any = command.ext  # reading may replace it
        try:
            header = self._read(command, header_type)
        except ProtocolError:
            return None
        plan = self.plans.get((header.consumer_group, header.topic))
        if plan is None or not plan.fits(header, self._online):
            return None
        if type(texts) is header_texts:
            plan.said, plan.said_flags = _but_offsets(astuple(texts)), header.sys_flag
        place = header.consumer_group, header.topic, header.queue_id
        return plan, place, header.queue_offset, header.sys_flag, header.commit_offset

    def _found(
        self,
        command: Command,
        place: Place,
        offset: int,
        plan: PullPlan,
        warm_begin: int,
        log_end: int,
    ) -> bytes | None:
        """The answer with what is there; None when that is nothing, or not simple."""
        _, topic, queue_id = place
        queue: Any = self._queues.get(topic, _NO_QUEUES).get(queue_id)
        if queue is None or queue.extension is not None:
            return None
        low, high = queue.min_offset, queue.max_offset
        if not low <= offset < high:
            return None
        position = offset * ENTRY_BYTES
        try:
            buffer, file_begin = queue.bytes_at(position)
        except FileNotFoundError:
            return None
        start = position - file_begin
        entries = plan.limits[-1]
        stop = min(start + entries * ENTRY_BYTES, high * ENTRY_BYTES - file_begin, queue.file_bytes)
        # Records that lie near each other in a queue rarely lie in different files.
        file = self._log.find(int.from_bytes(buffer[start : start + 8], "big"))
        if file is None:
            return None
        bounds = self._log.begin, warm_begin, log_end
        chosen = None
        if plan.tags is None:
            chosen = _all_of(buffer, start, stop, bounds, plan.limits, file)
        if chosen is None:
            chosen = _some_of(buffer, start, stop, bounds, plan, file)
        if chosen is None:
            return None
        parts, size, records, examined = chosen
        plan.taken[0] += records
        plan.taken[1] += size
        offsets = offset + examined, low, high
        plan.pulled[queue_id] = offset + examined
        if command.serialization == 0:
            head = self._json_answer((*offsets, command.opaque), size)
        else:
            head = self._answer(command.serialization, command.opaque, *offsets, size)
        return b"".join((head, *parts))


def _but_offsets(said: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """The texts of a pull without group, topic, queue and offsets."""
    return said[4:6] + said[7:]


def _offset(text: str | None) -> int | None:
    """An offset as it is usually written."""
    small = SMALL_INTEGERS.get(text)  # type: ignore[arg-type]
    if small is not None:
        return small
    if text is None or len(text) > _OFFSET_DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def _some_of(
    buffer: mmap, start: int, stop: int, bounds: Bounds, plan: PullPlan, file: LogFile
) -> Chosen | None:
    """The records that are wanted, if there are any, not too large, and all of them in the file."""
    count, bytes_max, count_cold, bytes_cold_max, _ = plan.limits
    chosen = queue_entry.select(
        buffer,
        start,
        stop,
        plan.tags,
        *bounds,
        count,
        bytes_max,
        count_cold,
        bytes_cold_max,
    )
    base, end = file.begin, file.begin + file.view.nbytes
    if not chosen.runs or chosen.bytes > JOINED_BYTES_MAX:
        return None
    if any(first < base or last > end for first, last in chosen.runs):
        return None
    parts = [file.view[first - base : last - base] for first, last in chosen.runs]
    return parts, chosen.bytes, chosen.records, chosen.examined


def _all_of(
    buffer: mmap, start: int, stop: int, bounds: Bounds, limits: Limits, file: LogFile
) -> Chosen | None:
    """As many records as may come, if nothing is the matter with any of them; else None.

    The usual case, in a few steps for all records instead of some for each.
    """
    log_begin, warm_begin, log_end = bounds
    count = min(limits[0], (stop - start) // ENTRY_BYTES)
    if count <= 0:
        return None
    values = _entries(count).unpack_from(buffer, start)
    places, sizes = values[::2], values[1::2]
    base, view, last = file.begin, file.view, places[-1]
    file_end = base + view.nbytes
    if min(places) < max(base, log_begin, warm_begin) or max(places) > last:
        return None
    # Sizes that are possible and have this sum are all small enough.
    size = sum(sizes)
    if min(sizes) <= 0 or size > min(limits[1], JOINED_BYTES_MAX):
        return None
    # What reaches beyond the file would be cut off there, and the answer's length be wrong.
    if last + sizes[-1] > log_end or last + max(sizes) > file_end:
        return None
    begins = [place - base for place in places] if base else places
    parts = [view[begin : begin + length] for begin, length in zip(begins, sizes, strict=True)]
    return parts, size, count, count


@functools.cache
def _entries(count: int) -> struct.Struct:
    """Where so many entries of a queue lead, and the size of what is there."""
    return struct.Struct(">" + "qi8x" * count)


def pieces(answer: Answer, serialization: int) -> list[Piece]:
    """What an answer to a pull is written of."""
    return cut(answer(serialization, SAMPLE_OPAQUE, *SAMPLE_NUMBERS, 0), serialization)
