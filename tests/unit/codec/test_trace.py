import pytest

from cometmq.codec.trace import TraceKind, TraceRecord, parse, write


def report(*records: tuple[str, ...]) -> bytes:
    return "".join("\x01".join(fields) + "\x02" for fields in records).encode()


def test_a_send_is_read_with_all_its_fields() -> None:
    fields = ("Pub", "1000", "R", "PG", "orders", "ID", "A", "k1 k2", "10.0.0.1:1", "7", "12")

    (record,) = parse(report((*fields, "3", "OFFSET", "true", "10.0.0.9")))

    assert record == TraceRecord(
        kind=TraceKind.SENT,
        message_id="ID",
        at_ms=1000,
        region="R",
        group="PG",
        topic="orders",
        tags="A",
        keys="k1 k2",
        store_host="10.0.0.1:1",
        client_host="10.0.0.9",
        body_bytes=7,
        cost_ms=12,
        message_type="delay",
        offset_id="OFFSET",
        is_success=True,
    )


def test_receiving_and_consuming_are_joined_by_the_request() -> None:
    received, consumed = parse(
        report(
            ("SubBefore", "1000", "R", "billing", "REQ", "ID", "2", "k1"),
            ("SubAfter", "REQ", "ID", "30", "false", "k1", "4", "1030", "billing"),
        )
    )

    assert received.request_id == consumed.request_id == "REQ"
    assert (received.kind, received.retry_times) == (TraceKind.RECEIVED, 2)
    assert (consumed.kind, consumed.is_success, consumed.outcome) == (TraceKind.CONSUMED, False, 4)
    assert consumed.at_ms == 1030


def test_fields_that_a_release_does_not_write_are_absent() -> None:
    (record,) = parse(report(("SubAfter", "REQ", "ID", "30", "true", "null")))

    assert record.outcome is None
    assert record.at_ms is None
    assert record.keys is None


def test_ends_of_transactions_and_recalls_are_read() -> None:
    head = ("1000", "R", "PG", "orders", "ID")
    ended, recalled = parse(
        report(
            ("EndTransaction", *head, "A", "k", "h:1", "2", "TX", "COMMIT_MESSAGE", "true"),
            ("Recall", *head, "true"),
        )
    )

    assert (ended.transaction_id, ended.transaction_state) == ("TX", "COMMIT_MESSAGE")
    assert (ended.message_type, ended.is_from_check) == ("commit", True)
    assert (recalled.kind, recalled.is_success) == (TraceKind.RECALLED, True)


def test_what_is_no_report_is_skipped() -> None:
    assert list(parse(b"")) == []
    assert list(parse(b"\xff\xfe hello \x02Pub\x02Other\x011\x02")) == []
    (record,) = parse(report(("Pub", "soon", "R", "PG", "t", "ID", "", "", "", "x", "-1", "77")))
    assert (record.at_ms, record.body_bytes, record.cost_ms) == (None, None, -1)
    assert record.message_type == "77"


RECORDS = {
    "Pub|1000|R|PG|orders|ID|A|k1 k2|h:1|7|12|3|OFFSET|true": TraceRecord(
        kind=TraceKind.SENT,
        message_id="ID",
        at_ms=1000,
        region="R",
        group="PG",
        topic="orders",
        tags="A",
        keys="k1 k2",
        store_host="h:1",
        body_bytes=7,
        cost_ms=12,
        message_type="delay",
        offset_id="OFFSET",
        is_success=True,
    ),
    "SubBefore|1000|R|billing|REQ|ID|2|k1": TraceRecord(
        kind=TraceKind.RECEIVED,
        message_id="ID",
        at_ms=1000,
        region="R",
        group="billing",
        request_id="REQ",
        retry_times=2,
        keys="k1",
    ),
    "SubAfter|REQ|ID|30|false|k1|4|1030|billing": TraceRecord(
        kind=TraceKind.CONSUMED,
        message_id="ID",
        at_ms=1030,
        group="billing",
        request_id="REQ",
        cost_ms=30,
        is_success=False,
        outcome=4,
        keys="k1",
    ),
    "EndTransaction|1000|R|PG|orders|ID|A|k|h:1|2|TX|COMMIT_MESSAGE|true": TraceRecord(
        kind=TraceKind.TRANSACTION,
        message_id="ID",
        at_ms=1000,
        region="R",
        group="PG",
        topic="orders",
        tags="A",
        keys="k",
        store_host="h:1",
        message_type="commit",
        transaction_id="TX",
        transaction_state="COMMIT_MESSAGE",
        is_from_check=True,
    ),
    "Recall|1000|R|PG|orders|ID|true": TraceRecord(
        kind=TraceKind.RECALLED,
        message_id="ID",
        at_ms=1000,
        region="R",
        group="PG",
        topic="orders",
        is_success=True,
    ),
}


@pytest.mark.parametrize("text", RECORDS)
def test_what_is_written_has_javas_fields_and_is_read_back(text: str) -> None:
    record = RECORDS[text]

    written = write(record)

    assert written == text.replace("|", "\x01") + "\x02"
    assert list(parse(written.encode())) == [record]


def test_what_is_not_known_is_written_as_null_and_separators_never() -> None:
    written = write(TraceRecord(kind=TraceKind.SENT, message_id="ID", keys="a\x01b\x02c"))

    (record,) = parse(written.encode())

    assert written.count("\x02") == 1
    assert written.split("\x01")[3:5] == ["null", "null"]
    assert record.keys == "a b c"
    assert (record.tags, record.message_type, record.is_success) == (None, "normal", False)
