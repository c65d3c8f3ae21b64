"""One limit for what all connections hold of incomplete frames."""

from cometmq.remoting.budget import PartialFrames


class Peer:
    """A connection that remembers why it was dropped."""

    def __init__(self) -> None:
        self.reason = ""

    def drop(self, reason: str) -> None:
        assert not self.reason
        self.reason = reason


def test_the_sum_follows_what_each_connection_holds() -> None:
    budget = PartialFrames(100)
    one, other = Peer(), Peer()

    budget.update(one, 30)
    budget.update(other, 40)
    budget.update(one, 50)
    assert budget.total_bytes == 90

    budget.update(one, 0)
    budget.update(one, 0)
    assert budget.total_bytes == 40


def test_over_the_limit_whoever_holds_most_is_dropped() -> None:
    budget = PartialFrames(100)
    small, large, newest = Peer(), Peer(), Peer()
    budget.update(small, 10)
    budget.update(large, 60)

    budget.update(newest, 31)

    assert "holds 60 bytes" in large.reason
    assert (small.reason, newest.reason) == ("", "")
    assert budget.total_bytes == 41


def test_among_equals_the_one_that_began_first_is_dropped() -> None:
    budget = PartialFrames(100)
    peers = [Peer() for _ in range(6)]

    for peer in peers:
        budget.update(peer, 25)

    assert [bool(peer.reason) for peer in peers] == [True, True, False, False, False, False]


def test_as_many_are_dropped_as_it_takes() -> None:
    budget = PartialFrames(100)
    peers = [Peer() for _ in range(5)]
    for peer in peers:
        budget.update(peer, 20)

    newest = Peer()
    budget.update(newest, 99)

    assert newest.reason
    assert not any(peer.reason for peer in peers)
    assert budget.total_bytes == 100


def test_a_connection_that_was_dropped_owes_nothing() -> None:
    budget = PartialFrames(100)
    greedy = Peer()
    budget.update(greedy, 101)

    budget.update(greedy, 0)

    assert greedy.reason
    assert budget.total_bytes == 0
