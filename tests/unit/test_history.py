"""The checker finds every fault it is there for, once, and nothing in a history without any."""

import random
import threading
from collections.abc import Callable

import msgspec
import pytest

from cometmq.testing.history import History, Problem, ProblemKind, Queue, Received, Rules, Sent

ORDERS_0 = Queue("orders", "", 0)


def sent(number: int, *, queue_id: int = 0, **changes: object) -> Sent:
    """Message ``number`` of a queue, acknowledged at the offset of that number."""
    record = Sent(f"{queue_id}-{number}", topic="orders", queue_id=queue_id, queue_offset=number)
    return msgspec.structs.replace(record, **changes)


def received(number: int, member: str = "a", *, queue_id: int = 0, **changes: object) -> Received:
    """The same message, received ten milliseconds after the one before, worked on for five."""
    record = Received(
        f"{queue_id}-{number}",
        topic="orders",
        queue_id=queue_id,
        queue_offset=number,
        member=member,
        begin_ms=1000.0 + 10 * number,
        end_ms=1005.0 + 10 * number,
    )
    return msgspec.structs.replace(record, **changes)


def only_problem(history: History, rules: Rules | None = None) -> Problem:
    (problem,) = history.problems(rules or Rules())
    return problem


def test_a_history_without_faults_has_no_problems() -> None:
    history = History()
    for queue_id in range(3):
        for number in range(4):
            history.add(sent(number, queue_id=queue_id))
            history.add(received(number, f"member-{queue_id}", queue_id=queue_id))

    history.claim()

    assert history.report() == ""
    assert (len(history.sends), len(history.receipts)) == (12, 12)


def test_nothing_at_all_is_no_problem() -> None:
    assert History().problems() == []


def test_an_acknowledged_message_that_nobody_received_is_lost() -> None:
    history = History([sent(0), sent(1), sent(2), received(0), received(2)])

    problem = only_problem(history)

    assert problem == Problem(ProblemKind.LOST, ORDERS_0, 1, 2, sends=(sent(1),))
    assert str(problem) == (
        "lost: orders queue 0 offset 1: '0-1' acknowledged at orders queue 0 offset 1"
    )


def test_the_last_messages_can_be_lost_too() -> None:
    history = History([sent(0), sent(1), received(0)])

    assert only_problem(history).kind == ProblemKind.LOST


def test_a_send_that_was_not_acknowledged_may_arrive_or_not() -> None:
    history = History(
        [
            Sent("arrives", is_acknowledged=False),
            Sent("does not", is_acknowledged=False),
            Received("arrives"),
        ]
    )

    assert history.problems() == []


def test_a_send_may_be_tried_again_until_it_is_acknowledged() -> None:
    history = History([Sent("a", is_acknowledged=False), Sent("a")])

    assert only_problem(history).kind == ProblemKind.LOST


def test_two_acknowledged_sends_with_one_key_cannot_be_judged() -> None:
    history = History([Sent("a")])

    with pytest.raises(ValueError, match="two sends with the key 'a'"):
        history.add(Sent("a"))


def test_a_hole_that_no_send_explains_is_a_gap() -> None:
    history = History([received(0), received(1), received(5)])

    problem = only_problem(history)

    assert problem == Problem(ProblemKind.GAP, ORDERS_0, 2, 5)
    assert str(problem) == "gap: orders queue 0 offsets 2 to 4 (3)"


def test_a_lost_message_splits_a_gap() -> None:
    history = History([sent(0), sent(3), sent(6), received(0), received(6)])

    problems = history.problems()

    assert [(p.kind, p.begin, p.end) for p in problems] == [
        (ProblemKind.LOST, 3, 4),
        (ProblemKind.GAP, 1, 3),
        (ProblemKind.GAP, 4, 6),
    ]


def test_what_a_subscription_does_not_want_is_no_gap_and_must_not_arrive() -> None:
    red = Rules(wanted=lambda message: message.tag == "red")
    history = History([sent(0, tag="red"), sent(1, tag="blue"), sent(2, tag="red")])
    history.add(received(0))
    history.add(received(2))
    assert history.problems(red) == []

    history.add(received(1, "b", begin_ms=None))

    assert [p.kind for p in history.problems(red)] == [ProblemKind.UNWANTED]


def test_an_offset_received_twice_is_repeated_unless_that_may_be() -> None:
    again = received(0, "b", begin_ms=1010.0, end_ms=1020.0)
    history = History([sent(0), received(0), again])

    problem = only_problem(history)

    assert problem == Problem(ProblemKind.REPEATED, ORDERS_0, 0, 1, receipts=(received(0), again))
    assert str(problem) == (
        "repeated: orders queue 0 offset 0: '0-0' received by a at orders queue 0 offset 0,"
        " 1000 to 1005 ms; '0-0' received by b at orders queue 0 offset 0, 1010 to 1020 ms"
    )
    assert history.problems(Rules(may_repeat=True)) == []


