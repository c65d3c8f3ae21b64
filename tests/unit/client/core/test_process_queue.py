"""What is cached of one queue; Java's own class has lived the same lives."""

from dataclasses import dataclass
from typing import Any

import pytest

from cometmq.client.core.process_queue import NOTHING, FlowLimits, Full, ProcessQueue
from cometmq.codec.bodies.clients import ProcessQueueInfo
from tests.interop import vectors

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """As little as a process queue asks for."""

    queue_offset: int
    body_bytes: int = 1


def messages(*offsets: int) -> list[Message]:
    return [Message(offset) for offset in offsets]


def queue_with(*offsets: int) -> ProcessQueue[Message]:
    queue: ProcessQueue[Message] = ProcessQueue(0)
    queue.put(messages(*offsets))
    return queue


def offsets(found: list[Message]) -> list[int]:
    return [message.queue_offset for message in found]


class TestLivesOfJava:
    @pytest.mark.parametrize(
        "vector", vectors.read("client-process-queues"), ids=lambda vector: f"seed {vector['seed']}"
    )
    def test_every_step_gives_what_it_gives_in_java(self, vector: dict[str, Any]) -> None:
        queue: ProcessQueue[Message] = ProcessQueue(0)

        for number, step in enumerate(vector["steps"]):
            # Java also counts what is left with the broker, one too many; nobody asks for it here.
            name, argument, result, count, size, span, _, has_waiting, ends = step
            assert self.done(queue, name, argument) == result, (number, step)
            assert len(queue) == count, (number, step)
            assert queue.body_bytes == size, (number, step)
            assert queue.span == span, (number, step)
            assert queue.has_waiting == has_waiting, (number, step)
            assert self.ends(queue.info(0)) == ends, (number, step)

    @staticmethod
    def done(queue: ProcessQueue[Message], name: str, argument: Any) -> Any:
        match name:
            case "put":
                made = [Message(offset, min(offset + 1, 4096)) for offset in argument]
                return queue.put(made)
            case "remove":
                return queue.remove_all(messages(*argument), 1)
            case "take":
                return offsets(queue.take(argument, 1))
            case "commit":
                return queue.commit()
            case "roll back":
                return queue.roll_back()
            case "again":
                return queue.again(messages(*argument))
            case _:
                return queue.clear()

    @staticmethod
    def ends(info: ProcessQueueInfo) -> list[int]:
        return [
            info.cached_msg_min_offset,
            info.cached_msg_max_offset,
            info.cached_msg_count,
            info.transaction_msg_min_offset,
            info.transaction_msg_max_offset,
            info.transaction_msg_count,
        ]


class TestConcurrent:
    def test_the_offset_to_commit_is_the_first_that_is_still_cached(self) -> None:
        queue = queue_with(5, 6, 7)

        assert queue.remove(Message(6), 1) == 5
        assert queue.remove(Message(5), 1) == 7
        assert queue.remove(Message(7), 1) == 8

    def test_gaps_are_passed_over(self) -> None:
        queue = queue_with(5, 9)

        assert queue.remove(Message(5), 1) == 9

    def test_nothing_is_committed_when_nothing_was_cached(self) -> None:
        assert queue_with().remove(Message(5), 1) == NOTHING
        assert queue_with().remove_all(messages(5, 6), 1) == NOTHING

    def test_what_is_not_cached_can_be_removed_without_harm(self) -> None:
        queue = queue_with(5, 6)

        assert queue.remove(Message(99), 1) == 5
        assert len(queue) == 2

    def test_an_offset_that_comes_again_is_replaced_and_counted_once(self) -> None:
        queue = queue_with(5)

        queue.put([Message(5, body_bytes=10)])

        assert len(queue) == 1
        assert queue.body_bytes == 10
        assert queue.remove(Message(5), 1) == 6
        assert queue.body_bytes == 0

    def test_a_removed_offset_that_comes_again_holds_up_the_commit(self) -> None:
        queue = queue_with(5, 6, 7)
        queue.remove(Message(6), 1)

        queue.put(messages(6))

        assert queue.remove_all(messages(5, 7), 1) == 6

    def test_the_list_of_offsets_does_not_grow_behind_a_message_that_hangs(self) -> None:
        queue = queue_with(0)

        for offset in range(1, 10_000):
            queue.put(messages(offset))
            assert queue.remove(Message(offset), 1) == 0

        assert len(queue._order) < 2_000
        assert queue.remove(Message(0), 1) == 10_000

    def test_removing_notes_the_time(self) -> None:
        queue = queue_with(5, 6)

        queue.remove(Message(5), 17)

        assert queue.last_consume_ms == 17

    def test_membership_tells_whether_a_result_still_counts(self) -> None:
        queue = queue_with(5)

        assert Message(5) in queue
        queue.remove(Message(5), 1)
        assert Message(5) not in queue


