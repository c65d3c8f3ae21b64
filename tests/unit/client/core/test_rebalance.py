"""Queues that come, go and stay; and what must change nothing."""

from collections.abc import Sequence

import pytest

from cometmq.client.core.rebalance import Member, Plan, broadcast_plan, forgotten, queue_limit
from cometmq.client.core.strategies import Average, Configured
from cometmq.model.offsets import MessageQueue

Q0, Q1, Q2, Q3 = QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]
OTHER = MessageQueue("other", "broker-a", 0)
MEMBER = Member("g", "a", Average())


class Broken:
    """A strategy of a user, with a mistake."""

    name = "MINE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        raise KeyError(client_id)


def test_a_new_member_gets_its_share() -> None:
    plan = MEMBER.plan("orders", [], QUEUES, ["b", "a"])

    assert plan == Plan("orders", come=(Q0, Q1), known=tuple(QUEUES))
    assert plan.is_change
    assert plan.mine == (Q0, Q1)


def test_what_both_plans_have_stays() -> None:
    plan = Member("g", "b", Average()).plan("orders", [Q1, Q2, OTHER], QUEUES, ["a", "b"])

    assert (plan.come, plan.go, plan.stay) == ((Q3,), (Q1,), (Q2,))
    assert plan.mine == (Q2, Q3)


def test_the_order_in_which_brokers_answer_does_not_matter() -> None:
    shuffled = MEMBER.plan("orders", [], [Q2, Q0, Q3, Q1], ("c", "b", "a"))

    assert shuffled == MEMBER.plan("orders", [], QUEUES, ("a", "b", "c"))


def test_two_connections_of_one_id_count_twice_as_in_java() -> None:
    plan = MEMBER.plan("orders", [], QUEUES, ["a", "a"])

    assert plan.come == (Q0, Q1)


def test_nothing_changes_when_all_is_as_it_was() -> None:
    plan = MEMBER.plan("orders", [Q1, Q0], QUEUES, ["a", "b"])

    assert not plan.is_change
    assert plan.problem == ""
    assert plan.mine == (Q0, Q1)


def test_who_is_not_listed_gives_everything_away() -> None:
    plan = MEMBER.plan("orders", [Q0, Q1, OTHER], QUEUES, ["b"])

    assert plan.go == (Q0, Q1)
    assert plan.mine == ()


@pytest.mark.parametrize(
    ("queues", "client_ids", "problem"),
    [
        (None, ["a"], "there is no route"),
        (QUEUES, None, "the members of the group are not known"),
        (QUEUES, [], "the members of the group are not known"),
        (
            [],
            ["a"],
            (
                "strategy AVG failed: LocalProtocolError: group g: there is no queue to compute"
                " shares with"
            ),
        ),
    ],
)
def test_what_is_not_known_changes_nothing(
    queues: list[MessageQueue] | None, client_ids: list[str] | None, problem: str
) -> None:
    plan = MEMBER.plan("orders", [Q1, Q0, OTHER], queues, client_ids)

    assert not plan.is_change
    assert plan.mine == (Q0, Q1)
    assert plan.problem == problem


def test_a_strategy_that_raises_changes_nothing() -> None:
    plan = Member("g", "a", Broken()).plan("orders", [Q0], QUEUES, ["a"])

    assert not plan.is_change
    assert plan.stay == (Q0,)
    assert plan.problem == "strategy MINE failed: KeyError: 'a'"


def test_a_strategy_may_give_queues_twice_or_unknown_ones() -> None:
    unknown = MessageQueue("orders", "broker-z", 0)

    plan = Member("g", "a", Configured([unknown, Q0, Q0])).plan("orders", [], QUEUES, ["a"])

    assert plan.come == (Q0, unknown)


def test_a_broadcast_reads_all_queues() -> None:
    plan = broadcast_plan("orders", [Q0, OTHER], reversed_queues := QUEUES[::-1])

    assert plan == Plan("orders", come=(Q1, Q2, Q3), stay=(Q0,), known=tuple(QUEUES))
    assert reversed_queues == QUEUES[::-1]


def test_a_broadcast_without_a_route_changes_nothing() -> None:
    plan = broadcast_plan("orders", [Q0, OTHER], None)

    assert plan == Plan("orders", stay=(Q0,), problem="there is no route")


def test_a_broadcast_gives_up_queues_that_are_gone() -> None:
    plan = broadcast_plan("orders", [Q0, Q1], [Q1])

    assert (plan.go, plan.stay) == ((Q0,), (Q1,))


def test_queues_of_topics_that_are_not_subscribed_any_more_are_forgotten() -> None:
    assert forgotten([Q1, OTHER, Q0], {"other"}) == [Q0, Q1]


@pytest.mark.parametrize(
    ("topic_max", "owned_count", "expected"),
    [(-1, 4, 1_000), (900, 0, 1_000), (900, 4, 225), (1_000, 3, 333), (3, 4, 1)],
)
def test_a_limit_of_a_topic_is_divided_by_its_queues(
    topic_max: int, owned_count: int, expected: int
) -> None:
    assert queue_limit(1_000, topic_max, owned_count) == expected
