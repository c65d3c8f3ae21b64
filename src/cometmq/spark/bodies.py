"""Bodies as text or as values of a schema, a batch at a time."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from cometmq.errors import InvalidArgument
from cometmq.spark.schema import ddl_of_arrow

_BLOCK_BYTES_MAX = 2**31 - 1
_OBJECT = r"(?s)^[ \t\r\n]*\{.*\}[ \t\r\n]*$"

_READABLE: Final = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_binary, pa.types.is_timestamp, pa.types.is_null),
)
"""What pyarrow reads from JSON, beside objects and lists; dates it knows as numbers only."""
_DDL_NAMES: Final = {
    pa.lib.Type_DATE32: "date",
    pa.lib.Type_MAP: "map",
    pa.lib.Type_DURATION: "interval",
    pa.lib.Type_TIME64: "time",
}


def body_converter(kind: Any) -> Callable[[Any], Any]:
    """What makes a column of ``kind`` from an array of bytes: bytes, text, or parsed JSON."""
    if pa.types.is_binary(kind):
        return lambda bodies: bodies
    if pa.types.is_string(kind):
        return _texts
    check_body_type(kind)
    schema = pa.schema(list(kind))
    return lambda bodies: _structs(bodies, schema, kind)


def check_body_type(kind: Any, path: str = "body") -> None:
    """Refuse a type that JSON is not read as: all bodies would be null. Raises InvalidArgument."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_body_type(field.type, f"{path}.{field.name}")
    elif pa.types.is_list(kind):
        check_body_type(kind.value_type, f"{path}[]")
    elif not any(is_such(kind) for is_such in _READABLE):
        fact = f"'{path}' is {_DDL_NAMES.get(kind.id, kind)}, which JSON bodies are not read as"
        advice = "make it string and cast it, or read with bodyFormat=string and use from_json"
        raise InvalidArgument("bodySchema", fact, advice)


def inferred_body_type(bodies: list[bytes]) -> str:
    """The DDL type of JSON bodies, judged by some of them. Raises InvalidArgument."""
    advice = "give 'bodySchema', as in: id long, price double"
    if not bodies:
        raise InvalidArgument("bodySchema", "there is no message to infer it from", advice)
    found = []
    for body in bodies:
        try:
            found.append(_read([body], None).schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue  # one that is no JSON does not make the others worse
    if not found:
        fact = f"none of {len(bodies)} messages has a JSON object as its body"
        raise InvalidArgument("bodyFormat", fact, "read them as binary or string")
    try:
        merged = pa.unify_schemas(found, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        fact = f"the bodies do not have one schema: {error}"
        raise InvalidArgument("bodySchema", fact, advice) from error
    inferred = pa.struct(list(merged))
    _check_names(inferred, "body")
    return ddl_of_arrow(inferred)


def _check_names(kind: Any, path: str) -> None:
    """Refuse names that only case tells apart: for Spark each of them would be ambiguous.

    With ``spark.sql.caseSensitive`` they would not be, but Spark does not tell sources about it.
    """
    if pa.types.is_list(kind):
        _check_names(kind.value_type, f"{path}[]")
    if not pa.types.is_struct(kind):
        return
    by_lower: dict[str, list[str]] = {}
    for field in kind:
        by_lower.setdefault(field.name.lower(), []).append(field.name)
        _check_names(field.type, f"{path}.{field.name}")
    for names in by_lower.values():
        if len(names) > 1:
            fact = f"'{path}' has {', '.join(map(repr, names))}, which are one name for Spark"
            advice = "name one of them in 'bodySchema', or read with bodyFormat=string"
            raise InvalidArgument("bodySchema", fact, advice)


def _texts(bodies: Any) -> Any:
    """UTF-8 as it is; what is not becomes the replacement character, as in Java."""
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if body is None else body.decode("utf-8", "replace") for body in _list(bodies)
        ]
        return pa.array(texts, pa.string())


def _structs(bodies: Any, schema: Any, kind: Any) -> Any:
    """Parsed JSON objects, null where a body is none.

    A batch with a body that is none is cut into halves until that one is alone, so that ordinary
    batches are parsed in one step. What does not look like an object is left out before: then as
    many objects as bodies means one of each, and not two of one and none of another.
    """
    is_object = pc.and_(pc.starts_with(bodies, "{"), pc.ends_with(bodies, "}"))
    if _is_all(is_object):
        return _parsed(bodies, schema, kind)
    is_object = pc.fill_null(pc.match_substring_regex(bodies, _OBJECT), False)
    numbers = pc.subtract(pc.cumulative_sum(is_object.cast(pa.int64())), 1)
    places = pc.if_else(is_object, numbers, pa.scalar(None, pa.int64()))
    return _parsed(bodies.filter(is_object), schema, kind).take(places)


def _is_all(claims: Any) -> bool:
    return claims.null_count == 0 and bool(pc.all(claims).as_py() is not False)


def _parsed(bodies: Any, schema: Any, kind: Any) -> Any:
    count = len(bodies)
    if not count:
        return pa.array([], kind)
    try:
        table = _read(_list(bodies), schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError):
        table = None
    if table is not None and table.num_rows == count:
        columns = [table.column(field.name).combine_chunks() for field in schema]
        return pa.StructArray.from_arrays(columns, fields=list(kind))
    if count == 1:
        return pa.nulls(1, kind)
    half = count // 2
    return pa.concat_arrays(
        [_parsed(bodies[:half], schema, kind), _parsed(bodies[half:], schema, kind)]
    )


def _read(bodies: list[bytes | None], schema: Any) -> Any:
    data = b"\n".join(body for body in bodies if body is not None)
    parse = pyarrow.json.ParseOptions(
        explicit_schema=schema,
        newlines_in_values=True,
        unexpected_field_behavior="infer" if schema is None else "ignore",
    )
    block = min(len(data) + 1, _BLOCK_BYTES_MAX)
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=max(block, 64))
    return pyarrow.json.read_json(io.BytesIO(data), read_options=options, parse_options=parse)


def _list(bodies: Any) -> list[bytes | None]:
    return bodies.to_pylist()
