"""Writes docs/reference/client.md: ``python -m scripts.client_reference``.

Options come from the settings classes, calls from the classes of ``cometmq.aio`` and errors from
the docstring that draws their tree; only what no code says is written here.
"""

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cometmq import aio, errors
from cometmq.client.core import settings
from cometmq.client.core.message import Message
from cometmq.client.core.message_batch import Batch
from cometmq.client.core.options import Option, option_of
from cometmq.client.lite_consumer import LiteConsumer
from cometmq.client.producer import Producer
from cometmq.client.pull_consumer import PullConsumer
from cometmq.client.push_consumer import Consumer
from cometmq.client.transactions import TransactionProducer

PAGE = Path(__file__).parents[1] / "docs/reference/client.md"

OPTIONS: tuple[tuple[str, str, type], ...] = (
    ("Client", "`Client(namesrv, …)`", settings.ClientSettings),
    (
        "Producers",
        "`mq.producer(group, …)` and `mq.transaction_producer(group, check, …)`",
        settings.ProducerSettings,
    ),
    ("Push consumers", "`mq.consumer(group, …)`", settings.ConsumerSettings),
    ("Lite pull consumers", "`mq.lite_consumer(group, …)`", settings.LiteSettings),
    ("Pull consumers", "`mq.pull_consumer(group, …)`", settings.PullSettings),
)
"""Heading, the call that takes them, and the class that declares them."""

CLASSES: tuple[type, ...] = (
    aio.Client,
    Producer,
    TransactionProducer,
    Consumer,
    LiteConsumer,
    PullConsumer,
    Message,
    Batch,
)

ARGUMENTS = {
    "namesrv": "name servers: `host:port;host2:port` or a list; without it `NAMESRV_ADDR` counts",
    "access_key": "signs every request, together with `secret_key`",
    "secret_key": "see `access_key`",
    "security_token": "goes with temporary keys",
    "namespace": "goes before the names of topics and groups, and is taken off what is received",
    "tls": "`True`, or a [`TlsClientSettings`](settings.md#tls-of-clients)",
    "clock": "for tests: a `FakeClock`",
}
"""Arguments of ``Client`` that are no options; a test compares them with its signature."""

WITHOUT_COUNTERPART = {
    "accessChannel": "for one vendor's cloud",
    "adjustThreadPoolNumsThreshold": "does nothing in Java either",
    "awaitTerminationMillisWhenShutdown": "`drain_timeout_ms` of the client",
    "checkRequestHoldMax": "2000, fixed",
    "checkThreadPoolMaxSize": "one check at a time",
    "checkThreadPoolMinSize": "one check at a time",
    "clientCallbackExecutorThreads": "callbacks of futures have threads of their own",
    "clientCloseSocketIfTimeout": "a connection is closed when nothing at all arrives on it",
    "clientRebalance": "pop consumption is planned",
    "consumeThreadMin": "`concurrency` is the only number",
    "consumeTimestamp": "give the time as `start`",
    "consumerPullTimeoutMillis": "lite pull consumers only hold pulls",
    "decodeDecompressBody": "bodies are decompressed when they are looked at",
    "decodeReadBody": "bodies are always read",
    "detectInterval": "2 s, fixed",
    "detectTimeout": "200 ms, fixed",
    "enableBackpressureForAsyncMode": "`in_flight_max` always bounds sends under way",
    "enableHeartbeatChannelEventListener": "always on",
    "enableReconnectForGoAway": "always on",
    "enableStreamRequestType": "no such requests are made",
    "namesrvAddr": "the first argument of `Client`",
    "popBatchNums": "pop consumption is planned",
    "popInvisibleTime": "pop consumption is planned",
    "popThresholdForQueue": "pop consumption is planned",
    "retryTimesWhenSendAsyncFailed": "`retries` is for all sends",
    "traceMsgBatchNum": "100, fixed",
    "useHeartbeatV2": "heartbeats are sent whole",
    "useTLS": "the argument `tls` of `Client`",
}
"""RocketMQ's settings that have no option here, and what there is instead."""

INTRODUCTION = """\
# Python client

*This page is made from the code by `python -m scripts.client_reference`.*

`cometmq.Client` waits for each result, `cometmq.aio.Client` is for asyncio. Both take the same
options, have the same methods and raise the same errors. [Sending](../guides/send.md) and
[consuming](../guides/consume.md) are where to begin.

Options are keyword arguments of the call that makes the object. They have RocketMQ's defaults; the
column *RocketMQ* has the name that Java's client gives to the same. Names end in their unit: `_ms`
is milliseconds, `_bytes` bytes, `_mib` mebibytes. An option that does not exist, or a value out of
its range, raises `SettingsError` before anything starts.
"""


def page() -> str:
    """The whole page."""
    return "".join(
        [
            INTRODUCTION,
            *map(_options_section, OPTIONS),
            _missing_section(),
            *map(_class_section, CLASSES),
            _errors_section(),
        ]
    )


# Options


