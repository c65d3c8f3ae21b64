"""How far groups are: kept by queue, back and forth, saved as Apache saves them."""

import random
from pathlib import Path

import pytest

from cometmq.broker.offsets import ConsumerOffsets
from cometmq.store.documents import ConfigDocuments
from tests.golden import store_data
from tests.unit.broker.tables import consumer_offsets, save


def saved_by_apache(folder: Path, store: str) -> Path:
    path = folder / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_bytes(store_data.load(store).files["config/consumerOffset.json"])
    return path


def test_an_offset_is_known_once_it_was_committed(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)

    assert offsets.commit("g", "orders", 3, 17)

    assert offsets.get("g", "orders", 3) == 17
    assert offsets.get("g", "orders", 4) == -1
    assert offsets.get("g", "bills", 3) == -1
    assert offsets.get("h", "orders", 3) == -1


def test_a_group_may_go_back(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)
    offsets.commit("g", "orders", 0, 17)

    offsets.commit("g", "orders", 0, 3)

    assert offsets.get("g", "orders", 0) == 3
    assert len(offsets) == 1


def test_a_negative_offset_is_none(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)
    offsets.commit("g", "orders", 0, 17)

    assert not offsets.commit("g", "orders", 0, -1)
    assert not offsets.commit("g", "orders", 1, -1)

    assert offsets.get("g", "orders", 0) == 17
    assert len(offsets) == 1


