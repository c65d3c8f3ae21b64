"""The body of a batch send: several messages of one topic and queue, one after the other.

::

    i32 size        of this message, this field included
    i32 magic, i32 body crc      written as 0, not looked at when read
    i32 flag        the user's
    i32 body length, body
    i16 properties length, properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from cometmq.codec.record import MAGIC_V1, MAGIC_V2, encode_into, record_bytes
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.limits import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_HEAD = struct.Struct(">iiiii")
_ITEM_BYTES_MIN = _HEAD.size + 2


class BatchItem(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch; ``properties`` is the raw property string."""

    flag: int
    body: bytes
    properties: bytes


def encode(messages: Iterable[BatchItem]) -> bytes:
    """Return the batch. Raises LocalProtocolError when a message does not fit into its fields."""
    pieces: list[bytes] = []
    for message in messages:
        properties_length = len(message.properties)
        if properties_length > PROPERTIES_BYTES_MAX:
            raise LocalProtocolError(
                f"properties of {properties_length} bytes, at most {PROPERTIES_BYTES_MAX} fit"
            )
        size = _ITEM_BYTES_MIN + len(message.body) + properties_length
        try:
            head = _HEAD.pack(size, 0, 0, message.flag, len(message.body))
        except struct.error as error:
            raise LocalProtocolError(f"message does not fit into a batch: {error}") from error
        pieces += head, message.body, properties_length.to_bytes(2, "big"), message.properties
    return b"".join(pieces)


def decode(data: ReadableBuffer) -> list[BatchItem]:
    """Return the messages; no bytes at all are a batch of none.

    Raises RemoteProtocolError unless every byte belongs to a message whose lengths add up.
    """
    items = []
    with memoryview(data) as view:
        position = 0
        while position < view.nbytes:
            item, position = _decode_item(view, position)
            items.append(item)
    return items


def measure(
    data: ReadableBuffer, topic_length: int, sys_flag: int, record_bytes_max: int
) -> tuple[int, int]:
    """Return how many bytes the batch takes as records, and how many messages it has.

    Raises RemoteProtocolError when it is no batch or one of its records would be too large.
    """
    fixed = record_bytes(0, topic_length, 0, sys_flag, _magic_for(topic_length))
    size = count = 0
    for item in decode(data):
        record_size = fixed + len(item.body) + len(item.properties)
        if record_size > record_bytes_max:
            raise RemoteProtocolError(
                f"record of {record_size} bytes in a batch, the most is {record_bytes_max}"
            )
        size += record_size
        count += 1
    return size, count


def encode_records_into(
    target: WriteableBuffer,
    position: int,
    topic: bytes,
    data: ReadableBuffer,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    sys_flag: int,
    reconsume_times: int,
) -> tuple[int, ...]:
    """Write the messages of a batch as records, one after the other; return where each lies.

    Queue offsets and physical offsets count on from those given. The batch has been measured: it
    is one, and there is room for it.
    """
    offsets = []
    begin = position
    for number, item in enumerate(decode(data)):
        offset = physical_offset + position - begin
        offsets.append(offset)
        position += encode_into(
            target,
            position,
            topic,
            item.body,
            item.properties,
            queue_id,
            queue_offset + number,
            offset,
            store_timestamp,
            born_timestamp,
            born_host,
            store_host,
            item.flag,
            sys_flag,
            reconsume_times,
            0,
        )
    return tuple(offsets)


def looks_like_batch(data: ReadableBuffer) -> bool:
    """Tell whether the bytes are a batch of at least one message, from the first to the last."""
    try:
        return bool(decode(data))
    except RemoteProtocolError:
        return False


def _magic_for(topic_length: int) -> int:
    return MAGIC_V1 if topic_length <= TOPIC_BYTES_MAX else MAGIC_V2


def _decode_item(view: memoryview, begin: int) -> tuple[BatchItem, int]:
    present = view.nbytes - begin
    if present < _ITEM_BYTES_MIN:
        raise RemoteProtocolError(f"batch ends within a message: {present} bytes left")
    size, _magic, _crc, flag, body_length = _HEAD.unpack_from(view, begin)
    if not _ITEM_BYTES_MIN <= size <= present:
        raise RemoteProtocolError(f"message of {size} bytes in the last {present} of a batch")
    if not 0 <= body_length <= size - _ITEM_BYTES_MIN:
        raise RemoteProtocolError(f"body of {body_length} bytes in a batch message of {size}")
    body_begin = begin + _HEAD.size
    body_end = body_begin + body_length
    properties_begin, end = body_end + 2, begin + size
    properties_length = int.from_bytes(view[body_end:properties_begin], "big", signed=True)
    if properties_length != end - properties_begin:
        raise RemoteProtocolError(
            f"properties of {properties_length} bytes where {end - properties_begin} are left"
        )
    body = bytes(view[body_begin:body_end])
    return BatchItem(flag, body, bytes(view[properties_begin:end])), end
