"""Records become Arrow batches: only the columns that are wanted, and all rows at once."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq import logs
from cometmq.codec import compression, sysflag
from cometmq.codec.properties import Property
from cometmq.codec.record import HOST_V4_BYTES, unpack_host
from cometmq.errors import RemoteProtocolError
from cometmq.spark.bodies import body_converter
from cometmq.spark.gathering import gather, strings_of_width
from cometmq.spark.property_columns import PropertyColumns
from cometmq.spark.records import Records, Uniform

_log = logs.get_logger("cometmq.spark")

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
"""A compressed body that would be larger is taken for damaged."""
CRC_SAMPLE_STEP: Final = 64
"""With ``verifyCrc=sample`` the checksum of one message in so many is looked at."""

_HEX: Final = np.frombuffer(b"".join(b"%02X" % number for number in range(256)), np.uint16)
"""The two digits of each byte."""
_NUMBERS: Final = {
    "queueId": ("queue_id", np.int32),
    "queueOffset": ("queue_offset", np.int64),
    "flag": ("flag", np.int32),
    "sysFlag": ("sys_flag", np.int32),
    "reconsumeTimes": ("reconsume_times", np.int32),
    "physicalOffset": ("physical_offset", np.int64),
    "preparedTransactionOffset": ("prepared_transaction_offset", np.int64),
}
_TIMES: Final = {"bornTimestamp": "born_timestamp", "storeTimestamp": "store_timestamp"}
_HOSTS: Final = {"bornHost": "born_host", "storeHost": "store_host"}
_TEXTS: Final = {
    "uniqKey": (Property.UNIQ_KEY,),
    "keys": (Property.KEYS,),
    "tags": (Property.TAGS,),
    "delayLevel": (Property.DELAY,),
    "originTopic": (Property.RETRY_TOPIC, Property.DLQ_ORIGIN_TOPIC, Property.REAL_TOPIC),
    "originMsgId": (Property.ORIGIN_MESSAGE_ID, Property.DLQ_ORIGIN_MESSAGE_ID),
}
"""Columns made of a property; of several the first that a message has."""


@dataclass(frozen=True, slots=True)
class Place:
    """The queue that records come from."""

    topic: str
    broker_name: str


class RecordDecoder:
    """Makes batches of one schema; ``verify`` is none, sample or all.

    Where ``tags`` are given, messages with other tags are left out.
    """

    def __init__(
        self, schema: Any, *, verify: str = "none", tags: frozenset[str] = frozenset()
    ) -> None:
        self.schema = schema
        self._crc_step = {"none": 0, "sample": CRC_SAMPLE_STEP, "all": 1}[verify]
        self._tags = pa.array(sorted(tags), pa.string()) if tags else None
        names = schema.names
        self._convert_body = body_converter(schema.field("body").type) if "body" in names else None

    def decode(self, records: Records, place: Place) -> Any:
        """The batch of these records, in their order.

        Raises RemoteProtocolError for what is no record, and for a checksum that is wrong.
        """
        groups, places = [], []
        for where, uniform in records.alike():
            batch, is_wanted = self._batch(uniform, place)
            groups.append(batch)
            if where is not None:
                places.append(where if is_wanted is None else where[is_wanted])
        if not groups:
            return _no_rows(self.schema)
        batch = groups[0]
        if len(groups) > 1:
            order = np.argsort(np.concatenate(places), kind="stable")
            batch = pa.concat_batches(groups).take(pa.array(order))
        return batch

    def _batch(self, records: Uniform, place: Place) -> tuple[Any, Any]:
        """The wanted rows, and which of the records these are; None for all."""
        if self._crc_step:
            _verify(records, self._crc_step)
        columns = _Columns(records, place)
        arrays = [self._column(columns, name) for name in self.schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._tags is None:
            return batch, None
        is_wanted = pc.is_in(columns.text("tags"), value_set=self._tags)
        return batch.filter(is_wanted), is_wanted.to_numpy(zero_copy_only=False)

    def _column(self, columns: _Columns, name: str) -> Any:
        if name == "body":
            assert self._convert_body is not None
            return self._convert_body(columns.body())
        if name == "properties":
            return columns.properties.maps()
        if name in _TEXTS:
            text = columns.text(name)
            return _integers(text) if name == "delayLevel" else text
        return columns.of_head(name)


class _Columns:
    """The columns of records of one layout, each made when it is asked for."""

    def __init__(self, records: Uniform, place: Place) -> None:
        self._records = records
        self._heads = records.heads
        self._place = place

    @functools.cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(gather(self._records.buffer, *self._records.properties()))

    def text(self, name: str) -> Any:
        first, *others = _TEXTS[name]
        array = self.properties.values(first)
        for other in others:
            if array.null_count:
                array = pc.coalesce(array, self.properties.values(other))
        return array

    def of_head(self, name: str) -> Any:
        if name in _NUMBERS:
            field, kind = _NUMBERS[name]
            return pa.array(self._heads[field].astype(kind))
        if name in _TIMES:
            us = self._heads[_TIMES[name]].astype(np.int64) * 1000
            return pa.array(us).view(pa.timestamp("us", tz="UTC"))
        if name in _HOSTS:
            return _host_texts(self._heads[_HOSTS[name]])
        if name == "msgId":
            return self._offset_ids()
        text = self._place.topic if name == "topic" else self._place.broker_name
        return _repeated(text, len(self._records))

    def body(self) -> Any:
        """Bodies as they were sent: what is compressed is inflated, and null if that fails."""
        begins, ends = self._records.bodies()
        array = gather(self._records.buffer, begins, ends)
        flags = self._heads["sys_flag"]
        compressed = np.flatnonzero(flags & sysflag.COMPRESSED)
        if not len(compressed):
            return array
        inflated = [_inflated(array[int(n)].as_py(), int(flags[n])) for n in compressed]
        failed = sum(body is None for body in inflated)
        if failed:
            _log.warning(
                "topic=%s %d compressed bodies cannot be read and are null",
                self._place.topic,
                failed,
            )
        order = np.arange(len(array))
        order[compressed] = len(array) + np.arange(len(compressed))
        joined = pa.concat_arrays([array, pa.array(inflated, pa.binary())])
        return joined.take(pa.array(order))

    def _offset_ids(self) -> Any:
        """The broker's own message ids: store host and physical offset, as hexadecimal text."""
        heads = self._heads
        count = len(heads)
        offsets = np.ascontiguousarray(heads["physical_offset"]).view(np.uint8).reshape(count, 8)
        raw = np.concatenate((heads["store_host"], offsets), axis=1)
        return strings_of_width(_HEX.take(raw).view(np.uint8))


