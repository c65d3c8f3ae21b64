"""The consumer groups of a broker: which there are at start, who may make more, what is saved."""

from pathlib import Path

import pytest

from cometmq.broker.groups import Group, problem_of
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.system_names import SYSTEM_GROUPS, is_system_group
from cometmq.model.topic import DataVersion
from cometmq.testing import FakeClock
from tests.golden import store_data
from tests.unit.broker.tables import group_table, save

FORBIDDING = (
    '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},'
    '"forbiddenTable":{"readers":{"orders":1,"bills":2,"odd":-1},"nobody":{"orders":1}},'
    '"subscriptionGroupTable":{"readers":{"groupName":"readers"}}}'
)


class TestNames:
    @pytest.mark.parametrize("name", ["g", "GID_orders-1", "ns%group", "x" * 120])
    def test_these_are_possible(self, name: str) -> None:
        assert problem_of(name) == ""

    @pytest.mark.parametrize("name", ["", "  "])
    def test_a_name_is_not_blank(self, name: str) -> None:
        assert problem_of(name) == "The specified group is blank."

    @pytest.mark.parametrize("name", ["a b", "a@b", "a.b", "ü", "g\n"])
    def test_a_name_has_only_some_characters(self, name: str) -> None:
        rule = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        assert problem_of(name) == f"The specified group: {name}, {rule}"

    def test_a_name_leaves_room_for_what_its_topics_have_before_it(self) -> None:
        name = "x" * 121
        words = "is longer than group max length: 120"
        assert problem_of(name) == f"The specified group: {name}, {words}"

    def test_what_nobody_reads_is_not_sent_back(self) -> None:
        assert len(problem_of("x" * 1_000_000)) < 1000

    def test_some_are_of_the_system(self) -> None:
        assert is_system_group("CID_RMQ_SYS_anything")
        assert is_system_group("TOOLS_CONSUMER")
        assert not is_system_group("GID_orders")


class TestStart:
    def test_the_system_groups_are_there_from_the_start(self, tmp_path: Path) -> None:
        table = group_table(tmp_path)

        assert set(table.by_name) == set(SYSTEM_GROUPS)
        assert len(SYSTEM_GROUPS) == 8

    def test_what_was_saved_is_there_again(self, tmp_path: Path) -> None:
        before = group_table(tmp_path)
        before.put(SubscriptionGroupConfig("readers", retry_max_times=3))
        save(tmp_path, groups=before)

        after = group_table(tmp_path)

        assert after.table() == before.table()
        assert after.by_name["readers"].config.retry_max_times == 3

    def test_a_group_goes_by_the_name_it_is_listed_under(self, tmp_path: Path) -> None:
        (tmp_path / "config").mkdir()
        text = '{"subscriptionGroupTable":{"readers":{"groupName":"writers"}}}'
        (tmp_path / "config" / "subscriptionGroup.json").write_text(text)

        table = group_table(tmp_path)

        assert table.by_name["readers"].config.group_name == "readers"
        assert "writers" not in table.by_name

    def test_what_a_group_must_not_read_is_known_and_kept(self, tmp_path: Path) -> None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "subscriptionGroup.json").write_text(FORBIDDING)

        table = group_table(tmp_path)

        assert table.by_name["readers"].forbidden == {"orders"}
        assert table.by_name["TOOLS_CONSUMER"].forbidden == frozenset()
        assert table.table().forbidden_table == {
            "readers": {"orders": 1, "bills": 2, "odd": -1},
            "nobody": {"orders": 1},
        }

    @pytest.mark.slow  # unpacks the recordings
    @pytest.mark.parametrize("store", store_data.STORES)
    def test_groups_that_apache_saved_stay_as_they_are(self, store: str, tmp_path: Path) -> None:
        recorded = store_data.load(store)
        content = recorded.files["config/subscriptionGroup.json"]
        path = tmp_path / "config" / "subscriptionGroup.json"
        path.parent.mkdir()
        path.write_bytes(content)

        table = group_table(tmp_path)
        save(tmp_path, groups=table)

        told = recorded.manifest["subscriptionGroups"]
        assert table.by_name.keys() - told.keys() == (
            {"CID_RMQ_SYS_TRANS"} if recorded.is_4x else set()
        )
        assert table.by_name["GID_manual"].config.retry_max_times == 5
        assert (table.table().forbidden_table is None) == recorded.is_4x
        assert (path.read_bytes() == content) != recorded.is_4x


