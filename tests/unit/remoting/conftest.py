"""Tests here may be coroutines: each runs on asyncio's own loop and on uvloop, bounded in time."""

import asyncio
import inspect
import resource
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from tests.unit.remoting.certificates import Certificates, make_certificates

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
TEST_SECONDS_MAX = 60
FILES = 4096


@pytest.fixture(autouse=True)
def loop_name() -> str:
    """Which loop runs the test; coroutines get all of them."""
    return "asyncio"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if inspect.iscoroutinefunction(metafunc.function):
        metafunc.parametrize("loop_name", LOOPS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    loop_factory = LOOPS[str(pyfuncitem.funcargs["loop_name"])]
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_bounded(pyfuncitem.obj(**arguments)))
    return True


async def _bounded(test: Coroutine[Any, Any, None]) -> None:
    """Run ``test``; what a loop would merely log (an exception nobody caught) fails it."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with asyncio.timeout(TEST_SECONDS_MAX):
        await test
    await asyncio.sleep(0)
    assert complaints == []


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for a few thousand sockets, here and in processes started from here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