def _no_rows(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


@functools.lru_cache(maxsize=64)
def _repeated(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _host_texts(hosts: Any) -> Any:
    """``address:port`` of each; a batch has few different ones."""
    count, width = hosts.shape
    raw = np.ascontiguousarray(hosts).reshape(-1).view(f"V{width}")
    if width == HOST_V4_BYTES:  # numbers are told apart much faster
        raw = raw.view(np.uint64)
        if (raw == raw[0]).all():
            return _repeated(_host_text(raw[0].tobytes()), count)
        encoded = pa.array(raw).dictionary_encode()
        different, places = encoded.dictionary.to_numpy(), encoded.indices
    else:
        different, inverse = np.unique(raw, return_inverse=True)
        places = pa.array(inverse.reshape(-1))
    texts = pa.array([_host_text(one.tobytes()) for one in different], pa.string())
    return texts.take(places)


@functools.lru_cache(maxsize=4096)
def _host_text(host: bytes) -> str:
    if len(host) == HOST_V4_BYTES:
        return f"{IPv4Address(host[:4])}:{int.from_bytes(host[4:], 'big', signed=True)}"
    ip, port = unpack_host(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _inflated(body: bytes, flags: int) -> bytes | None:
    try:
        kind = sysflag.compression_type(flags)
        assert kind is not None
        return compression.decompress(body, kind, INFLATED_BYTES_MAX)
    except RemoteProtocolError:
        return None


def _integers(texts: Any) -> Any:
    """Numbers in text as integers, null for what is none."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.int32())
    try:
        return texts.cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.array([_integer(text) for text in texts.to_pylist()], pa.int32())


def _integer(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    return int(text)


def _verify(records: Uniform, step: int) -> None:
    """Compare the checksums of every ``step``-th body."""
    begins, ends = (bounds[::step].tolist() for bounds in records.bodies())
    stored = records.heads["body_crc"][::step].tolist()
    crc32: Callable[[memoryview], int] = zlib.crc32
    with memoryview(records.buffer) as data:
        for begin, end, expected in zip(begins, ends, stored, strict=True):
            if crc32(data[begin:end]) & 0x7FFFFFFF != expected:
                offset = int(records.heads["physical_offset"][begins.index(begin) * step])
                raise RemoteProtocolError(
                    f"the body at {offset} of the log does not have its checksum {expected:#x}"
                )
