"""What a group wants of a topic, and what its members do not agree about; values, no effects."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cometmq.codec.codes import ResponseCode
from cometmq.codec.java import string_hash
from cometmq.errors import BrokerError
from cometmq.model.group import MATCH_ALL, TAG_EXPRESSION, SubscriptionData
from cometmq.model.topic import RETRY_PREFIX

PARSE_FAILED: Final = "parse the consumer's subscription failed"

NOTHING: Final = "nothing"
"""What somebody wants of a topic that he does not subscribe to."""

_SEPARATOR = "||"


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one group wants of one topic.

    ``tags`` are the hashes that a message may have, computed here: not every client computes them
    as Java does. None stands for every message, and for what is not a matter of tags.
    """

    topic: str
    expression: str
    kind: str
    version: int
    is_class_filter: bool
    tags: frozenset[int] | None
    data: SubscriptionData


def subscription(data: SubscriptionData) -> Subscription:
    """What a heartbeat says about one topic. An expression without any tag takes no message."""
    kind = data.expression_type or TAG_EXPRESSION
    expression = data.sub_string or MATCH_ALL
    tags = None
    if kind == TAG_EXPRESSION and not data.class_filter_mode:
        tags = _hashes(_tags(expression))
    return Subscription(
        data.topic, expression, kind, data.sub_version, data.class_filter_mode, tags, data
    )


def tags_of(expression: str) -> frozenset[int] | None:
    """The hashes of an expression such as ``a || b``; None when every message is wanted.

    Raises BrokerError when it has neither a tag nor an asterisk.
    """
    tags = _tags(expression)
    if tags is not None and not tags:
        raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, PARSE_FAILED)
    return _hashes(tags)


def _tags(expression: str) -> frozenset[str] | None:
    if expression.strip() in ("", MATCH_ALL):
        return None
    return frozenset(tag for part in expression.split(_SEPARATOR) if (tag := part.strip()))


def _hashes(tags: frozenset[str] | None) -> frozenset[int] | None:
    return None if tags is None else frozenset(map(string_hash, tags))


# --- agreement

Wishes = tuple[tuple[str, str], ...]
"""Topics with what is wanted of each, in order: equal for members that want the same."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two members of a group want different things of a topic, so both lose messages."""

    topic: str
    client_id: str
    expression: str
    other_client_id: str
    other_expression: str


def wishes_of(subscriptions: Iterable[SubscriptionData]) -> Wishes:
    """What a member wants, without the topics of retries, which clients add by themselves."""
    return tuple(
        sorted(
            (data.topic, _wish(data))
            for data in subscriptions
            if not data.topic.startswith(RETRY_PREFIX)
        )
    )


def differences(wishes: Wishes, others: Wishes) -> list[tuple[str, str, str]]:
    """Topics of which two members want different things, each with both of their wishes."""
    if wishes == others:
        return []
    mine, theirs = dict(wishes), dict(others)
    pairs = (
        (topic, mine.get(topic, NOTHING), theirs.get(topic, NOTHING))
        for topic in sorted(mine.keys() | theirs.keys())
    )
    return [(topic, wish, other) for topic, wish, other in pairs if wish != other]


def _wish(data: SubscriptionData) -> str:
    """One text for all ways to say the same: the order of tags does not matter."""
    kind = data.expression_type or TAG_EXPRESSION
    if data.class_filter_mode:
        return f"class filter {data.sub_string}"
    if kind != TAG_EXPRESSION:
        return f"{kind} {data.sub_string}"
    tags = _tags(data.sub_string)
    return f"'{MATCH_ALL if tags is None else f' {_SEPARATOR} '.join(sorted(tags))}'"
