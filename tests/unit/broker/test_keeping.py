"""Documents are saved soon, not too often, one at a time, and never lost."""

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from cometmq.broker.keeping import RETRY_MS, Keeper
from cometmq.errors import LocalProtocolError
from cometmq.testing import FakeClock


class FakeDocument:
    """Remembers what was saved; ``error`` is raised instead while it is set.

    While ``is_held`` a save takes until ``release`` is called.
    """

    def __init__(self) -> None:
        self.saved: list[int] = []
        self.error: Exception | None = None
        self.threads: set[int] = set()
        self.is_held = False
        self.has_begun = threading.Event()
        self._released = threading.Event()
        self._running = 0

    def save(self, value: int, /) -> None:
        self.threads.add(threading.get_ident())
        self._running += 1
        assert self._running == 1, "two saves at a time"
        self.has_begun.set()
        if self.is_held:
            self._released.wait(5)
        self._running -= 1
        if self.error is not None:
            raise self.error
        self.saved.append(value)

    def release(self) -> None:
        self._released.set()


class Table:
    """Something that changes, kept by a keeper of its own."""

    def __init__(self, interval_ms: int | None = None) -> None:
        self.clock = FakeClock()
        self.keeper = Keeper(self.clock)
        self.document = FakeDocument()
        self.value = 0
        self.mark: Callable[[], None] = self.keeper.add(
            "table", self.document, lambda: self.value, interval_ms=interval_ms
        )

    def change(self) -> None:
        self.value += 1
        self.mark()


def test_nothing_is_saved_when_nothing_changed() -> None:
    table = Table()

    pause = asyncio.run(table.keeper.step())

    assert pause is None
    assert table.document.saved == []


def test_a_change_is_saved_on_another_thread() -> None:
    table = Table()
    table.change()

    pause = asyncio.run(table.keeper.step())

    assert pause is None
    assert table.document.saved == [1]
    assert threading.get_ident() not in table.document.threads


def test_many_changes_cost_one_save() -> None:
    table = Table()
    for _ in range(100):
        table.change()

    asyncio.run(table.keeper.step())
    asyncio.run(table.keeper.step())

    assert table.document.saved == [100]


def test_with_an_interval_it_is_saved_no_more_often() -> None:
    table = Table(interval_ms=5000)
    table.change()

    assert asyncio.run(table.keeper.step()) == 5.0
    assert table.document.saved == []
    table.clock.advance(5)
    assert asyncio.run(table.keeper.step()) is None
    assert table.document.saved == [1]

    table.clock.advance(3)
    table.change()
    assert asyncio.run(table.keeper.step()) == 2.0
    table.clock.advance(2)
    asyncio.run(table.keeper.step())
    assert table.document.saved == [1, 2]


def test_a_failure_is_logged_once_and_the_save_repeated_until_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "cometmq")
    table = Table()
    table.document.error = OSError(28, "No space left on device")
    table.change()

    for _ in range(3):
        assert asyncio.run(table.keeper.step()) == RETRY_MS / 1000
        table.clock.advance(RETRY_MS / 1000)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "document=table cannot be saved" in caplog.messages[0]
    assert "No space left on device" in caplog.messages[0]

    table.document.error = None
    assert asyncio.run(table.keeper.step()) is None
    assert table.document.saved == [1]
    assert caplog.messages[1:] == ["document=table saved again"]


def test_it_is_known_why_a_document_is_not_saved() -> None:
    table = Table()
    assert table.keeper.problem_of("table") == ""
    table.document.error = OSError(28, "No space left on device")
    table.change()

    asyncio.run(table.keeper.step())
    assert table.keeper.problem_of("table") == "[Errno 28] No space left on device"

    table.document.error = None
    table.clock.advance(RETRY_MS / 1000)
    asyncio.run(table.keeper.step())
    assert table.keeper.problem_of("table") == ""


def test_one_that_fails_does_not_keep_others_from_being_saved() -> None:
    table = Table()
    table.document.error = OSError(5, "Input/output error")
    other = FakeDocument()
    mark_other = table.keeper.add("other", other, lambda: 7)
    table.change()
    mark_other()

    asyncio.run(table.keeper.step())

    assert other.saved == [7]


