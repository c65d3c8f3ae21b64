"""Requests to delete expired files: answered at once, done in rounds."""

import asyncio

import pytest

from cometmq.broker.handlers import cleaning
from cometmq.broker.handlers.cleaning import ROUNDS_MAX, CleaningHandlers
from cometmq.codec.codes import RequestCode
from cometmq.remoting.routes import Routes
from tests.unit.broker.fake_channel import FakeChannel, request


class FakeStore:
    """Has so many rounds with something to delete."""

    def __init__(self, rounds: int = 0) -> None:
        self.rounds = rounds
        self.calls: list[bool] = []
        self.error: OSError | None = None

    def clean(self, *, at_any_hour: bool = False) -> int:
        self.calls.append(at_any_hour)
        if self.error is not None:
            raise self.error
        self.rounds -= 1
        return 10 if self.rounds >= 0 else 0


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "PAUSE_SECONDS", 0)


async def asked(store: FakeStore, *codes: RequestCode) -> list[int]:
    """Ask, let everything be done, and return the codes of the answers."""
    handlers, routes, channel = CleaningHandlers(store), Routes(), FakeChannel()
    handlers.add_to(routes)
    replies = channel.ask(routes, *(request(code) for code in codes))
    assert store.calls == [], "the answer does not wait for the disk"
    running = asyncio.ensure_future(handlers.run())
    for _ in range(ROUNDS_MAX * 3):
        await asyncio.sleep(0)
    running.cancel()
    return [reply.code for reply in replies]


@pytest.mark.parametrize(
    "code", [RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.TRIGGER_DELETE_FILES]
)
def test_expired_log_files_go_at_any_hour_until_none_is_left(code: RequestCode) -> None:
    store = FakeStore(rounds=3)

    codes = asyncio.run(asked(store, code))

    assert codes == [0]
    assert store.rounds < 0
    assert 3 < len(store.calls) <= 3 + ROUNDS_MAX // 4 + 1
    assert all(store.calls)


def test_one_request_is_good_for_a_limited_number_of_rounds() -> None:
    store = FakeStore(rounds=1000)

    asyncio.run(asked(store, RequestCode.DELETE_EXPIRED_COMMITLOG))

    assert len(store.calls) == ROUNDS_MAX


def test_queue_files_follow_the_log_in_one_round_and_log_files_keep_their_hours() -> None:
    store = FakeStore()

    codes = asyncio.run(asked(store, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))

    assert codes == [0]
    assert store.calls == [False]


def test_requests_that_come_together_are_not_done_twice() -> None:
    store = FakeStore(rounds=1000)

    asyncio.run(asked(store, *[RequestCode.DELETE_EXPIRED_COMMITLOG] * 5))

    assert len(store.calls) == ROUNDS_MAX


def test_a_disk_that_fails_is_told_of_and_does_not_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    store.error = OSError(5, "Input/output error")

    asyncio.run(asked(store, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))

    assert "cleaning failed, ask for it again: [Errno 5] Input/output error" in caplog.text