class TestTimeout:
    def test_an_empty_queue_has_no_first_message(self) -> None:
        queue = queue_with(5)
        queue.remove(Message(5), 1)

        assert queue.first() is None

    def test_an_overdue_message_is_removed_only_while_it_is_first(self) -> None:
        queue = queue_with(5, 6)

        assert queue.remove_if_first(Message(6), 1) == NOTHING
        assert queue.remove_if_first(Message(5), 1) == 6
        assert queue.remove_if_first(Message(5), 1) == NOTHING
        assert len(queue) == 1


class TestOrderly:
    def test_the_first_put_asks_for_a_handler_loop_and_the_next_does_not(self) -> None:
        queue: ProcessQueue[Message] = ProcessQueue(0)

        assert not queue.put([])
        assert queue.put(messages(5))
        assert not queue.put(messages(6))

    def test_the_loop_ends_when_nothing_can_be_taken(self) -> None:
        queue = queue_with(5)

        assert offsets(queue.take(2, 1)) == [5]
        assert queue.is_consuming
        assert queue.take(2, 9) == []
        assert not queue.is_consuming
        assert queue.last_consume_ms == 9
        assert queue.put(messages(6))

    def test_what_was_taken_is_committed_together(self) -> None:
        queue = queue_with(5, 6, 7)
        queue.take(1, 1)
        queue.take(1, 1)

        assert queue.commit() == 7
        assert len(queue) == 1
        assert queue.body_bytes == 1

    def test_without_anything_handed_over_there_is_nothing_to_commit(self) -> None:
        assert queue_with(5).commit() == NOTHING

    def test_what_is_rolled_back_is_taken_again_in_order(self) -> None:
        queue = queue_with(5, 6, 7)
        queue.take(2, 1)

        queue.roll_back()

        assert offsets(queue.take(9, 1)) == [5, 6, 7]

    def test_a_prefix_can_be_committed_while_the_rest_returns(self) -> None:
        queue = queue_with(5, 6, 7)
        taken = queue.take(3, 1)

        queue.again(taken[1:])

        assert queue.commit() == 6
        assert offsets(queue.take(9, 1)) == [6, 7]

    def test_a_message_that_returned_holds_up_the_commit_of_later_ones(self) -> None:
        queue = queue_with(5, 6, 7)
        taken = queue.take(3, 1)

        queue.again(taken[1:2])

        assert queue.commit() == 6

    def test_what_was_not_handed_over_does_not_return(self) -> None:
        queue = queue_with(5)

        queue.again(messages(4))

        assert offsets(queue.take(9, 1)) == [5]

    def test_a_message_that_was_pulled_again_meanwhile_returns_once(self) -> None:
        queue = queue_with(5, 6)
        queue.take(2, 1)
        queue.put([Message(5, body_bytes=10)])

        queue.roll_back()

        assert len(queue) == 2
        assert queue.body_bytes == 2
        assert offsets(queue.take(9, 1)) == [5, 6]

    def test_waiting_are_those_not_handed_over(self) -> None:
        queue = queue_with(5)
        assert queue.has_waiting

        queue.take(1, 1)

        assert not queue.has_waiting
        assert len(queue) == 1