def test_without_places_a_key_received_twice_is_repeated() -> None:
    history = History([Sent("a"), Received("a", member="x"), Received("a", member="y")])

    assert only_problem(history).kind == ProblemKind.REPEATED
    assert history.problems(Rules(may_repeat=True)) == []


def test_what_is_delivered_again_after_being_sent_back_is_another_attempt() -> None:
    retries = [received(0, attempt=attempt, queue_offset=7) for attempt in (1, 2)]
    history = History([sent(0), received(0), *retries])
    assert history.problems() == []

    history.add(retries[1])

    assert only_problem(history).kind == ProblemKind.REPEATED


def test_a_message_stored_twice_is_doubled_unless_that_may_be() -> None:
    history = History([sent(0), received(0), received(1, key="0-0")])

    problem = only_problem(history)

    assert problem.kind == ProblemKind.DOUBLED
    assert [receipt.queue_offset for receipt in problem.receipts] == [0, 1]
    assert history.problems(Rules(may_repeat=True)) == []


def test_a_message_received_after_a_later_one_of_its_queue_is_reordered() -> None:
    history = History([received(0), received(2), received(1)])

    problem = only_problem(history)

    assert problem.kind == ProblemKind.REORDERED
    assert (problem.begin, [r.queue_offset for r in problem.receipts]) == (1, [2, 1])
    assert history.problems(Rules(may_reorder=True)) == []


def test_between_members_time_tells_the_order() -> None:
    early = received(1, "b", begin_ms=900.0, end_ms=905.0)

    assert only_problem(History([received(0), early])).kind == ProblemKind.REORDERED
    assert History([received(1, "b"), received(0)]).problems() == []


def test_members_without_times_are_judged_each_by_itself() -> None:
    history = History([received(1, "b", begin_ms=None), received(0, "a", begin_ms=None)])
    assert history.problems() == []

    history.add(received(3, "b", begin_ms=None))
    history.add(received(2, "b", begin_ms=None))

    assert only_problem(history).kind == ProblemKind.REORDERED


def test_going_back_to_repeat_is_no_reordering() -> None:
    """A member that takes a queue over begins at the offset that was committed last."""
    history = History([received(n) for n in range(4)])
    for step, number in enumerate((2, 3, 4, 5)):
        at = 2000.0 + step
        history.add(received(number, "b", begin_ms=at, end_ms=at + 1))

    assert history.problems(Rules(may_repeat=True)) == []


def test_two_members_at_once_on_one_queue_overlap_unless_that_may_be() -> None:
    slow = received(0, "a", end_ms=1012.0)
    history = History([slow, received(1, "b")])

    problem = only_problem(history)

    assert problem == Problem(
        ProblemKind.OVERLAPPED, ORDERS_0, 1, 2, receipts=(slow, received(1, "b"))
    )
    assert history.problems(Rules(may_share_queues=True)) == []
    assert history.problems(Rules(slack_ms=2)) == []


def test_a_long_work_is_not_hidden_by_a_shorter_one_behind_it() -> None:
    history = History([received(0, end_ms=1100.0), received(1), received(2, "b")])

    assert only_problem(history).kind == ProblemKind.OVERLAPPED


def test_one_member_or_two_queues_do_not_overlap() -> None:
    history = History([received(0, end_ms=1100.0), received(1)])
    history.add(received(1, "b", queue_id=1))

    assert history.problems() == []


def test_a_message_that_nobody_sent_is_unknown() -> None:
    history = History([sent(0), received(0), received(1)])

    assert only_problem(history) == Problem(
        ProblemKind.UNKNOWN, ORDERS_0, 1, 2, receipts=(received(1),)
    )


def test_a_message_from_another_place_than_acknowledged_is_misplaced() -> None:
    history = History([sent(0), received(0, queue_offset=1)])

    problem = only_problem(history)

    assert problem.kind == ProblemKind.MISPLACED
    assert (problem.sends, problem.receipts) == ((sent(0),), (received(0, queue_offset=1),))


def test_a_place_that_held_two_messages_has_changed_even_where_repeats_may_be() -> None:
    history = History([received(0), received(0, key="another")])

    assert only_problem(history, Rules(may_repeat=True)).kind == ProblemKind.CHANGED


def test_two_messages_acknowledged_at_one_place_share_it() -> None:
    history = History([sent(0), sent(0, key="another")])

    shared = [p for p in history.problems() if p.kind == ProblemKind.SHARED]

    assert [p.sends for p in shared] == [(sent(0), sent(0, key="another"))]


def test_a_send_that_began_after_another_had_ended_has_a_higher_offset() -> None:
    first = sent(1, begin_ms=100.0, end_ms=110.0)
    second = sent(0, begin_ms=120.0, end_ms=130.0)
    history = History([first, second, received(0), received(1)])

    problem = only_problem(history)

    assert problem.kind == ProblemKind.SENT_OUT_OF_ORDER
    assert problem.sends == (first, second)


