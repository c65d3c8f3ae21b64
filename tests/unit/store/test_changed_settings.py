"""Settings of a store that change while it is open."""

import dataclasses
from pathlib import Path

import pytest

from cometmq.errors import SettingsError
from cometmq.testing import FakeClock
from tests.unit.store.builders import message, open_store


def test_files_expire_by_the_new_age(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path, clock=clock, log_file_bytes=4096) as store:
        while store.log_end < 3 * 4096:
            store.put(message(body=b"x" * 500))
        store.flush()
        kept = store.clean(at_any_hour=True)

        store.use(dataclasses.replace(store.settings, retention_hours=0))
        clock.advance(10 * 365 * 24 * 3600)  # files have the machine's time
        deleted = store.clean(at_any_hour=True)

    assert kept == 0
    assert deleted > 0


def test_hours_that_are_none_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        before = store.settings

        with pytest.raises(SettingsError):
            store.use(
                dataclasses.replace(store.settings, deletion_hours=("25",), retention_hours=1)
            )

        assert store.settings is before


def test_the_log_is_flushed_at_the_new_interval(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path, clock=clock, flush_interval_ms=60_000) as store:
        store.put(message(body=b"x" * 3 * 4096 * 4))
        clock.advance(1)
        store.flush_step()
        before = store.watermarks.flushed

        store.use(dataclasses.replace(store.settings, flush_interval_ms=500))
        store.flush_step()

        assert before == 0
        assert store.watermarks.flushed == store.log_end


def test_whoever_wants_to_know_is_told_how_long_flushes_take(tmp_path: Path) -> None:
    seconds: list[float] = []
    others: list[float] = []
    with open_store(tmp_path) as store:
        store.on_flushed(seconds.append)
        store.on_flushed(others.append)
        store.put(message())

        store.flush()
        store.flush()

        assert seconds == others == [0.0], "a flush without anything new is none"
