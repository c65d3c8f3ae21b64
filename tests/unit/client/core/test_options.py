"""Settings that are given, as words and otherwise."""

from pathlib import Path
from typing import Any

import pytest

from cometmq.client.core.settings import (
    ClientSettings,
    ConsumerSettings,
    LiteSettings,
    ProducerSettings,
    PullSettings,
    settings_from,
)
from cometmq.client.core.strategies import Average, MachineRoom
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


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (ClientSettings, {"instance_name": 5}, "'instance_name': 5 .*it must be text"),
        (ClientSettings, {"unit_name": 5}, "'unit_name': 5 .*it must be text or None"),
        (ProducerSettings, {"send_timeout_ms": "3"}, "'send_timeout_ms': '3' .*a whole number"),
        (ProducerSettings, {"retries": 1.5}, "'retries': 1.5 .*a whole number"),
        (ProducerSettings, {"retries": True}, "'retries': True .*a whole number"),
        (ProducerSettings, {"try_timeout_ms": None}, "'try_timeout_ms': None .*a whole number"),
        (ProducerSettings, {"is_batching": "no"}, "'is_batching': 'no' .*True or False"),
        (ConsumerSettings, {"is_orderly": 1}, "'is_orderly': 1 .*True or False"),
        (ConsumerSettings, {"cached_max": "100"}, "'cached_max': '100' .*a whole number"),
        (ConsumerSettings, {"start": 1.5}, "1.5 .*'last' or 'first', or a number"),
        (ConsumerSettings, {"start": True}, "True .*'last' or 'first', or a number"),
        (ConsumerSettings, {"mode": ["cluster"]}, "'cluster' or 'broadcast'"),
        (LiteSettings, {"strategy": 5}, "'strategy': 5 .*an object with the methods"),
        (PullSettings, {"strategy": Average}, "'strategy': .*an object with the methods"),
        (PullSettings, {"offsets_folder": 5}, "'offsets_folder': 5 .*text or a path or None"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Any, options: dict[str, Any], words: str) -> None:
    """It would fail somewhere inside, or mean something else: ``"no"`` is true."""
    with pytest.raises(SettingsError, match=words):
        settings_from(kind, options)


def test_values_of_their_types_are_taken() -> None:
    options = {"strategy": MachineRoom(["a"]), "offsets_folder": "/tmp", "reconsume_max": -1}

    settings = settings_from(ConsumerSettings, options)

    assert settings.strategy is options["strategy"]
    assert settings.offsets_folder == "/tmp"


def test_a_folder_may_be_a_path() -> None:
    settings = settings_from(ConsumerSettings, {"offsets_folder": Path("/data/offsets")})

    assert settings.offsets_folder == Path("/data/offsets")
