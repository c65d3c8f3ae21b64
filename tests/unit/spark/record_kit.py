"""Records for the tests of decoding, and rows as the codec reads them, one by one."""

from collections.abc import Mapping
from typing import Any

from cometmq.codec import compression, properties, record, sysflag
from cometmq.codec.message_id import encode_offset_id
from cometmq.codec.record import Record

TOPIC = "orders"
BROKER = "broker-a"
BORN = record.pack_host("10.0.0.7", 4711)
STORE = record.pack_host("10.0.0.5", 10911)
BORN_V6 = record.pack_host("2001:db8::7", 4711)
STORE_V6 = record.pack_host("2001:db8::5", 10911)


def record_bytes(
    number: int = 0,
    body: bytes = b"hello",
    named: Mapping[str, str] | None = None,
    *,
    topic: str = TOPIC,
    text: bytes | None = None,
    position: int = 0,
    sys_flag: int = 0,
    born_port: int = 4711,
) -> bytes:
    """A record of queue 3 with this offset; IPv6 bits of the flag choose the hosts."""
    if text is None:
        text = properties.encode(named or {}).encode()
    born = BORN_V6 if sys_flag & sysflag.BORN_HOST_V6 else record.pack_host("10.0.0.7", born_port)
    store = STORE_V6 if sys_flag & sysflag.STORE_HOST_V6 else STORE
    target = bytearray(len(body) + len(text) + len(topic.encode()) + 200)
    facts = (3, number, position, 1_700_000_000_000 + number, 1_600_000_000_000 + number)
    size = record.encode_into(
        target, 0, topic.encode(), body, text, *facts, born, store, 7, sys_flag, 2, 99
    )
    return bytes(target[:size])


def row_of(one: Record, broker_name: str = BROKER) -> dict[str, Any]:
    """What the columns must hold for a record."""
    named = properties.decode(one.properties)
    kind = sysflag.compression_type(one.sys_flag)
    delay = named.get("DELAY", "")
    return {
        "topic": one.topic,
        "brokerName": broker_name,
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "msgId": encode_offset_id(one.store_host, one.physical_offset),
        "uniqKey": named.get("UNIQ_KEY"),
        "keys": named.get("KEYS"),
        "tags": named.get("TAGS"),
        "body": one.body if kind is None else compression.decompress(one.body, kind, 10_000_000),
        "properties": list(named.items()),
        "bornTimestamp": one.born_timestamp,
        "storeTimestamp": one.store_timestamp,
        "bornHost": host_text(one.born_host),
        "storeHost": host_text(one.store_host),
        "flag": one.flag,
        "sysFlag": one.sys_flag,
        "reconsumeTimes": one.reconsume_times,
        "physicalOffset": one.physical_offset,
        "preparedTransactionOffset": one.prepared_transaction_offset,
        "delayLevel": int(delay) if delay.isdigit() else None,
        "originTopic": named.get("RETRY_TOPIC")
        or named.get("DLQ_ORIGIN_TOPIC")
        or named.get("REAL_TOPIC"),
        "originMsgId": named.get("ORIGIN_MESSAGE_ID") or named.get("DLQ_ORIGIN_MESSAGE_ID"),
    }


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch, times as milliseconds."""
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        for name in ("bornTimestamp", "storeTimestamp"):
            if name in row:
                row[name] = round(row[name].timestamp() * 1000)
    return rows


def host_text(host: bytes) -> str:
    ip, port = record.unpack_host(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
