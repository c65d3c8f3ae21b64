"""From what a pull brought to the messages that were asked for."""

from datetime import datetime
from typing import TypeVar

from cometmq.client.core.message import Message, Source, messages_of
from cometmq.client.core.subscriptions import wanted_tags
from cometmq.codec.record import Record
from cometmq.errors import InvalidArgument
from cometmq.model.group import SubscriptionData

T = TypeVar("T")


def arrived(
    records: list[Record], source: Source[T], subscription: SubscriptionData
) -> list[Message[T]]:
    """The messages in these records that the subscription takes; brokers compare hashes only."""
    messages = messages_of(records, source)
    wanted = wanted_tags(subscription)
    if wanted is None:
        return messages
    return [message for message in messages if message.tag in wanted]


def time_ms(argument: str, time: int | datetime) -> int:
    """A time as milliseconds since 1970. Raises InvalidArgument for one without a zone."""
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise InvalidArgument(
            argument, f"{time.isoformat()} has no time zone", "give it one, or use milliseconds"
        )
    return int(time.timestamp() * 1000)