def test_closing_saves_what_is_left_whatever_the_interval() -> None:
    table = Table(interval_ms=5000)
    table.change()

    asyncio.run(table.keeper.close())
    asyncio.run(table.keeper.close())

    assert table.document.saved == [1]


def test_closing_saves_the_rest_even_if_one_cannot_be_written_at_all() -> None:
    table = Table()
    table.document.error = LocalProtocolError("no such name in JSON")
    other = FakeDocument()
    mark_other = table.keeper.add("other", other, lambda: 7)
    table.change()
    mark_other()

    with pytest.raises(LocalProtocolError):
        asyncio.run(table.keeper.close())

    assert other.saved == [7]


def test_the_task_saves_each_time_something_is_marked() -> None:
    async def scenario() -> list[int]:
        table = Table()
        running = asyncio.create_task(table.keeper.run())
        for _ in range(3):
            table.change()
            await table.keeper.settle()
        running.cancel()
        return table.document.saved

    assert asyncio.run(scenario()) == [1, 2, 3]


def test_the_task_wakes_up_when_an_interval_is_over() -> None:
    async def scenario() -> list[int]:
        keeper, document, is_saved = Keeper(), FakeDocument(), asyncio.Event()
        loop = asyncio.get_running_loop()

        class Telling(FakeDocument):
            def save(self, value: int, /) -> None:
                document.save(value)
                loop.call_soon_threadsafe(is_saved.set)

        keeper.add("table", Telling(), lambda: 1, interval_ms=1)()
        running = asyncio.create_task(keeper.run())
        await is_saved.wait()
        running.cancel()
        return document.saved

    assert asyncio.run(scenario()) == [1]


def test_what_rests_is_saved_for_those_who_cannot_wait() -> None:
    async def scenario() -> list[list[int]]:
        table = Table(interval_ms=60_000)
        running = asyncio.create_task(table.keeper.run())
        table.change()
        await table.keeper.settle()
        before = list(table.document.saved)
        await table.keeper.settle_all()
        running.cancel()
        return [before, table.document.saved]

    assert asyncio.run(scenario()) == [[], [1]]


def test_also_when_an_older_state_is_just_being_saved() -> None:
    async def scenario() -> list[int]:
        table = Table(interval_ms=60_000)
        table.document.is_held = True
        running = asyncio.create_task(table.keeper.run())
        table.change()
        first = asyncio.create_task(table.keeper.settle_all())
        await asyncio.to_thread(table.document.has_begun.wait, 5)
        table.change()
        second = asyncio.create_task(table.keeper.settle_all())
        await asyncio.sleep(0)
        table.document.release()
        await asyncio.gather(first, second)
        running.cancel()
        return table.document.saved

    assert asyncio.run(scenario()) == [1, 2]


def test_who_waits_goes_on_when_a_save_was_tried_in_vain() -> None:
    async def scenario() -> list[int]:
        table = Table()
        table.document.error = OSError(28, "No space left on device")
        running = asyncio.create_task(table.keeper.run())
        table.change()
        await table.keeper.settle()
        running.cancel()
        return table.document.saved

    assert asyncio.run(scenario()) == []


def test_a_change_made_during_a_save_is_saved_after_it() -> None:
    async def scenario() -> list[int]:
        table = Table()
        table.document.is_held = True
        table.change()
        saving = asyncio.create_task(table.keeper.step())
        await asyncio.to_thread(table.document.has_begun.wait, 5)
        table.change()
        table.document.release()
        await saving
        await table.keeper.step()
        return table.document.saved

    assert asyncio.run(scenario()) == [1, 2]


def test_closing_waits_for_the_save_that_a_cancelled_task_left_behind() -> None:
    async def scenario() -> list[int]:
        table = Table()
        table.document.is_held = True
        running = asyncio.create_task(table.keeper.run())
        table.change()
        waiting = asyncio.create_task(table.keeper.settle())
        await asyncio.to_thread(table.document.has_begun.wait, 5)
        table.change()
        late = asyncio.create_task(table.keeper.settle())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        closing = asyncio.create_task(table.keeper.close())
        await asyncio.sleep(0)
        table.document.release()
        await asyncio.gather(closing, waiting, late)
        return table.document.saved

    assert asyncio.run(scenario()) == [1, 2]
