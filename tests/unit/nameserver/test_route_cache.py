"""Encoded answers: the right bytes, kept as long as they are right and there is room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.codec import route_json
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.nameserver import route_encoding
from cometmq.nameserver.route_cache import VARIANTS_MAX, RouteCache, RouteDialect, dialect_of
from cometmq.nameserver.route_table import RouteTable
from tests.unit.nameserver.builders import NOW, broker, topics

FASTJSON, STANDARD = RouteDialect

names = st.text(max_size=5)
numbers = st.integers(-(2**31), 2**31 - 1)
broker_datas = st.builds(
    BrokerData,
    names,
    st.dictionaries(st.integers(0, 3), names, max_size=3),
    names,
    st.booleans(),
    st.none() | names,
)
queue_datas = st.builds(QueueData, names, numbers, numbers, numbers, numbers)
routes = st.builds(
    TopicRoute,
    st.lists(broker_datas, max_size=3).map(tuple),
    st.lists(queue_datas, max_size=3).map(tuple),
    st.dictionaries(names, st.lists(names, max_size=2), max_size=2),
    st.none() | names,
)


@given(route=routes)
def test_a_route_put_together_from_parts_is_the_route_written_at_once(route: TopicRoute) -> None:
    assert route_encoding.encode(route, FASTJSON) == route_json.encode(route, 0)
    assert route_encoding.encode(route, STANDARD) == route_json.encode(route, 401)


@pytest.mark.parametrize(
    ("version", "standard_only", "dialect"),
    [
        (400, None, FASTJSON),
        (400, False, FASTJSON),
        (400, True, STANDARD),
        (401, None, STANDARD),
    ],
)
def test_the_dialect_follows_from_the_version_unless_the_client_says(
    version: int, standard_only: bool | None, dialect: RouteDialect
) -> None:
    assert dialect_of(version, standard_only=standard_only) is dialect


def test_answers_are_kept_by_topic_dialect_and_order_configuration() -> None:
    cache = RouteCache()

    cache.put("T", STANDARD, None, b"standard")
    cache.put("T", FASTJSON, None, b"fastjson")
    cache.put("T", STANDARD, "o", b"ordered")

    assert cache.get("T", STANDARD, None) == b"standard"
    assert cache.get("T", FASTJSON, None) == b"fastjson"
    assert cache.get("T", STANDARD, "o") == b"ordered"
    assert cache.get("T", FASTJSON, "o") is None
    assert cache.get("U", STANDARD, None) is None


def test_all_answers_about_a_topic_are_forgotten_together() -> None:
    cache = RouteCache()
    cache.put("T", STANDARD, None, b"12345")
    cache.put("T", FASTJSON, None, b"12345")
    cache.put("U", STANDARD, None, b"12345")

    cache.discard("T")
    cache.discard("unknown")

    assert cache.get("T", STANDARD, None) is None
    assert cache.get("T", FASTJSON, None) is None
    assert cache.get("U", STANDARD, None) == b"12345"
    assert cache.bytes_held == 5


def test_the_oldest_topics_make_room() -> None:
    cache = RouteCache(bytes_max=10)
    for topic in "TUV":
        cache.put(topic, STANDARD, None, b"1234")

    assert cache.get("T", STANDARD, None) is None
    assert cache.get("U", STANDARD, None) == b"1234"
    assert cache.get("V", STANDARD, None) == b"1234"
    assert cache.bytes_held == 8


def test_what_never_fits_is_not_kept_and_moves_nobody_out() -> None:
    cache = RouteCache(bytes_max=10)
    cache.put("T", STANDARD, None, b"1234")

    cache.put("U", STANDARD, None, b"12345678901")

    assert cache.get("T", STANDARD, None) == b"1234"
    assert cache.get("U", STANDARD, None) is None


def test_an_answer_that_is_put_twice_counts_once() -> None:
    cache = RouteCache()

    cache.put("T", STANDARD, None, b"1234")
    cache.put("T", STANDARD, None, b"123")

    assert cache.get("T", STANDARD, None) == b"123"
    assert cache.bytes_held == 3


def test_a_topic_whose_order_configuration_keeps_changing_does_not_fill_the_cache() -> None:
    cache = RouteCache()

    for number in range(100 * VARIANTS_MAX):
        cache.put("T", STANDARD, str(number), b"1")

    assert 0 < cache.bytes_held <= VARIANTS_MAX


class TestInTheTable:
    """An answer is the same object until something that it shows has changed."""

    @pytest.fixture
    def table(self) -> RouteTable:
        table = RouteTable()
        table.register(broker("broker-a", topics=topics("TU")), NOW)
        table.register(broker("broker-b", topics=topics("UV")), NOW)
        return table

    def kept(self, table: RouteTable, **changes: object) -> set[str]:
        """Which of T, U, V keep their answer when ``broker-a`` registers with changes."""
        before = {topic: table.encoded_route(topic, STANDARD) for topic in "TUV"}
        assert table.register(broker("broker-a", **changes), NOW).is_accepted  # type: ignore[arg-type]
        return {topic for topic in "TUV" if table.encoded_route(topic, STANDARD) is before[topic]}

    def test_a_registration_that_brings_nothing_new_changes_no_answer(
        self, table: RouteTable
    ) -> None:
        assert self.kept(table, topics=topics("TU"), version=2) == {"T", "U", "V"}

    def test_changed_queues_change_the_answer_about_their_topic(self, table: RouteTable) -> None:
        changed = topics("T", read=1) | topics("U")

        assert self.kept(table, topics=changed, version=2) == {"U", "V"}

    @pytest.mark.parametrize(
        "changes",
        [
            {"address": "other:1"},
            {"filter_servers": ("f:1",)},
            {"zone": "z"},
            {"acting": True},
            {"broker_id": 1},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_changed_broker_changes_the_answers_about_its_topics(
        self, table: RouteTable, changes: dict[str, object]
    ) -> None:
        assert self.kept(table, topics=topics("TU"), **changes) == {"V"}

    def test_a_broker_that_goes_changes_the_answers_about_its_topics(
        self, table: RouteTable
    ) -> None:
        before = {topic: table.encoded_route(topic, STANDARD) for topic in "TUV"}

        table.on_connection_closed("broker-a-0:1")

        assert table.encoded_route("T", STANDARD) is None
        assert table.encoded_route("U", STANDARD) not in (None, before["U"])
        assert table.encoded_route("V", STANDARD) is before["V"]

    def test_a_slave_that_goes_changes_the_answers_about_its_topics(
        self, table: RouteTable
    ) -> None:
        table.register(broker("broker-a", 1), NOW)
        before = {topic: table.encoded_route(topic, STANDARD) for topic in "TUV"}

        table.unregister("c", "broker-a-1:1", "broker-a")

        assert table.encoded_route("T", STANDARD) not in (None, before["T"])
        assert table.encoded_route("U", STANDARD) not in (None, before["U"])
        assert table.encoded_route("V", STANDARD) is before["V"]

    def test_wiping_and_deleting_are_seen_at_once(self, table: RouteTable) -> None:
        before = {topic: table.encoded_route(topic, STANDARD) for topic in "TUV"}

        table.wipe_write_permission("broker-a")
        table.delete_topic("V")

        assert b'"perm":4' in (table.encoded_route("T", STANDARD) or b"")
        assert table.encoded_route("U", STANDARD) != before["U"]
        assert table.encoded_route("V", STANDARD) is None

    def test_a_small_cache_answers_the_same(self) -> None:
        table = RouteTable(cache_bytes_max=1)
        table.register(broker(), NOW)

        first = table.encoded_route("T", STANDARD)

        assert first is not None
        assert table.encoded_route("T", STANDARD) == first
