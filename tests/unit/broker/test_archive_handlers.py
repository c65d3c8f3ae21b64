"""Requests about archives: what is answered, and that it is saved before that is said."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.archives import Archives, ArchivesFile
from cometmq.broker.handlers.extensions import ExtensionHandlers
from cometmq.broker.keeping import RETRY_MS, Keeper
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.extensions import ArchiveCommit, ArchiveRemove
from cometmq.remoting.routes import Routes
from cometmq.saved_file import DiskFiles
from cometmq.store import MessageStore
from cometmq.store.results import NewMessage
from cometmq.store.retention import Hold
from cometmq.testing import FakeClock
from tests.unit.broker.fake_channel import FakeChannel, Reply, request
from tests.unit.broker.tables import broker_settings

COMMIT, REMOVE = RequestCode.COMET_ARCHIVE_COMMIT, RequestCode.COMET_ARCHIVE_REMOVE


class Disk(DiskFiles):
    """The real one, until it is full."""

    def __init__(self) -> None:
        self.is_full = False

    def replace(self, path: Path, content: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().replace(path, content)


class Place:
    """A store with one message, its archives, and whoever saves them."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.disk = Disk()
        self.store = MessageStore.open(folder, clock=self.clock, threads=False)
        self.store.put(NewMessage("orders", 0, b"body"))
        self.store.flush()
        file = ArchivesFile(folder, self.disk)
        self.archives = Archives(file, self.store, self.clock)
        self.keeper = Keeper(self.clock)
        self.archives.on_change = self.keeper.add("archives", file, self.archives.table)
        self.routes = Routes()
        ExtensionHandlers(self.store, self.archives, broker_settings(), self._settle).add_to(
            self.routes
        )

    async def _settle(self) -> str:
        await self.keeper.settle()
        return self.keeper.problem_of("archives")

    def commit(self, offset: int) -> Reply:
        return self._ask(COMMIT, ArchiveCommit("lake", offset))

    def remove(self) -> Reply:
        return self._ask(REMOVE, ArchiveRemove("lake"))

    def kept(self) -> Hold | None:
        """What a broker that starts now knows."""
        return Archives(ArchivesFile(self.store.root), self.store, self.clock).hold()

    def _ask(self, code: RequestCode, header: Header) -> Reply:
        async def scenario() -> Reply:
            saving = asyncio.create_task(self.keeper.run())
            channel = FakeChannel()
            channel.ask(self.routes, request(code, header))
            await channel.finish()
            saving.cancel()
            return channel.replies[0]

        return asyncio.run(scenario())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.store.close()


def test_a_watermark_is_saved_when_it_is_answered(place: Place) -> None:
    reply = place.commit(100)

    assert (reply.code, reply.ext) == (ResponseCode.SUCCESS, {"offset": "100"})
    assert place.kept() == Hold("lake", 100)


def test_who_commits_is_told_when_the_watermark_could_not_be_saved(place: Place) -> None:
    place.commit(50)
    place.disk.is_full = True

    replies = [place.commit(100), place.commit(100)]

    words = "not saved: [Errno 28] No space left on device"
    assert [(r.code, r.remark) for r in replies] == [(ResponseCode.SYSTEM_ERROR, words)] * 2
    assert place.kept() == Hold("lake", 50)


def test_the_same_commit_succeeds_once_it_could_be_saved(place: Place) -> None:
    place.disk.is_full = True
    place.commit(100)
    place.disk.is_full = False
    place.clock.advance(RETRY_MS / 1000)

    reply = place.commit(100)

    assert (reply.code, reply.ext) == (ResponseCode.SUCCESS, {"offset": "100"})
    assert place.kept() == Hold("lake", 100)


def test_who_removes_an_archive_is_told_when_that_could_not_be_saved(place: Place) -> None:
    place.commit(100)
    place.disk.is_full = True

    codes = [place.remove().code, place.remove().code]

    assert codes == [ResponseCode.SYSTEM_ERROR] * 2
    assert place.kept() == Hold("lake", 100)
    place.disk.is_full = False
    place.clock.advance(RETRY_MS / 1000)
    assert place.remove().code == ResponseCode.QUERY_NOT_FOUND
    assert place.kept() is None
