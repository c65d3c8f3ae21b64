"""Did every message arrive: once, in order, at one member at a time? A checker for tests.

A ``History`` collects what producers were told and what the members of one consumer group got, from
whichever programs that was; ``problems`` says what is wrong with it::

    history = History()
    history.add(Sent("order-1", topic="orders", queue_id=0, queue_offset=0))
    history.add(Received("order-1", topic="orders", queue_id=0, queue_offset=0, member="a"))
    history.claim()

How it judges. A message is told from others by its key (its body or its id, as the test likes). A
*place* is a queue and an offset in it. Within a member the order of adding counts; between members
time does, so members of different processes need clocks that agree to ``Rules.slack_ms``. Each
fault is reported once: a lost message that was acknowledged at a place explains the hole there.

Nothing here talks to a broker; what is judged is only what was added.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cometmq.testing.history_checks import Sends, View
from cometmq.testing.history_records import (
    STRICT,
    Problem,
    ProblemKind,
    Queue,
    Received,
    Rules,
    Sent,
    shown,
)

__all__ = ["STRICT", "History", "Problem", "ProblemKind", "Queue", "Received", "Rules", "Sent"]

_KEY_FIELDS = ("body", "msgId", "messageId")


class History:
    """What happened, as far as it was told: sends, and receipts of one consumer group.

    Several threads may add at a time, each for members of its own.
    """

    def __init__(self, records: Iterable[Sent | Received] = ()) -> None:
        self._sends: dict[str, Sent] = {}  # by key
        self._receipts: list[Received] = []
        for record in records:
            self.add(record)

    @property
    def sends(self) -> tuple[Sent, ...]:
        return tuple(self._sends.values())

    @property
    def receipts(self) -> tuple[Received, ...]:
        return tuple(self._receipts)

    def add(self, record: Sent | Received) -> None:
        """Remember a record. Raises ValueError when its key was acknowledged to another send.

        A send that was attempted only may be tried again: the last outcome counts.
        """
        if isinstance(record, Received):
            self._receipts.append(record)
            return
        earlier = self._sends.get(record.key)
        if earlier is not None and earlier.is_acknowledged:
            raise ValueError(
                f"two sends with the key '{record.key}': keys must tell messages apart"
            )
        self._sends[record.key] = record

    def add_events(
        self, events: Iterable[Mapping[str, Any]], *, key: str = "", member: str = ""
    ) -> None:
        """Remember what a program printed: ``event`` is ``sent``, ``failed`` or ``received``.

        Others are ignored. ``key`` names the field that tells messages apart (the first there is
        of ``body``, ``msgId`` and ``messageId``); ``member`` is for events that do not say whose
        they are. Times are in milliseconds (``begin``, ``end``).
        """
        for event in events:
            match event.get("event"):
                case "sent" | "failed":
                    self.add(_sent(event, key, member))
                case "received":
                    self.add(_received(event, key, member))

    def problems(self, rules: Rules = STRICT) -> list[Problem]:
        """Everything that is wrong by these rules, sends first, then by queue and offset."""
        records: list[Sent | Received] = [*self._sends.values(), *self._receipts]
        sends = Sends(self._sends, names_broker=all(record.broker for record in records))
        found = [*sends.shared(), *sends.out_of_order()]
        for member, receipts in self._views(rules):
            view = View(receipts, sends, rules, member)
            found += view.problems()
        return found

    def report(self, rules: Rules = STRICT) -> str:
        """The problems as text for people, few of each kind; empty when there are none."""
        by_kind: dict[ProblemKind, list[str]] = defaultdict(list)
        for problem in self.problems(rules):
            by_kind[problem.kind].append(str(problem))
        if not by_kind:
            return ""
        counts = ", ".join(f"{len(texts)} {kind}" for kind, texts in by_kind.items())
        head = f"{counts} (of {len(self._sends)} sent, {len(self._receipts)} received)"
        return "\n".join([head, *(line for texts in by_kind.values() for line in shown(texts))])

    def claim(self, rules: Rules = STRICT) -> None:
        """Raise AssertionError with the report when something is wrong."""
        report = self.report(rules)
        if report:
            raise AssertionError(report)

    def _views(self, rules: Rules) -> Iterator[tuple[str, list[Received]]]:
        if not rules.is_broadcast:
            yield "", self._receipts
            return
        by_member: dict[str, list[Received]] = {member: [] for member in rules.members}
        for receipt in self._receipts:
            by_member.setdefault(receipt.member, []).append(receipt)
        yield from by_member.items()


def _sent(event: Mapping[str, Any], key: str, member: str) -> Sent:
    return Sent(
        key=_key(event, key),
        topic=event.get("topic") or "",
        queue_id=event.get("queueId"),
        queue_offset=event.get("queueOffset"),
        broker=event.get("brokerName") or "",
        tag=event.get("tags") or "",
        sender=event.get("member") or member,
        begin_ms=event.get("begin"),
        end_ms=event.get("end"),
        is_acknowledged=event["event"] == "sent",
    )


def _received(event: Mapping[str, Any], key: str, member: str) -> Received:
    return Received(
        key=_key(event, key),
        topic=event.get("topic") or "",
        queue_id=event.get("queueId"),
        queue_offset=event.get("queueOffset"),
        broker=event.get("brokerName") or "",
        member=event.get("member") or member,
        begin_ms=event.get("begin"),
        end_ms=event.get("end"),
        attempt=event.get("reconsumeTimes") or 0,
    )


def _key(event: Mapping[str, Any], name: str) -> str:
    names = (name,) if name else _KEY_FIELDS
    for candidate in names:
        if event.get(candidate):
            return str(event[candidate])
    raise ValueError(f"an event without {' or '.join(names)}: {dict(event)}")
