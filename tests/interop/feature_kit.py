"""What the tests of a client's features share: a topic and group of their own, and a history."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from cometmq.testing.history import History, Received, Rules, Sent
from tests.interop.clients import Event
from tests.interop.feature_shell import Consumer, FeatureProgram

# Several handlers at a time, so neither the order nor who holds a queue is promised.
CONCURRENTLY = Rules(may_reorder=True, may_share_queues=True)
# As after a kill or a restart: everything, some of it twice.
AT_LEAST_ONCE = Rules(may_repeat=True, may_reorder=True, may_share_queues=True)

Message = Mapping[str, Any]


class Servers(Protocol):
    """Where clients find their topics."""

    namesrv: str

    def create_topic(self, topic: str, *, queues: int = 4) -> None: ...

    def wait_until_known(self, topic: str) -> None: ...

    def introduce_group(self, group: str) -> None: ...


@dataclass(slots=True)
class Trial:
    """A client at work on a topic of its own; what it sends and receives is remembered."""

    servers: Servers
    program: FeatureProgram
    topic: str
    sent: list[Sent] = field(default_factory=list)
    consumers: list[tuple[FeatureProgram, Consumer]] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"G_{self.topic}"

    def create_topic(self, *, queues: int = 4) -> None:
        self.servers.create_topic(self.topic, queues=queues)

    def send(self, messages: Sequence[Message], **options: Any) -> list[Event]:
        """Send what must be acknowledged, and give the acknowledgements in the order of sending."""
        events = self.try_to_send(messages, **options)
        assert {event["event"] for event in events} == {"sent"}, events
        return events

    def try_to_send(self, messages: Sequence[Message], **options: Any) -> list[Event]:
        """Send what may be refused, and give what became of each in the order of sending."""
        target = {"namesrv": self.servers.namesrv, "topic": self.topic}
        events = self.program.call("send", **target, messages=messages, **options)
        events.sort(key=lambda event: int(event["index"]))
        self.sent += _sends(messages, events, self.topic)
        return events

    def consume(
        self,
        member: str = "a",
        *,
        program: FeatureProgram | None = None,
        group: str | None = None,
        **options: Any,
    ) -> Consumer:
        """Start a member of the group in this program, or in another one."""
        host = program or self.program
        target = {"namesrv": self.servers.namesrv, "topic": self.topic, **options}
        name = f"{self.topic}_{member}"
        consumer = host.consume(name, group=group or self.group, **target)
        self.consumers.append((host, consumer))
        return consumer

    def claim(self, rules: Rules, *consumers: Consumer) -> None:
        """Hold what these received against everything that was sent."""
        history = History(self.sent)
        for consumer in consumers:
            for receipt in receipts(consumer.received, is_orderly=not rules.may_reorder):
                history.add(receipt)
        history.claim(rules)

    def close(self) -> None:
        """Stop what still runs; a program that was killed has nothing that could be stopped."""
        for host, consumer in self.consumers:
            if host.is_alive():
                consumer.stop()


def receipts(events: Sequence[Event], *, is_orderly: bool) -> Iterator[Received]:
    """What was received from where.

    An orderly consumer that fails gets the message from the same place again: that is no repeat.
    """
    for event in events:
        if event["outcome"] == "ok" or not is_orderly:
            yield Received(
                event["body"],
                topic=event["topic"],
                queue_id=event["queueId"],
                queue_offset=event["queueOffset"],
                member=event["name"],
                begin_ms=event["beginUs"] / 1000,
                end_ms=event["endUs"] / 1000,
                attempt=0 if is_orderly else event["reconsumeTimes"],
            )


def numbered(count: int, prefix: str = "message", **facts: Any) -> list[Message]:
    """Messages ``prefix-0``, ``prefix-1``, …, each with the facts given."""
    return [{"body": f"{prefix}-{number}", **facts} for number in range(count)]


def bodies(messages: Sequence[Message]) -> list[str]:
    return [message["body"] for message in messages]


def in_file(path: Path, body: bytes) -> Message:
    """A message with a body that is too long for a command."""
    path.write_bytes(body)
    return {"bodyFile": str(path)}


def handled(events: Sequence[Event], body: str) -> list[Event]:
    """Every handling of one message, in the order they ended."""
    return [event for event in events if event.get("body") == body]


def claim_one_at_a_time(events: Sequence[Event]) -> None:
    """No queue was worked on twice at the same time."""
    for queue_id in {event["queueId"] for event in events}:
        spans = sorted(
            (event["beginUs"], event["endUs"]) for event in events if event["queueId"] == queue_id
        )
        for (_, end), (begin, _) in pairwise(spans):
            assert end <= begin, f"queue {queue_id}: {end} > {begin}"


def _sends(messages: Sequence[Message], events: Sequence[Event], topic: str) -> Iterator[Sent]:
    for event in events:
        is_acknowledged = event["event"] == "sent"
        offset = event.get("queueOffset")
        # A batch is acknowledged as one, by the place of its first message.
        for step in range(event.get("count", 1)):
            message = messages[event["index"] + step]
            if "body" in message:
                # What is delayed is acknowledged at a place of the schedule's topic.
                is_placed = "delayLevel" not in message and offset is not None
                yield Sent(
                    message["body"],
                    topic=topic,
                    queue_id=event.get("queueId") if is_placed else None,
                    queue_offset=offset + step if is_placed and offset is not None else None,
                    tag=message.get("tags", ""),
                    is_acknowledged=is_acknowledged,
                )
