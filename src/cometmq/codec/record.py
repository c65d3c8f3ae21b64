"""Records of the commit log, which are also what a pull returns.

::

    i32 size          whole record, this field included
    i32 magic         V1, or V2 when the topic is longer than 127 bytes (5.x only)
    i32 body crc      of the body as stored, without the top bit
    i32 queue id
    i32 flag          the user's
    i64 queue offset
    i64 physical offset
    i32 sys flag      bits 4 and 5 say whether the hosts take 8 or 20 bytes
    i64 born timestamp
     8  born host     address, then the port as i32; 20 bytes when IPv6
    i64 store timestamp
     8  store host
    i32 reconsume times
    i64 prepared transaction offset
    i32 body length, body
     i8 topic length, topic            i16 in V2
    i16 properties length, properties

A commit log file ends with a blank: size of the rest of the file, ``MAGIC_BLANK``, and then
whatever bytes were there before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from cometmq.codec.java import masked_crc32
from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.model.limits import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX, TOPIC_V2_BYTES_MAX

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124

BLANK_BYTES_MIN: Final = 8
"""Every commit log file keeps at least this much room for its blank."""

HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20

_HEAD = struct.Struct(">ii")
_HOSTS_BYTES = tuple(
    (born, store)
    for store in (HOST_V4_BYTES, HOST_V6_BYTES)
    for born in (HOST_V4_BYTES, HOST_V6_BYTES)
)
"""How long born host and store host are, by the two IPv6 bits of the sys flag."""
HEAD_TO_BODY = tuple(
    struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in _HOSTS_BYTES
)
"""Everything before the body, by the same bits."""
_FIELDS_BEFORE_BODY = 14
_SYS_FLAG = struct.Struct(">i")
_SYS_FLAG_POSITION = 36
RECORD_BYTES_MIN: Final = HEAD_TO_BODY[0].size + 3
"""A record with empty body, topic and properties."""

_TOPIC_LENGTH_BYTES = {MAGIC_V1: 1, MAGIC_V2: 2}

_PROPERTY_CRC_MARK = b"__CRC32#\x01"
_PROPERTY_CRC_DIGITS = 10
_PROPERTY_CRC_BYTES = len(_PROPERTY_CRC_MARK) + _PROPERTY_CRC_DIGITS + 1


class Record(msgspec.Struct, frozen=True, gc=False):
    """One stored message, its fields in the order of the bytes.

    Hosts are the raw 8 or 20 bytes, see ``unpack_host``; ``properties`` is the raw property string.
    """

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes


class Blank(msgspec.Struct, frozen=True, gc=False):
    """The filler at the end of a commit log file; ``size`` reaches to the end of the file."""

    size: int


def record_bytes(
    body_length: int,
    topic_length: int,
    properties_length: int,
    sys_flag: int,
    magic: int = MAGIC_V1,
) -> int:
    """Return the size of a record; lengths are in bytes."""
    fixed = HEAD_TO_BODY[sys_flag >> 4 & 3].size
    return fixed + body_length + _TOPIC_LENGTH_BYTES[magic] + topic_length + 2 + properties_length


def encode_into(
    target: WriteableBuffer,
    position: int,
    topic: bytes,
    body: ReadableBuffer,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    flag: int,
    sys_flag: int,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> int:
    """Write a record at ``position`` of ``target`` and return its size.

    The checksum is computed here. A topic of more than 127 bytes makes it a V2 record, which 4.x
    brokers cannot read. Raises LocalProtocolError, with nothing written, when the record does not
    fit into the target or a value does not fit into its field.
    """
    magic = MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX else MAGIC_V2
    body_bytes = len(body) if type(body) is bytes else memoryview(body).nbytes
    size = record_bytes(body_bytes, len(topic), len(properties), sys_flag, magic)
    with memoryview(target) as view:
        _require_room(view, position, size)
        view[position : position + size] = assemble(
            size,
            magic,
            topic,
            body,
            body_bytes,
            properties,
            queue_id,
            queue_offset,
            physical_offset,
            store_timestamp,
            born_timestamp,
            born_host,
            store_host,
            flag,
            sys_flag,
            reconsume_times,
            prepared_transaction_offset,
        )
    return size


def assemble(
    size: int,
    magic: int,
    topic: bytes,
    body: ReadableBuffer,
    body_bytes: int,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    flag: int,
    sys_flag: int,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> bytes:
    """Return a record for whoever knows its size already and has made room for it.

    Raises LocalProtocolError when a value does not fit into its field.
    """
    _require_hosts(sys_flag, born_host, store_host)
    tail = _pack_tail(magic, topic, properties)
    try:
        # Packed here and not by ``_pack``, which would have to take fifteen arguments once more.
        head = HEAD_TO_BODY[sys_flag >> 4 & 3].pack(
            size,
            magic,
            crc32(body) & 0x7FFFFFFF,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_bytes,
        )
    except struct.error as error:
        raise _does_not_fit(error) from error
    return b"".join((head, body, *tail))


def encode(record: Record) -> bytes:
    """Return the bytes of ``record``, its own size, magic and checksum included.

    Raises LocalProtocolError when sizes, magic or flags contradict each other; the checksum is
    written as it is.
    """
    if record.magic not in _TOPIC_LENGTH_BYTES:
        raise LocalProtocolError(f"a record cannot have the magic {record.magic & 0xFFFFFFFF:#x}")
    topic = _encode_topic(record.topic)
    body_length = len(record.body)
    size = record_bytes(
        body_length, len(topic), len(record.properties), record.sys_flag, record.magic
    )
    if size != record.size:
        raise LocalProtocolError(f"record says it has {record.size} bytes but needs {size}")
    _require_hosts(record.sys_flag, record.born_host, record.store_host)
    tail = _pack_tail(record.magic, topic, record.properties)
    layout = HEAD_TO_BODY[record.sys_flag >> 4 & 3]
    head = _pack(layout, *msgspec.structs.astuple(record)[:_FIELDS_BEFORE_BODY], body_length)
    return b"".join((head, record.body, *tail))


def encode_blank_into(target: WriteableBuffer, position: int, size: int) -> None:
    """Mark ``size`` bytes from ``position`` to the end of the file as unused.

    Only the first 8 bytes are written.
    """
    if size < BLANK_BYTES_MIN:
        raise LocalProtocolError(f"a blank needs {BLANK_BYTES_MIN} bytes, not {size}")
    with memoryview(target) as view:
        _require_room(view, position, size)
        head = _pack(_HEAD, size, MAGIC_BLANK)
        view[position : position + BLANK_BYTES_MIN] = head


def peek(data: ReadableBuffer, position: int) -> tuple[int, int]:
    """Return size and magic of what begins at ``position``, unchecked.

    Raises RemoteProtocolError when fewer than 8 bytes are there.
    """
    with memoryview(data) as view:
        return _peek(view, position)


def parse(
    data: ReadableBuffer,
    position: int = 0,
    *,
    check_crc: bool = False,
    with_body: bool = True,
) -> Record | Blank:
    """Return the record or blank that begins at ``position``; what follows it is not looked at.

    Without body the field is empty, but lengths (and the checksum, if asked for) are still
    verified. Nothing of ``data`` is kept alive. Raises RemoteProtocolError when the bytes are no
    record; the physical offset is not compared with the position, as Java does not either.
    """
    with memoryview(data) as view:
        size, magic = _peek(view, position)
        if size > view.nbytes - position:
            raise _too_short(view.nbytes - position, size)
        if magic in _TOPIC_LENGTH_BYTES:
            return _parse_record(view, position, check_crc, with_body)
    if magic != MAGIC_BLANK:
        raise RemoteProtocolError(f"no record: magic is {magic & 0xFFFFFFFF:#010x}, size {size}")
    if size < BLANK_BYTES_MIN:
        raise RemoteProtocolError(f"blank of {size} bytes, the least is {BLANK_BYTES_MIN}")
    return Blank(size)


def parse_all(data: ReadableBuffer) -> Iterator[Record]:
    """Yield the records of a pulled body, one directly after the other until the end of ``data``.

    Raises RemoteProtocolError at the first byte that is no record; a blank is none here.
    """
    with memoryview(data) as view:
        position = 0
        while position < view.nbytes:
            record = _parse_pulled(view, position)
            yield record
            position += record.size


def parse_records(data: ReadableBuffer) -> list[Record]:
    """What ``list(parse_all(data))`` returns or raises, sooner.

    The usual record is cut out of ``data`` here; any other is left to ``parse_all``'s way.
    """
    content = data if type(data) is bytes else bytes(data)
    records: list[Record] = []
    position = 0
    while position < len(content):
        record = _cut_usual(content, position) or _parse_pulled(content, position)
        records.append(record)
        position += record.size
    return records


def pack_host(ip: str, port: int) -> bytes:
    """Return address and port as a record holds them: 8 bytes, or 20 for IPv6.

    An IPv4 address in IPv6 clothes (``::ffff:10.0.0.1``) becomes IPv4, because clients without
    IPv6 misread every following field otherwise. Raises LocalProtocolError for anything that is
    not a numeric address and a port.
    """
    if not 0 <= port <= 0xFFFF:
        raise LocalProtocolError(f"port {port} is not between 0 and 65535")
    try:
        address = _unmapped(IPv6Address(ip)) if ":" in ip else IPv4Address(ip)
    except AddressValueError as error:
        raise LocalProtocolError(f"not a numeric IP address: {ip!r}") from error
    return address.packed + port.to_bytes(4, "big")


def unpack_host(data: bytes) -> tuple[str, int]:
    """Return address and port; mapped IPv4 addresses come back as IPv4."""
    if len(data) == HOST_V4_BYTES:
        ip = str(IPv4Address(data[:4]))
    elif len(data) == HOST_V6_BYTES:
        ip = str(_unmapped(IPv6Address(data[:16])))
    else:
        raise RemoteProtocolError(f"a host takes 8 or 20 bytes, not {len(data)}")
    return ip, int.from_bytes(data[-4:], "big", signed=True)


def reserve_property_crc(properties: bytes) -> bytes:
    """Return ``properties`` with room at the end for the checksum of the whole record.

    The record must then be finished with ``append_property_crc``.
    """
    separator = b"\x02" if properties and not properties.endswith(b"\x02") else b""
    return properties + separator + _property_crc(0)


def append_property_crc(target: WriteableBuffer, position: int) -> None:
    """Fill the reserved room of the finished record at ``position`` with its checksum.

    The checksum covers the record up to the reserved room. Raises LocalProtocolError when there
    is none.
    """
    with memoryview(target) as view:
        size, _ = _peek(view, position)
        crc_begin = position + size - _PROPERTY_CRC_BYTES
        if view[crc_begin : crc_begin + len(_PROPERTY_CRC_MARK)] != _PROPERTY_CRC_MARK:
            raise LocalProtocolError("record has no room for a checksum after its properties")
        crc = masked_crc32(view[position:crc_begin])
        view[crc_begin : position + size] = _property_crc(crc)


def verify_property_crc(data: ReadableBuffer, position: int = 0) -> bool:
    """Tell whether the record at ``position`` carries its checksum and the checksum is right.

    A record without one is not right. Raises RemoteProtocolError when there is no record.
    """
    with memoryview(data) as view:
        record = parse(view, position, with_body=False)
        if isinstance(record, Blank) or len(record.properties) < _PROPERTY_CRC_BYTES:
            return False
        crc = masked_crc32(view[position : position + record.size - _PROPERTY_CRC_BYTES])
    return record.properties.endswith(_property_crc(crc))


def _parse_pulled(data: ReadableBuffer, position: int) -> Record:
    record = parse(data, position)
    if isinstance(record, Blank):
        raise RemoteProtocolError(f"blank at {position} between pulled records")
    return record


def _cut_usual(data: bytes, position: int) -> Record | None:
    """The record at ``position`` if it is one of V1, None for anything else."""
    try:
        hosts = data[position + _SYS_FLAG_POSITION + 3] >> 4 & 3
        fields = HEAD_TO_BODY[hosts].unpack_from(data, position)
        body_begin = position + HEAD_TO_BODY[hosts].size
        body_end = body_begin + fields[_FIELDS_BEFORE_BODY]
        topic_end = body_end + 1 + data[body_end]
        properties_begin = topic_end + 2
        end = properties_begin + (data[topic_end] << 8 | data[topic_end + 1])
    except (IndexError, struct.error):
        return None
    # No part is negative, so all of them lie within the record when they end where it does.
    if (
        fields[0] != end - position
        or fields[1] != MAGIC_V1
        or body_end < body_begin
        or topic_end - body_end > TOPIC_BYTES_MAX + 1
        or end - properties_begin > PROPERTIES_BYTES_MAX
        or end > len(data)
    ):
        return None
    values: tuple[Any, ...] = (
        *fields[:_FIELDS_BEFORE_BODY],
        data[body_begin:body_end],
        _decode_topic(data[body_end + 1 : topic_end]),
        data[properties_begin:end],
    )
    return Record(*values)


def _parse_record(view: memoryview, position: int, check_crc: bool, with_body: bool) -> Record:
    fields, body_end = _parse_head(view, position)
    size, magic, body_crc = fields[:3]
    end = position + size
    topic_begin = body_end + _TOPIC_LENGTH_BYTES[magic]
    topic_end = topic_begin + _length(view, body_end, topic_begin, end)
    properties_begin = topic_end + 2
    properties_end = properties_begin + _length(view, topic_end, properties_begin, end)
    if properties_end != end:
        raise RemoteProtocolError(f"record has {size} bytes, not {properties_end - position}")
    body_begin = body_end - fields[_FIELDS_BEFORE_BODY]
    if check_crc and masked_crc32(view[body_begin:body_end]) != body_crc:
        raise RemoteProtocolError(f"body does not have the checksum {body_crc:#x} of its record")
    tail = (
        bytes(view[body_begin:body_end]) if with_body else b"",
        _decode_topic(bytes(view[topic_begin:topic_end])),
        bytes(view[properties_begin:end]),
    )
    values: tuple[Any, ...] = (*fields[:_FIELDS_BEFORE_BODY], *tail)
    return Record(*values)


def _parse_head(view: memoryview, position: int) -> tuple[tuple[Any, ...], int]:
    """Return the fields up to the body length, and where the body ends."""
    size, _ = _HEAD.unpack_from(view, position)
    if size < RECORD_BYTES_MIN:
        raise RemoteProtocolError(f"record of {size} bytes, the least is {RECORD_BYTES_MIN}")
    (sys_flag,) = _SYS_FLAG.unpack_from(view, position + _SYS_FLAG_POSITION)
    layout = HEAD_TO_BODY[sys_flag >> 4 & 3]
    if layout.size > size:
        raise _too_short(size, layout.size)
    fields = layout.unpack_from(view, position)
    body_length = fields[_FIELDS_BEFORE_BODY]
    if not 0 <= body_length <= size - layout.size:
        raise RemoteProtocolError(f"body of {body_length} bytes in a record of {size}")
    return fields, position + layout.size + body_length


def _length(view: memoryview, begin: int, end: int, record_end: int) -> int:
    if end > record_end:
        raise RemoteProtocolError("record ends before its topic and properties do")
    length = int.from_bytes(view[begin:end], "big", signed=True)
    if not 0 <= length <= record_end - end:
        raise RemoteProtocolError(f"topic or properties of {length} bytes do not fit the record")
    return length


def _peek(view: memoryview, position: int) -> tuple[int, int]:
    assert position >= 0, position
    if position + _HEAD.size > view.nbytes:
        raise _too_short(view.nbytes - position, _HEAD.size)
    size, magic = _HEAD.unpack_from(view, position)
    return size, magic


def _decode_topic(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"topic is not UTF-8: {data[:127]!r}") from error


def _encode_topic(topic: str) -> bytes:
    try:
        return topic.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"topic has no UTF-8 form: {topic!r}") from error


def _pack(layout: struct.Struct, *values: int | bytes) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise _does_not_fit(error) from error


def _pack_tail(magic: int, topic: bytes, properties: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Everything behind the body, as the parts it is made of."""
    topic_bytes_max = TOPIC_BYTES_MAX if magic == MAGIC_V1 else TOPIC_V2_BYTES_MAX
    if len(topic) > topic_bytes_max:
        raise LocalProtocolError(f"topic of {len(topic)} bytes, at most {topic_bytes_max} fit")
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise LocalProtocolError(
            f"properties of {len(properties)} bytes, at most {PROPERTIES_BYTES_MAX} fit"
        )
    topic_length = len(topic).to_bytes(_TOPIC_LENGTH_BYTES[magic], "big")
    return topic_length, topic, len(properties).to_bytes(2, "big"), properties


def _property_crc(crc: int) -> bytes:
    # Java writes the digits backwards, last one first: 123456789 becomes 9876543210.
    digits = f"{crc:0{_PROPERTY_CRC_DIGITS}d}"[::-1]
    return b"%s%s\x02" % (_PROPERTY_CRC_MARK, digits.encode())


def _require_room(view: memoryview, position: int, size: int) -> None:
    if position < 0 or position + size > view.nbytes:
        raise LocalProtocolError(f"{size} bytes at {position} do not fit into {view.nbytes}")


def _require_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> None:
    if (len(born_host), len(store_host)) != _HOSTS_BYTES[sys_flag >> 4 & 3]:
        raise LocalProtocolError(
            f"hosts of {len(born_host)} and {len(store_host)} bytes with sysFlag {sys_flag:#x}"
        )


def _does_not_fit(error: struct.error) -> LocalProtocolError:
    return LocalProtocolError(f"a value does not fit into its field: {error}")


def _too_short(present: int, needed: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"too short: {present} bytes where {needed} are needed")


def _unmapped(address: IPv6Address) -> IPv4Address | IPv6Address:
    return address.ipv4_mapped or address
