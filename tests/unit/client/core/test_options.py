"""Settings that are given as words."""

from typing import Any

import pytest

from cometmq.client.core.settings import (
    ConsumerSettings,
    LiteSettings,
    ProducerSettings,
    settings_from,
)
from cometmq.errors import SettingsError


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (ConsumerSettings, {"mode": "clustering"}, "'clustering'.*'cluster' or 'broadcast'"),
        (LiteSettings, {"mode": "Broadcast"}, "'Broadcast'.*'cluster' or 'broadcast'"),
        (ConsumerSettings, {"start": "latest"}, "'latest'.*'last' or 'first', or a number"),
        (ProducerSettings, {"compression": "gzip"}, "'gzip'.*'zlib' or 'lz4' or 'zstd'"),
        (ProducerSettings, {"fault_table": True}, "True.*'off' or '5.1.4' or '4.9'"),
    ],
)
def test_a_word_that_is_no_choice_is_refused_with_those_that_are(
    kind: Any, options: dict[str, Any], words: str
) -> None:
    """A consumer that began at ``latest`` would start, and read nothing."""
    with pytest.raises(SettingsError, match=words):
        settings_from(kind, options)


@pytest.mark.parametrize("start", ["first", "last", 1_700_000_000_000])
def test_choices_are_taken(start: Any) -> None:
    settings = settings_from(ConsumerSettings, {"start": start, "mode": "broadcast"})

    assert (settings.start, settings.mode) == (start, "broadcast")
