"""The committed vectors are what Apache's encoders make today, and will make tomorrow."""

import datetime as dt
import itertools
import json
from pathlib import Path

import pytest

from cometmq.codec import message_id
from tests.interop import requirements, vectors
from tests.interop.cache import Cache


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_committed_vectors_are_what_apache_makes_now(cache: Cache, tmp_path: Path) -> None:
    requirements.need("java")

    made = vectors.make(cache, tmp_path)

    for kind in vectors.KINDS:
        assert made[kind] == vectors.read(kind), f"{kind}: python -m tests.interop.vectors"


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", vectors.RELEASES)
def test_unique_ids_that_java_makes_now_tell_when_and_where(
    cache: Cache, tmp_path: Path, release: str
) -> None:
    """Their time counts from the first of the month, in the time zone of the JVM (here UTC)."""
    requirements.need("java")

    folder = vectors.make_release(cache, release, tmp_path)

    made = json.loads((folder / "made-message-ids.json").read_text())
    for earlier, later in itertools.pairwise(made):
        first, second = (message_id.parse_unique_id(vector["id"]) for vector in (earlier, later))
        assert first is not None
        assert second is not None
        assert first.pid == earlier["processId"] & 0xFFFF == earlier["pid"]
        assert second.counter == first.counter + 1
        made_at = month_begin_ms(earlier["madeAfter"]) + first.month_ms
        assert earlier["madeAfter"] <= made_at <= earlier["madeBefore"]


def month_begin_ms(now_ms: int) -> int:
    now = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(begin.timestamp() * 1000)


@pytest.mark.parametrize("kind", vectors.KINDS)
def test_every_vector_says_for_which_releases_it_holds(kind: str) -> None:
    for vector in vectors.read(kind):
        assert set(vector["releases"]) <= set(vectors.RELEASES)
        assert vector["releases"]
