"""Both flavours of the client have the same methods, with the same arguments, and promise the same.

What differs is what must: coroutines return when they are awaited, async iterators are plain ones,
functions that users give are plain ones.
"""

import inspect
import re
from typing import Any

import pytest

from cometmq import aio
from cometmq.admin import Admin
from cometmq.blocking import client, consumer, lite_consumer, producer, pull_consumer, transactions
from cometmq.client import browsing, push_consumer
from cometmq.client import lite_consumer as aio_lite_consumer
from cometmq.client import producer as aio_producer
from cometmq.client import pull_consumer as aio_pull_consumer
from cometmq.client import transactions as aio_transactions

PAIRS: list[tuple[type, type]] = [
    (aio.Client, client.Client),
    (aio_producer.Producer, producer.Producer),
    (aio_transactions.TransactionProducer, transactions.TransactionProducer),
    (push_consumer.Consumer, consumer.Consumer),
    (aio_lite_consumer.LiteConsumer, lite_consumer.LiteConsumer),
    (aio_pull_consumer.PullConsumer, pull_consumer.PullConsumer),
]
THERE = {
    **vars(browsing),
    "Admin": Admin,
    **vars(aio_producer),
    **vars(aio_transactions),
    **vars(push_consumer),
    **vars(aio_lite_consumer),
    **vars(aio_pull_consumer),
}
HERE = {
    **THERE,
    **vars(producer),
    **vars(transactions),
    **vars(consumer),
    **vars(lite_consumer),
    **vars(pull_consumer),
}
"""What annotations of each flavour name, also where it is imported for checkers only."""
INSIDE = {"Consumer.begin_iteration", "Producer.check_transaction", "Producer.topics"}
"""Public for other parts of the client, not for its users."""
ONLY_BLOCKING = {"send_async"}
PLAIN = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


@pytest.mark.parametrize(("there", "here"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_flavours_have_the_same_names(there: type, here: type) -> None:
    wanted = {PLAIN.get(name, name) for name in names_of(there)}

    assert names_of(here) - ONLY_BLOCKING == wanted


@pytest.mark.parametrize(("there", "here"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_flavours_take_and_return_the_same(there: type, here: type) -> None:
    for name in sorted(names_of(there)):
        expected, found = getattr(there, name), getattr(here, PLAIN.get(name, name))

        assert described(found, HERE) == described(expected, THERE), f"{here.__name__}.{name}"


@pytest.mark.parametrize(("there", "here"), PAIRS, ids=lambda kind: kind.__name__)
def test_nothing_of_the_blocking_flavour_is_a_coroutine(there: type, here: type) -> None:
    coroutines = [n for n in names_of(here) if inspect.iscoroutinefunction(getattr(here, n))]

    assert coroutines == []


def test_sends_that_go_on_take_what_sends_take() -> None:
    send = set(inspect.signature(producer.Producer.send).parameters)

    options = set(aio_producer.SendOptions.__annotations__)

    assert send == {"self", "topic", "value", "timeout_ms", *options}


def names_of(kind: type) -> set[str]:
    found = {name for name in dir(kind) if not name.startswith("_")}
    found = {name for name in found if f"{kind.__name__}.{name}" not in INSIDE}
    return found | {name for name in (*PLAIN, *PLAIN.values()) if hasattr(kind, name)}


def described(member: Any, names: dict[str, Any]) -> list[tuple[str, object, object, str]]:
    """Name, kind, default and annotation of all parameters, then what is returned."""
    if isinstance(member, property):
        member = member.fget
    signature = inspect.signature(member, eval_str=True, locals=names)
    parameters = [
        (parameter.name, parameter.kind, parameter.default, text(parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    return [*parameters, ("return", None, None, text(signature.return_annotation))]


def text(annotation: Any) -> str:
    """An annotation without modules, as it would be if nothing were asynchronous."""
    found = inspect.formatannotation(annotation)
    found = re.sub(r"[A-Za-z_][\w]*\.", "", found)
    found = re.sub(r" \| Awaitable\[[^\[\]]*\]", "", found)
    found = re.sub(r"Awaitable\[([^\[\]]*)\]", r"\1", found)
    found = re.sub(r"AsyncGenerator\[(.*), None\]", r"Stream[\1]", found)
    found = re.sub(r"MessageIterator\[(.*)\]", r"Stream[Message[\1]]", found)
    return found.replace("AsyncIterator", "Iterator")
