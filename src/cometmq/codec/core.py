"""The hot functions: compiled where the extension is there, plain otherwise. Chosen here only.

``COMETMQ_PURE=1`` in the environment forces the plain ones. Both sides have the same signatures,
results and errors; one test suite runs against both.
"""

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Final, TypeVar, cast

import msgspec

from cometmq.codec import batch as plain_batch
from cometmq.codec import binary_header, json_header
from cometmq.codec import command as plain_command
from cometmq.codec import digest as plain_digest
from cometmq.codec import index_entry as plain_index_entry
from cometmq.codec import pulls as plain_pulls
from cometmq.codec import queue_entry as plain_queue_entry
from cometmq.codec import record as plain_record
from cometmq.codec import sends as plain_sends
from cometmq.codec import sent_properties as plain_sent_properties
from cometmq.codec import tails as plain_tails
from cometmq.codec.codes import VERSION, LanguageCode
from cometmq.codec.command import LANGUAGE, Command
from cometmq.codec.frame import prefix
from cometmq.codec.headers.base import FieldKind, Header, Texts, fields, text_form
from cometmq.codec.headers.pull import PullMessage
from cometmq.codec.headers.send import SendMessage, SendMessageV2
from cometmq.errors import ProtocolError

__all__ = [
    "IndexTail",
    "LogTail",
    "PullPlan",
    "PullTail",
    "QueueTail",
    "SendTail",
    "active",
    "count_entries",
    "decode_frames",
    "dispatch_records",
    "encode_batch_into",
    "encode_head",
    "encode_record_into",
    "measure_batch",
    "pack_entry_into",
    "parse_records",
    "plain_encode_head",
    "plain_read",
    "put_index_entries",
    "read",
    "read_sent_properties",
    "relink_index",
    "scan_entries",
    "select_entries",
    "slice_runs",
    "valid_index_count",
    "walk_records",
]

H = TypeVar("H", bound=Header)
SentPropertiesReader = Callable[[str, bytes], tuple[int, str | None, bytes]]

_LANGUAGE_NAME: Final = LANGUAGE.name  # looked up once: reading it off an Enum member is slow


def plain_read(command: Command, header_type: type[H]) -> H:
    """The typed header of ``command``; raises RemoteProtocolError naming the field at fault."""
    known = command.header
    if type(known) is header_type:
        return known
    ext, header = command.ext, None
    if isinstance(ext, Texts):
        if ext.header is header_type:
            header = text_form(header_type).read(ext)
    elif type(ext) is bytes and command.serialization == 0:
        header = text_form(header_type).read_json(ext)
    # Kept, because what the quick ways decline is looked at again.
    command.header = header = header or header_type.from_ext(command.ext_fields)
    return cast("H", header)


def plain_encode_head(
    serialization: int,
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    header: Header | None,
    body_bytes: int,
) -> bytes:
    """Everything of a frame before its body, said in our name (language and version)."""
    if serialization == 0:
        texts = None if header is None else text_form(type(header)).write(header)
        head = json_header.encode(code, _LANGUAGE_NAME, VERSION, opaque, flag, remark, texts)
    else:
        ext = None if header is None else header.to_ext()
        head = binary_header.encode(code, LANGUAGE, VERSION, opaque, flag, remark, ext)
    return prefix(serialization, len(head), body_bytes) + head


def active() -> str:
    """``compiled`` or ``plain``: what runs in this process."""
    return "compiled" if _is_compiled else "plain"


def _describe(header_type: type[Header]) -> tuple[list[bytes], list[int], list[bool]]:
    """A header class as the compiled modules want it: wire names, kinds, which are required."""
    table = fields(header_type)
    kinds = [_KIND_NUMBERS.get(field.kind, 5) for field in table]
    return [field.wire_name.encode() for field in table], kinds, [f.is_required for f in table]


