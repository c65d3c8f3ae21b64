"""The columns of a topic as a table, and the Arrow types they travel in.

The schema is told to Spark as DDL text, because only the JVM can parse types; readers get it back
as a ``StructType`` and make Arrow types of it with Spark's own rules. Spark starts a process of its
own to be told, so this module does without pyarrow until an Arrow type is wanted.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cometmq.errors import InvalidArgument

if TYPE_CHECKING:
    from cometmq.spark.options import SourceOptions

BODY: Final = "body"
PROPERTIES: Final = "properties"

COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "topic": ("string", "string"),
    "brokerName": ("string", "string"),
    "queueId": ("int", "int32"),
    "queueOffset": ("bigint", "int64"),
    "msgId": ("string", "string"),
    "uniqKey": ("string", "string"),
    "keys": ("string", "string"),
    "tags": ("string", "string"),
    BODY: ("binary", "binary"),
    PROPERTIES: ("map<string,string>", "map<string, string>"),
    "bornTimestamp": ("timestamp", "timestamp[us, tz=UTC]"),
    "storeTimestamp": ("timestamp", "timestamp[us, tz=UTC]"),
    "bornHost": ("string", "string"),
    "storeHost": ("string", "string"),
    "flag": ("int", "int32"),
    "sysFlag": ("int", "int32"),
    "reconsumeTimes": ("int", "int32"),
    "physicalOffset": ("bigint", "int64"),
    "preparedTransactionOffset": ("bigint", "int64"),
    "delayLevel": ("int", "int32"),
    "originTopic": ("string", "string"),
    "originMsgId": ("string", "string"),
}
"""Every column: names of its Spark type, and of the Arrow type that Spark's rules make of it."""

BODY_FORMATS: Final = ("binary", "string", "json")
_BODY_FORMATS_LATER: Final = ("avro", "protobuf")


def check_body_format(text: str) -> str:
    """The format a body is decoded as. Raises InvalidArgument for one we do not have."""
    wanted = text.lower()
    if wanted in BODY_FORMATS:
        return wanted
    known = ", ".join(BODY_FORMATS)
    if wanted in _BODY_FORMATS_LATER:
        advice = f"read it as binary and use Spark's from_{wanted}; there are: {known}"
        raise InvalidArgument("bodyFormat", f"'{text}' is not there yet", advice)
    raise InvalidArgument("bodyFormat", f"'{text}' is no format of bodies", f"there are: {known}")


def chosen_columns(names: Sequence[str], *, with_properties: bool) -> tuple[str, ...]:
    """The columns that were asked for, or all; names in any case. Raises InvalidArgument."""
    if not names:
        return tuple(name for name in COLUMNS if with_properties or name != PROPERTIES)
    by_lower = {name.lower(): name for name in COLUMNS}
    chosen: list[str] = []
    for name in names:
        known = by_lower.get(name.lower())
        if known is None:
            close = difflib.get_close_matches(name.lower(), by_lower, n=1)
            advice = f"did you mean '{by_lower[close[0]]}'?" if close else "there are: "
            advice += "" if close else ", ".join(COLUMNS)
            raise InvalidArgument("columns", f"no such column: '{name}'", advice)
        if known in chosen:
            raise InvalidArgument("columns", f"column '{known}' is named twice", "name it once")
        chosen.append(known)
    return tuple(chosen)


def schema_ddl(options: SourceOptions) -> str:
    """The schema of a query as Spark's DDL; asks brokers only to infer a body's."""
    columns = chosen_columns(options.columns, with_properties=options.with_properties)
    schema = options.body_schema
    if options.body_format == "json" and BODY in columns and schema is None:
        from cometmq.spark.batch_plan import sampled_bodies
        from cometmq.spark.bodies import inferred_body_type

        schema = inferred_body_type(sampled_bodies(options))
    return ddl_of(columns, body_type_of(options.body_format, schema or ""))


def ddl_of(columns: Sequence[str], body_type: str) -> str:
    """The schema as Spark's DDL; ``body_type`` is the DDL type of the body."""
    return ", ".join(
        f"`{name}` {body_type if name == BODY else COLUMNS[name][0]}" for name in columns
    )


def body_type_of(body_format: str, body_schema: str) -> str:
    """The DDL type of the body; a schema is DDL (``id long, price double``) or Spark's JSON."""
    if body_format != "json":
        return body_format
    text = body_schema.strip()
    if text.startswith("{"):
        return _type_of_json(text)
    if text.lower().startswith("struct<"):
        return text
    return f"struct<{text}>"


def arrow_schema(columns: Sequence[str]) -> Any:
    """The Arrow schema of columns with a body of bytes, without asking Spark."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(name)) for name in columns])


def arrow_type(column: str) -> Any:
    """The Arrow type of a column."""
    import pyarrow as pa

    text = pa.string()
    kinds = (text, pa.binary(), pa.int32(), pa.int64(), pa.map_(text, text))
    by_name = {str(kind): kind for kind in (*kinds, pa.timestamp("us", tz="UTC"))}
    return by_name[COLUMNS[column][1]]


def ddl_of_arrow(kind: Any) -> str:
    """The DDL of a type that was inferred from JSON; what is not known yet is text."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        fields = (kind.field(number) for number in range(kind.num_fields))
        inner = ", ".join(f"{_quoted(one.name)}: {ddl_of_arrow(one.type)}" for one in fields)
        return f"struct<{inner}>"
    if pa.types.is_list(kind):
        return f"array<{ddl_of_arrow(kind.value_type)}>"
    if pa.types.is_integer(kind):
        return "bigint"
    if pa.types.is_floating(kind):
        return "double"
    if pa.types.is_boolean(kind):
        return "boolean"
    return "string"  # text, times, and what was null in every sample


def _quoted(name: str) -> str:
    """Any key of JSON as one name of DDL."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def _type_of_json(text: str) -> str:
    from pyspark.sql.types import StructType

    try:
        return str(StructType.fromJson(json.loads(text)).simpleString())
    except (ValueError, KeyError, TypeError) as error:
        fact = f"it is no schema in Spark's JSON form: {error}"
        raise InvalidArgument("bodySchema", fact, "use DDL, as in: id long, price double") from None
