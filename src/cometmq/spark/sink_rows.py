"""Rows as messages of a batch send, a few thousand at a time and without a loop over them.

Arrow joins the parts of all messages in one step: the bytes of a frame are then a slice of the
result. What cannot be a message is refused here, with the number of its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cometmq.client.core.checks import RESERVED_PROPERTIES
from cometmq.codec.properties import TRANSIENT_PREFIX, Property
from cometmq.errors import InvalidArgument
from cometmq.model.limits import PROPERTIES_BYTES_MAX
from cometmq.spark.sink_options import COLUMNS

CHUNK_ROWS: Final = 4096
CHUNK_BYTES: Final = 16 * 1024 * 1024
"""So many rows are taken at a time, however Spark has cut them: numbers of messages follow."""

_ITEM_FIXED_BYTES: Final = 22
_UNIQUE_KEY: Final = Property.UNIQ_KEY.encode() + b"\x01"
_AFTER_KEY: Final = b"\x02" + Property.WAIT.encode() + b"\x01true\x02"
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_ROW_DIGITS: Final = 8
_MARK: Final = "COMET_SEQ"
_NOT_COPIED: Final = sorted(
    {
        *RESERVED_PROPERTIES,
        Property.SHARDING_KEY,
        Property.SHARDING_KEY_GO,
        Property.SHARDING_KEY_NODE,
        _MARK,
    }
)
"""What a message that is sent on must not keep of the one it came from."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns of a chunk by name, in the types that are worked with; absent ones are None."""

    count: int
    body: Any
    topic: Any = None
    keys: Any = None
    tags: Any = None
    properties: Any = None
    ordering_key: Any = None
    queue_id: Any = None
    broker_name: Any = None
    deliver_at: Any = None


