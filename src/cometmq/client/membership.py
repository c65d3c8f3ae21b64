"""One consumer as a member of its group: which queues are its own, now and after each change.

Theory of operation. A rebalance looks at each subscribed topic: which queues it has, who the
members are, what the strategy gives to this one; then it lets queues go and come through its owner.
Nothing is announced to the others: all compute the same from the same lists. So a rebalance that
something asked for (a broker's notice, a new connection, a subscription) first makes sure that the
lists are good: routes are asked for anew and a heartbeat has told every broker of this member.
What could not be done (a queue whose offset nobody could say, a handler that still runs) is tried
again after a pause.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from cometmq import logs
from cometmq.client.background import Repeater
from cometmq.client.core.names import is_retry_topic
from cometmq.client.core.rebalance import Member, Plan, broadcast_plan
from cometmq.client.core.settings import Mode
from cometmq.client.core.strategies import Strategy
from cometmq.client.core.subscriptions import renewed
from cometmq.client.instance import Instance
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import ConsumerConnection, ConsumerIdList
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.clients import GetConsumerConnectionList, GetConsumerListByGroup
from cometmq.errors import CometError
from cometmq.model.group import SubscriptionData
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import MASTER_ID
from cometmq.remoting.connections import Pauses
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")

RETRY_MS_MIN = 100
"""Least pause before what could not be done is tried again."""
_JITTER = 0.25
"""By how much the gap between rebalances differs among members, so that they do not go in step."""


class QueueOwner(Protocol):
    """Who reads the queues of a member. Never called for one queue twice at a time."""

    async def queue_added(self, queue: MessageQueue) -> bool:
        """Begin to read it; False when that is not possible now."""
        ...

    async def queue_removed(self, queue: MessageQueue) -> bool:
        """Stop reading it; False when it cannot be let go yet."""
        ...

    def queues_changed(
        self, topic: str, known: tuple[MessageQueue, ...], mine: tuple[MessageQueue, ...]
    ) -> None:
        """Other queues than before, or another number of them; ``known`` are all of the topic."""
        ...


class Membership:
    """Keeps the queues of one consumer right, by itself once it is started.

    Topics and group are as on the wire.
    """

    def __init__(
        self, instance: Instance, group: str, *, mode: Mode, strategy: Strategy, owner: QueueOwner
    ) -> None:
        self.subscriptions: dict[str, SubscriptionData] = {}  # by topic
        self.is_suspended = False  # nothing comes and nothing goes meanwhile
        self._instance = instance
        self._group = group
        self._mode = mode
        self._member = Member(group, instance.client_id, strategy)
        self._owner = owner
        self._owned: set[MessageQueue] = set()
        self._seen: dict[str, tuple[MessageQueue, ...]] = {}  # queues by topic, when last told
        self._members: tuple[str, ...] = ()  # of the group, when last looked
        self._is_asked_for = True  # something has changed, so that lists must be asked for anew
        self._complaints: dict[str, str] = {}  # by topic, so that a lasting problem is one line
        self._rebalancing = asyncio.Lock()
        self._background = Background()
        settings = instance.settings
        self._retrying: asyncio.TimerHandle | None = None
        self._failures = 0  # rebalances in a row for which something was not known
        self._pauses = Pauses(
            first=max(settings.rebalance_gap_ms, RETRY_MS_MIN) / 1000,
            longest=settings.rebalance_interval_ms / 1000,
        )
        self._repeater = Repeater(
            f"rebalancing {group}",
            self.rebalance,
            interval_ms=settings.rebalance_interval_ms,
            gap_ms=round(settings.rebalance_gap_ms * random.uniform(1, 1 + _JITTER)),
        )

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """What is this member's now."""
        return frozenset(self._owned)

    def subscribe(self, subscription: SubscriptionData) -> None:
        """Read this topic from the next rebalance on, or read it otherwise."""
        self.subscriptions[subscription.topic] = subscription

    def unsubscribe(self, topic: str) -> None:
        """Let its queues go with the next rebalance."""
        self.subscriptions.pop(topic, None)

    def renew(self, topic: str) -> None:
        """Let brokers take the subscription for newer than what they know."""
        known = self.subscriptions.get(topic)
        if known is not None:
            self.subscriptions[topic] = renewed(known, self._instance.clock.now_ms())

    def start(self) -> None:
        """Rebalance at intervals, and when woken."""
        self._repeater.start(self._background)

    async def stop(self) -> None:
        """No more rebalances; the queues stay with their owner."""
        await self._background.stop()
        self._forget_retry()

    def wake(self) -> None:
        """Something has changed: rebalance soon, with everything asked for anew."""
        self._is_asked_for = True
        self._failures = 0
        self._repeater.wake()

    def forget(self, queue: MessageQueue) -> None:
        """The owner has let a queue go by itself: the next rebalance gives it anew."""
        self._owned.discard(queue)
        self._repeater.wake()

    async def rebalance(self) -> bool:
        """Do it now; says whether everything that was to be done is done."""
        async with self._rebalancing:
            if self.is_suspended:
                return True
            if self._is_asked_for:
                self._is_asked_for = False
                await self._prepare()
            is_done = await self._rebalance()
        if not is_done:
            self._forget_retry()
            loop = asyncio.get_running_loop()
            self._retrying = loop.call_later(self._pause(), self._retry_now)
        return is_done

    @property
    def is_to_be_tried_again(self) -> bool:
        """Whether something was left to do, and will be without anything else happening."""
        return self._retrying is not None

    def _retry_now(self) -> None:
        self._retrying = None
        self._repeater.wake()

    def _forget_retry(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None

    def _pause(self) -> float:
        """Before what could not be done is tried again: longer each time if it was not by us."""
        if not any(self._complaints.values()):
            self._failures = 0
            return self._pauses.first
        self._failures += 1
        return self._pauses.after(self._failures)

    # --- one rebalance

    async def _prepare(self) -> None:
        routes = self._instance.routes
        await asyncio.gather(*(routes.refresh(topic) for topic in tuple(self.subscriptions)))
        if self._mode == "cluster":
            await self._instance.heartbeat()

    async def _rebalance(self) -> bool:
        is_done = True
        asked: dict[str, tuple[str, ...]] = {}  # members by broker, so that each is asked once
        for topic in tuple(self.subscriptions):
            plan = await self._plan(topic, asked)
            if not await self._carry_out(plan):
                is_done = False
        gone = [queue for queue in self._owned if queue.topic not in self.subscriptions]
        if not await self._let_go(gone):
            is_done = False
        for topic in [known for known in self._seen if known not in self.subscriptions]:
            del self._seen[topic]
        for topic in [known for known in self._complaints if known not in self.subscriptions]:
            del self._complaints[topic]
        members = next(iter(asked.values()), self._members)
        if members != self._members:
            self._members = members
            await self._look_at_members(next(iter(asked)))
        return is_done

    async def _plan(self, topic: str, asked: dict[str, tuple[str, ...]]) -> Plan:
        routes = self._instance.routes
        found = routes.known(topic)
        if found is None or found.is_default:
            # Retry topics are made by the first heartbeat of a group: look again soon.
            found = await routes.refresh(topic)
        queues = None if found is None or found.is_default else found.read_queues
        if self._mode == "broadcast":
            return broadcast_plan(topic, self._owned, queues)
        members = None if queues is None else await self._members_of(topic, asked)
        return self._member.plan(topic, self._owned, queues, members)

    async def _carry_out(self, plan: Plan) -> bool:
        self._complain(plan)
        if plan.problem:
            return False
        is_done = await self._let_go(plan.go)
        results = await _each(self._add, plan.come)
        self._tell(plan.topic, plan.known)
        return is_done and all(results)

    async def _let_go(self, queues: Collection[MessageQueue]) -> bool:
        return all(await _each(self._remove, queues))

    # Counted one by one, as soon as each has come or gone: its owner may let it go again while
    # others are still waited for.

    async def _add(self, queue: MessageQueue) -> bool:
        is_ours = await self._owner.queue_added(queue)
        if is_ours:
            self._owned.add(queue)
        return is_ours

    async def _remove(self, queue: MessageQueue) -> bool:
        is_gone = await self._owner.queue_removed(queue)
        if is_gone:
            self._owned.discard(queue)
        return is_gone

    def _tell(self, topic: str, known: tuple[MessageQueue, ...]) -> None:
        mine = tuple(queue for queue in known if queue in self._owned)
        if self._seen.get(topic) != mine:
            self._seen[topic] = mine
            _log.info(
                "group=%s topic=%s queues=%d of %d", self._group, topic, len(mine), len(known)
            )
            self._owner.queues_changed(topic, known, mine)

    def _complain(self, plan: Plan) -> None:
        if plan.problem and self._complaints.get(plan.topic) != plan.problem:
            # The retry topic of a new group is there a moment after its first heartbeat.
            say = _log.debug if is_retry_topic(plan.topic) else _log.warning
            say("group=%s topic=%s keeps its queues: %s", self._group, plan.topic, plan.problem)
        self._complaints[plan.topic] = plan.problem

    # --- who else is there

    async def _members_of(
        self, topic: str, asked: dict[str, tuple[str, ...]]
    ) -> tuple[str, ...] | None:
        """The members, from a broker of the topic; None when none of them could say."""
        addresses = self._brokers_of(topic)
        for address in addresses:
            if address in asked:
                return asked[address]
        for address in addresses:
            try:
                members = await self._ask_members(address)
                if self._member.client_id not in members:
                    # It may have been restarted, and others were faster to say that they are here.
                    await self._instance.heartbeat()
                    members = await self._ask_members(address)
            except CometError as error:
                _log.info("group=%s broker=%s members: %s", self._group, address, error)
                continue
            asked[address] = members
            return members
        return None

    def _brokers_of(self, topic: str) -> list[str]:
        """Addresses to ask, in random order: of each broker its master, else anybody."""
        found = self._instance.routes.known(topic)
        if found is None:
            return []
        addresses: list[str] = []
        for broker in found.route.broker_datas:
            known = broker.broker_addrs
            if known:
                addresses.append(known.get(MASTER_ID) or random.choice(sorted(known.values())))
        random.shuffle(addresses)
        return addresses

    async def _ask_members(self, address: str) -> tuple[str, ...]:
        code, header = RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroup(self._group)
        answer = await self._instance.ask(self._instance.vip(address), code, header)
        if not answer.body:
            return ()
        return tuple(sorted(bodies.decode(ConsumerIdList, answer.body).consumer_id_list))

    async def _look_at_members(self, address: str) -> None:
        """Warn of what makes groups misbehave: an id used twice, subscriptions that differ."""
        code, header = RequestCode.GET_CONSUMER_CONNECTION_LIST, None
        header = GetConsumerConnectionList(self._group)
        try:
            answer = await self._instance.ask(address, code, header)
            if not answer.body:
                return
            group = bodies.decode(ConsumerConnection, answer.body)
        except CometError as error:
            _log.debug("group=%s broker=%s connections: %s", self._group, address, error)
            return
        own_id = self._member.client_id
        mine = sorted({c.client_addr or "?" for c in group.connection_set if c.client_id == own_id})
        if len(mine) > 1:
            _log.error(
                "group=%s client_id=%s is used from several addresses: %s; some queues will be read"
                " twice and others not at all, give each client its own instance_name or client_ip",
                self._group,
                own_id,
                ", ".join(mine),
            )
        self._compare(group)

    def _compare(self, group: ConsumerConnection) -> None:
        for topic, mine in self.subscriptions.items():
            theirs = group.subscription_table.get(topic)
            if theirs is None or theirs.sub_version <= mine.sub_version:
                continue
            if (theirs.sub_string, theirs.expression_type) != (
                mine.sub_string,
                mine.expression_type,
            ):
                _log.warning(
                    "group=%s topic=%s another member subscribes '%s', this one '%s': all members"
                    " must subscribe alike, or messages are lost to them",
                    self._group,
                    topic,
                    theirs.sub_string,
                    mine.sub_string,
                )


async def _each(
    work: Callable[[MessageQueue], Awaitable[bool]], queues: Iterable[MessageQueue]
) -> list[bool]:
    return await asyncio.gather(*(_guarded(work, queue) for queue in queues))


async def _guarded(work: Callable[[MessageQueue], Awaitable[bool]], queue: MessageQueue) -> bool:
    """An exception for one queue must not keep others from coming and going."""
    try:
        return await work(queue)
    except Exception:
        _log.exception("queue=%s not taken over or let go, trying again", queue)
        return False
