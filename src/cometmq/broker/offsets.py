"""How far each group has consumed each queue, and where administrators have set it.

A reset is *pending* until whoever reads the queue knows of it. Until then the group's offset is the
one it was reset to, and what its members say about their progress does not count: they speak of
messages from before.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from cometmq import logs
from cometmq.codec.bodies.offsets import ConsumerOffsetTable
from cometmq.store.documents import ConfigDocument

OFFSETS_MAX: Final = 1_000_000
"""Offsets at which no new ones are kept; those that exist go on. About 90 MB in memory."""

PULLED_MAX: Final = 65_536
"""Pairs of topic and group of which is noted how far messages were handed out."""

UNKNOWN: Final = -1

_log = logs.get_logger("cometmq.broker")

Queues = dict[int, int]


@dataclass(slots=True)
class _Reset:
    """Where a queue is to be read from, and whether a member has asked for that already."""

    offset: int
    expires_at: float
    is_asked: bool = False


class _Keys:
    """Keys of the form "topic@group", found by either name: there may be very many of them."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        # Dictionaries for their order. No group and no topic is left without a key.
        self.by_group: dict[str, dict[str, None]] = {}
        self.by_topic: dict[str, dict[str, None]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        topic, group = _split(key)
        self.by_group.setdefault(group, {})[key] = None
        self.by_topic.setdefault(topic, {})[key] = None

    def remove(self, key: str) -> None:
        topic, group = _split(key)
        for by_name, name in ((self.by_group, group), (self.by_topic, topic)):
            keys = by_name[name]
            del keys[key]
            if not keys:
                del by_name[name]


class ConsumerOffsets:
    """Offsets by topic, group and queue; names and queue ids are checked by whoever commits.

    ``on_dirty`` is called with the first change after ``table``, which is what gets saved. Pending
    resets are not saved, only the offsets they set. ``on_reset`` is called with group and topic of
    each before anybody is told of it.
    """

    def __init__(
        self, document: ConfigDocument[ConsumerOffsetTable], *, offsets_max: int = OFFSETS_MAX
    ) -> None:
        """Load what was saved; blocks for the disk."""
        saved = document.load()
        self._offsets_max = offsets_max
        # As in the file: "topic@group" to queue to offset. Neither name can have an @.
        self._by_key: dict[str, Queues] = {
            key: {queue: offset for queue, offset in queues.items() if offset >= 0}
            for key, queues in saved.offset_table.items()
        }
        self._keys = _Keys(self._by_key)
        # How far messages were handed out, by the same keys: for people to look at.
        self._pulled = dict(saved.pull_offset_table or {})
        self._pulled_keys = _Keys(self._pulled)
        # The other members of the file.
        self._saved = saved
        self._count = sum(map(len, self._by_key.values()))
        # A table that is full is told of once, until there is room again.
        self._is_full_told = False
        # Pending, by "topic@group" and queue; each has an offset, so there are no more than those.
        self._resets: dict[str, dict[int, _Reset]] = {}
        # Whether there are any: nearly always this is all that has to be looked at.
        self.has_resets = False
        self.is_dirty = False
        self.on_dirty = _nobody
        self.on_reset = _unheard

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The next offset a group wants of a queue; ``UNKNOWN`` (-1) when it never said."""
        queues = self._by_key.get(f"{topic}@{group}")
        return UNKNOWN if queues is None else queues.get(queue_id, UNKNOWN)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Note how far a group is, back or forth; whether it was noted.

        It is not when ``offset`` is negative, which is how some clients say that they do not know,
        or when the queue is new and the table is full. While a reset is pending it changes nothing.
        """
        if offset < 0:
            return False
        key = f"{topic}@{group}"
        if self.has_resets and queue_id in self._resets.get(key, ()):
            return True
        return self._put(key, queue_id, offset)

    def reset(
        self, group: str, topic: str, queue_id: int, offset: int, expires_at: float = math.inf
    ) -> bool:
        """Set a group back or forth, whatever its members say, until one knows; whether it was.

        It is not when the queue is new and the table is full. After ``expires_at``, a monotonic
        time, it is pending only where somebody may still come (``drop_expired_resets``).
        """
        key = f"{topic}@{group}"
        if not self._put(key, queue_id, offset):
            return False
        self._resets.setdefault(key, {})[queue_id] = _Reset(offset, expires_at)
        self.has_resets = True
        self.on_reset(group, topic)
        return True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending."""
        return self.has_resets and queue_id in self._resets.get(f"{topic}@{group}", ())

    def has_resets_of(self, group: str, topic: str) -> bool:
        """Whether one is pending for any queue of a topic."""
        return self.has_resets and f"{topic}@{group}" in self._resets

    def note_asked(self, group: str, topic: str, queue_id: int) -> None:
        """Somebody was told the offset, and so perhaps begins where a pending reset says."""
        reset = self._resets.get(f"{topic}@{group}", {}).get(queue_id)
        if reset is not None:
            reset.is_asked = True

    def take_reset(
        self, group: str, topic: str, queue_id: int, offset: int = UNKNOWN
    ) -> int | None:
        """Where a member that pulls at ``offset`` has to go instead; said once, it is not pending.

        None when there is nothing to say: also to one that asked where to begin and begins there.
        It would only give up the queue and come again half a minute later.
        """
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None or (reset := queues.pop(queue_id, None)) is None:
            return None
        if not queues:
            del self._resets[key]
            self.has_resets = bool(self._resets)
        return None if reset.is_asked and reset.offset == offset else reset.offset

    def drop_expired_resets(self, now: float, may_come: Callable[[str, str, int], bool]) -> None:
        """Have nothing pending any more where nobody came, and nobody ``may_come`` for the queue.

        ``may_come`` is asked with group, topic and queue. A member that is slow does not know yet,
        and would undo the reset with its next commit; whoever is not there asks where to begin
        when it comes. For those that never do it would be kept for ever.
        """
        for key, queues in list(self._resets.items()):
            topic, group = _split(key)
            expired = [queue_id for queue_id, reset in queues.items() if reset.expires_at <= now]
            for queue_id in expired:
                if not may_come(group, topic, queue_id):
                    del queues[queue_id]
            if not queues:
                del self._resets[key]
        self.has_resets = bool(self._resets)

    def clone(self, source: str, target: str, topic: str) -> bool:
        """Give one group the offsets of another; False, and nothing is done, when it is too much.

        What ``target`` had of the topic is forgotten, pending resets too, if ``source`` has any.
        """
        queues = self._by_key.get(f"{topic}@{source}")
        if not queues:
            return True
        key = f"{topic}@{target}"
        count = self._count + len(queues) - len(self._by_key.get(key, ()))
        if count > self._offsets_max:
            self._tell_full(key)
            return False
        self._drop_resets([key])
        if key not in self._by_key:
            self._keys.add(key)
        self._by_key[key] = dict(queues)
        self._count = count
        self._touch()
        return True

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """A group's offsets of one topic by queue; a copy."""
        return dict(self._by_key.get(f"{topic}@{group}", {}))

    def pulled(self, group: str, topic: str) -> Queues:
        """How far messages of a topic were handed out to a group, by queue.

        Whoever hands out writes into it; it changes nothing, and nobody has to save it.
        """
        key = f"{topic}@{group}"
        queues = self._pulled.get(key)
        if queues is None:
            if len(self._pulled) >= PULLED_MAX:
                return {}
            queues = self._pulled[key] = {}
            self._pulled_keys.add(key)
        return queues

    def pulled_to(self, group: str, topic: str, queue_id: int) -> int:
        """How far messages of a queue were handed out to a group; ``UNKNOWN`` if nobody knows."""
        return self._pulled.get(f"{topic}@{group}", {}).get(queue_id, UNKNOWN)

    def groups(self) -> list[str]:
        """Groups that have offsets, in no order."""
        return list(self._keys.by_group)

    def topics_of(self, group: str) -> list[str]:
        """Topics of which a group has offsets, in order."""
        return sorted(_split(key)[0] for key in self._keys.by_group.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets of a topic, in order."""
        return sorted(_split(key)[1] for key in self._keys.by_topic.get(topic, ()))

    def delete_group(self, group: str) -> int:
        """Forget all offsets of a group; how many."""
        by_group = self._keys.by_group.get(group, ())
        return self._delete(by_group, self._pulled_keys.by_group.get(group, ()))

    def delete_topic(self, topic: str) -> int:
        """Forget the offsets of a topic of all groups; how many."""
        by_topic = self._keys.by_topic.get(topic, ())
        return self._delete(by_topic, self._pulled_keys.by_topic.get(topic, ()))

    def table(self) -> ConsumerOffsetTable:
        """All offsets as they are now, for saving; the caller's own copy. Not dirty any more."""
        self.is_dirty = False
        return self.snapshot()

    def snapshot(self) -> ConsumerOffsetTable:
        """All offsets as they are now; the caller's own copy."""
        by_key = {key: dict(queues) for key, queues in self._by_key.items() if queues}
        is_pulled_known = self._saved.pull_offset_table is not None
        return msgspec.structs.replace(
            self._saved,
            offset_table=by_key,
            group_topic_map=self._group_topic_map(),
            pull_offset_table=self._pulled_table() if is_pulled_known else None,
        )

    def _pulled_table(self) -> dict[str, Queues]:
        return {key: dict(queues) for key, queues in self._pulled.items()}

    def __len__(self) -> int:
        """How many offsets there are, of all queues of all groups."""
        return self._count

    def _put(self, key: str, queue_id: int, offset: int) -> bool:
        queues = self._by_key.get(key)
        if queues is None or queue_id not in queues:
            if self._count >= self._offsets_max:
                self._tell_full(key)
                return False
            if queues is None:
                queues = self._by_key[key] = {}
                self._keys.add(key)
            self._count += 1
        elif queues[queue_id] == offset:
            return True
        queues[queue_id] = offset
        self._touch()
        return True

    def _drop_resets(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._resets.pop(key, None)
        self.has_resets = bool(self._resets)

    def _delete(self, keys: Iterable[str], pulled_keys: Iterable[str]) -> int:
        self._drop_resets(keys)
        for key in list(pulled_keys):
            del self._pulled[key]
            self._pulled_keys.remove(key)
        count = 0
        for key in list(keys):
            count += len(self._by_key.pop(key))
            self._keys.remove(key)
        self._count -= count
        if count:
            self._is_full_told = False
            self._touch()
        return count

    def _touch(self) -> None:
        if not self.is_dirty:
            self.is_dirty = True
            self.on_dirty()

    def _tell_full(self, key: str) -> None:
        if not self._is_full_told:
            self._is_full_told = True
            topic, group = _split(key)
            _log.warning(
                "group=%s topic=%s offset not kept: there are %d; delete groups nobody needs",
                group, topic, self._count,
            )  # fmt: skip

    def _group_topic_map(self) -> dict[str, tuple[str, ...]] | None:
        """What the keys say once more, in files that have it; readers can do without."""
        if self._saved.group_topic_map is None:
            return None
        return {
            group: tuple(_split(key)[0] for key in keys)
            for group, keys in self._keys.by_group.items()
        }


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


def _nobody() -> None:
    """Nobody listens."""


def _unheard(group: str, topic: str) -> None:
    """Nobody listens."""
