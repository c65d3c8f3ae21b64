"""Topics and version stamps."""

import pytest

from cometmq.model.topic import DataVersion, Permission, TopicConfig


@pytest.mark.parametrize(
    ("perm", "readable", "writable", "inheritable"),
    [(0, False, False, False), (2, False, True, False), (4, True, False, False),
     (6, True, True, False), (7, True, True, True)],
)  # fmt: skip
def test_permission_bits_say_what_a_topic_allows(
    perm: int, *, readable: bool, writable: bool, inheritable: bool
) -> None:
    topic = TopicConfig("t", perm=perm)

    assert (topic.is_readable, topic.is_writable) == (readable, writable)
    assert topic.is_inheritable == inheritable


def test_a_new_topic_may_be_read_and_written() -> None:
    assert TopicConfig("t").perm == Permission.READ | Permission.WRITE


def test_stamps_match_when_only_one_side_knows_state_versions() -> None:
    """A 4.x broker sends no state version, which Java reads as 0."""
    assert DataVersion(1, None, 5).matches(DataVersion(1, 0, 5))
    assert not DataVersion(1, None, 5).matches(DataVersion(1, 1, 5))
    assert not DataVersion(1, 0, 5).matches(DataVersion(2, 0, 5))
    assert not DataVersion(1, 0, 5).matches(DataVersion(1, 0, 6))


def test_a_change_counts_one_up_and_takes_the_time() -> None:
    assert DataVersion(1, 3, 5).advanced(now_ms=9) == DataVersion(2, 3, 9)
