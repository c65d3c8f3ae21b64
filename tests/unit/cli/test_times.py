from datetime import datetime

import click
import pytest

from cometmq.cli.times import (
    DURATION,
    Time,
    brief_duration,
    iso_time,
    local_time,
    parse_duration,
    parse_time,
)

NOON_MS = round(datetime(2026, 11, 17, 12, 0).timestamp() * 1000)  # noqa: DTZ001 - local time


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("10", 10_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 172_800_000),
        ("0", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "m", "10 parsecs", "-5s", "5m3", "1e3s", "99999999999999d"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("text", "offset_ms"),
    [
        ("now", 0),
        ("5m ago", -300_000),
        ("-5m", -300_000),
        ("2h30m ago", -9_000_000),
        ("12:00", 0),
        ("9:30", -9_000_000),
        ("11:59:59", -1_000),
        ("2026-11-17T12:00:00", 0),
        ("2026-11-17 12:00:00.250", 250),
        (str(NOON_MS), 0),
    ],
)
def test_a_time_is_read_as_people_write_it(text: str, offset_ms: int) -> None:
    assert parse_time(text, NOON_MS) == NOON_MS + offset_ms


def test_a_zone_that_is_named_holds() -> None:
    assert parse_time("1970-01-02T00:00:00Z", NOON_MS) == 86_400_000
    assert parse_time("1970-01-02T02:00:00+02:00", NOON_MS) == 86_400_000


@pytest.mark.parametrize("text", ["", "yesterday", "25:00", "2026-13-01", "ago", "-", "12"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_time(text, NOON_MS) is None


def test_what_a_table_shows_can_be_given_back() -> None:
    shown = local_time(NOON_MS)

    assert shown == "2026-11-17 12:00:00"
    assert parse_time(shown, 0) == NOON_MS
    assert parse_time(iso_time(NOON_MS) or "", 0) == NOON_MS


@pytest.mark.parametrize("ms", [None, 0, -1, 10**18])
def test_a_time_that_nobody_wrote_is_shown_as_none(ms: int | None) -> None:
    assert iso_time(ms) is None
    assert local_time(ms) is None


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_200, "1.2s"),
        (12_400, "12s"),
        (303_000, "5m3s"),
        (11_520_000, "3h12m"),
        (180_000_000, "2d2h"),
    ],
)
def test_a_duration_in_a_table_has_two_units_at_most(ms: int, text: str) -> None:
    assert brief_duration(ms) == text


def test_an_option_says_how_to_write_its_value() -> None:
    with pytest.raises(click.BadParameter, match="'soon' is no time; write it as"):
        Time(lambda: NOON_MS).convert("soon", None, None)
    with pytest.raises(click.BadParameter, match="'long' is no duration; write it as"):
        DURATION.convert("long", None, None)


def test_an_option_takes_what_was_converted_already() -> None:
    assert Time(lambda: NOON_MS).convert("now", None, None) == NOON_MS
    assert Time(lambda: NOON_MS).convert(7, None, None) == 7
    assert DURATION.convert("2s", None, None) == 2000
    assert DURATION.convert(7, None, None) == 7
