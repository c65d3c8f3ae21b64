import socket
from collections.abc import Callable, Iterator

import pytest

from cometmq import logs
from tests.unit.coroutines import pytest_pyfunc_call as pytest_pyfunc_call


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Every command sets up logging; other tests must not notice."""
    yield
    logs.reset()


@pytest.fixture
def unused_port() -> Callable[[], int]:
    """A port of this machine on which nobody listens."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    return find