_LANGUAGES: Final = {language.name.encode(): int(language) for language in LanguageCode}
_HOT_REQUESTS: Final[dict[int, type[Header]]] = {
    int(code): header_type
    for header_type in (SendMessage, SendMessageV2, PullMessage)
    for code in header_type.requests
}
_KIND_NUMBERS: Final = {
    FieldKind.TEXT: 0,
    FieldKind.INT32: 1,
    FieldKind.INT64: 2,
    FieldKind.BOOL: 3,
    FieldKind.LOOSE_BOOL: 4,
}

decode_frames = plain_command.decode_frames
read = plain_read
read_sent_properties: SentPropertiesReader = plain_sent_properties.read
encode_head = plain_encode_head
encode_record_into = plain_record.encode_into
parse_records = plain_record.parse_records
pack_entry_into = plain_queue_entry.pack_into
scan_entries = plain_queue_entry.scan
count_entries = plain_queue_entry.count
select_entries = plain_queue_entry.select
slice_runs = plain_queue_entry.slice_runs
measure_batch = plain_batch.measure
encode_batch_into = plain_batch.encode_records_into
walk_records = plain_digest.walk
put_index_entries = plain_index_entry.put_entries
relink_index = plain_index_entry.relink
valid_index_count = plain_index_entry.valid_count
dispatch_records = plain_tails.dispatch
IndexTail = plain_tails.IndexTail
LogTail = plain_tails.LogTail
QueueTail = plain_tails.QueueTail
PullPlan = plain_pulls.PullPlan
PullTail = plain_pulls.PullTail
SendTail = plain_sends.SendTail
_is_compiled = False

if os.environ.get("COMETMQ_PURE") != "1":
    try:
        from cometmq._fast import frames, headers, heads, records, tails
    except ImportError:
        pass  # no compiler when this was installed; slower, and nothing else
    else:
        # The compiled modules lie below this layer, so they are handed what they need from it.
        headers.bind(_describe, plain_sent_properties.read)
        frames.bind(
            Command,
            plain_command.decode_next,
            plain_record.Record,
            plain_record.parse_records,
            _LANGUAGES,
            _HOT_REQUESTS,
        )
        heads.bind(
            msgspec.structs.astuple, plain_encode_head, int(LANGUAGE), LANGUAGE.name, VERSION
        )
        records.bind(
            SimpleNamespace(
                count=plain_queue_entry.count,
                encode_into=plain_record.encode_into,
                encode_records_into=plain_batch.encode_records_into,
                key_hash=plain_digest.key_hash,
                measure=plain_batch.measure,
                pack_into=plain_queue_entry.pack_into,
                put_entries=plain_index_entry.put_entries,
                relink=plain_index_entry.relink,
                scan=plain_queue_entry.scan,
                select=plain_queue_entry.select,
                tag_hash=plain_digest.tag_hash,
                tags_code=plain_queue_entry.tags_code,
                valid_count=plain_index_entry.valid_count,
                walk=plain_digest.walk,
                walked=plain_digest.walked,
            )
        )
        tails.bind(msgspec.structs.astuple, plain_sends.pieces, plain_pulls.pieces, ProtocolError)
        decode_frames = frames.decode_frames
        parse_records = frames.parse_records
        read = headers.read
        read_sent_properties = headers.read_sent_properties
        encode_head = heads.encode_head
        encode_record_into = records.encode_into
        pack_entry_into = records.pack_into
        scan_entries = records.scan
        count_entries = records.count
        select_entries = records.select
        slice_runs = records.slice_runs
        measure_batch = records.measure
        encode_batch_into = records.encode_records_into
        walk_records = records.walk
        put_index_entries = records.put_entries
        relink_index = records.relink
        valid_index_count = records.valid_count
        dispatch_records = tails.dispatch
        IndexTail = tails.IndexTail  # type: ignore[misc]  # the stub says they are the same
        LogTail = tails.LogTail  # type: ignore[misc]
        QueueTail = tails.QueueTail  # type: ignore[misc]
        PullPlan = tails.PullPlan  # type: ignore[misc]
        PullTail = tails.PullTail  # type: ignore[misc]
        SendTail = tails.SendTail  # type: ignore[misc]
        _is_compiled = True
