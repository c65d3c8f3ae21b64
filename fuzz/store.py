"""Targets for what lies in a store: records, queues, indexes, pages, properties and ids."""

from collections.abc import Callable
from typing import Any

import msgspec

from cometmq.codec import (
    checkpoint,
    core,
    index_entry,
    message_id,
    properties,
    queue_entry,
    queue_extension,
    recall_handle,
    record,
    timer,
)
from cometmq.codec.record import Blank, Record
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from fuzz.checks import Refused, attempt, attempt_to_write, require_same
from tests import oracle

_ENCODE_POSITION = 5
_PROPERTY_NAMES = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"")


def records(data: bytes) -> None:
    """Records of a commit log, or the body of a pull."""
    found = attempt(record.parse, data)
    checked = attempt(record.parse, data, check_crc=True, with_body=False)
    has_crc = attempt(record.verify_property_crc, data)
    if isinstance(found, Record):
        _check_record(found, data)
        if isinstance(checked, Record):
            bare = msgspec.structs.replace(found, body=b"")
            require_same(checked, bare, "record without body")
        assert isinstance(has_crc, bool), has_crc
    elif isinstance(found, Blank):
        require_same(checked, found, "blank")
        assert has_crc is False
    else:
        # Not always for the same reason: the checksum is looked at before the topic.
        assert isinstance(checked, Refused), checked
        require_same(has_crc, found, "refusal of the checksum")
    pulled = attempt(lambda: list(record.parse_all(data)))
    require_same(attempt(core.parse_records, data), pulled, "compiled pull")
    require_same(attempt(record.parse_records, data), pulled, "plain pull")
    if isinstance(pulled, list):
        assert b"".join(map(record.encode, pulled)) == data, "pulled records written again"


def queue_entries(data: bytes) -> None:
    """A consume queue after four bytes: first byte and last byte of the scan, limit, tags."""
    begin, end, limit, choice = data[:4].ljust(4, b"\0")
    content = data[4:]
    begin, end = min(begin, len(content)), max(begin, len(content) - end)
    codes = _tags_codes(content)
    tags = None if choice == 0 else frozenset(codes[: choice % 100])
    expected = oracle.scan(content[begin:end], None if tags is None else set(tags), limit)
    require_same(core.scan_entries(content, begin, end, tags, limit), expected, "compiled scan")
    require_same(queue_entry.scan(content, begin, end, tags, limit), expected, "plain scan")
    first = attempt(queue_entry.unpack, content)
    if not isinstance(first, Refused):
        fields = oracle.read_entry(content, 0)
        require_same(msgspec.structs.astuple(first), fields, "entry")
        target = bytearray(queue_entry.ENTRY_BYTES)
        core.pack_entry_into(target, 0, *fields)
        assert target == queue_entry.pack(*fields) == content[: queue_entry.ENTRY_BYTES]


def queue_extensions(data: bytes) -> None:
    """The units of a queue extension, one after the other."""
    position = 0
    while True:
        unit = attempt(queue_extension.parse, data, position)
        if unit is None or isinstance(unit, Refused):
            break
        assert queue_extension.encode(unit) == data[position : position + unit.size]
        position += unit.size
    attempt(queue_extension.tags_code_to_address, int.from_bytes(data[:8], "big", signed=True))


def indexes(data: bytes) -> None:
    """An index file; the number of slots in the first byte."""
    slots, content = sum(data[:1]) + 1, data[1:]
    header = attempt(index_entry.unpack_header, content)
    if not isinstance(header, Refused):
        again = index_entry.unpack_header(index_entry.pack_header(header))
        require_same(again, header, "header written again")
    for slot in range(min(slots, 16)):
        number = attempt(index_entry.unpack_slot, content, index_entry.slot_position(slot, slots))
        if not isinstance(number, Refused) and index_entry.is_linked(number, 2**31 - 1):
            position = index_entry.entry_position(number, slots)
            _require_same_bytes(index_entry.unpack_entry, index_entry.pack_entry, content, position)