def chunks(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows as record batches of a size that depends on nothing but the rows."""
    pending: list[Any] = []
    rows = size = 0
    for batch in batches:
        lengths = _body_lengths(batch)
        begin = 0
        while begin < batch.num_rows:
            sums = size + np.cumsum(lengths[begin : begin + CHUNK_ROWS - rows])
            # A row that is larger than a chunk is one by itself.
            fitting = max(int(np.searchsorted(sums, CHUNK_BYTES, "right")), 0 if rows else 1)
            if fitting:
                pending.append(batch.slice(begin, fitting))
                rows, size, begin = rows + fitting, int(sums[fitting - 1]), begin + fitting
            if rows == CHUNK_ROWS or begin < batch.num_rows:
                yield _joined(pending)
                pending, rows, size = [], 0, 0
    if pending:
        yield _joined(pending)


def rows_of(batch: Any) -> Rows:
    """The columns of a record batch, whatever the case of their names."""
    by_name = {
        name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    found = {name: by_name.get(name.lower()) for name in COLUMNS}
    return Rows(
        count=batch.num_rows,
        body=_as(found["body"], pa.binary()),
        topic=_text(found["topic"]),
        keys=_keys(found["keys"]),
        tags=_text(found["tags"]),
        properties=found["properties"],
        ordering_key=_text(found["orderingKey"]),
        queue_id=_as(found["queueId"], pa.int64()),
        broker_name=_text(found["brokerName"]),
        deliver_at=_milliseconds(found["deliverAt"]),
    )


def property_texts(rows: Rows, key_prefix: bytes, first_row: int) -> Any:
    """The property string of each row, as binary; ``key_prefix`` begins its unique key."""
    parts = [_unique_keys(rows.count, key_prefix, first_row)]
    for column, name in (
        (rows.keys, Property.KEYS),
        (rows.tags, Property.TAGS),
        (rows.ordering_key, Property.SHARDING_KEY),
    ):
        if column is not None and column.null_count < rows.count:
            _refuse_separators(column, name, first_row)
            parts.append(_text_joined(f"{name}\x01", column, "\x02").cast(pa.binary()))
    if rows.properties is not None:
        parts.append(_map_texts(rows, first_row).cast(pa.binary()))
    joined = parts[0] if len(parts) == 1 else _bytes_joined(*parts)
    lengths = pc.binary_length(joined).to_numpy(zero_copy_only=False)
    if lengths.max(initial=0) > PROPERTIES_BYTES_MAX:
        row = int(lengths.argmax())
        fact = f"row {first_row + row}: keys, tags and properties take {lengths[row]} bytes"
        advice = f"at most {PROPERTIES_BYTES_MAX} fit: put long text into the body"
        raise InvalidArgument("properties", fact, advice)
    return joined


def batch_items(body: Any, properties: Any) -> Any:
    """Each row as it stands in the body of a batch send; see ``cometmq.codec.batch``."""
    body_lengths = pc.binary_length(body).to_numpy(zero_copy_only=False)
    property_lengths = pc.binary_length(properties).to_numpy(zero_copy_only=False)
    head = np.zeros((len(body), 5), ">i4")
    head[:, 0] = _ITEM_FIXED_BYTES + body_lengths + property_lengths
    head[:, 4] = body_lengths
    return _bytes_joined(_fixed(head), body, _fixed(property_lengths.astype(">i2")), properties)


def check_bodies(rows: Rows, first_row: int) -> None:
    """Refuse rows without a body, which no broker takes."""
    empty = pc.fill_null(pc.equal(pc.binary_length(rows.body), 0), True)
    if pc.any(empty).as_py():
        row = first_row + pc.index(empty, True).as_py()
        advice = "filter such rows out: no broker accepts a message without a body"
        raise InvalidArgument("body", f"row {row}: the body is null or empty", advice)


def _body_lengths(batch: Any) -> Any:
    index = next(i for i, name in enumerate(batch.schema.names) if name.lower() == "body")
    lengths = pc.fill_null(pc.binary_length(batch.column(index)), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _as(column: Any, kind: Any) -> Any:
    return column if column is None or column.type == kind else column.cast(kind)


def _text(column: Any) -> Any:
    """Text, with empty ones as if there was none."""
    if column is None:
        return None
    column = _as(column, pa.string())
    is_empty = pc.equal(column, "")
    if not pc.any(is_empty).as_py():
        return column
    return pc.if_else(is_empty, pa.scalar(None, pa.string()), column)


def _keys(column: Any) -> Any:
    if column is not None and pa.types.is_list(column.type):
        # Spark says "string not null" of elements, and there is no function for that.
        column = pc.binary_join(column.cast(pa.list_(pa.string())), " ")
    return _text(column)


def _milliseconds(column: Any) -> Any:
    if column is not None and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column


def _unique_keys(count: int, prefix: bytes, first_row: int) -> Any:
    template = np.frombuffer(_UNIQUE_KEY + prefix + bytes(_ROW_DIGITS) + _AFTER_KEY, np.uint8)
    made = np.tile(template, (count, 1))
    numbers = np.arange(first_row, first_row + count, dtype=np.int64)
    begin = len(_UNIQUE_KEY) + len(prefix)
    for place in range(_ROW_DIGITS):
        shift = 4 * (_ROW_DIGITS - 1 - place)
        made[:, begin + place] = _HEX[(numbers >> shift) & 15]
    return _fixed(made)


def _map_texts(rows: Rows, first_row: int) -> Any:
    """The properties of each row that may be sent on, joined."""
    column = rows.properties
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    names, values = column.keys.slice(begin, end - begin), column.items.slice(begin, end - begin)
    not_copied = _NOT_COPIED
    if rows.keys is None:
        not_copied = [name for name in not_copied if name != Property.KEYS]
    if rows.tags is None:
        not_copied = [name for name in not_copied if name != Property.TAGS]
    dropped = pc.or_(
        pc.is_in(names, value_set=pa.array(not_copied, pa.string())),
        pc.or_(pc.starts_with(names, TRANSIENT_PREFIX), pc.equal(names, "")),
    )
    dropped = pc.or_(dropped, pc.fill_null(pc.equal(values, ""), True))
    kept = ~dropped.to_numpy(zero_copy_only=False)
    mask = pa.array(kept)
    names, values = names.filter(mask), values.filter(mask)
    for texts in (names, values):
        _refuse_separators(texts, "properties", first_row, is_row_known=False)
    sums = np.concatenate(([0], np.cumsum(kept)))
    lists = pa.ListArray.from_arrays(
        pa.array(sums[offsets - begin], pa.int32()), _text_joined(names, "\x01", values, "\x02")
    )
    return pc.binary_join(lists, "")


def _refuse_separators(
    column: Any, name: str, first_row: int, *, is_row_known: bool = True
) -> None:
    for separator in ("\x01", "\x02"):
        found = pc.fill_null(pc.match_substring(column, separator), False)
        if pc.any(found).as_py():
            row = first_row + pc.index(found, True).as_py()
            where = f"row {row}" if is_row_known else f"a row from {first_row} on"
            advice = "such characters separate properties: remove them"
            raise InvalidArgument(name, f"{where}: {name} has the character \\x01 or \\x02", advice)


def _fixed(values: Any) -> Any:
    """A binary array from a numpy array: one value for each of its rows."""
    count = len(values)
    width = values.nbytes // count if count else 0
    offsets = (
        np.arange(0, (count + 1) * width, width, dtype=np.int32) if width else np.zeros(1, "i4")
    )
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _text_joined(*parts: Any) -> Any:
    """Texts of each row put together; null where one of them is."""
    return pc.binary_join_element_wise(*parts, "")


def _bytes_joined(*parts: Any) -> Any:
    """Bytes of each row put together, without those that are null."""
    return pc.binary_join_element_wise(
        *parts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )
