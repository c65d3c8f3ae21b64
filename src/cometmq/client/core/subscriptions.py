"""What a consumer wants of a topic, as the heartbeat says it and as messages are checked by it."""

from collections.abc import Iterable

import msgspec

from cometmq.codec.java import string_hash
from cometmq.errors import SettingsError
from cometmq.model.group import MATCH_ALL, SQL_EXPRESSION, SubscriptionData

SEPARATOR = "||"

_BLANKS = "".join(map(chr, range(0x21)))
"""What Java's ``trim`` takes away; Python's ``strip`` would take more and change tags."""


def subscription(
    topic: str,
    *,
    tags: str | Iterable[str] | None = None,
    sql: str | None = None,
    filter_class: str | None = None,
    version_ms: int,
) -> SubscriptionData:
    """A subscription by tags (``"a || b"``, or a list), by an SQL condition or by a Java class.

    Without any of them, with empty text and with ``*`` it takes every message. Conditions and
    classes are left to the broker to judge. Raises SettingsError for more than one of the three
    and for what could not take any message.
    """
    given = {"tags": tags, "sql": sql, "filter_class": filter_class}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        reason = f"{' and '.join(names)} cannot be combined for topic {topic}"
        raise SettingsError(names[0], reason, "give one of them")
    if sql is not None:
        text = _text(topic, "sql", sql)
        return SubscriptionData(topic, text, sub_version=version_ms, expression_type=SQL_EXPRESSION)
    if filter_class is not None:
        text = _text(topic, "filter_class", filter_class)
        return SubscriptionData(topic, text, sub_version=version_ms, class_filter_mode=True)
    return _by_tags(topic, joined(tags), version_ms)


def joined(tags: str | Iterable[str] | None) -> str:
    """Tags as one expression: ``["a", "b"]`` is ``"a || b"``, nothing is ``"*"``.

    Raises SettingsError for a list without tags and for tags that cannot stand in an expression.
    """
    if tags is None or isinstance(tags, str):
        return tags or MATCH_ALL
    if not isinstance(tags, Iterable):
        raise SettingsError("tags", f"{tags!r} is no tag", "give text, or a list of texts")
    listed = list(tags)
    if not listed:
        next_step = f"name the tags, or give None or '{MATCH_ALL}' for every message"
        raise SettingsError("tags", "the list is empty", next_step)
    for tag in listed:
        is_text = isinstance(tag, str)
        if not is_text or SEPARATOR in tag or not tag or tag != tag.strip(_BLANKS):
            next_step = f"give one tag per item, not empty, without '{SEPARATOR}' and outer blanks"
            raise SettingsError("tags", f"{tag!r} cannot be a tag", next_step)
    return f" {SEPARATOR} ".join(listed)


def renewed(subscription: SubscriptionData, now_ms: int) -> SubscriptionData:
    """The same with a new version: brokers take what is newer than what they know.

    Newer also when the clock was set back.
    """
    version = max(now_ms, subscription.sub_version + 1)
    return msgspec.structs.replace(subscription, sub_version=version)


def wanted_tags(subscription: SubscriptionData) -> frozenset[str] | None:
    """The tags that messages must have; None when tags do not matter."""
    if subscription.class_filter_mode or not subscription.tags_set:
        return None
    return frozenset(subscription.tags_set)


def takes(subscription: SubscriptionData, tag: str | None) -> bool:
    """Whether a message with this tag is wanted.

    A broker compares hashes only, so that ``Aa`` also brings ``BB``. For many messages ask
    ``wanted_tags`` once.
    """
    wanted = wanted_tags(subscription)
    return wanted is None or tag in wanted


def _by_tags(topic: str, expression: str, version_ms: int) -> SubscriptionData:
    if expression == MATCH_ALL:
        return SubscriptionData(topic, sub_version=version_ms)
    parts = (part.strip(_BLANKS) for part in expression.split(SEPARATOR))
    tags = tuple(dict.fromkeys(tag for tag in parts if tag))
    if not tags:
        # Java takes some of these for "everything" and refuses others.
        next_step = f"name the tags, or give None or '{MATCH_ALL}' for every message"
        raise SettingsError("tags", f"{expression!r} names no tag of topic {topic}", next_step)
    hashes = tuple(dict.fromkeys(map(string_hash, tags)))
    return SubscriptionData(topic, expression, tags, hashes, version_ms)


def _text(topic: str, name: str, value: str) -> str:
    if not isinstance(value, str):
        raise SettingsError(name, f"{value!r} is no text", "write it as text")
    if not value.strip():
        raise SettingsError(name, f"is empty for topic {topic}", "write it, or leave it away")
    return value
