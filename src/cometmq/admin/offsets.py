"""How far groups are, and moving them: by time, to an offset, to either end, or as another group.

Theory of operation. Where a group goes is computed here, queue by queue, so that it can be shown
before it is done. How it gets there depends on the broker, because a consumer that is connected
keeps its own offsets and stores them again every few seconds:

- From 5.2 on (and with ours) the broker takes an offset for each queue and sees to it that members
  follow, whether they are connected or not (222 with an offset).
- Before that a broker can only tell connected members a *time* to go back to (222), and refuses
  when nobody is connected (206). Then nobody overwrites what is stored, and the offsets are stored
  one by one (15), as mqadmin does. Exact offsets for connected members cannot be had there.
- On its own dead letters, which its members do not consume, a group's offsets are stored one by
  one everywhere. A reset would wait for a member for ever, and refuse what is stored meanwhile.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from cometmq.admin.groups import Groups
from cometmq.admin.kinds import is_of_dead_letters
from cometmq.admin.positions import (
    Bounds,
    Earliest,
    Latest,
    Offset,
    Position,
    Shift,
    Time,
    offset_at,
    search,
)
from cometmq.admin.servers import (
    UNCHANGED,
    BrokerAddress,
    Servers,
    all_of,
    brokers_of,
    refusal,
    require_none,
)
from cometmq.admin.topics import QueueStats, Topics
from cometmq.codec import core, java_properties
from cometmq.codec.codes import RequestCode, ResponseCode, version_ordinal
from cometmq.codec.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    ResetOffset,
    UpdateConsumerOffset,
)
from cometmq.errors import InvalidArgument, NotFound, Unsupported
from cometmq.model.topic import RETRY_PREFIX

_EXACT_SINCE = version_ordinal("5.2.0")
_EXACT_SETTING = "useServerSideResetOffset"
_MOVED_OR_NOT = (
    ResponseCode.SUCCESS,
    ResponseCode.CONSUMER_NOT_ONLINE,
    ResponseCode.SYSTEM_ERROR,
)
_FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
_LATEST_MS = -1
_NOT_STORED = re.compile("is not noted|previously reset")
"""What brokers say with code 0, since old clients would take any other for a failure."""


class Move(msgspec.Struct, frozen=True):
    """Where a group was in a queue (None: nowhere) and where it is after a move."""

    topic: str
    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    before: int | None
    after: int

    @property
    def is_change(self) -> bool:
        return self.before != self.after


class Reset(msgspec.Struct, frozen=True):
    """A move of a group, planned (``is_done`` is false) or done."""

    group: str
    is_done: bool
    moves: tuple[Move, ...]


class Offsets:
    """``admin.offsets``."""

    def __init__(self, servers: Servers, topics: Topics, groups: Groups) -> None:
        self._servers = servers
        self._topics = topics
        self._groups = groups

    # --- one queue

    async def get(self, group: str, topic: str, broker: str, queue_id: int) -> int | None:
        """The offset a group has stored for a queue, or None when there is none."""
        place = await self._servers.broker(broker)
        return await self._stored(place, group, topic, queue_id)

    async def commit(self, group: str, topic: str, broker: str, queue_id: int, offset: int) -> None:
        """Store an offset for a group, as its members do; to move a group see ``reset``.

        A connected member will overwrite it. Raises Refused when the broker says that it did not
        store it: ours takes none behind the end of the queue, and brokers from 5.2 on none after a
        reset until a member has been moved. Raises InvalidArgument when it is negative.
        """
        if offset < 0:
            raise InvalidArgument("offset", f"offset {offset} is negative", "offsets begin at 0")
        await self._store(await self._servers.broker(broker), group, topic, queue_id, offset)

    # --- a whole group

    async def plan(
        self,
        group: str,
        topic: str,
        to: Position,
        *,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> Reset:
        """What ``reset`` with the same arguments would do; nothing is changed.

        Raises NotFound, and Unreachable when a broker that has some of the queues does not answer.
        """
        stats = await self._topics.stats(topic)
        missing = (out for out in stats.outages if broker in (None, out.broker_name, out.address))
        require_none(missing, UNCHANGED)
        chosen = [
            queue
            for queue in stats.queues
            if queue_id in (None, queue.queue_id) and broker in (None, queue.broker_name)
        ]
        if not chosen:
            raise NotFound("queue", f"{broker or topic}/{queue_id}", f"it is not in '{topic}'")
        places = {place.broker_name: place for place in await self._places(topic)}
        moves = await all_of(
            self._move(places[queue.broker_name], group, topic, queue, to) for queue in chosen
        )
        return Reset(group, False, tuple(moves))

    async def reset(
        self,
        group: str,
        topic: str,
        to: Position,
        *,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> Reset:
        """Move a group, whether its members are connected or not.

        Members that are connected follow within seconds. Raises NotFound, Refused, Unreachable
        (before anything is changed) when a broker does not answer, PartlyDone when one stops to
        meanwhile, and Unsupported when members are connected to a broker that can only move them
        by time.
        """
        plan = await self.plan(group, topic, to, broker=broker, queue_id=queue_id)
        is_whole = broker is None and queue_id is None
        await self._carry_out(plan, _time_of(to) if is_whole else None)
        return Reset(group, True, plan.moves)

    async def clone(
        self, source: str, target: str, topic: str | None = None, *, is_dry_run: bool = False
    ) -> Reset:
        """Move ``target`` to where ``source`` is, on one topic or on all that it consumes.

        Raises NotFound when ``source`` has no offsets, and what ``reset`` raises. Without a topic
        every broker has to answer, since each may have offsets.
        """
        if topic is None:
            places = (await self._servers.fleet()).readers()
        else:
            places = await self._places(topic)
        await self._servers.require_there(places)  # asked for lags, who hangs is waited for longer
        lag = await self._groups.lag_on(places, source, topic)
        require_none(lag.outages, UNCHANGED)
        wanted = {
            (queue.topic, queue.broker_name, queue.queue_id): queue.offset
            for queue in lag.queues
            if not queue.topic.startswith(RETRY_PREFIX)
        }
        if not wanted:
            raise NotFound("group", source, f"it has no offsets{f' on {topic}' if topic else ''}")
        moves: list[Move] = []
        for name in sorted({topic for topic, _, _ in wanted}):
            plan = await self.plan(target, name, Latest())
            moves += _aimed(plan.moves, wanted)
        plan = Reset(target, False, tuple(moves))
        if is_dry_run:
            return plan
        await self._carry_out(plan, None)
        return Reset(target, True, plan.moves)

    # --- planning

    async def _places(self, topic: str) -> tuple[BrokerAddress, ...]:
        return brokers_of(await self._servers.route(topic))

    async def _move(
        self, place: BrokerAddress, group: str, topic: str, queue: QueueStats, to: Position
    ) -> Move:
        number = queue.queue_id
        current = await self._stored(place, group, topic, number)
        bounds = Bounds(queue.min_offset, queue.max_offset, current)
        found = None
        if isinstance(to, Time):
            found = await search(self._servers, place, topic, number, to.ms)
        after = offset_at(to, bounds, found)
        return Move(
            topic,
            queue.broker_name,
            number,
            queue.min_offset,
            queue.max_offset,
            current,
            after,
        )

    async def _stored(
        self, place: BrokerAddress, group: str, topic: str, queue_id: int
    ) -> int | None:
        header = QueryConsumerOffset(group, topic, queue_id, set_zero_if_not_found=False)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._servers.ask(place.address, code, header, accept=_FOUND_OR_NOT)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return core.read(answer, OffsetResponse).offset

    # --- doing

    async def _carry_out(self, plan: Reset, time_ms: int | None) -> None:
        """``time_ms`` says the same as the plan in the only words that old brokers understand."""
        by_place: dict[tuple[str, str], list[Move]] = {}
        for move in plan.moves:
            by_place.setdefault((move.topic, move.broker_name), []).append(move)
        topics = {move.topic for move in plan.moves}
        places = {(topic, p.broker_name): p for topic in topics for p in await self._places(topic)}

        async def act(place: BrokerAddress) -> None:
            for (topic, name), moves in by_place.items():
                if name == place.broker_name:
                    await self._move_on(place, plan.group, topic, moves, time_ms)

        unique = sorted({places[key] for key in by_place})
        await self._servers.require_there(unique)
        await self._servers.change(f"moving group '{plan.group}'", unique, act)

    async def _move_on(
        self,
        place: BrokerAddress,
        group: str,
        topic: str,
        moves: Sequence[Move],
        time_ms: int | None,
    ) -> None:
        if is_of_dead_letters(group, topic):
            await self._store_all(place, group, moves)
            return
        if await self._takes_offsets(place):
            if time_ms is not None:
                # All queues at once: members before 5.2 stop for 10 s with each request.
                header = ResetOffset(topic, group, time_ms, True)
                code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
                await self._servers.ask(place.address, code, header)
                return
            for move in moves:
                header = ResetOffset(topic, group, _LATEST_MS, True, move.queue_id, move.after)
                await self._servers.ask(
                    place.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
                )
            return
        if time_ms is None:
            await self._require_nobody(place, group)
            await self._store_all(place, group, moves)
        else:
            await self._move_by_time(place, group, moves, ResetOffset(topic, group, time_ms, True))

    async def _takes_offsets(self, place: BrokerAddress) -> bool:
        """Whether the broker can be given an offset for each queue.

        A broker that cannot would not say so: it would take the time beside the offset and move
        the whole group to the end.
        """
        release = await self._servers.release(place.address)
        if release.is_ours or release.version < _EXACT_SINCE:
            return release.is_ours
        answer = await self._servers.ask(place.address, RequestCode.GET_BROKER_CONFIG)
        return java_properties.loads(answer.body).get(_EXACT_SETTING, "true") == "true"

    async def _require_nobody(self, place: BrokerAddress, group: str) -> None:
        membership = await self._groups.members(group)
        require_none(out for out in membership.outages if out.address == place.address)
        if membership.members:
            release = await self._servers.release(place.address)
            raise Unsupported(
                "moving connected members to exact offsets",
                place.address,
                release.name,
                f"stop the members of '{group}' first, or move the whole topic by time",
            )

    async def _move_by_time(
        self, place: BrokerAddress, group: str, moves: Sequence[Move], header: ResetOffset
    ) -> None:
        """Let an old broker tell connected members a time; without any, store offsets.

        It says that a group does not exist when the group lacks an offset for some queue.
        """
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        for is_last in (False, True):
            answer = await self._servers.ask(place.address, code, header, accept=_MOVED_OR_NOT)
            if answer.code == ResponseCode.SUCCESS:
                return
            is_new = answer.code == ResponseCode.SYSTEM_ERROR
            if is_new and (is_last or "not exist" not in (answer.remark or "")):
                raise refusal(place.address, code, header, answer)
            await self._store_all(place, group, moves)
            if not is_new:
                return

    async def _store_all(self, place: BrokerAddress, group: str, moves: Sequence[Move]) -> None:
        for move in moves:
            await self._store(place, group, move.topic, move.queue_id, move.after)

    async def _store(
        self, place: BrokerAddress, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        header = UpdateConsumerOffset(group, topic, queue_id, offset)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        answer = await self._servers.ask(place.address, code, header)
        if answer.remark and _NOT_STORED.search(answer.remark):
            raise refusal(place.address, code, header, answer)


def _time_of(position: Position) -> int | None:
    """A position in the words of brokers before 5.2, or None when they have none for it."""
    match position:
        case Earliest():
            return 0
        case Latest():
            return _LATEST_MS
        case Time(ms):
            return ms
        case Offset() | Shift():
            return None


def _aimed(moves: Sequence[Move], wanted: Mapping[tuple[str, str, int], int]) -> list[Move]:
    """The moves of those queues for which an offset is wanted, to that offset."""
    aimed = []
    for move in moves:
        offset = wanted.get((move.topic, move.broker_name, move.queue_id))
        if offset is not None:
            bounds = Bounds(move.min_offset, move.max_offset, move.before)
            after = offset_at(Offset(offset), bounds)
            aimed.append(msgspec.structs.replace(move, after=after))
    return aimed
