"""Where a queue that became ours begins: a decision that says what must be asked first.

::

    step = rule.begin()
    while isinstance(step, Ask):
        answer = ...                    # ask the broker; None: nothing stored
        step = rule.next(queue.topic, step, answer)
    step.offset

Whoever asks lets a failure be a failure: a queue whose stored offset could not be read does not
begin now, or it would begin in the wrong place.
"""

import enum
from dataclasses import dataclass
from datetime import datetime

from cometmq.client.core.settings import Start
from cometmq.errors import RemoteProtocolError, SettingsError
from cometmq.model.group import ConsumeFromWhere
from cometmq.model.topic import RETRY_PREFIX

_TIME_FORMAT = "%Y%m%d%H%M%S"
_TIME_DIGITS = 14


class Question(enum.Enum):
    """What may have to be asked about a queue."""

    STORED = "the stored offset"
    """Of broker or file; None when the group never stored one."""
    END = "the offset after the last message"
    TIME = "the first offset at a time"


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this; ``time_ms`` is for ``Question.TIME``."""

    question: Question
    time_ms: int = 0


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin here. An offset before the first message is corrected by the first pull."""

    offset: int


Step = Ask | Begin


@dataclass(frozen=True, slots=True)
class StartRule:
    """Where a group begins that never stored an offset: end, beginning, or a time in ms.

    Some brokers answer 0 instead of "nothing stored" for a queue that still has its first message:
    then a new group that was to begin at the end reads everything.
    """

    start: Start = "last"

    @property
    def where(self) -> ConsumeFromWhere:
        """How a heartbeat says it."""
        match self.start:
            case "last":
                return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
            case "first":
                return ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            case _:
                return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    def begin(self, known: int | None = None) -> Step:
        """The first step; ``known`` is an offset in memory that counts, None if there is none."""
        return Ask(Question.STORED) if known is None else Begin(known)

    def next(self, topic: str, asked: Ask, answer: int | None) -> Step:
        """The step after an answer. A negative stored offset, which some clients write, is none."""
        if answer is not None and answer >= 0:
            return Begin(answer)
        if asked.question is not Question.STORED:
            raise RemoteProtocolError(f"{asked.question.value} of {topic} cannot be {answer}")
        is_retry = topic.startswith(RETRY_PREFIX)
        match self.start:
            case "first":
                return Begin(0)
            case "last":
                return Begin(0) if is_retry else Ask(Question.END)
            case time_ms:
                return Ask(Question.END) if is_retry else Ask(Question.TIME, time_ms)


def consume_timestamp_ms(text: str) -> int:
    """The time that Java's setting names: ``yyyyMMddHHmmss`` in local time."""
    try:
        if len(text) != _TIME_DIGITS or not text.isascii() or not text.isdigit():
            raise ValueError(text)
        local = datetime.strptime(text, _TIME_FORMAT).astimezone()
    except ValueError as error:
        next_step = "write it as yyyyMMddHHmmss, in local time"
        raise SettingsError("consumeTimestamp", f"{text!r} is no time", next_step) from error
    return int(local.timestamp() * 1000)
