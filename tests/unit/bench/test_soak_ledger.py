"""What a soak's books allow near a disturbance, and what they never allow."""

import pytest

from bench.soak_ledger import EXCUSED_MS, SETTLED_MS, Cause, Judged, Ledger, view
from cometmq.testing.history import ProblemKind, Received, Rules, Sent

TOPIC = "orders"
GROUP = "readers"
CONCURRENTLY = Rules(may_reorder=True, may_share_queues=True)
EXCUSES = {
    ProblemKind.REPEATED: frozenset({Cause.RESTART, Cause.KILL, Cause.REBALANCE}),
    ProblemKind.DOUBLED: frozenset({Cause.KILL}),
}


class Books(Ledger):
    """A ledger of one group, whose time is a number."""

    def __init__(self) -> None:
        super().__init__([view(TOPIC, GROUP, CONCURRENTLY, EXCUSES)], lambda: self.at_ms)
        self.at_ms = 1_000_000.0

    def outage(self, cause: Cause, lasting_ms: float = 1000) -> None:
        self.went_down()
        self.at_ms += lasting_ms
        self.came_back(cause)

    def send(self, offset: int, *, delay_ms: float = 0) -> None:
        place = (None, None) if delay_ms else (0, offset)
        sent = Sent(f"m{offset}", topic=TOPIC, queue_id=place[0], queue_offset=place[1])
        self.sent(sent, delay_ms=delay_ms)

    def receive(self, offset: int, key: str = "") -> None:
        receipt = Received(
            key or f"m{offset}", topic=TOPIC, queue_id=0, queue_offset=offset, begin_ms=self.at_ms
        )
        self.received(GROUP, receipt)

    def result(self) -> Judged:
        (judged,) = self.judged()
        return judged


@pytest.fixture
def books() -> Books:
    return Books()


class TestExcuses:
    def test_a_repeat_after_a_restart_is_excused(self, books: Books) -> None:
        books.send(0)
        books.receive(0)
        books.outage(Cause.RESTART)
        books.at_ms += EXCUSED_MS
        books.receive(0)

        result = books.result()

        assert result.problems == []
        assert result.excused == {ProblemKind.REPEATED: 1}

    def test_one_that_comes_later_is_not(self, books: Books) -> None:
        books.send(0)
        books.outage(Cause.RESTART)
        books.receive(0)
        books.at_ms += EXCUSED_MS + 1
        books.receive(0)

        assert [problem.kind for problem in books.result().problems] == [ProblemKind.REPEATED]

    def test_nor_is_one_without_any_cause(self, books: Books) -> None:
        books.send(0)
        books.receive(0)
        books.receive(0)

        assert [problem.kind for problem in books.result().problems] == [ProblemKind.REPEATED]

    def test_a_rebalance_excuses_the_members_of_its_group_only(self, books: Books) -> None:
        books.send(0)
        books.receive(0)
        books.disturbed(Cause.REBALANCE, "others", books.at_ms)
        books.receive(0)

        assert books.result().problems

        books.disturbed(Cause.REBALANCE, GROUP, books.at_ms)

        assert books.result().problems == []

    @pytest.mark.parametrize(("cause", "count"), [(Cause.KILL, 0), (Cause.RESTART, 1)])
    def test_a_copy_may_come_of_a_kill_but_not_of_a_restart(
        self, books: Books, cause: Cause, count: int
    ) -> None:
        books.send(0, delay_ms=10)
        books.receive(0)
        books.outage(cause)
        books.receive(1, key="m0")

        assert len(books.result().problems) == count

    def test_nothing_excuses_a_loss(self, books: Books) -> None:
        books.send(0)
        books.outage(Cause.KILL)

        assert [problem.kind for problem in books.result().problems] == [ProblemKind.LOST]


class TestLag:
    def test_it_counts_from_when_a_message_is_due(self, books: Books) -> None:
        books.send(0, delay_ms=5000)
        books.at_ms += 7000

        assert books.lag_ms() == (2000, f"{GROUP} on {TOPIC}")

        books.receive(0)

        assert books.lag_ms() == (0, "")

    def test_a_message_may_come_before_its_sender_knows(self, books: Books) -> None:
        books.receive(0)
        books.send(0)

        assert books.waiting_count() == 0

    def test_an_unknown_outcome_is_not_waited_for(self, books: Books) -> None:
        books.sent(Sent("m0", topic=TOPIC, is_acknowledged=False))

        assert books.waiting_count() == 0

    def test_the_oldest_message_that_is_waited_for_says_how_long_the_log_is_kept(
        self, books: Books
    ) -> None:
        assert books.oldest_ms() == books.at_ms

        books.send(0)
        sent_ms = books.at_ms
        books.at_ms += 100
        books.send(1)

        assert books.oldest_ms() == books.oldest_ms(GROUP) == sent_ms
        assert books.oldest_ms("others") == books.at_ms

        books.receive(0)

        assert books.oldest_ms() == sent_ms + 100


class TestFailures:
    def test_a_request_may_fail_around_an_outage_only(self, books: Books) -> None:
        books.failed("send", "refused")
        books.went_down()
        books.failed("send", "refused")
        books.came_back(Cause.KILL)
        books.failed("send", "refused")
        books.at_ms += SETTLED_MS + 1
        books.failed("pull", "refused")

        assert books.faults == ["send: refused", "pull: refused"]
        assert books.counts["failed near an outage"] == 2
