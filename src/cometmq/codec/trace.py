"""What clients report about their messages in the trace topic.

The body of a report is records ended by ``\\x02`` with fields between ``\\x01``; the first field is
the kind of the record. Releases append fields, so what is missing at the end is absent and what is
beyond is ignored. What a client does not know it writes as ``null``.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

_FIELD_END = "\x01"
_RECORD_END = "\x02"
_MESSAGE_TYPES = ("normal", "half", "commit", "delay", "order")


class TraceKind(enum.StrEnum):
    """What was reported."""

    SENT = "sent"
    RECEIVED = "received"
    CONSUMED = "consumed"
    TRANSACTION = "transaction"
    RECALLED = "recalled"


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a client did with a message; what its kind does not tell is None."""

    kind: TraceKind
    message_id: str
    at_ms: int | None = None
    region: str | None = None
    group: str | None = None
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    client_host: str | None = None
    body_bytes: int | None = None
    cost_ms: int | None = None
    message_type: str | None = None
    offset_id: str | None = None
    is_success: bool | None = None
    request_id: str | None = None
    """Joins what was received with how it was consumed."""
    retry_times: int | None = None
    outcome: int | None = None
    """How consuming ended: 0 success, 1 time-out, 2 exception, 3 nothing returned, 4 failed."""
    transaction_id: str | None = None
    transaction_state: str | None = None
    is_from_check: bool | None = None


def write(record: TraceRecord) -> str:
    """One record of a report. Its fields are those that Java's tools of all releases read."""
    name, values = _WRITERS[record.kind](record)
    return _FIELD_END.join((name, *map(_text, values))) + _RECORD_END


def parse(body: bytes) -> Iterator[TraceRecord]:
    """The records of a report; what is none is skipped, for any client may write there."""
    for text in body.decode("utf-8", "replace").split(_RECORD_END):
        fields = _Fields(text.split(_FIELD_END))
        read = _READERS.get(fields.text(0) or "")
        if read is not None:
            record = read(fields)
            if record.message_id:
                yield record


def _text(value: object) -> str:
    """A field. Separators inside it would make two of it; they have no place in ids and keys."""
    if value is None or value == "":
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace(_FIELD_END, " ").replace(_RECORD_END, " ")


def _ordinal(message_type: str | None) -> int:
    return _MESSAGE_TYPES.index(message_type) if message_type in _MESSAGE_TYPES else 0


class _Fields:
    """The fields of a record by number."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def text(self, number: int) -> str | None:
        """None when it is absent or empty; Java writes null as a word."""
        text = self._texts[number] if number < len(self._texts) else ""
        return None if text in ("", "null") else text

    def name(self, number: int) -> str:
        return self.text(number) or ""

    def number(self, number: int) -> int | None:
        text = self.text(number) or ""
        return int(text) if text.removeprefix("-").isdecimal() and text.isascii() else None

    def flag(self, number: int) -> bool | None:
        text = self.text(number)
        return None if text is None else text.lower() == "true"

    def message_type(self, number: int) -> str | None:
        """Java writes the number or the name of the type."""
        ordinal = self.number(number)
        if ordinal is None:
            return self.text(number)
        return _MESSAGE_TYPES[ordinal] if 0 <= ordinal < len(_MESSAGE_TYPES) else str(ordinal)


def _sent(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        kind=TraceKind.SENT,
        at_ms=fields.number(1),
        region=fields.text(2),
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.name(5),
        tags=fields.text(6),
        keys=fields.text(7),
        store_host=fields.text(8),
        body_bytes=fields.number(9),
        cost_ms=fields.number(10),
        message_type=fields.message_type(11),
        offset_id=fields.text(12),
        is_success=fields.flag(13),
        client_host=fields.text(14),
    )


def _received(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        kind=TraceKind.RECEIVED,
        at_ms=fields.number(1),
        region=fields.text(2),
        group=fields.text(3),
        request_id=fields.text(4),
        message_id=fields.name(5),
        retry_times=fields.number(6),
        keys=fields.text(7),
        client_host=fields.text(8),
    )


def _consumed(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        kind=TraceKind.CONSUMED,
        request_id=fields.text(1),
        message_id=fields.name(2),
        cost_ms=fields.number(3),
        is_success=fields.flag(4),
        keys=fields.text(5),
        outcome=fields.number(6),
        at_ms=fields.number(7),
        group=fields.text(8),
    )


def _transaction(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        kind=TraceKind.TRANSACTION,
        at_ms=fields.number(1),
        region=fields.text(2),
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.name(5),
        tags=fields.text(6),
        keys=fields.text(7),
        store_host=fields.text(8),
        message_type=fields.message_type(9),
        transaction_id=fields.text(10),
        transaction_state=fields.text(11),
        is_from_check=fields.flag(12),
    )


def _recalled(fields: _Fields) -> TraceRecord:
    return TraceRecord(
        kind=TraceKind.RECALLED,
        at_ms=fields.number(1),
        region=fields.text(2),
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.name(5),
        is_success=fields.flag(6),
    )


_Written = tuple[str, tuple[object, ...]]


def _write_sent(record: TraceRecord) -> _Written:
    return "Pub", (
        record.at_ms or 0,
        record.region,
        record.group,
        record.topic,
        record.message_id,
        record.tags,
        record.keys,
        record.store_host,
        record.body_bytes or 0,
        record.cost_ms or 0,
        _ordinal(record.message_type),
        record.offset_id,
        bool(record.is_success),
    )


def _write_received(record: TraceRecord) -> _Written:
    return "SubBefore", (
        record.at_ms or 0,
        record.region,
        record.group,
        record.request_id,
        record.message_id,
        record.retry_times or 0,
        record.keys,
    )


def _write_consumed(record: TraceRecord) -> _Written:
    return "SubAfter", (
        record.request_id,
        record.message_id,
        record.cost_ms or 0,
        bool(record.is_success),
        record.keys,
        record.outcome or 0,
        record.at_ms or 0,
        record.group,
    )


def _write_transaction(record: TraceRecord) -> _Written:
    return "EndTransaction", (
        record.at_ms or 0,
        record.region,
        record.group,
        record.topic,
        record.message_id,
        record.tags,
        record.keys,
        record.store_host,
        _ordinal(record.message_type),
        record.transaction_id,
        record.transaction_state,
        bool(record.is_from_check),
    )


def _write_recalled(record: TraceRecord) -> _Written:
    return "Recall", (
        record.at_ms or 0,
        record.region,
        record.group,
        record.topic,
        record.message_id,
        bool(record.is_success),
    )


_WRITERS: Mapping[TraceKind, Callable[[TraceRecord], _Written]] = {
    TraceKind.SENT: _write_sent,
    TraceKind.RECEIVED: _write_received,
    TraceKind.CONSUMED: _write_consumed,
    TraceKind.TRANSACTION: _write_transaction,
    TraceKind.RECALLED: _write_recalled,
}

_READERS = {
    "Pub": _sent,
    "SubBefore": _received,
    "SubAfter": _consumed,
    "EndTransaction": _transaction,
    "Recall": _recalled,
}
