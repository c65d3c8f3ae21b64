"""The options and columns of the sink: what a query asks for, checked on the driver."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cometmq.client.core import checks
from cometmq.errors import InvalidArgument
from cometmq.spark import option_values as values
from cometmq.spark.connecting import CONNECTION_OPTIONS, Connecting

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

IDEMPOTENT: Final = "idempotent"
AT_LEAST_ONCE: Final = "at-least-once"
PRODUCER_CHARACTERS_MAX: Final = 100
EPOCH_MAX: Final = 2**31 - 1

SINK_OPTIONS: Final[dict[str, tuple[str, str]]] = {
    **CONNECTION_OPTIONS,
    "topic": ("", "Topic of rows that do not name one in the column `topic`."),
    "delivery": (
        IDEMPOTENT,
        "`idempotent`: what is sent again is stored once; `at-least-once`: not asked for.",
    ),
    "brokers": (
        "",
        "Brokers to send to, with commas between them; by default all that have the topic.",
    ),
    "sendTimeout": ("2m", "How long to go on trying while a broker is away."),
    "inFlight": (
        "4",
        "Frames on their way to a broker at a time; without idempotence one for each queue.",
    ),
    "producerId": (
        "",
        "Batch only: name of the job; run again under the same name it writes nothing twice.",
    ),
    "epoch": ("0", "Batch only: which run of that job; a higher one begins anew."),
}
"""Name: default, and what it means. Names are taken in any case."""

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("string", "array<string>"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "orderingKey": ("string",),
    "queueId": ("int", "bigint", "smallint", "tinyint"),
    "brokerName": ("string",),
    "deliverAt": ("timestamp", "bigint"),
}
"""Columns of the sink, and the types each may have."""

# Spark adds these; they say nothing to the sink.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a query asks for. It travels to executors; secrets are not in its text."""

    connecting: Connecting
    topic: str | None
    is_idempotent: bool
    brokers: tuple[str, ...]
    patience_ms: int
    in_flight_max: int
    producer_id: str | None
    epoch: int
    checkpoint: str | None


def parse(given: Mapping[str, str]) -> SinkOptions:
    """Read options. Raises InvalidArgument, with a suggestion for a name that is not known."""
    options = {name.lower(): text for name, text in given.items()}
    _refuse_unknown(given)
    if "path" in options:
        advice = "name it with option 'topic', and leave save() and start() empty"
        raise InvalidArgument("path", f"a topic has no path: '{options['path']}'", advice)

    def text(name: str) -> str:
        return options.get(name.lower(), SINK_OPTIONS[name][0])

    topic = text("topic") or None
    if topic is not None:
        checks.check_sendable(topic)
    delivery = values.choice("delivery", text("delivery"), (IDEMPOTENT, AT_LEAST_ONCE))
    epoch = values.count("epoch", text("epoch"), 0)
    if epoch > EPOCH_MAX:
        raise InvalidArgument("epoch", f"option 'epoch' is {epoch}, the most is {EPOCH_MAX}")
    return SinkOptions(
        connecting=Connecting.of(options),
        topic=topic,
        is_idempotent=delivery == IDEMPOTENT,
        brokers=tuple(sorted(values.names("brokers", text("brokers")))) if text("brokers") else (),
        patience_ms=values.span_ms("sendTimeout", text("sendTimeout")),
        in_flight_max=values.count("inFlight", text("inFlight")),
        producer_id=_producer_id(text("producerId")),
        epoch=epoch,
        checkpoint=options.get("checkpointlocation"),
    )


def check_columns(schema: StructType, topic: str | None) -> None:
    """Refuse a table that cannot be sent. Raises InvalidArgument with what to do instead."""
    known = {name.lower(): name for name in COLUMNS}
    found = {}
    for field in schema.fields:
        name = known.get(field.name.lower())
        if name is None:
            advice = _suggestion(field.name, COLUMNS, "columns are: " + ", ".join(COLUMNS))
            raise InvalidArgument(field.name, f"the sink has no column '{field.name}'", advice)
        found[name] = field.dataType.simpleString()
    for name, kind in found.items():
        if kind not in COLUMNS[name]:
            wanted = " or ".join(COLUMNS[name])
            advice = f"cast it: CAST({name} AS {COLUMNS[name][-1]})"
            fact = f"column '{name}' is {kind}, and must be {wanted}"
            raise InvalidArgument(name, fact, advice)
    if "body" not in found:
        raise InvalidArgument(
            "body", "there is no column 'body'", "select what is to be sent AS body"
        )
    if topic is None and "topic" not in found:
        advice = "set option 'topic', or select a column of that name"
        raise InvalidArgument("topic", "nothing says to which topic rows go", advice)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in SINK_OPTIONS}
    for name in given:
        if name.lower() not in known | _SPARKS_OWN:
            advice = _suggestion(name, SINK_OPTIONS, "see the reference of Spark")
            raise InvalidArgument(name, f"no such option of the sink: '{name}'", advice)


def _suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f"did you mean '{by_lower[close[0]]}'?" if close else otherwise


def _producer_id(text: str) -> str | None:
    if not text:
        return None
    if not re.fullmatch(r"[A-Za-z0-9._-]+", text) or len(text) > PRODUCER_CHARACTERS_MAX:
        advice = f"use up to {PRODUCER_CHARACTERS_MAX} letters, digits and the characters . _ -"
        raise InvalidArgument("producerId", f"option 'producerId' cannot be '{text}'", advice)
    return text
