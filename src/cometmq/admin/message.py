"""A stored message as people and programs look at it."""

from collections.abc import Iterator

import msgspec

from cometmq.codec import properties as property_string
from cometmq.codec.compression import decompress
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.properties import Property
from cometmq.codec.record import Record, parse_all, unpack_host
from cometmq.codec.sysflag import compression_type
from cometmq.errors import MissingDependency, RemoteProtocolError

BODY_BYTES_MAX = 64 * 1024 * 1024
"""What a compressed body may grow to."""


class Message(msgspec.Struct, frozen=True):
    """One stored message; ``body`` is decompressed.

    ``message_id`` is what clients show: the unique key, or the offset id when there is none. When
    ``body_problem`` says that a body cannot be decompressed, ``body`` is what is stored.
    """

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str
    offset_id: str
    unique_key: str | None
    tags: str | None
    keys: tuple[str, ...]
    body: bytes
    properties: dict[str, str]
    born_ms: int
    born_host: str
    stored_ms: int
    store_host: str
    reconsume_times: int
    flag: int
    sys_flag: int
    stored_bytes: int
    """Of the whole record."""
    prepared_transaction_offset: int
    body_problem: str | None = None


def messages_in(data: bytes, broker_name: str) -> Iterator[Message]:
    """The messages in the body of an answer; a body that cannot be read fails no other one."""
    for record in parse_all(data):
        yield _message(record, broker_name)


def _message(record: Record, broker_name: str) -> Message:
    properties = property_string.decode(record.properties)
    offset_id = encode_offset_id(record.store_host, record.physical_offset)
    unique_key = properties.get(Property.UNIQ_KEY)
    body, problem = _body(record)
    return Message(
        record.topic,
        broker_name,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        unique_key or offset_id,
        offset_id,
        unique_key,
        properties.get(Property.TAGS),
        tuple(properties.get(Property.KEYS, "").split()),
        body,
        properties,
        record.born_timestamp,
        _host(record.born_host),
        record.store_timestamp,
        _host(record.store_host),
        record.reconsume_times,
        record.flag,
        record.sys_flag,
        record.size,
        record.prepared_transaction_offset,
        problem,
    )


def _body(record: Record) -> tuple[bytes, str | None]:
    """The body as it was sent, or as it is stored and why."""
    try:
        kind = compression_type(record.sys_flag)
        plain = record.body if kind is None else decompress(record.body, kind, BODY_BYTES_MAX)
    except (RemoteProtocolError, MissingDependency) as error:
        return record.body, str(error)
    return plain, None


def _host(packed: bytes) -> str:
    ip, port = unpack_host(packed)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
