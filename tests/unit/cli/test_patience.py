from typing import Any

import pytest

from cometmq.cli.connection import resolve
from cometmq.cli.contexts import ContextEntry, Contexts
from cometmq.cli.patience import Within
from cometmq.codec.command import Command


class Connections:
    """Remembers how long each question was to wait."""

    def __init__(self) -> None:
        self.timeouts_ms: list[int] = []

    async def ask(self, *_: Any, timeout_ms: int, **__: Any) -> Command:
        self.timeouts_ms.append(timeout_ms)
        return Command(code=0)


async def test_a_question_waits_no_longer_than_was_said_and_no_longer_than_it_needs() -> None:
    connections = Connections()
    asking = Within(connections, 1_000)

    await asking.ask("h:1", 1, timeout_ms=15_000)
    await asking.ask("h:1", 1, timeout_ms=200)

    assert connections.timeouts_ms == [1_000, 200]


@pytest.mark.parametrize(
    ("flags", "environment", "contexts", "is_given"),
    [
        ({}, {}, Contexts(), False),
        ({"timeout_ms": 900}, {}, Contexts(), True),
        ({}, {"COMETMQ_TIMEOUT": "1s"}, Contexts(), True),
        ({}, {}, Contexts("c", {"c": ContextEntry(namesrv="h:1", timeout_ms=900)}), True),
    ],
)
def test_slow_questions_have_their_time_unless_somebody_says_how_long(
    flags: dict[str, Any], environment: dict[str, str], contexts: Contexts, is_given: bool
) -> None:
    assert resolve(flags, environment, contexts).is_timeout_given is is_given
