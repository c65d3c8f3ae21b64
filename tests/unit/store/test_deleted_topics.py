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
