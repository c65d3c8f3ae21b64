"""The values of ``history``: what happened, what is wrong with it, what it is held to."""

import enum
from collections.abc import Callable
from typing import NamedTuple

import msgspec

SHOWN_MAX = 5
"""Problems of one kind that a report shows, and facts that a problem shows."""


class Queue(NamedTuple):
    """One queue of a topic; ``broker`` is empty where not all records name it."""

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        broker = f" of {self.broker}" if self.broker else ""
        return f"{self.topic} queue {self.queue_id}{broker}"


class Sent(msgspec.Struct, frozen=True):
    """A send as its producer saw it; of a batch, each message by itself.

    Without queue or offset the place is not judged: leave them out where the answer tells another
    one than consumers see (delayed messages). A send whose outcome is unknown (a time-out) is not
    acknowledged: it may arrive or not.
    """

    key: str
    topic: str = ""
    queue_id: int | None = None
    queue_offset: int | None = None
    broker: str = ""
    tag: str = ""
    sender: str = ""
    begin_ms: float | None = None
    end_ms: float | None = None
    is_acknowledged: bool = True

    def __str__(self) -> str:
        verb = "acknowledged" if self.is_acknowledged else "attempted"
        sender = f" to {self.sender}" if self.sender else ""
        return f"'{self.key}' {verb}{sender}{_place_text(self)}{_time_text(self)}"


class Received(msgspec.Struct, frozen=True):
    """A message handed to a member; ``begin_ms`` and ``end_ms`` are when it worked on it.

    ``attempt`` is above 0 for what is delivered again because it was sent back; its place is that
    of a retry queue then, under the topic's own name, and is not judged.
    """

    key: str
    topic: str = ""
    queue_id: int | None = None
    queue_offset: int | None = None
    broker: str = ""
    member: str = ""
    begin_ms: float | None = None
    end_ms: float | None = None
    attempt: int = 0

    def __str__(self) -> str:
        member = f" by {self.member}" if self.member else ""
        attempt = f" (attempt {self.attempt})" if self.attempt else ""
        return f"'{self.key}' received{member}{_place_text(self)}{_time_text(self)}{attempt}"


class ProblemKind(enum.StrEnum):
    """What can be wrong, in the words a report uses."""

    LOST = "lost"
    """Acknowledged and wanted, but received by nobody."""
    GAP = "gap"
    """Offsets between received ones that nobody received and no known send explains."""
    REPEATED = "repeated"
    """The same place (or, without places, the same key) received more than once."""
    DOUBLED = "doubled"
    """One message received from several places: it was stored more than once."""
    REORDERED = "reordered"
    """Received for the first time after a later one of its queue."""
    OVERLAPPED = "overlapped"
    """Two members worked on one queue at the same time."""
    UNKNOWN = "unknown"
    """Received, but sent by nobody."""
    UNWANTED = "unwanted"
    """Received, though the subscription does not ask for it."""
    MISPLACED = "misplaced"
    """Received from another place than was acknowledged."""
    CHANGED = "changed"
    """One place held different messages at different times."""
    SHARED = "shared"
    """Two messages were acknowledged at the same place."""
    SENT_OUT_OF_ORDER = "sent out of order"
    """A send that began after another had ended got a lower offset of the same queue."""


class Problem(msgspec.Struct, frozen=True):
    """One fault: where (offsets ``[begin, end)`` of ``queue``), and the records that show it."""

    kind: ProblemKind
    queue: Queue | None = None
    begin: int | None = None
    end: int | None = None
    sends: tuple[Sent, ...] = ()
    receipts: tuple[Received, ...] = ()
    member: str = ""
    """Whose view it is wrong in, when broadcasting."""

    def __str__(self) -> str:
        parts = [str(self.kind)]
        if self.queue is not None:
            parts.append(f"{self.queue}{self._offsets()}")
        if self.member:
            parts.append(f"member {self.member}")
        facts = [str(record) for record in (*self.sends, *self.receipts)]
        return ": ".join([*parts, *filter(None, ["; ".join(shown(facts))])])

    def _offsets(self) -> str:
        if self.begin is None or self.end is None:
            return ""
        if self.end - self.begin == 1:
            return f" offset {self.begin}"
        return f" offsets {self.begin} to {self.end - 1} ({self.end - self.begin})"


def everything(_sent: Sent) -> bool:
    """A subscription to all messages."""
    return True


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a history is held to; by default all of it, so that a test shows what it allows.

    Consuming concurrently, ``may_reorder`` and ``may_share_queues`` (a member that loses a queue
    finishes what it has); after a kill, ``may_repeat``: at least once instead of exactly once.
    """

    may_repeat: bool = False
    may_reorder: bool = False
    may_share_queues: bool = False
    is_broadcast: bool = False
    """Each member must get everything, and is judged by itself."""
    members: tuple[str, ...] = ()
    """Who must have got everything when broadcasting; those who got something if empty."""
    wanted: Callable[[Sent], bool] = everything
    """Which messages the subscription asks for; the others explain gaps and must not arrive."""
    slack_ms: float = 0
    """How far the clocks of two members may be apart."""


STRICT = Rules()


def _place_text(record: Sent | Received) -> str:
    if record.queue_id is None or record.queue_offset is None:
        return ""
    return f" at {record.topic} queue {record.queue_id} offset {record.queue_offset}"


def _time_text(record: Sent | Received) -> str:
    if record.begin_ms is None:
        return ""
    end = "" if record.end_ms is None else f" to {record.end_ms:.15g}"
    return f", {record.begin_ms:.15g}{end} ms"


def shown(lines: list[str]) -> list[str]:
    """The first few lines, and how many there are besides."""
    if len(lines) <= SHOWN_MAX:
        return lines
    return [*lines[:SHOWN_MAX], f"… and {len(lines) - SHOWN_MAX} more"]
