"""How queues come and go: saved, unlocked and handled by one, whatever happens meanwhile."""

import asyncio
from typing import Any, Self

from cometmq.client.core.consume_rates import ConsumeRates
from cometmq.client.offset_stores import RemoteOffsets
from cometmq.client.owned_queue import OwnedQueue
from cometmq.client.push_queues import PushQueues
from cometmq.errors import Unreachable
from cometmq.model.offsets import MessageQueue
from cometmq.remoting.running import Background
from cometmq.testing import FakeClock
from tests.unit.client.consumer_kit import messages_for, queue, settled, setup_of


class FakeStore(RemoteOffsets):
    """A store whose broker is a table; ``gate`` holds writes up."""

    def __init__(self, instance: Any, log: list[str]) -> None:
        super().__init__(instance, "group")
        self.broker: dict[MessageQueue, int] = {}
        self.gate: asyncio.Event | None = None
        self.is_reachable = True
        self._said = log

    async def stored(self, queue: MessageQueue) -> int | None:
        if not self.is_reachable:
            raise Unreachable("broker-a", "gone")
        return self.broker.get(queue, 0)

    async def persist(self, queues: Any, *, is_synchronous: bool = False) -> bool:
        due = self._known(queues)
        if self.gate is not None:
            await self.gate.wait()
        self.broker.update(due)
        self._said.extend(f"saved {offset}" for offset in due.values())
        return True


class FakeLocking:
    """A broker that gives every lock."""

    def __init__(self, log: list[str]) -> None:
        self.held: set[MessageQueue] = set()
        self._said = log

    async def lock(self, queues: Any) -> dict[MessageQueue, bool]:
        self._said.extend("locked" for _ in queues)
        self.held.update(queues)
        return dict.fromkeys(queues, True)

    async def unlock(self, queues: Any, *, is_synchronous: bool = False) -> None:
        self._said.extend("unlocked" for _ in queues)
        self.held.difference_update(queues)


class FakeParts:
    """Handling, pulling and membership, as far as queues deal with them."""

    def __init__(self) -> None:
        self.forgotten: list[MessageQueue] = []

    def forget(self, queue: MessageQueue) -> None:
        self.forgotten.append(queue)

    def renew(self, topic: str) -> None: ...

    def leave(self, owned: OwnedQueue[bytes]) -> None: ...

    def drop(self, owned: OwnedQueue[bytes]) -> None: ...

    async def run(self, owned: OwnedQueue[bytes]) -> None:
        await asyncio.Event().wait()


class FakePuller:
    def forget(self, queue: MessageQueue) -> None: ...


