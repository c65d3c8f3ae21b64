"""What there is to read: topics, queues and their bounds, asked of brokers or found in files.

Both answer the same questions, so planning does not know which of them it asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cometmq import logs
from cometmq.codec import bodies, core
from cometmq.codec.bodies.clients import ConsumerData, HeartbeatData
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.bodies.topics import TopicStatsTable
from cometmq.codec.codes import V5_0_0, RequestCode, ResponseCode
from cometmq.codec.digest import store_timestamp
from cometmq.codec.headers.clients import UnregisterClient
from cometmq.codec.headers.extensions import LogStatusResponse
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.codec.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from cometmq.codec.headers.topics import GetTopicStatsInfo
from cometmq.errors import BrokerError, InvalidArgument, NotFound, Refused, Unreachable
from cometmq.model.group import ConsumeType, SubscriptionGroupConfig
from cometmq.model.offsets import MessageQueue
from cometmq.model.route import MASTER_ID, TopicRoute
from cometmq.model.topic import RETRY_PREFIX
from cometmq.spark.broker_reader import OUTAGES
from cometmq.spark.planning import Range, spread
from cometmq.spark.sampling import first_stored_at, pulled_row_sizes
from cometmq.spark.store_files import FILLER_SIZE, QueueFiles, StoreFiles, partition
from cometmq.spark.visible import store_alone
from cometmq.spark.wire import Reply, Wire

_log = logs.get_logger("cometmq.spark")

SAMPLE_ROWS: Final = 1000
_EMPTY: Final = 22  # QUERY_NOT_FOUND: the group has no offset


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of a queue: from ``begin`` to below ``end`` are there."""

    begin: int
    end: int
    is_certain: bool = True
    """Whether it is the master's word; a slave may not have everything yet."""