class TestClear:
    def test_everything_is_forgotten(self) -> None:
        queue = queue_with(5, 6)
        queue.take(1, 1)

        queue.clear()

        assert len(queue) == queue.body_bytes == queue.span == 0
        assert queue.commit() == NOTHING
        assert queue.remove(Message(6), 1) == NOTHING


class TestFlowControl:
    LIMITS = FlowLimits(cached_max=3, cached_mib_max=2, span_max=10)

    def test_a_queue_at_its_limits_may_be_pulled(self) -> None:
        queue: ProcessQueue[Message] = ProcessQueue(0)
        queue.put([Message(0, 3 * MIB - 3), Message(1), Message(10)])

        assert queue.full(self.LIMITS) is None

    def test_too_many_messages(self) -> None:
        assert queue_with(0, 1, 2, 3).full(self.LIMITS) is Full.COUNT

    def test_messages_handed_over_count_as_well(self) -> None:
        queue = queue_with(0, 1, 2, 3)
        queue.take(2, 1)

        assert queue.full(self.LIMITS) is Full.COUNT

    def test_too_many_bytes(self) -> None:
        queue: ProcessQueue[Message] = ProcessQueue(0)
        queue.put([Message(0, 3 * MIB)])

        assert queue.full(self.LIMITS) is Full.BYTES

    def test_too_wide_a_span(self) -> None:
        assert queue_with(0, 11).full(self.LIMITS) is Full.SPAN

    def test_a_span_is_measured_between_what_is_still_cached(self) -> None:
        queue = queue_with(0, 5, 11)

        queue.remove(Message(11), 1)

        assert queue.full(self.LIMITS) is None
        assert queue.span == 5

    def test_a_span_does_not_matter_when_orderly(self) -> None:
        limits = FlowLimits(cached_max=3, cached_mib_max=2, span_max=None)

        assert queue_with(0, 11).full(limits) is None

    def test_an_empty_queue_may_be_pulled(self) -> None:
        assert queue_with().full(self.LIMITS) is None


class TestLocks:
    def test_a_lock_counts_while_it_is_renewed(self) -> None:
        queue = queue_with()
        assert not queue.holds_lock(0)

        queue.lock(1_000)

        assert queue.holds_lock(31_000)
        assert not queue.holds_lock(31_001)
        queue.lock(31_001)
        assert queue.holds_lock(31_001)

    def test_an_unlocked_queue_is_not_handled(self) -> None:
        queue = queue_with()
        queue.lock(1_000)

        queue.unlock()

        assert not queue.holds_lock(1_000)

    def test_a_queue_without_pulls_is_overdue(self) -> None:
        queue: ProcessQueue[Message] = ProcessQueue(1_000)

        assert not queue.is_pull_overdue(121_000)
        assert queue.is_pull_overdue(121_001)


def test_running_info_has_everything_that_is_asked_for() -> None:
    queue: ProcessQueue[Message] = ProcessQueue(1)
    queue.put([Message(5, MIB), Message(6, MIB), Message(9, MIB - 1)])
    queue.take(1, now_ms=4)
    queue.lock(2)
    queue.last_pull_ms = 3
    queue.unlock_tries = 7
    queue.is_dropped = True

    assert queue.info(commit_offset=5) == ProcessQueueInfo(
        commit_offset=5,
        cached_msg_min_offset=6,
        cached_msg_max_offset=9,
        cached_msg_count=2,
        cached_msg_size_in_mib=2,
        transaction_msg_min_offset=5,
        transaction_msg_max_offset=5,
        transaction_msg_count=1,
        locked=True,
        try_unlock_times=7,
        last_lock_timestamp=2,
        droped=True,
        last_pull_timestamp=3,
        last_consume_timestamp=4,
    )
