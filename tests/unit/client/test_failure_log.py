"""Lines about handlers that fail."""

import pytest

from cometmq.client.core.message import Message, Source
from cometmq.client.core.value_codecs import BYTES
from cometmq.client.failure_log import LINE_SECONDS, FailureLog
from cometmq.testing import FakeClock
from tests.unit.client.consumer_kit import stored


def test_many_failures_are_few_lines_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    log = FailureLog("group", clock)
    message = Message(stored(7), Source("broker-a", BYTES))

    for _ in range(5):
        log.note(message, ValueError("bad"), "it is sent back")
    clock.advance(LINE_SECONDS)
    log.note(message, ValueError("worse"), "it is sent back")

    first, second = caplog.records
    assert "handler failed for <Message U7" in first.getMessage()
    assert "it is sent back (0 more" in first.getMessage()
    assert "(4 more since the last line)" in second.getMessage()
    assert second.exc_info is not None
