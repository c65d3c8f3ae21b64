import pytest

from cometmq.cli.consuming import Place, place_of
from cometmq.errors import InvalidArgument

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place(end="first")),
        ("First", Place(end="first")),
        ("latest", Place(end="last")),
        ("0", Place(offset=0)),
        ("12345678", Place(offset=12_345_678)),
        ("1700000000000", Place(time_ms=1_700_000_000_000)),
        ("10m ago", Place(time_ms=NOW_MS - 600_000)),
        ("-1h", Place(time_ms=NOW_MS - 3_600_000)),
        ("2026-11-17T10:00:00Z", Place(time_ms=1_794_909_600_000)),
        ("now", Place(time_ms=NOW_MS)),
    ],
)
def test_a_place_is_an_end_an_offset_or_a_time(text: str, place: Place) -> None:
    assert place_of("from", text, NOW_MS) == place


@pytest.mark.parametrize("text", ["", "soon", "5x", "2026-13-01"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        place_of("from", text, NOW_MS)

    assert caught.value.fact == f"'{text}' is no place in a topic"
    assert "earliest, latest, an offset" in caught.value.next_step