class Topology(Protocol):
    """Where messages are."""

    def topics(self) -> list[str]:
        """Names of all topics."""
        ...

    def bounds(self, topic: str, *, is_patient: bool = False) -> dict[MessageQueue, Bounds]:
        """The queues of a topic that can be read. Raises NotFound.

        Who is patient gets those of brokers that answer; otherwise one that does not is an error.
        """
        ...

    def at_time(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Of each queue the first offset that was stored at a time (ms) or later, else its end."""
        ...

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """How far a group is, for the queues of which it has an offset."""
        ...

    def row_sizes(self, wanted: Range, places: int) -> list[int]:
        """The mean bytes of messages in the log at so many places of a range.

        There are fewer when places would overlap, or what is there is gone.
        """
        ...

    def locate(self, broker_names: set[str], topics: set[str]) -> None:
        """Find out where brokers are that are not known yet, by topics that they have."""
        ...

    def address(self, broker_name: str) -> str:
        """Whom to ask about a broker's queues; empty when there is nobody."""
        ...


class BrokerTopology:
    """Asks name servers and brokers."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._addresses: dict[str, str] = {}
        self._without_master: set[str] = set()  # brokers of which only a slave is there

    def topics(self) -> list[str]:
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        reply = self._wire.ask_name_server(code)
        return sorted(set(bodies.decode(TopicList, _content(reply)).topic_list))

    def bounds(self, topic: str, *, is_patient: bool = False) -> dict[MessageQueue, Bounds]:
        route = self._route(topic)
        found: dict[MessageQueue, Bounds] = {}
        for data in route.queue_datas:
            if not data.is_readable or data.read_queue_nums <= 0:
                continue
            try:
                found |= self._bounds_on(topic, data.broker_name, data.read_queue_nums)
            except OUTAGES as error:
                if not is_patient:
                    raise
                _log.warning("broker=%s is away, its queues wait: %s", data.broker_name, error)
        return dict(sorted(found.items()))

    def at_time(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}
        for broker_name, queues in _by_broker(times).items():
            address = self.address(broker_name)
            headers = [SearchOffsetByTimestamp(q.topic, q.queue_id, times[q]) for q in queues]
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            replies = [reply for _, reply in self._wire.ask_all(address, code, headers)]
            if any(reply.head.version < V5_0_0 for reply in replies):
                # They answer with any of the same millisecond, with the nearer neighbour, or with
                # the last message instead of the end; and look for its file by when files changed.
                wanted = {queue: times[queue] for queue in queues}
                found |= first_stored_at(self._wire, address, wanted, self._ends(address, queues))
            else:
                found |= zip(queues, map(_offset, replies), strict=True)
        return found

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}
        accept = (ResponseCode.SUCCESS, _EMPTY)
        for queue in queues:
            header = QueryConsumerOffset(group, queue.topic, queue.queue_id, False)
            code = RequestCode.QUERY_CONSUMER_OFFSET
            address = self.address(queue.broker_name)
            reply = self._wire.ask(address, code, header, accept=accept)
            if reply.code == ResponseCode.SUCCESS:
                found[queue] = _offset(reply)
        return found

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Publish how far a group is; a broker that does not have the group gets it."""
        for broker_name, queues in _by_broker(offsets).items():
            address = self.address(broker_name)
            headers = [UpdateConsumerOffset(group, q.topic, q.queue_id, offsets[q]) for q in queues]
            try:
                self._store_offsets(address, headers)
            except Refused as error:
                if error.response_code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                body = bodies.encode(SubscriptionGroupConfig(group))
                code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
                self._wire.ask(address, code, body=body)
                self._store_offsets(address, headers)

    def introduce(self, group: str, broker_name: str) -> None:
        """Let tools find a group on a broker: they look for its retry topic.

        Brokers make it when the group's first member comes, so one comes and leaves again; but not
        where the topic is there already, and other members perhaps with it.
        """
        try:
            route = self._route(RETRY_PREFIX + group)
        except NotFound:
            pass
        else:
            if any(data.broker_name == broker_name for data in route.queue_datas):
                return
        address, client_id = self.address(broker_name), f"spark-{uuid.uuid4().hex}"
        member = ConsumerData(group, ConsumeType.CONSUME_ACTIVELY)
        body = bodies.encode(HeartbeatData(client_id, consumer_data_set=(member,)))
        self._wire.ask(address, RequestCode.HEART_BEAT, body=body)
        left = UnregisterClient(client_id, consumer_group=group)
        self._wire.ask(address, RequestCode.UNREGISTER_CLIENT, left)

    def row_sizes(self, wanted: Range, places: int) -> list[int]:
        address = self.address(wanted.queue.broker_name)
        return pulled_row_sizes(self._wire, address, wanted, places)

    def locate(self, broker_names: set[str], topics: set[str]) -> None:
        for topic in sorted(topics):
            if broker_names <= self._addresses.keys():
                return
            self._route(topic)

    def address(self, broker_name: str) -> str:
        address = self._addresses.get(broker_name)
        if address is None:
            raise Unreachable(broker_name, "no route has a broker of this name")
        return address

    def log_status(self, broker_name: str) -> LogStatusResponse | None:
        """How far the log may be read from files; None from a broker that does not know."""
        return log_status(self._wire, self.address(broker_name))

    def _route(self, topic: str) -> TopicRoute:
        header = GetRouteInfoByTopic(topic)
        try:
            reply = self._wire.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except NotFound as error:
            raise NotFound("topic", topic, "create it, or look at its name") from error
        route = bodies.decode(TopicRoute, _content(reply))
        for data in route.broker_datas:
            if data.broker_addrs:
                number = min(data.broker_addrs)
                assert number >= MASTER_ID
                self._addresses[data.broker_name] = data.broker_addrs[number]
                self._without_master.discard(data.broker_name)
                if number != MASTER_ID:
                    self._without_master.add(data.broker_name)
        return route

    def _bounds_on(self, topic: str, broker_name: str, count: int) -> dict[MessageQueue, Bounds]:
        address = self.address(broker_name)
        try:
            code, header = RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfo(topic)
            reply = self._wire.ask(address, code, header)
        except NotFound:  # name servers have not heard yet that it is gone
            return {}
        is_certain = broker_name not in self._without_master
        table = bodies.decode(TopicStatsTable, _content(reply)).offset_table
        known = {queue.queue_id: offset for queue, offset in table.items()}
        found = {
            MessageQueue(topic, broker_name, number): Bounds(
                known[number].min_offset, known[number].max_offset, is_certain
            )
            for number in range(count)
            if number in known
        }
        # 4.9 leaves out queues that can be read and no longer be written.
        numbers = [number for number in range(count) if number not in known]
        missing = [MessageQueue(topic, broker_name, number) for number in numbers]
        for queue, (low, high) in self._ends(address, missing).items():
            found[queue] = Bounds(low, high, is_certain)
        return found

    def _store_offsets(self, address: str, headers: list[UpdateConsumerOffset]) -> None:
        for _ in self._wire.ask_all(address, RequestCode.UPDATE_CONSUMER_OFFSET, headers):
            pass

    def _ends(
        self, address: str, queues: Sequence[MessageQueue]
    ) -> dict[MessageQueue, tuple[int, int]]:
        """First offset and end of queues of one broker."""
        lows = [GetMinOffset(queue.topic, queue.queue_id) for queue in queues]
        highs = [GetMaxOffset(queue.topic, queue.queue_id) for queue in queues]
        begins = self._wire.ask_all(address, RequestCode.GET_MIN_OFFSET, lows)
        ends = self._wire.ask_all(address, RequestCode.GET_MAX_OFFSET, highs)
        return {
            queue: (_offset(low), _offset(high))
            for queue, (_, low), (_, high) in zip(queues, list(begins), list(ends), strict=True)
        }


class FileTopology:
    """Looks into store directories; nobody is asked, and everything in them may be read.

    Files do not say how their broker is called: it goes by the name of its directory.
    """

    def __init__(self, roots: Iterable[str]) -> None:
        self._stores: dict[str, StoreFiles] = {}
        for root in roots:
            name = store_name(root)
            if name in self._stores:
                fact = f"two stores would be called '{name}', after their directories"
                raise InvalidArgument("storePath", fact, "read them one after the other")
            self._stores[name] = store_alone(root)

    def topics(self) -> list[str]:
        return sorted({topic for store in self._stores.values() for topic, _ in store.queues()})

    def bounds(self, topic: str, *, is_patient: bool = False) -> dict[MessageQueue, Bounds]:
        found: dict[MessageQueue, Bounds] = {}
        for name, store in self._stores.items():
            store.log.look()  # a stream asks again and again, and there may be a new file
            for queue_id in store.queue_ids(topic):
                queue = store.queue(topic, queue_id)
                bounds = queue.bounds(store.log.begin, store.log.end)
                found[MessageQueue(topic, name, queue_id)] = Bounds(*bounds)
        if not found and not is_patient:
            advice = f"there is no such folder in consumequeue of {', '.join(self._stores)}"
            raise NotFound("topic", topic, advice)
        return dict(sorted(found.items()))

    def at_time(self, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        found = {}
        for queue, time_ms in times.items():
            store = self._stores[queue.broker_name]
            files = store.queue(queue.topic, queue.queue_id)
            begin, end = files.bounds(store.log.begin, store.log.end)
            found[queue] = partition(
                begin, end, lambda n, f=files, s=store, t=time_ms: _stored_ms(s, f, n) < t
            )
        return found

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        fact = f"files alone do not tell how far group '{group}' is in {len(list(queues))} queues"
        raise InvalidArgument("group", fact, "set 'rocketmq.namesrv.addr'")

    def row_sizes(self, wanted: Range, places: int) -> list[int]:
        store = self._stores[wanted.queue.broker_name]
        queue = store.queue(wanted.queue.topic, wanted.queue.queue_id)
        found = []
        for one in spread(wanted, places, SAMPLE_ROWS):
            sizes = queue.entries(one.begin, one.end)["size"]
            sizes = sizes[(sizes > 0) & (sizes != FILLER_SIZE)]  # the others were deleted
            if len(sizes):
                found.append(int(sizes.mean()))
        return found

    def locate(self, broker_names: set[str], topics: set[str]) -> None:
        unknown = broker_names - self._stores.keys()
        if unknown:
            name = min(unknown)
            advice = f"of topics {', '.join(sorted(topics))}; look at option 'storePath'"
            raise NotFound("store directory", name, advice)

    def address(self, broker_name: str) -> str:
        assert broker_name in self._stores, broker_name
        return ""


def store_name(root: str) -> str:
    """What the broker of a store directory is called when nobody can be asked."""
    path = Path(root).absolute()
    return path.parent.name if path.name == "store" and path.parent.name else path.name


def log_status(wire: Wire, address: str) -> LogStatusResponse | None:
    """What a broker says of its log; None from one that is not ours."""
    accept = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    try:
        reply = wire.ask(address, RequestCode.COMET_LOG_STATUS, accept=accept)
    except BrokerError:
        return None  # Apache's answer differs between releases, and none of them knows it
    if reply.code != ResponseCode.SUCCESS:
        return None
    return core.read(reply.head, LogStatusResponse)


def _stored_ms(store: StoreFiles, queue: QueueFiles, number: int) -> int:
    entry = queue.entries(number, number + 1)
    position = entry["position"].astype("<i8")
    if not store.log.hold(int(position[0])):
        return 0
    stretch = store.log.stretch(position, entry["size"].astype("<i8"))
    return store_timestamp(stretch.buffer, int(stretch.positions[0]))


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found


def _content(reply: Reply) -> bytes:
    return bytes(reply.body) or b"{}"


def _offset(reply: Reply) -> int:
    return core.read(reply.head, OffsetResponse).offset
