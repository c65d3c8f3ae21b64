"""A broker's registration: what it says, what became of it, and its topics on their way in.

A broker may register ten thousand topics at once. They are applied in slices so that questions can
be answered in between; who asks sees each topic as it was or as it will be, never half of one.
Registrations of one broker group wait for each other: whoever asks for a step works off the oldest
one first. So the end is the same as if each had been applied at once when it came.
"""

import enum
from collections import deque
from collections.abc import Hashable, Iterator, Mapping

import msgspec

from cometmq.model.topic import DataVersion, TopicConfig

DEFAULT_TIMEOUT_MS = 120_000
"""How long a broker may be silent when it does not say so itself."""

TOPICS_PER_STEP = 500
"""Topics of one slice unless the caller chooses: about a millisecond of work."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker tells about itself.

    ``connection`` is any hashable thing by which the caller knows the broker's connection again.
    ``enable_acting_master`` is None for a 4.x broker. With ``has_static_topics`` the topics the
    broker does not mention are kept whatever the rules say.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_address: str
    connection: Hashable
    zone_name: str | None = None
    timeout_ms: int | None = None
    enable_acting_master: bool | None = None
    topics: Mapping[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    filter_servers: tuple[str, ...] = ()
    has_static_topics: bool = False

    @property
    def silence_ms_max(self) -> int:
        """The broker's own timeout, or the default one."""
        return DEFAULT_TIMEOUT_MS if self.timeout_ms is None else self.timeout_ms


class Verdict(enum.Enum):
    """What becomes of a registration."""

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    """Another broker holds the same id with a newer state: answered with success, no fields."""
    REFUSED = "refused"
    """A single topic from a broker that never sent its whole table: answered with an error."""


class MinBrokerIdChange(msgspec.Struct, frozen=True, gc=False):
    """The lowest id of a broker group is another one now; ``notify`` lists who should be told.

    ``offline_address`` is who left, None when somebody came; then ``ha_address`` is the newcomer's.
    """

    broker_name: str
    min_broker_id: int
    min_broker_address: str
    notify: tuple[str, ...]
    offline_address: str | None = None
    ha_address: str | None = None


class DroppedBroker(msgspec.Struct, frozen=True):
    """A broker that is no longer in the table.

    With ``is_group_gone`` it was the last of its name, and the queues of that name went with it.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    connection: Hashable
    timeout_ms: int
    is_group_gone: bool
    min_broker_id_change: MinBrokerIdChange | None = None


class RegistrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the broker is told, and what else is worth knowing.

    The two addresses are the master's and only for slaves. ``reason`` is for the log and empty when
    accepted. ``displaced`` are brokers that had to make room: another address under the same id,
    or the same address under another name.
    """

    verdict: Verdict
    reason: str = ""
    ha_server_address: str | None = None
    master_address: str | None = None
    is_new_broker: bool = False
    displaced: tuple[DroppedBroker, ...] = ()
    min_broker_id_change: MinBrokerIdChange | None = None

    @property
    def is_accepted(self) -> bool:
        return self.verdict is Verdict.ACCEPTED


class VersionAnswer(msgspec.Struct, frozen=True, gc=False):
    """Whether a broker has to register its topics again, and the version we know, if any."""

    is_changed: bool
    known: DataVersion | None


class RegistrationProgress:
    """A registration whose topics are being applied; ``result`` is final from the start.

    The broker should be answered when ``is_done``. ``topics_changed`` counts the topics that this
    registration added, changed or (where the rules say so) removed so far.
    """

    __slots__ = ("_changes", "_queue", "is_done", "result", "topics_changed")

    def __init__(
        self,
        result: RegistrationResult,
        changes: Iterator[bool] | None = None,
        queue: "deque[RegistrationProgress] | None" = None,
    ) -> None:
        self.result = result
        self.topics_changed = 0
        self.is_done = changes is None
        self._changes: Iterator[bool] = iter(()) if changes is None else changes
        self._queue: deque[RegistrationProgress] = deque() if queue is None else queue
        if changes is not None:
            self._queue.append(self)

    def step(self, topics_max: int = TOPICS_PER_STEP) -> bool:
        """Apply some more topics, older registrations of the group first; False when done."""
        assert topics_max > 0, topics_max
        while topics_max > 0 and not self.is_done:
            topics_max -= self._queue[0]._advance(topics_max)
        return not self.is_done

    def finish(self) -> None:
        """Apply all that is left."""
        while self.step():
            pass

    def abandon(self) -> None:
        """Forget what is left: the broker group is gone."""
        self.is_done = True

    def _advance(self, topics_max: int) -> int:
        for applied in range(topics_max):
            is_changed = next(self._changes, None)
            if is_changed is None:
                self.is_done = True
                self._queue.popleft()
                return applied
            self.topics_changed += is_changed
        return topics_max
