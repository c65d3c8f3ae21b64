"""A topic that was deleted stays so, and one made anew counts from 0, whatever happens between."""

from pathlib import Path

from tests.unit.store.builders import (
    TOPIC,
    killed_copy,
    message,
    numbered,
    open_store,
    put,
    put_all,
)


def test_what_the_transient_pool_held_does_not_bring_a_topic_back(root: Path) -> None:
    with open_store(root, has_transient_pool=True) as store:
        put_all(store, *numbered(3))

        store.delete_topic(TOPIC)
        store.flush()

        assert store.queues() == []


def test_a_topic_made_anew_counts_on_after_a_kill(root: Path, tmp_path: Path) -> None:
    with open_store(root) as store:
        put_all(store, *numbered(3))
        store.delete_topic(TOPIC)
        put(store, message(b"new"))
        killed = killed_copy(root, tmp_path / "killed")

    with open_store(killed) as store:
        assert put(store, message(b"next")).queue_offset == 1


def test_its_queues_may_go_in_slices(root: Path) -> None:
    with open_store(root) as store:
        for queue_id in range(5):
            put(store, message(b"gone", queue_id=queue_id))
        put(store, message(b"kept", topic="other"))

        counts = [store.delete_topic(TOPIC, queues_max=2) for _ in range(4)]

        assert counts == [2, 2, 1, 0]
        assert store.queues() == [("other", 0)]
        assert not (root / "consumequeue" / TOPIC).exists()


def test_what_was_vouched_for_stays_deleted_after_a_kill(root: Path, tmp_path: Path) -> None:
    with open_store(root) as store:
        put_all(store, *numbered(3))
        put(store, message(b"kept", topic="other"))
        store.delete_topic(TOPIC)
        store.vouch()
        killed = killed_copy(root, tmp_path / "killed")

    with open_store(killed) as store:
        assert store.queues() == [("other", 0)]
