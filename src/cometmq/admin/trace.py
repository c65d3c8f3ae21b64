"""What clients report about their messages in the trace topic, read back.

The body of a report is records ended by ``\\x02`` with fields between ``\\x01``; the first field is
the kind of the record. Releases append fields, so what is missing at the end is absent and what is
beyond is ignored.
"""

import enum
from collections.abc import Iterator, Sequence

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


def parse(body: bytes) -> Iterator[TraceRecord]:
    """The records of a report; what is none is skipped, for any client may write there."""
    for text in body.decode("utf-8", "replace").split(_RECORD_END):
        fields = _Fields(text.split(_FIELD_END))
        read = _READERS.get(fields.text(0) or "")
        if read is not None:
            record = read(fields)
            if record.message_id:
                yield record


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
        group=fields.text(3),
        topic=fields.text(4),
        message_id=fields.name(5),
        is_success=fields.flag(6),
    )


_READERS = {
    "Pub": _sent,
    "SubBefore": _received,
    "SubAfter": _consumed,
    "EndTransaction": _transaction,
    "Recall": _recalled,
}
