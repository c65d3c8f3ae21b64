"""Locks of queues: granted, refused, renewed, given back, expired."""

import logging

import pytest

from cometmq.broker.queue_locks import QueueLocks
from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.model.offsets import MessageQueue
from cometmq.testing import FakeClock

EXPIRY_MS = 60_000
Q0, Q1, Q2 = (MessageQueue("T", "broker-a", number) for number in range(3))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def locks(clock: FakeClock) -> QueueLocks:
    return QueueLocks(clock, EXPIRY_MS)


def test_free_queues_are_locked_in_the_order_asked(locks: QueueLocks) -> None:
    assert locks.lock("G", "c1", [Q1, Q0, Q1]) == [Q1, Q0]

    assert locks.owner("G", Q1) == "c1"
    assert len(locks) == 2


def test_a_queue_of_another_client_is_left_out(locks: QueueLocks) -> None:
    locks.lock("G", "c1", [Q0])

    granted = locks.lock("G", "c2", [Q0, Q1])

    assert granted == [Q1]
    assert locks.owner("G", Q0) == "c1"


def test_groups_do_not_lock_each_other_out(locks: QueueLocks) -> None:
    locks.lock("G", "c1", [Q0])

    assert locks.lock("H", "c2", [Q0]) == [Q0]


def test_a_lock_lasts_until_its_time_is_over_and_not_longer(
    locks: QueueLocks, clock: FakeClock
) -> None:
    locks.lock("G", "c1", [Q0])

    clock.advance(60)
    assert locks.lock("G", "c2", [Q0]) == []
    assert locks.has_lock("G")

    clock.advance(0.001)
    assert not locks.has_lock("G")
    assert locks.owner("G", Q0) is None
    assert locks.lock("G", "c2", [Q0]) == [Q0]
    assert len(locks) == 1


def test_locking_again_renews(locks: QueueLocks, clock: FakeClock) -> None:
    locks.lock("G", "c1", [Q0])
    clock.advance(50)
    locks.lock("G", "c1", [Q0])
    clock.advance(50)

    assert locks.lock("G", "c2", [Q0]) == []
    assert len(locks) == 1


def test_a_clock_that_is_turned_ends_no_lock(locks: QueueLocks, clock: FakeClock) -> None:
    locks.lock("G", "c1", [Q0])

    clock.set_back(-3600)

    assert locks.lock("G", "c2", [Q0]) == []


def test_only_the_owner_gives_a_queue_back(locks: QueueLocks) -> None:
    locks.lock("G", "c1", [Q0, Q1])

    locks.unlock("G", "c2", [Q0])
    assert locks.owner("G", Q0) == "c1"

    locks.unlock("G", "c1", [Q0, Q2])
    assert locks.owner("G", Q0) is None
    assert locks.owner("G", Q1) == "c1"
    assert len(locks) == 1


def test_a_group_without_locks_is_forgotten(locks: QueueLocks) -> None:
    locks.lock("G", "c1", [Q0])

    locks.unlock("G", "c1", [Q0])
    locks.unlock("H", "c1", [Q0])

    assert not locks.has_lock("G")
    assert len(locks) == 0


def test_taking_over_expired_locks_is_told_in_one_line(
    locks: QueueLocks, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cometmq.broker")
    locks.lock("G", "c1", [Q0, Q1])
    clock.advance(61)

    locks.lock("G", "c2", [Q0, Q1, Q2])

    assert [record.getMessage() for record in caplog.records] == [
        "group=G client=c2 locks 2 queues whose locks had expired, topic=T queue=0 the first"
    ]


def test_expired_locks_are_dropped_on_request(locks: QueueLocks, clock: FakeClock) -> None:
    locks.lock("G", "c1", [Q0])
    clock.advance(40)
    locks.lock("G", "c2", [Q1])
    locks.lock("H", "c2", [Q1])
    clock.advance(40)

    locks.drop_expired()

    assert len(locks) == 2
    assert locks.owner("G", Q1) == "c2"


def test_the_number_of_locks_is_bounded(clock: FakeClock) -> None:
    locks = QueueLocks(clock, EXPIRY_MS, count_max=2)
    locks.lock("G", "c1", [Q0, Q1])

    with pytest.raises(BrokerError) as refused:
        locks.lock("G", "c2", [Q0, Q2])

    assert refused.value.response_code == ResponseCode.SYSTEM_BUSY
    assert refused.value.remark == "2 queues are locked: no more than 2 can be"
    assert locks.owner("G", Q2) is None
    assert locks.lock("G", "c1", [Q0, Q1]) == [Q0, Q1]  # renewing needs no room


def test_expired_locks_make_room(clock: FakeClock) -> None:
    locks = QueueLocks(clock, EXPIRY_MS, count_max=2)
    locks.lock("G", "c1", [Q0, Q1])
    clock.advance(61)

    assert locks.lock("G", "c2", [Q0, Q2]) == [Q0, Q2]
    assert len(locks) == 2


def test_asking_for_no_queue_leaves_no_trace(locks: QueueLocks) -> None:
    assert locks.lock("G", "c1", []) == []

    assert not locks.has_lock("G")
    assert len(locks) == 0
