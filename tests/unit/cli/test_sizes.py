from pathlib import Path

import pytest

from cometmq.cli.sizes import brief_path, human_bytes, human_rate


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (20 * 2**30, "20.0 GiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_bytes_are_told_in_the_unit_that_fits(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        *((None, ""), (0, "0"), (0.01, "0"), (0.4, "0.4"), (9.9, "9.9"), (12.3, "12")),
        *((9_999, "9999"), (12_345, "12.3k"), (999_960, "1.0M"), (2_500_000, "2.5M")),
    ],
)
def test_a_rate_takes_few_characters(rate: float | None, text: str) -> None:
    assert human_rate(rate) == text


def test_a_path_below_home_is_written_as_shells_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/abode/ann")

    paths = ("/abode/ann/mq", "/abode/ann", "/abode/anna/mq", "/var/lib/mq", "mq")

    assert [brief_path(Path(path)) for path in paths] == [
        *("~/mq", "~", "/abode/anna/mq", "/var/lib/mq", "mq")
    ]