def test_sends_at_the_same_time_may_get_any_order() -> None:
    first = sent(1, begin_ms=100.0, end_ms=110.0)
    second = sent(0, begin_ms=105.0, end_ms=130.0)

    assert History([first, second, received(0), received(1)]).problems() == []


def test_a_broadcast_reaches_every_member_and_each_is_judged_by_itself() -> None:
    history = History([sent(0), sent(1)])
    for member in ("a", "b"):
        history.add(received(0, member))
    history.add(received(1, "a"))

    missing = history.problems(Rules(is_broadcast=True, members=("a", "b", "c")))

    assert [(p.kind, p.member, p.begin) for p in missing] == [
        (ProblemKind.LOST, "b", 1),
        (ProblemKind.LOST, "c", 0),
        (ProblemKind.LOST, "c", 1),
    ]
    assert "member b" in str(missing[0])


def test_brokers_tell_queues_apart_when_all_records_name_them() -> None:
    everywhere = [
        received(0, broker="north"),
        received(0, key="other", broker="south", begin_ms=1006.0, end_ms=1007.0),
    ]

    assert History(everywhere).problems() == []
    assert only_problem(History([*everywhere, received(1)])).kind == ProblemKind.CHANGED


def test_events_of_programs_become_records() -> None:
    history = History()
    place = {"topic": "orders", "queueId": 1, "queueOffset": 4, "brokerName": "north"}

    history.add_events(
        [
            {"event": "started"},
            {"event": "sent", "body": "a", "tags": "red", "begin": 5, "end": 6, **place},
            {"event": "failed", "body": "b", "topic": "orders"},
        ],
        member="producer",
    )
    history.add_events(
        [{"event": "received", "body": "a", "member": "m", "reconsumeTimes": 2, **place}]
    )

    assert history.sends == (
        Sent("a", "orders", 1, 4, "north", "red", "producer", 5, 6),
        Sent("b", "orders", sender="producer", is_acknowledged=False),
    )
    assert history.receipts == (Received("a", "orders", 1, 4, "north", "m", attempt=2),)


def test_events_are_told_apart_by_the_field_that_is_named() -> None:
    history = History()

    history.add_events([{"event": "sent", "body": "same", "msgId": "1"}], key="msgId")
    history.add_events([{"event": "sent", "body": "same", "msgId": "2"}], key="msgId")

    assert [record.key for record in history.sends] == ["1", "2"]
    with pytest.raises(ValueError, match="an event without messageId"):
        history.add_events([{"event": "sent", "body": "same"}], key="messageId")


def test_a_claim_fails_with_a_report_of_bounded_length() -> None:
    history = History([sent(number) for number in range(1000)])
    history.add(received(0))
    history.add(received(0))

    with pytest.raises(AssertionError) as failed:
        history.claim()

    lines = str(failed.value).splitlines()
    assert lines[0] == "999 lost, 1 repeated (of 1000 sent, 2 received)"
    assert lines[6] == "… and 994 more"
    assert len(lines) == 8


def test_threads_may_add_at_the_same_time() -> None:
    history = History()

    def work(queue_id: int) -> None:
        for number in range(200):
            history.add(sent(number, queue_id=queue_id))
            history.add(received(number, str(queue_id), queue_id=queue_id))

    threads = [threading.Thread(target=work, args=(queue_id,)) for queue_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    history.claim()
    assert len(history.receipts) == 800


Records = list[Sent | Received]


def plant_loss(records: Records, pick: int) -> None:
    records.remove(received(pick))


def plant_repeat(records: Records, pick: int) -> None:
    records.append(received(pick))


def plant_overlap(records: Records, pick: int) -> None:
    records[records.index(received(pick))] = received(pick, "b", end_ms=1011.0 + 10 * pick)


def plant_unknown(records: Records, pick: int) -> None:
    records.remove(sent(pick))


def plant_misplacement(records: Records, pick: int) -> None:
    records[records.index(sent(pick))] = sent(pick, queue_id=1, key=f"0-{pick}")


PLANTED: dict[ProblemKind, Callable[[Records, int], None]] = {
    ProblemKind.LOST: plant_loss,
    ProblemKind.REPEATED: plant_repeat,
    ProblemKind.OVERLAPPED: plant_overlap,
    ProblemKind.UNKNOWN: plant_unknown,
    ProblemKind.MISPLACED: plant_misplacement,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_fault_planted_anywhere_is_the_one_that_is_found(kind: ProblemKind) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    count = chance.randrange(5, 60)
    pick = chance.randrange(1, count - 1)
    records: Records = [record(n) for n in range(count) for record in (sent, received)]

    PLANTED[kind](records, pick)

    found = {problem.kind for problem in History(records).problems()}
    assert found == {kind}, f"seed {seed}"
