"""Which code has which header; whoever speaks only some of them need not import this."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers import (
    acl,
    clients,
    extensions,
    groups,
    nameserver,
    offsets,
    pop,
    pull,
    query,
    recall,
    registration,
    reply,
    runtime,
    send,
    topics,
    transaction,
)
from cometmq.codec.headers.base import Header

_FAMILIES = (
    acl,
    clients,
    extensions,
    groups,
    nameserver,
    offsets,
    pop,
    pull,
    query,
    recall,
    registration,
    reply,
    runtime,
    send,
    topics,
    transaction,
)


def _headers() -> Iterator[type[Header]]:
    for family in _FAMILIES:
        for value in vars(family).values():
            if isinstance(value, type) and issubclass(value, Header):
                yield value


REQUEST_HEADERS: Mapping[RequestCode, type[Header]] = MappingProxyType(
    {code: header for header in _headers() for code in header.requests}
)
"""The header of each request that has ext fields."""

RESPONSE_HEADERS: Mapping[RequestCode, type[Header]] = MappingProxyType(
    {code: header for header in _headers() for code in header.answers}
)
"""The header of the answer to each request whose answer has ext fields."""
