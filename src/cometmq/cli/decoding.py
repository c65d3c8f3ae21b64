"""Bytes of RocketMQ's formats as plain data, for people who look at a protocol or a store.

Names of fields are those of the specification in snake case. Bodies and other bytes are text where
they are readable text, else base64.
"""

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cometmq.cli.yaml_writer import Plain
from cometmq.codec import properties as property_string
from cometmq.codec.codes import RequestCode, ResponseCode, version_name
from cometmq.codec.command import Command, Serialization, decode_frames, language_name
from cometmq.codec.compression import decompress
from cometmq.codec.headers import REQUEST_HEADERS
from cometmq.codec.java import masked_crc32
from cometmq.codec.message_id import decode_offset_id, encode_offset_id, parse_unique_id
from cometmq.codec.record import MAGIC_V2, Blank, Record, parse, unpack_host
from cometmq.codec.sysflag import compression_type, transaction_type
from cometmq.errors import CometError, RemoteProtocolError
from cometmq.model.limits import FRAME_BYTES_MAX

Fields = Mapping[str, Plain]

_HEX = re.compile(r"(0x)?([0-9a-fA-F]{2})+")
_HEADERS = {
    int(code): REQUEST_HEADERS[code]
    for code in (
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
}
"""Headers whose wire names are single letters."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bytes_of(text: str) -> bytes | None:
    """The bytes written as hex or else as base64, blanks and colons ignored; None for neither."""
    dense = re.sub(r"[\s:]", "", text)
    if _HEX.fullmatch(dense):
        return bytes.fromhex(dense.removeprefix("0x"))
    try:
        return base64.b64decode(dense, validate=True)
    except ValueError:
        return None


def frames_in(data: bytes) -> tuple[list[Fields], str]:
    """The commands in ``data``, and what is wrong with the bytes after the last of them."""
    found: list[Fields] = []
    position = 0
    while position < len(data):
        try:
            commands, end = decode_frames(data, position)
        except RemoteProtocolError as error:
            return found, f"no frame at byte {position}: {error.fact}"
        if not commands:
            left = len(data) - position
            return found, f"the {left} bytes from byte {position} on are not a whole frame"
        found += map(_command, commands)
        position = end
    return found, ""


def records_in(data: bytes) -> tuple[list[Fields], str]:
    """The records in ``data``, and what is wrong with the bytes after the last of them.

    The zeros of a log file that is not full yet end the list without a fault.
    """
    found: list[Fields] = []
    position = 0
    written_end = len(data.rstrip(b"\0"))
    while position < written_end:
        try:
            record = parse(data, position)
        except RemoteProtocolError as error:
            return found, f"no record at byte {position}: {error.fact}"
        found.append(_blank(record) if isinstance(record, Blank) else _record(record))
        position += record.size
    return found, ""


def message_id(text: str) -> Fields:
    """What a message id says; offset ids and unique ids have the same length but not the same look.

    Taken for an offset id is what has a port and a position where an offset id has them.
    """
    unique = parse_unique_id(text)
    if unique is None:
        raise RemoteProtocolError(f"not a message id: '{text}' does not have 32 or 56 hex digits")
    place = decode_offset_id(text)
    if 0 < place.port <= 0xFFFF and place.physical_offset >= 0:
        return {
            "id": text,
            "kind": "offset id",
            "store_host": _address(place.ip, place.port),
            "physical_offset": place.physical_offset,
        }
    return {
        "id": text,
        "kind": "unique id",
        "ip": str(ip_address(unique.ip)),
        "pid": unique.pid,
        "loader_hash": f"{unique.loader_hash:08x}",
        "since_month_began": _duration(unique.month_ms),
        "counter": unique.counter,
    }


def properties(data: bytes) -> Fields:
    """The properties in a property string."""
    return property_string.decode(data)


def _command(command: Command) -> Fields:
    kind = "response" if command.is_response else "oneway" if command.is_oneway else "request"
    codes = ResponseCode if command.is_response else RequestCode
    return {
        "kind": kind,
        "code": command.code,
        "name": codes(command.code).name if command.code in list(codes) else None,
        "opaque": command.opaque,
        "flag": command.flag,
        "language": language_name(command.language),
        "version": command.version,
        "release": version_name(command.version),
        "serialization": Serialization(command.serialization).name,
        "remark": command.remark,
        "ext_fields": _ext_fields(command),
        "header": _long_names(command),
        **_content(command.body),
    }


def _ext_fields(command: Command) -> Fields:
    try:
        return command.ext_fields
    except RemoteProtocolError as error:
        return {"(unreadable)": error.fact}


def _long_names(command: Command) -> Fields | None:
    """The header of a send whose ext fields are called ``a`` to ``n``; None for all others."""
    header_type = _HEADERS.get(command.code)
    if command.is_response or header_type is None:
        return None
    try:
        header = header_type.from_ext(command.ext_fields)
    except RemoteProtocolError as error:
        return {"(unreadable)": error.fact}
    values = {name: getattr(header, name) for name in header.__struct_fields__}
    if values["properties"] is not None:
        values["properties"] = property_string.decode(values["properties"])
    return {name: value for name, value in values.items() if value is not None}


def _blank(blank: Blank) -> Fields:
    return {"kind": "blank", "size": blank.size}


def _record(record: Record) -> Fields:
    return {
        "kind": "record",
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "offset_id": encode_offset_id(record.store_host, record.physical_offset),
        "size": record.size,
        "format": "V2" if record.magic == MAGIC_V2 else "V1",
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "transaction": transaction_type(record.sys_flag).name,
        "born_time": _time(record.born_timestamp),
        "born_host": _address(*unpack_host(record.born_host)),
        "store_time": _time(record.store_timestamp),
        "store_host": _address(*unpack_host(record.store_host)),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "properties": property_string.decode(record.properties),
        "body_crc": "right" if masked_crc32(record.body) == record.body_crc else "wrong",
        **_stored_content(record),
    }


def _stored_content(record: Record) -> Fields:
    """The body as its sender knew it; as it is stored where it cannot be uncompressed."""
    try:
        kind = compression_type(record.sys_flag)
        if kind is None:
            return {"compression": None, **_content(record.body)}
        body = decompress(record.body, kind, FRAME_BYTES_MAX)
        return {"compression": kind.name, **_content(body)}
    except CometError as error:
        return {"compression": f"unreadable: {error.fact}", **_content(record.body)}


def _content(body: bytes) -> Fields:
    try:
        text, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(body).decode(), "base64"
    return {"body_bytes": len(body), "body_encoding": encoding, "body": text}


def _time(timestamp_ms: int) -> str:
    try:
        moment = (_EPOCH + timedelta(milliseconds=timestamp_ms)).replace(tzinfo=None)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds") + "Z"


def _duration(span_ms: int) -> str:
    seconds, milliseconds = divmod(span_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}d {hours % 24:02}:{minutes:02}:{seconds:02}.{milliseconds:03}"


def _address(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
