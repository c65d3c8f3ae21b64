"""Times and sizes asked of a broker of Apache's 4.9, which knows times only about right."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from cometmq.codec import bodies
from cometmq.codec.bodies.topics import TopicOffset, TopicStatsTable
from cometmq.codec.codes import V4_9_4, RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.offsets import OffsetResponse
from cometmq.codec.headers.pull import PullMessageResponse
from cometmq.errors import InvalidArgument
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.model.topic import Permission
from cometmq.spark.options import parse
from cometmq.spark.planning import Range
from cometmq.spark.positions import batch_ranges
from cometmq.spark.pushdown import Pushed
from cometmq.spark.sampling import SAMPLE_ROWS
from cometmq.spark.topology import BrokerTopology
from cometmq.spark.wire import Reply
from tests.unit.spark.record_kit import record_bytes
from tests.unit.spark.topology_kit import queue

STORED = [1000] * 7 + [2000, 3000, 3100]
_STORE_TIME_AT = 56


def nearest(stored: list[int], time_ms: int) -> int:
    """Where 4.9.7 says that a time is: any of the same, the nearer neighbour, the last."""
    low, high = 0, len(stored) - 1
    left = right = -1
    while low <= high:
        middle = (low + high) // 2
        if stored[middle] == time_ms:
            return middle
        if stored[middle] > time_ms:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    if left == -1 or right == -1:
        return max(left, right)
    return right if time_ms - stored[left] > stored[right] - time_ms else left


class OldBroker:
    """One queue with messages from ``begin`` on; it has deleted what is before ``gone``."""

    def __init__(self, stored: list[int], *, begin: int = 0, gone: int = 0) -> None:
        self.stored = stored
        self.begin = begin
        self.gone = gone
        self.bodies = [b"x"] * len(stored)
        self.pulls: list[tuple[int, int]] = []

    def ask_name_server(self, code: RequestCode, header: Any = None) -> Reply:
        perm = Permission.READ | Permission.WRITE
        data = BrokerData(cluster="c", broker_name="broker-a", broker_addrs={0: "b:1"})
        return _reply(bodies.encode(TopicRoute((data,), (QueueData("broker-a", 1, 1, perm=perm),))))

    def ask(self, address: str, code: RequestCode, header: Any) -> Reply:
        assert code == RequestCode.GET_TOPIC_STATS_INFO
        ends = TopicOffset(self.begin, self.begin + len(self.stored), 0)
        return _reply(bodies.encode(TopicStatsTable({queue(0): ends})))

    def ask_all(
        self, address: str, code: RequestCode, headers: Any, *, accept: Any = (0,)
    ) -> Iterator[tuple[Any, Reply]]:
        for header in headers:
            reply = self._answer(code, header)
            assert reply.code in accept
            yield header, reply

    def _answer(self, code: RequestCode, header: Any) -> Reply:
        if code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            return _reply(
                header=OffsetResponse(self.begin + nearest(self.stored, header.timestamp))
            )
        if code == RequestCode.GET_MIN_OFFSET:
            return _reply(header=OffsetResponse(self.begin))
        if code == RequestCode.GET_MAX_OFFSET:
            return _reply(header=OffsetResponse(self.begin + len(self.stored)))
        assert code == RequestCode.PULL_MESSAGE
        return self._pulled(header.queue_offset, header.max_msg_nums)

    def _pulled(self, offset: int, count: int) -> Reply:
        self.pulls.append((offset, count))
        first, end = offset - self.begin, self.begin + len(self.stored)
        if first < self.gone:
            head = PullMessageResponse(0, self.begin + self.gone, self.begin + self.gone, end)
            return _reply(header=head, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
        found = range(first, min(first + count, len(self.stored)))
        records = [bytearray(record_bytes(self.begin + n, self.bodies[n])) for n in found]
        for number, one in zip(found, records, strict=True):
            struct.pack_into(">q", one, _STORE_TIME_AT, self.stored[number])
        head = PullMessageResponse(0, offset + len(found), self.begin, end)
        return _reply(b"".join(records), header=head)


def _reply(body: bytes = b"", *, header: Any = None, code: int = 0) -> Reply:
    return Reply(Command(code=code, opaque=0, flag=1, version=V4_9_4, header=header), body)


def topology_of(broker: OldBroker) -> BrokerTopology:
    topology = BrokerTopology(broker)  # type: ignore[arg-type]
    topology.bounds("orders")
    return topology


def planned(broker: OldBroker, **given: str) -> list[tuple[int, int]]:
    """Offsets of a batch query."""
    base = {"rocketmq.namesrv.addr": "n:1", "subscribe": "orders"}
    found = batch_ranges(parse({**base, **given}), topology_of(broker))
    return [(one.begin, one.end) for one in found]


@pytest.mark.parametrize(
    ("option", "time_ms", "wanted"),
    [
        ("startingTimestamp", 1, (0, 10)),
        ("startingTimestamp", 1000, (0, 10)),
        ("startingTimestamp", 1001, (7, 10)),
        ("startingTimestamp", 2600, (8, 10)),
        ("startingTimestamp", 3100, (9, 10)),
        ("endingTimestamp", 1001, (0, 7)),
        ("endingTimestamp", 2000, (0, 7)),
        ("endingTimestamp", 2400, (0, 8)),
        ("endingTimestamp", 3100, (0, 9)),
        ("endingTimestamp", 9999, (0, 10)),
    ],
)
@pytest.mark.parametrize("begin", [0, 500])
def test_times_begin_and_end_where_messages_were_stored(
    option: str, time_ms: int, wanted: tuple[int, int], begin: int
) -> None:
    broker = OldBroker(STORED, begin=begin)

    assert planned(broker, **{option: str(time_ms)}) == [(begin + wanted[0], begin + wanted[1])]


def test_a_time_that_no_message_has_reached_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="stored at 9999 or later"):
        planned(OldBroker(STORED), startingTimestamp="9999")


@pytest.mark.parametrize("from_ms", [None, 0, 1000, 1500, 9999])
@pytest.mark.parametrize("to_ms", [None, 0, 1000, 2400, 9999])
def test_filters_leave_out_nothing_that_fits(from_ms: int | None, to_ms: int | None) -> None:
    pushed = Pushed(stored_from_ms=from_ms, stored_to_ms=to_ms)
    found = pushed.narrowed([Range(queue(0), 0, 10)], topology_of(OldBroker(STORED)))

    low, high = from_ms or 0, 10_000 if to_ms is None else to_ms
    wanted = [number for number, stored in enumerate(STORED) if low <= stored <= high]
    assert [number for one in found for number in range(one.begin, one.end)] == wanted


def test_messages_that_are_gone_were_stored_before() -> None:
    broker = OldBroker(STORED, gone=3)

    assert topology_of(broker).at_time({queue(0): 500}) == {queue(0): 3}


def test_a_long_queue_takes_few_pulls() -> None:
    broker = OldBroker(list(range(100_000)))

    assert topology_of(broker).at_time({queue(0): 77_777}) == {queue(0): 77_777}
    assert len(broker.pulls) <= 17
    assert {count for _, count in broker.pulls} == {1}


def test_sizes_are_those_of_several_places_of_a_range() -> None:
    broker = OldBroker([1000] * 240)
    broker.bodies = [b"x" * 50] * 40 + [b"x" * 1000] * 200
    topology = topology_of(broker)

    sizes = topology.row_sizes(Range(queue(0), 0, 240), 4)

    assert sizes[0] < 300
    assert min(sizes[1:]) > 1000
    assert broker.pulls == [(at, SAMPLE_ROWS) for at in (0, 77, 154, 232)]


def test_places_that_are_gone_have_no_size() -> None:
    broker = OldBroker([1000] * 240, gone=120)

    assert len(topology_of(broker).row_sizes(Range(queue(0), 0, 240), 4)) == 2
    assert len(broker.pulls) == 4
