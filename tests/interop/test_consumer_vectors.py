"""The committed vectors of consumers are what Apache's clients make today."""

from pathlib import Path

import pytest

from tests.interop import consumer_vectors, requirements, vectors
from tests.interop.cache import Cache


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_committed_vectors_are_what_apache_makes_now(cache: Cache, tmp_path: Path) -> None:
    requirements.need("java")

    made = consumer_vectors.make(cache, tmp_path)

    for kind in consumer_vectors.KINDS:
        assert made[kind] == vectors.read(kind), f"{kind}: python -m tests.interop.consumer_vectors"
