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

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.limits import PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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


def looks_like_batch(data: ReadableBuffer) -> bool:
    """Tell whether the bytes are a batch of at least one message, from the first to the last."""
    try:
        return bool(decode(data))
    except RemoteProtocolError:
        return False


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