def pages(data: bytes) -> None:
    """Fixed layouts, all from the same bytes: checkpoint, timer check, wheel slot, timer log."""
    _require_same_bytes(lambda page, _: checkpoint.unpack(page), checkpoint.pack, data, 0, 40)
    _require_same_bytes(lambda page, _: timer.unpack_check(page), timer.pack_check, data, 0, 56)
    _require_same_bytes(timer.unpack_slot, timer.pack_slot, data, 0)
    position = 0
    while True:
        found = attempt(timer.parse_log, data, position)
        if isinstance(found, Refused):
            break
        if isinstance(found, timer.TimerBlank):
            timer.encode_blank(found.size)
            break
        assert timer.encode_unit(found) == data[position : position + timer.UNIT_BYTES]
        position += timer.UNIT_BYTES


def property_strings(data: bytes) -> None:
    """A property string, read whole and name by name."""
    found = properties.decode(data)
    names = {item.partition(b"\x01")[0] for item in data.split(b"\x02")[:64]}
    for name in names.union(_PROPERTY_NAMES):
        text = name.decode("utf-8", "replace")
        # Two names that are no UTF-8 may look the same to ``decode``; never to ``get``.
        if "\ufffd" in text:
            assert (properties.get(data, name) is None) or text in found
        else:
            require_same(properties.get(data, name), found.get(text), f"property {name!r}")
    written = attempt_to_write(properties.encode, found)
    if isinstance(written, Refused):
        assert any("\x01" in value for value in found.values()), written
    else:
        require_same(properties.decode(written), found, "written again")
        require_same(properties.decode(written.encode()), found, "written again as bytes")


def ids(data: bytes) -> None:
    """Text that should be a message id or a recall handle."""
    text = data.decode("utf-8", "replace")
    place = attempt(message_id.decode_offset_id, text)
    unique = message_id.parse_unique_id(text)
    assert isinstance(place, Refused) == (unique is None), (place, unique)
    if not isinstance(place, Refused):
        host = bytes.fromhex(text)[:-8]
        assert message_id.encode_offset_id(host, place.physical_offset) == text.upper()
    handle = attempt(recall_handle.decode, text)
    if not isinstance(handle, Refused):
        again = recall_handle.decode(recall_handle.encode(handle))
        require_same(again, handle, "recall handle written again")


def _check_record(found: Record, data: bytes) -> None:
    values = oracle.read_record(data)
    fields = {**msgspec.structs.asdict(found), "topic": found.topic.encode()}
    require_same(fields, values, "record")
    assert record.encode(found) == data[: found.size], "record written again"
    record.unpack_host(found.born_host)
    host = record.unpack_host(found.store_host)
    place = message_id.decode_offset_id(
        message_id.encode_offset_id(found.store_host, found.physical_offset)
    )
    require_same((place.ip, place.port), host, "store host")
    _check_encode_into(found)


def _check_encode_into(found: Record) -> None:
    arguments = {
        name: value
        for name, value in msgspec.structs.asdict(found).items()
        if name not in ("size", "magic", "body_crc")
    }
    arguments["topic"] = found.topic.encode()
    arguments["properties"] = record.reserve_property_crc(found.properties)
    if len(arguments["properties"]) > PROPERTIES_BYTES_MAX:
        return
    targets = []
    for encode_into in (core.encode_record_into, record.encode_into):
        target = bytearray(found.size + 64)
        encode_into(target, _ENCODE_POSITION, **arguments)
        targets.append(target)
    assert targets[0] == targets[1], "compiled and plain record"
    assert targets[0][_ENCODE_POSITION:].startswith(oracle.write_record(**arguments)), "oracle"
    record.append_property_crc(targets[0], _ENCODE_POSITION)
    assert record.verify_property_crc(targets[0], _ENCODE_POSITION), "checksum of the record"


def _tags_codes(content: bytes) -> list[int]:
    count = min(len(content) // queue_entry.ENTRY_BYTES, 100)
    return [oracle.read_entry(content, number)[2] for number in range(count)]


def _require_same_bytes(
    unpack: Callable[[bytes, int], Any],
    pack: Callable[[Any], bytes],
    data: bytes,
    position: int,
    length: int | None = None,
) -> None:
    """What ``unpack`` makes of the bytes at ``position``, ``pack`` turns into the same bytes."""
    value = attempt(unpack, data, position)
    if isinstance(value, Refused):
        return
    packed = pack(value)
    end = len(packed) if length is None else length
    assert packed[:end] == data[position : position + end], (value, packed[:end])
