"""How far the store is, and who waits for the disk."""

import threading

import pytest

from cometmq.store.watermarks import Watermarks


class Log:
    """Something that ends somewhere."""

    def __init__(self, end: int) -> None:
        self.end = end


@pytest.fixture
def marks() -> Watermarks:
    """100 bytes were on disk already; 1000 are in the log."""
    marks = Watermarks(100)
    marks.follow(Log(1000), has_pool=False)
    return marks


def test_they_all_begin_at_the_end_of_the_log() -> None:
    marks = Watermarks(4711)

    assert {marks.appended, marks.committed, marks.flushed, marks.dispatched, marks.confirmed} == {
        4711
    }
    assert marks.failure == ""


class TestCallbacks:
    def test_what_is_on_disk_is_told_at_once(self, marks: Watermarks) -> None:
        told: list[bool] = []

        marks.when_flushed(100, told.append)

        assert told == [True]
        assert not marks.has_waiting

    def test_the_rest_is_told_when_it_is_released(self, marks: Watermarks) -> None:
        told: list[bool] = []
        marks.when_flushed(101, told.append)
        marks.release_waiting()
        too_early = list(told)

        marks.move_flushed(101)
        not_yet = list(told)
        marks.release_waiting()

        assert (too_early, not_yet, told) == ([], [], [True])
        assert not marks.has_waiting

    def test_only_those_whose_position_is_reached_are_told_the_nearest_first(
        self, marks: Watermarks
    ) -> None:
        told: list[int] = []
        for end in (500, 200, 300, 400):
            marks.when_flushed(end, lambda _, end=end: told.append(end))  # type: ignore[misc]

        marks.move_flushed(300)
        marks.release_waiting()

        assert told == [200, 300]
        assert marks.has_waiting

    def test_those_with_the_same_position_are_told_in_their_order(self, marks: Watermarks) -> None:
        told: list[int] = []
        for number in range(20):
            marks.when_flushed(200, lambda _, n=number: told.append(n))  # type: ignore[misc]

        marks.move_flushed(200)
        marks.release_waiting()

        assert told == list(range(20))

    def test_a_failure_tells_everybody_the_truth(self, marks: Watermarks) -> None:
        told: list[tuple[int, bool]] = []
        for end in (200, 300):
            marks.when_flushed(end, lambda ok, end=end: told.append((end, ok)))  # type: ignore[misc]
        marks.move_flushed(200)

        marks.fail("disk is on fire")
        marks.release_waiting()
        marks.when_flushed(200, lambda ok: told.append((-200, ok)))
        marks.when_flushed(400, lambda ok: told.append((-400, ok)))

        assert told == [(200, True), (300, False), (-200, True), (-400, False)]
        assert marks.failure == "disk is on fire"

    def test_the_first_failure_is_the_one_to_tell(self, marks: Watermarks) -> None:
        marks.fail("first")
        marks.fail("second")

        assert marks.failure == "first"

    def test_a_callback_may_wait_again(self, marks: Watermarks) -> None:
        told: list[int] = []

        def again(_: bool) -> None:
            told.append(1)
            marks.when_flushed(300, lambda _: told.append(2))
            marks.when_flushed(150, lambda _: told.append(3))

        marks.when_flushed(200, again)
        marks.move_flushed(200)
        marks.release_waiting()
        before = list(told)
        marks.move_flushed(300)
        marks.release_waiting()

        assert (before, told) == ([1, 3], [1, 3, 2])


class TestPositions:
    def test_they_only_grow(self, marks: Watermarks) -> None:
        marks.move_flushed(300)
        marks.move_flushed(200)

        assert marks.flushed == 300

    def test_nothing_is_flushed_that_is_not_committed(self, marks: Watermarks) -> None:
        with pytest.raises(AssertionError):
            marks.move_flushed(1001)


class TestThreads:
    def test_one_that_waits_goes_on_when_its_position_is_reached(self, marks: Watermarks) -> None:
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(marks.wait_flushed(200, 60)))
        thread.start()

        marks.move_flushed(200)
        thread.join(30)

        assert answers == [True]

    def test_one_that_waits_in_vain_is_told_so(self, marks: Watermarks) -> None:
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(marks.wait_flushed(200, 60)))
        thread.start()

        marks.fail("disk is on fire")
        thread.join(30)

        assert answers == [False]

    def test_what_is_on_disk_is_not_waited_for(self, marks: Watermarks) -> None:
        marks.fail("disk is on fire")

        assert marks.wait_flushed(100, 60)

    def test_waiting_has_an_end(self, marks: Watermarks) -> None:
        assert not marks.wait_flushed(200, 0.001)