def test_negative_offsets_in_a_file_are_none(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@g":{0:-1,1:5},"bills@g":{0:-1}}}')

    offsets = consumer_offsets(tmp_path)

    assert len(offsets) == 1
    assert offsets.table().offset_table == {"orders@g": {1: 5}}


def test_clients_cannot_fill_the_table_without_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = consumer_offsets(tmp_path, offsets_max=2)
    offsets.commit("g", "orders", 0, 1)
    offsets.commit("g", "orders", 1, 1)

    refused = [offsets.commit("g", "orders", queue, 1) for queue in (2, 3, 4)]

    assert refused == [False] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert offsets.commit("g", "orders", 1, 2)
    offsets.delete_group("g")
    assert offsets.commit("h", "orders", 2, 1)


def test_it_is_dirty_from_the_first_change_until_it_is_saved(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)
    told: list[bool] = []
    offsets.on_dirty = lambda: told.append(offsets.is_dirty)

    offsets.commit("g", "orders", 0, 1)
    offsets.commit("g", "orders", 0, 2)
    assert told == [True]
    offsets.table()
    assert not offsets.is_dirty

    offsets.commit("g", "orders", 0, 2)  # what was known already
    assert told == [True]
    offsets.commit("g", "orders", 0, 3)
    assert told == [True, True]


def test_a_table_for_saving_does_not_change_any_more(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)
    offsets.commit("g", "orders", 0, 1)
    before = offsets.table()

    offsets.commit("g", "orders", 0, 2)
    offsets.commit("g", "orders", 1, 2)

    assert before.offset_table == {"orders@g": {0: 1}}


def test_it_tells_what_belongs_together(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)
    for group, topic in [("g", "orders"), ("g", "bills"), ("h", "orders")]:
        offsets.commit(group, topic, 0, 1)
        offsets.commit(group, topic, 1, 2)

    assert offsets.of("g", "orders") == {0: 1, 1: 2}
    assert offsets.of("h", "bills") == {}
    assert offsets.topics_of("g") == ["bills", "orders"]
    assert offsets.groups_of("orders") == ["g", "h"]


def test_a_group_or_a_topic_is_forgotten_alone(tmp_path: Path) -> None:
    offsets = consumer_offsets(tmp_path)
    for group, topic in [("g", "orders"), ("g", "bills"), ("h", "orders"), ("h", "bills")]:
        offsets.commit(group, topic, 0, 1)
    offsets.table()

    assert offsets.delete_group("g") == 2
    assert offsets.is_dirty
    assert offsets.delete_topic("bills") == 1
    assert offsets.delete_topic("bills") == 0

    assert offsets.table().offset_table == {"orders@h": {0: 1}}
    assert len(offsets) == 1


def pairs(offsets: ConsumerOffsets) -> set[tuple[str, str]]:
    """Topics and groups as the table itself has them."""
    keys = (key.partition("@") for key in offsets.snapshot().offset_table)
    return {(topic, group) for topic, _, group in keys}


@pytest.mark.parametrize("seed", range(5))
def test_what_belongs_together_is_what_is_there_whatever_was_done(
    tmp_path: Path, seed: int
) -> None:
    print(f"seed={seed}")
    chance = random.Random(seed)
    groups, topics = [f"g{n}" for n in range(5)], [f"t{n}" for n in range(5)]
    offsets = consumer_offsets(tmp_path, offsets_max=40)

    def change() -> None:
        group, topic, queue = chance.choice(groups), chance.choice(topics), chance.randrange(4)
        match chance.randrange(16):
            case 0:
                offsets.delete_group(group)
            case 1:
                offsets.delete_topic(topic)
            case 2 | 3:
                offsets.clone(chance.choice(groups), group, topic)
            case 4 | 5:
                offsets.reset(group, topic, queue, chance.randrange(9))
            case 6:
                offsets.pulled(group, topic)[queue] = chance.randrange(9)
            case _:
                offsets.commit(group, topic, queue, chance.randrange(-1, 9))

    for number in range(300):
        change()
        if number == 150:
            save(tmp_path, offsets=offsets)
            offsets = consumer_offsets(tmp_path, offsets_max=40)

        found = pairs(offsets)
        assert set(offsets.groups()) == {group for _, group in found}
        for name in groups:
            assert offsets.topics_of(name) == sorted(t for t, g in found if g == name)
        for name in topics:
            assert offsets.groups_of(name) == sorted(g for t, g in found if t == name)
        assert len(offsets) == sum(len(offsets.of(group, topic)) for topic, group in found)


@pytest.mark.parametrize("whose", ["group", "topic"])
def test_what_was_handed_out_is_forgotten_with_its_group_or_topic(
    tmp_path: Path, whose: str
) -> None:
    offsets = consumer_offsets(tmp_path)
    for group, topic in [("g", "orders"), ("h", "bills")]:
        offsets.pulled(group, topic)[0] = 5

    _ = offsets.delete_group("g") if whose == "group" else offsets.delete_topic("orders")

    assert offsets.pulled_to("g", "orders", 0) == -1
    assert offsets.pulled_to("h", "bills", 0) == 5


def test_keys_of_a_file_without_a_group_stay_and_can_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders":{0:5},"orders@g":{0:6}}}')
    offsets = consumer_offsets(tmp_path)
    assert offsets.table().offset_table == {"orders": {0: 5}, "orders@g": {0: 6}}

    assert offsets.delete_topic("orders") == 2

    assert offsets.table().offset_table == {}


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    before = consumer_offsets(tmp_path)
    before.commit("g", "orders", 2, 5)
    save(tmp_path, offsets=before)

    after = consumer_offsets(tmp_path)

    assert after.get("g", "orders", 2) == 5
    assert len(after) == 1


@pytest.mark.slow  # unpacks the recordings
@pytest.mark.parametrize("store", store_data.STORES)
def test_offsets_that_apache_saved_are_saved_again(store: str, tmp_path: Path) -> None:
    path = saved_by_apache(tmp_path, store)
    content = path.read_bytes()
    told = ConfigDocuments(tmp_path).consumer_offsets.load()
    offsets = consumer_offsets(tmp_path)

    save(tmp_path, offsets=offsets)

    assert offsets.get("GID_manual", "OneQueue", 0) == 123
    again = ConfigDocuments(tmp_path).consumer_offsets.load()
    assert again.offset_table == told.offset_table
    assert again.pull_offset_table == told.pull_offset_table
    if store_data.load(store).is_4x:
        assert path.read_bytes() == content


@pytest.mark.slow  # unpacks the recordings
def test_a_deleted_group_leaves_nothing_in_a_file_of_5_5(tmp_path: Path) -> None:
    path = saved_by_apache(tmp_path, "5.5.0-clean")
    offsets = consumer_offsets(tmp_path)
    assert b"GID_plain" in path.read_bytes()

    for group in offsets.groups_of("Plain"):
        offsets.delete_group(group)
    save(tmp_path, offsets=offsets)

    left = ConfigDocuments(tmp_path).consumer_offsets.load()
    assert left.group_topic_map
    assert left.pull_offset_table
    keys = [*left.offset_table, *left.pull_offset_table, *left.group_topic_map]
    assert not [key for key in keys if key.endswith("GID_plain")]


class TestResets:
    def test_a_reset_is_told_once(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.commit("g", "orders", 0, 17)
        assert not offsets.has_resets

        assert offsets.reset("g", "orders", 0, 3)

        assert offsets.has_resets
        assert offsets.get("g", "orders", 0) == 3
        assert offsets.take_reset("g", "orders", 1) is None
        assert offsets.take_reset("h", "orders", 0) is None
        assert offsets.take_reset("g", "orders", 0) == 3
        assert not offsets.has_resets
        assert offsets.take_reset("g", "orders", 0) is None

    def test_nothing_else_counts_until_it_is(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.reset("g", "orders", 0, 3)

        assert offsets.commit("g", "orders", 0, 17)
        assert offsets.get("g", "orders", 0) == 3

        offsets.take_reset("g", "orders", 0)
        offsets.commit("g", "orders", 0, 17)
        assert offsets.get("g", "orders", 0) == 17

    def test_the_last_of_several_counts(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.reset("g", "orders", 0, 3)
        offsets.reset("g", "orders", 0, 8)

        assert offsets.take_reset("g", "orders", 0) == 8
        assert not offsets.has_resets

    def test_who_asked_is_told_unless_he_begins_there(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        for asked, pulled, expected in ((0, 3, 3), (1, 4, 3), (1, 3, None)):
            offsets.reset("g", "orders", 0, 3)
            if asked:
                offsets.note_asked("g", "orders", 0)

            assert offsets.take_reset("g", "orders", 0, pulled) == expected
            assert not offsets.has_resets

    def test_they_go_with_the_group_and_with_the_topic(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)

        offsets.reset("g", "orders", 0, 3)
        assert offsets.delete_group("g") == 1
        assert not offsets.has_resets

        offsets.reset("g", "orders", 0, 3)
        assert offsets.delete_topic("orders") == 1
        assert not offsets.has_resets

    def test_they_are_not_kept_for_ever(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.reset("g", "orders", 0, 3, 100.0)
        offsets.reset("g", "orders", 1, 4, 200.0)
        offsets.reset("h", "orders", 1, 4, 100.0)

        offsets.drop_expired_resets(99.0, nobody)
        assert offsets.is_reset("g", "orders", 0)
        offsets.drop_expired_resets(100.0, nobody)
        assert not offsets.is_reset("g", "orders", 0)
        assert offsets.is_reset("g", "orders", 1)
        assert offsets.get("g", "orders", 0) == 3
        offsets.drop_expired_resets(200.0, nobody)
        assert not offsets.has_resets

    def test_they_are_kept_where_somebody_may_still_come(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        for group, topic, queue_id in (("g", "orders", 0), ("g", "orders", 1), ("h", "orders", 0)):
            offsets.reset(group, topic, queue_id, 3, 100.0)

        offsets.drop_expired_resets(500.0, lambda *place: place == ("g", "orders", 1))

        assert offsets.is_reset("g", "orders", 1)
        assert not offsets.is_reset("g", "orders", 0)
        assert not offsets.is_reset("h", "orders", 0)

    def test_they_are_no_more_than_there_are_offsets(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path, offsets_max=1)
        offsets.commit("g", "orders", 0, 1)

        assert not offsets.reset("g", "orders", 1, 3)
        assert not offsets.has_resets
        assert offsets.reset("g", "orders", 0, 3)

    def test_the_offset_is_saved_and_what_is_pending_is_not(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.reset("g", "orders", 0, 3)
        save(tmp_path, offsets=offsets)

        opened = consumer_offsets(tmp_path)

        assert opened.get("g", "orders", 0) == 3
        assert not opened.has_resets


class TestClones:
    def test_a_group_gets_what_another_one_has(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.commit("g", "orders", 0, 5)
        offsets.commit("h", "orders", 1, 9)
        offsets.commit("h", "orders", 2, 9)
        offsets.reset("h", "orders", 0, 1)

        assert offsets.clone("g", "h", "orders")

        assert offsets.of("h", "orders") == {0: 5}
        assert (len(offsets), offsets.has_resets) == (2, False)
        offsets.commit("h", "orders", 0, 6)
        assert offsets.get("g", "orders", 0) == 5

    def test_of_nothing_nothing_comes(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path)
        offsets.commit("h", "orders", 1, 9)

        assert offsets.clone("g", "h", "orders")
        assert offsets.of("h", "orders") == {1: 9}

    def test_a_full_table_takes_no_copy(self, tmp_path: Path) -> None:
        offsets = consumer_offsets(tmp_path, offsets_max=3)
        for queue_id in range(2):
            offsets.commit("g", "orders", queue_id, 5)

        assert not offsets.clone("g", "h", "orders")
        assert len(offsets) == 2


def nobody(group: str, topic: str, queue_id: int) -> bool:
    """Nobody may come for a reset any more."""
    return False
