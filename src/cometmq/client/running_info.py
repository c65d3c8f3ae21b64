"""What every consumer tells of itself when it is asked (307): its settings, and where it is."""

import asyncio
import dataclasses
import io
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from cometmq.client.core.options import option_of
from cometmq.codec.codes import VERSION, version_name
from cometmq.model.group import ConsumeType

TASKS_SHOWN_MAX = 1_000


def properties(
    settings: Any,
    *,
    group: str,
    consume_type: ConsumeType,
    name_servers: Sequence[str],
    began_ms: int,
    is_orderly: bool = False,
) -> dict[str, str]:
    """All settings as text, under RocketMQ's names where it has them, and what else tools show."""
    known = {"consumerGroup": group}
    for field in dataclasses.fields(settings):
        known[option_of(field).key or field.name] = _text(getattr(settings, field.name))
    return known | {
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in name_servers),
        "PROP_CONSUME_TYPE": consume_type.value,
        "PROP_CLIENT_VERSION": version_name(VERSION),
        "PROP_CONSUMEORDERLY": _text(is_orderly),
        "PROP_CONSUMER_START_TIMESTAMP": str(began_ms),
    }


def stacks() -> str:
    """Where all threads and the tasks of this loop are."""
    text = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, ident)}\n")
        text.write("".join(traceback.format_stack(frame)))
    for task in list(asyncio.all_tasks())[:TASKS_SHOWN_MAX]:
        task.print_stack(file=text)
    return text.getvalue()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(getattr(value, "name", value))