def _options_section(entry: tuple[str, str, type]) -> str:
    title, call, cls = entry
    lines = ["", f"## {title}: options", "", f"Of {call}.", ""]
    if cls is settings.ClientSettings:
        lines += ["| Argument | Meaning |", "|---|---|"]
        lines += [f"| `{name}` | {meaning} |" for name, meaning in ARGUMENTS.items()]
        lines.append("")
    lines += ["| Option | RocketMQ | Type | Default | Meaning |", "|---|---|---|---|---|"]
    kinds = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        about = option_of(field)
        key = f"`{about.key}`" if about.key else "-"
        kind = _type_text(kinds[field.name]) + _range_text(about)
        default = _default_text(field.default)
        lines.append(f"| `{field.name}` | {key} | {kind} | {default} | {_markdown(about.doc)} |")
    return "\n".join([*lines, ""])


def _type_text(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        parts = [part for part in get_args(kind) if part is not types.NoneType]
        return ", ".join(map(_type_text, parts))
    names = {"str": "text", "int": "number", "bool": "`True`, `False`"}
    return names.get(kind.__name__, f"`{kind.__name__}`")


def _range_text(about: Option) -> str:
    if about.minimum is None:
        return ""
    if about.maximum is None:
        text = f" from {about.minimum}"
    else:
        text = f" {about.minimum} to {about.maximum}"
    return text if about.special is None else f"{text}, or {about.special}"


def _default_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str | int):
        return f"`{value}`"
    return f"`{type(value).__name__}()`"


def _missing_section() -> str:
    return "\n".join(
        [
            "",
            "## RocketMQ's settings that are no options",
            "",
            "| RocketMQ | Here |",
            "|---|---|",
            *(f"| `{key}` | {instead} |" for key, instead in WITHOUT_COUNTERPART.items()),
            "",
        ]
    )


# Calls


def _class_section(cls: type) -> str:
    rows = list(_members(cls))
    notes = []
    if any(row.startswith("| `await ") for row in rows):
        more = f" {ONLY_BLOCKING[cls]}" if cls in ONLY_BLOCKING else ""
        notes = [f"In `cometmq` nothing is awaited.{more}", ""]
    return "\n".join(["", f"## {cls.__name__}", "", *notes, "| | |", "|---|---|", *rows, ""])


def _members(cls: type) -> Iterator[str]:
    for name, member in _public(cls):
        if isinstance(member, property):
            yield f"| `{name}` | {_summary(member) or WITHOUT_WORDS[name]} |"
        else:
            is_awaited = inspect.iscoroutinefunction(member)
            call = f"{'await ' if is_awaited else ''}{name}({_parameters(member)})"
            yield f"| `{call}` | {_summary(member)} |"


ONLY_BLOCKING = {Producer: "There, `send_async` takes what `send` does and returns a future."}
"""What the classes of ``cometmq`` have beyond these."""


def public_names(cls: type) -> set[str]:
    return {name for name, _ in _public(cls)}


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    """Properties and methods, in the order they are written, inherited ones first."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("cometmq."):
            found.update(vars(base))
    for name, member in found.items():
        is_shown = isinstance(member, property) or inspect.isfunction(member)
        if is_shown and not name.startswith("_") and name not in INNER.get(cls, ()):
            yield name, member


INNER: dict[type, tuple[str, ...]] = {
    Producer: ("topics", "check_transaction"),
    Consumer: ("begin_iteration",),
    Batch: ("settled", "index", "count"),
}
"""Methods that other parts of the client call."""


WITHOUT_WORDS = {
    "born_host": "Address of its sender.",
    "group": "Its group, without the namespace.",
    "is_running": "Whether it was started and not closed.",
    "broker_name": "The broker it was read from.",
    "keys": "Its keys, one by one.",
    "queue_id": "Number of the queue it was read from.",
    "queue_offset": "Its place in that queue.",
    "store_host": "Address of its broker.",
    "sys_flag": "RocketMQ's own flags.",
    "tag": "Its tag, if it has one.",
}
"""Properties whose names say enough in code."""


def _parameters(function: Any) -> str:
    return ", ".join(_parameter_texts(inspect.signature(function)))


def _parameter_texts(signature: inspect.Signature) -> Iterator[str]:
    has_star = False
    for parameter in list(signature.parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            yield f"**{parameter.name}"
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            yield "*"
        if parameter.default is inspect.Parameter.empty:
            yield parameter.name
        elif parameter.default in (None, ()):
            yield f"{parameter.name}=…"
        else:
            default = getattr(parameter.default, "__name__", repr(parameter.default))
            yield f"{parameter.name}={default}"


def _summary(member: Any) -> str:
    text = inspect.getdoc(member) or ""
    first = text.split("\n\n")[0].removesuffix("::")
    return _markdown(" ".join(first.split()))


def _markdown(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


# Errors


def _errors_section() -> str:
    lines = [
        "",
        "## Errors",
        "",
        "All are in `cometmq.errors` and below `CometError`; most can be imported from `cometmq`.",
        "",
        "| Error | Meaning |",
        "|---|---|",
    ]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in _raised()]
    return "\n".join([*lines, ""])


NOT_THE_CLIENTS = ("ProtocolError", "StoreError", "Ambiguous", "PartlyDone")
"""Errors, and all below them, that only other parts raise."""


def _raised() -> Iterator[tuple[str, str]]:
    drawn = re.findall(r"[├└]── (\w+) +(.+)", errors.__doc__ or "")
    for name, meaning in drawn:
        cls = getattr(errors, name)
        others = tuple(getattr(errors, other) for other in NOT_THE_CLIENTS)
        if not issubclass(cls, others):
            yield name, meaning


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