class Bench:
    """The queues of a consumer, of which it owns one."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.log: list[str] = []
        self.parts = FakeParts()
        self.background = Background()
        setup = setup_of(self.clock, **options)
        self.store = FakeStore(setup.instance, self.log)
        self.locking = FakeLocking(self.log) if setup.has_locks else None
        parts: Any = self.parts
        locking: Any = self.locking
        puller: Any = FakePuller()
        self.queues: PushQueues[bytes] = PushQueues(
            setup,
            self.store,
            parts,
            puller,
            locking=locking,
            rates=ConsumeRates(0),
            background=self.background,
        )
        self.queues.membership = self.queues.pulling = parts

    async def __aenter__(self) -> Self:
        assert await self.queues.queue_added(queue())
        self.log.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.queues.drop_all()
        await self.background.stop()
        await settled()

    @property
    def owned(self) -> OwnedQueue[bytes]:
        return self.queues.owned[queue()]

    def reach(self, offset: int) -> None:
        self.store.update(queue(), offset, forward_only=False)


async def test_a_queue_in_order_is_saved_then_unlocked() -> None:
    async with Bench(is_orderly=True) as bench:
        bench.reach(7)

        await bench.queues.queue_removed(queue())

        assert bench.log == ["saved 7", "unlocked"]


async def test_a_queue_that_is_still_being_saved_does_not_come_back_before_that() -> None:
    async with Bench(is_orderly=True) as bench:
        bench.reach(7)
        bench.store.gate = asyncio.Event()
        leaving = asyncio.create_task(bench.queues.queue_removed(queue()))
        await settled()

        assert not await bench.queues.queue_added(queue())
        bench.store.gate.set()
        await leaving
        bench.store.gate = None

        assert await bench.queues.queue_added(queue())
        assert bench.owned.next_offset == 7
        assert bench.log == ["saved 7", "unlocked", "locked"]


async def test_a_queue_does_not_come_back_before_its_last_handler_has_ended() -> None:
    async with Bench(is_orderly=True) as bench:
        old = bench.owned
        old.idle.clear()
        bench.queues.abandon(old)
        assert bench.parts.forgotten == [queue()]
        assert not await bench.queues.queue_added(queue())

        old.idle.set()
        await settled()

        assert await bench.queues.queue_added(queue())


async def test_an_abandoned_queue_is_neither_saved_nor_unlocked_and_kept_nowhere() -> None:
    async with Bench(is_orderly=True) as bench:
        bench.reach(7)
        bench.owned.cached.unlock()
        bench.queues.abandon(bench.owned)
        await settled()

        assert bench.log == []
        assert bench.store.peek(queue()) == -1
        assert list(bench.queues.persistable()) == []


async def test_a_reset_is_saved_although_the_queue_is_taken_away_meanwhile() -> None:
    async with Bench(is_orderly=True) as bench:
        owned = bench.owned
        owned.idle.clear()
        resetting = asyncio.create_task(bench.queues.reset({queue(): 3}))
        await settled()
        leaving = asyncio.create_task(bench.queues.queue_removed(queue()))
        await settled()

        owned.idle.set()
        await asyncio.gather(resetting, leaving)

        assert bench.log == ["saved 3", "unlocked"]


async def test_a_reset_queue_is_saved_and_let_go_and_comes_anew() -> None:
    async with Bench(is_orderly=True) as bench:
        bench.reach(7)

        await bench.queues.reset({queue(): 3})

        assert bench.log == ["saved 3", "unlocked"]
        assert bench.parts.forgotten == [queue()]
        assert await bench.queues.queue_added(queue())
        assert bench.owned.next_offset == 3


async def test_a_late_handler_does_not_move_an_offset_that_was_reset() -> None:
    async with Bench() as bench:
        owned = bench.owned
        bench.store.gate = asyncio.Event()
        resetting = asyncio.create_task(bench.queues.reset({queue(): 3}))
        await settled()

        assert owned.cached.is_dropped
        bench.reach(9)
        bench.store.gate.set()
        await resetting

        assert bench.store.broker[queue()] == 3


async def test_the_lock_of_a_queue_that_cannot_be_begun_is_given_back() -> None:
    async with Bench(is_orderly=True) as bench:
        await bench.queues.queue_removed(queue())
        bench.log.clear()
        bench.store.is_reachable = False

        assert not await bench.queues.queue_added(queue())

        assert bench.log == ["locked", "unlocked"]


async def test_the_locks_of_busy_queues_that_leave_are_renewed() -> None:
    renewed: list[MessageQueue] = []

    async with Bench(is_orderly=True) as bench:

        async def renew(queues: Any) -> None:
            renewed.extend(one.queue for one in queues)

        bench.parts.renew = renew  # type: ignore[assignment,method-assign]
        bench.owned.idle.clear()
        bench.queues.abandon(bench.owned)
        await bench.queues.renew_locks()

        assert renewed == [queue()]


async def test_what_is_being_let_go_when_the_consumer_ends_is_saved_with_the_rest() -> None:
    async with Bench() as bench:
        bench.reach(7)
        bench.store.gate = asyncio.Event()
        leaving = asyncio.create_task(bench.queues.queue_removed(queue()))
        await settled()
        leaving.cancel()
        await asyncio.wait((leaving,))

        bench.store.gate = None
        await bench.store.persist(bench.queues.persistable())

        assert bench.log == ["saved 7"]


async def test_nothing_comes_after_the_end_has_begun() -> None:
    async with Bench() as bench:
        await bench.queues.queue_removed(queue())

        bench.queues.stop_pulling()

        assert not await bench.queues.queue_added(queue())
        assert bench.queues.owned == {}


async def test_a_queue_that_is_owned_already_is_not_begun_twice() -> None:
    async with Bench() as bench:
        owned = bench.owned
        owned.cached.put(messages_for(owned, 0))

        assert await bench.queues.queue_added(queue())

        assert bench.owned is owned
