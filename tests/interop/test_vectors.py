"""The committed vectors are what Apache's encoders make today, and will make tomorrow."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("kind", vectors.KINDS)
def test_every_vector_says_for_which_releases_it_holds(kind: str) -> None:
    for vector in vectors.read(kind):
        assert set(vector["releases"]) <= set(vectors.RELEASES)
        assert vector["releases"]
