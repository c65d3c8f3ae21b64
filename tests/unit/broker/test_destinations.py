"""Where delayed messages go: not to what was deleted, and to what a kill has lost all the same."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.broker.delay.destinations import DeletedFile, DeletedTable, Destinations
from cometmq.errors import RemoteProtocolError
from cometmq.store import MessageStore, NewMessage, PutResult, PutStatus
from cometmq.testing import FakeClock
from tests.unit.broker import tables
from tests.unit.store.builders import FAR_FUTURE_MS, bodies, message, open_store, put

TOPIC = "orders"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    made = open_store(tmp_path / "store", clock=FakeClock(FAR_FUTURE_MS), retention_hours=0)
    put(made, message(b"first"))
    yield made
    made.close()


def opened(store: MessageStore, *, names_max: int = 100) -> Destinations:
    """As a broker has them that starts now."""
    topics = tables.topic_table(store.root)
    return Destinations(DeletedFile(store.root), store, topics, names_max=names_max)


def test_what_was_stored_before_its_topic_was_deleted_is_gone(store: MessageStore) -> None:
    destinations = opened(store)

    destinations.forget(TOPIC)
    later = put(store, message(b"later"))

    assert destinations.is_gone(TOPIC, 0)
    assert not destinations.is_gone(TOPIC, later.physical_offset)
    assert not destinations.is_gone("bills", 0)


def test_a_topic_that_was_deleted_twice_is_gone_up_to_the_second_time(store: MessageStore) -> None:
    destinations = opened(store)
    destinations.forget(TOPIC)
    later = put(store, message(b"later"))

    destinations.forget(TOPIC)

    assert destinations.is_gone(TOPIC, later.physical_offset)


def test_it_is_known_after_a_restart(store: MessageStore) -> None:
    destinations = opened(store)
    destinations.forget(TOPIC)
    DeletedFile(store.root).save(destinations.table())

    again = opened(store)

    assert again.is_gone(TOPIC, 0)
    assert not again.is_gone(TOPIC, store.log_end)


def test_a_log_that_has_lost_its_end_takes_the_deletion_with_it(store: MessageStore) -> None:
    end = store.log_end
    DeletedFile(store.root).save(DeletedTable({TOPIC: end + 1000}))

    opened(store)
    put(store, message(b"sent since"))

    assert DeletedFile(store.root).load() == DeletedTable({TOPIC: end})
    assert not opened(store).is_gone(TOPIC, end)


def test_nothing_is_kept_of_a_topic_when_the_log_has_nothing_from_before(
    store: MessageStore,
) -> None:
    destinations = opened(store)
    destinations.forget(TOPIC)
    while store.log_end < 3 * 4096:
        put(store, message(b"x" * 1000))
    store.flush()
    assert store.clean(at_any_hour=True) > 0

    destinations.forget("bills")

    assert list(destinations.table().topics) == ["bills"]


def test_of_too_many_the_one_deleted_longest_ago_is_forgotten(store: MessageStore) -> None:
    destinations = opened(store, names_max=2)

    for topic in ("one", "two", "one", "three"):
        destinations.forget(topic)

    assert list(destinations.table().topics) == ["one", "three"]


def test_one_line_tells_that_something_is_given_up(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    destinations = opened(store)
    destinations.forget(TOPIC)

    for _ in range(3):
        destinations.is_gone(TOPIC, 0)

    assert caplog.messages == [
        f"topic={TOPIC} was deleted: delayed messages from before are given up"
    ]


def test_a_topic_that_a_kill_has_lost_is_made_when_its_message_is_due(store: MessageStore) -> None:
    topics = tables.topic_table(store.root)
    destinations = Destinations(DeletedFile(store.root), store, topics)

    result = destinations.put(NewMessage("lost", 3, b"first of its topic"))

    assert result.status.is_stored
    topic = topics.get("lost")
    assert topic is not None
    assert topic.queue_count == 4
    store.dispatch()
    assert bodies(store, "lost", 3) == [b"first of its topic"]


def test_no_topic_is_made_for_a_message_that_is_refused(store: MessageStore) -> None:
    topics = tables.topic_table(store.root)
    destinations = Destinations(DeletedFile(store.root), store, topics)

    result: PutResult = destinations.put(NewMessage("lost", 0, b"x" * (8 << 20)))

    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert topics.get("lost") is None


@pytest.mark.parametrize(
    "content", [b"nonsense", b'{"format":"cometmq deleted topics","version":2}']
)
def test_a_file_of_something_else_is_refused(store: MessageStore, content: bytes) -> None:
    path = store.root / "config" / "cometDeletedTopics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)

    with pytest.raises(RemoteProtocolError):
        opened(store)
