"""For the conftest of tests that may be coroutines, bounded in time."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

TEST_SECONDS_MAX = 30


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(_bounded(pyfuncitem.obj(**arguments)))
    return True


async def _bounded(test: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(TEST_SECONDS_MAX):
        await test
