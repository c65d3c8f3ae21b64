"""Encoded route answers, kept until the route changes or room is needed."""

import enum
from collections import OrderedDict

from cometmq.codec import route_json

ROUTE_CACHE_BYTES_MAX = 32 * 1024 * 1024
"""Bodies kept, in bytes: some ten thousand routes of ten brokers."""

VARIANTS_MAX = 8
"""Answers kept of one topic; there are more only while its order configuration keeps changing."""


class RouteDialect(enum.IntEnum):
    """The two ways to write a route. Integers, because they are part of a key on the hot path."""

    FASTJSON = 0
    STANDARD = 1


def dialect_of(client_version: int, *, standard_only: bool | None = False) -> RouteDialect:
    """What a client of that version reads; ``standard_only`` is ``acceptStandardJsonOnly``."""
    if standard_only or client_version >= route_json.STANDARD_VERSION_MIN:
        return RouteDialect.STANDARD
    return RouteDialect.FASTJSON


_Variants = dict[tuple[RouteDialect, str | None], bytes]


class RouteCache:
    """Bodies by topic, dialect and order configuration; the topic cached first leaves first."""

    def __init__(self, bytes_max: int = ROUTE_CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes_held = 0
        self._by_topic: OrderedDict[str, _Variants] = OrderedDict()

    @property
    def bytes_held(self) -> int:
        return self._bytes_held

    def get(self, topic: str, dialect: RouteDialect, order: str | None) -> bytes | None:
        variants = self._by_topic.get(topic)
        return None if variants is None else variants.get((dialect, order))

    def put(self, topic: str, dialect: RouteDialect, order: str | None, body: bytes) -> None:
        """Keep a body, unless it alone is more than there is room for."""
        known = self._by_topic.get(topic, {})
        if len(known) >= VARIANTS_MAX or (dialect, order) in known:
            self.discard(topic)
        if len(body) > self._bytes_max:
            return
        while self._bytes_held + len(body) > self._bytes_max:
            self.discard(next(iter(self._by_topic)))
        self._by_topic.setdefault(topic, {})[dialect, order] = body
        self._bytes_held += len(body)

    def discard(self, topic: str) -> None:
        """Forget the answers about a topic, if any."""
        variants = self._by_topic.pop(topic, None)
        if variants is not None:
            self._bytes_held -= sum(map(len, variants.values()))

    def clear(self) -> None:
        self._by_topic.clear()
        self._bytes_held = 0