class TestUse:
    def test_a_group_is_made_when_it_is_first_used(self, tmp_path: Path) -> None:
        table = group_table(tmp_path)

        made = table.obtain("readers")

        assert made is table.get("readers")
        assert made is not None
        assert made.config == SubscriptionGroupConfig.with_defaults("readers")
        assert table.obtain("readers") is made

    def test_where_groups_are_not_made_by_use_only_those_of_the_system_are(
        self, tmp_path: Path
    ) -> None:
        table = group_table(tmp_path, auto_create_subscription_group=False)
        known = table.put(SubscriptionGroupConfig("readers"))

        assert table.obtain("readers") is known
        assert table.obtain("others") is None
        assert table.obtain("CID_RMQ_SYS_REVIVE") is not None

    @pytest.mark.parametrize("name", ["", "a b", "x" * 121])
    def test_none_is_made_with_a_name_it_must_not_have(self, tmp_path: Path, name: str) -> None:
        assert group_table(tmp_path).obtain(name) is None

    def test_clients_cannot_make_groups_without_end(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = group_table(tmp_path, groups_max=len(SYSTEM_GROUPS) + 1)

        made = [table.obtain(f"g{number}") is not None for number in range(4)]

        assert made == [True, False, False, False]
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == 1
        assert "group=g1" in warnings[0].getMessage()
        with pytest.raises(BrokerError, match="no more are made"):
            table.put(SubscriptionGroupConfig("g9"))
        table.delete("g0")
        assert table.obtain("g1") is not None


class TestAdministration:
    def test_a_group_stays_the_same_object_whatever_changes(self, tmp_path: Path) -> None:
        table = group_table(tmp_path)
        group = table.put(SubscriptionGroupConfig("readers"))
        group.get_count = 7

        changed = table.put(SubscriptionGroupConfig("readers", consume_enable=False))

        assert changed is group
        assert not group.config.consume_enable
        assert group.get_count == 7

    def test_a_deleted_group_is_gone_with_what_it_was_forbidden(self, tmp_path: Path) -> None:
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "subscriptionGroup.json").write_text(FORBIDDING)
        table = group_table(tmp_path)
        gone: list[str] = []
        table.on_delete.append(gone.append)

        assert table.delete("readers")
        assert not table.delete("readers")

        assert gone == ["readers"]
        assert table.get("readers") is None
        assert table.table().forbidden_table == {"nobody": {"orders": 1}}

    def test_listeners_are_told_what_was_made_or_changed(self, tmp_path: Path) -> None:
        table = group_table(tmp_path)
        told: list[Group] = []
        table.on_change.append(told.extend)

        made = table.obtain("readers")
        table.obtain("readers")
        table.put(SubscriptionGroupConfig("readers", retry_max_times=1))

        assert told == [made, made]

    def test_each_change_has_a_stamp_of_its_own(self, tmp_path: Path) -> None:
        clock = FakeClock()
        table = group_table(tmp_path, clock)
        before = table.data_version

        clock.advance(1)
        table.obtain("readers")

        assert table.data_version == DataVersion(before.counter + 1, 0, clock.now_ms())

    def test_a_table_for_saving_does_not_change_any_more(self, tmp_path: Path) -> None:
        table = group_table(tmp_path)
        before = table.table()

        table.obtain("readers")

        assert set(before.subscription_group_table) == set(SYSTEM_GROUPS)

    def test_a_group_shows_what_it_is(self, tmp_path: Path) -> None:
        assert repr(group_table(tmp_path).obtain("readers")) == "<Group readers>"
