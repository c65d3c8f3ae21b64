from collections.abc import Iterator

import pytest

from cometmq import logs


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Every command sets up logging; other tests must not notice."""
    yield
    logs.reset()
