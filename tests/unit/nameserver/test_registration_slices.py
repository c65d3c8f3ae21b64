"""Topics that are applied in slices: what is seen in between, and what comes out in the end."""

import pytest

from cometmq.model.route import QueueData
from cometmq.model.topic import DataVersion
from cometmq.nameserver.registration import TOPICS_PER_STEP, RegistrationProgress
from cometmq.nameserver.route_table import RouteTable
from tests.unit.nameserver.builders import (
    NOW,
    addresses_of,
    broker,
    perm_of,
    queues_of,
    topics,
)

MANY = tuple(f"T{number}" for number in range(10))


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def test_the_broker_is_there_before_its_topics(table: RouteTable) -> None:
    progress = table.begin_registration(broker(topics=topics(MANY)), NOW)

    assert progress.result.is_accepted
    assert addresses_of(table) == {0: "broker-a-0:1"}
    assert table.topic_count == 0
    assert not progress.is_done


def test_each_step_applies_as_many_topics_as_it_may(table: RouteTable) -> None:
    progress = table.begin_registration(broker(topics=topics(MANY)), NOW)

    counts = [(progress.step(4), table.topic_count) for _ in range(3)]

    assert counts == [(True, 4), (True, 8), (False, 10)]
    assert progress.is_done
    assert progress.topics_changed == 10
    assert not progress.step()


def test_topics_already_known_count_as_looked_at_but_not_as_changed(table: RouteTable) -> None:
    table.register(broker(topics=topics(MANY)), NOW)

    progress = table.begin_registration(broker(topics=topics((*MANY, "X"))), NOW)
    first = progress.step(10)
    progress.finish()

    assert first
    assert progress.topics_changed == 1


def test_a_declined_registration_has_no_steps(table: RouteTable) -> None:
    progress = table.begin_registration(broker(topics=topics("T")), NOW)

    assert progress.is_done
    assert not progress.step()


def begin_two(table: RouteTable) -> tuple[RegistrationProgress, RegistrationProgress]:
    earlier = broker(topics=topics(MANY), version=1)
    later = broker(topics=topics(MANY[5:], read=4), version=2)
    first = table.begin_registration(earlier, NOW)
    first.step(2)
    return first, table.begin_registration(later, NOW)


@pytest.mark.parametrize("order", ["first then second", "second then first", "in turn"])
def test_two_at_once_end_as_if_one_had_followed_the_other(table: RouteTable, order: str) -> None:
    first, second = begin_two(table)

    if order == "in turn":
        while first.step(3) or second.step(1):
            pass
    for progress in (first, second) if order == "first then second" else (second, first):
        progress.finish()

    assert table.topic_count == 10
    assert [queues_of(table, t)["broker-a"].read_queue_nums for t in MANY] == ([8] * 5 + [4] * 5)
    assert (
        table.query_data_version("c", "broker-a-0:1", DataVersion(2, 0, 0), NOW).is_changed is False
    )


def test_the_later_one_works_off_the_earlier_one(table: RouteTable) -> None:
    first, second = begin_two(table)

    second.finish()

    assert first.is_done
    assert first.topics_changed == 10
    assert second.topics_changed == 5


def test_topics_of_a_group_that_has_gone_do_not_come_back(table: RouteTable) -> None:
    first, second = begin_two(table)

    table.on_connection_closed("broker-a-0:1")

    assert first.is_done
    assert second.is_done
    assert not first.step()
    assert table.topic_count == 0


def test_who_comes_back_meanwhile_has_only_its_new_topics(table: RouteTable) -> None:
    old = table.begin_registration(broker(topics=topics(MANY)), NOW)
    table.on_connection_closed("broker-a-0:1")

    table.register(broker(), NOW)
    old.finish()

    assert table.topics().topic_list == ("T", "U")


def test_a_master_that_goes_leaves_all_its_topics_to_its_slave(table: RouteTable) -> None:
    table.register(broker(broker_id=1, acting=True, topics={}), NOW)
    table.begin_registration(broker(acting=True, topics=topics(MANY)), NOW)

    table.unregister("c", "broker-a-0:1", "broker-a")

    assert table.topic_count == 10
    assert {perm_of(table, topic) for topic in MANY} == {4}


def test_a_step_has_an_end_even_when_the_caller_names_none(table: RouteTable) -> None:
    names = [f"T{number}" for number in range(TOPICS_PER_STEP + 1)]
    progress = table.begin_registration(broker(topics=topics(names)), NOW)

    assert progress.step()
    assert table.topic_count == TOPICS_PER_STEP


def test_permission_wiped_in_between_is_wiped_for_all_topics(table: RouteTable) -> None:
    progress = table.begin_registration(broker(topics=topics(MANY)), NOW)

    assert table.wipe_write_permission("broker-a") == 10
    progress.finish()

    assert {perm_of(table, topic) for topic in MANY} == {4}


def test_a_topic_deleted_in_between_stays_deleted(table: RouteTable) -> None:
    progress = table.begin_registration(broker(topics=topics(MANY)), NOW)

    assert table.delete_topic("T9") == 1
    progress.finish()

    assert table.route("T9") is None
    assert table.topic_count == 9


def test_a_topic_set_by_hand_in_between_stays_as_set(table: RouteTable) -> None:
    by_hand = QueueData("broker-a", 1, 1, 6)
    progress = table.begin_registration(broker(topics=topics(MANY)), NOW)

    assert table.register_topic("T9", [by_hand])
    progress.finish()

    assert queues_of(table, "T9") == {"broker-a": by_hand}


def test_brokers_do_not_wait_for_those_of_other_names(table: RouteTable) -> None:
    slow = table.begin_registration(broker("broker-a", topics=topics(MANY)), NOW)

    table.register(broker("broker-b", topics=topics(MANY)), NOW)

    assert not slow.is_done
    assert set(queues_of(table, "T0")) == {"broker-b"}
