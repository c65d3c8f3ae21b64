"""Who consumes what, as far as lags are concerned."""

from pathlib import Path

import pytest

from cometmq.broker.progress import Consumption
from cometmq.model.group import MessageModel
from tests.unit.broker.client_kit import Place
from tests.unit.broker.tables import add_topic, consumer_offsets

GROUP = "billing"


@pytest.fixture
def place() -> Place:
    made = Place()
    for topic in ("orders", "bills", f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"):
        add_topic(made.topics, topic, 4)
    return made


def opened(place: Place, folder: Path, *committed: str) -> Consumption:
    """A group has an offset of queue 0 of each of these topics."""
    offsets = consumer_offsets(folder)
    for topic in committed:
        offsets.commit(GROUP, topic, 0, 7)
    return Consumption(place.topics, offsets, place.clients)


def test_a_group_that_is_away_consumes_what_it_has_offsets_of(place: Place, tmp_path: Path) -> None:
    consumption = opened(place, tmp_path, "orders", "gone", f"%DLQ%{GROUP}")

    assert consumption.groups() == [GROUP]
    assert consumption.topics_of(GROUP) == [("orders", 4)]
    assert consumption.offsets_of(GROUP, "orders") == {0: 7}


def test_a_group_online_consumes_what_it_subscribes_to(place: Place, tmp_path: Path) -> None:
    consumption = opened(place, tmp_path, "bills", f"%RETRY%{GROUP}")
    place.join("c1", group=GROUP, topics={"orders": "*", f"%RETRY%{GROUP}": "*", "gone": "*"})

    assert consumption.groups() == [GROUP]
    assert sorted(name for name, _ in consumption.topics_of(GROUP)) == [f"%RETRY%{GROUP}", "orders"]


def test_a_group_that_never_committed_is_there_while_it_is_online(
    place: Place, tmp_path: Path
) -> None:
    consumption = opened(place, tmp_path)
    place.join("c1", group=GROUP, topics={"orders": "*"})

    assert consumption.groups() == [GROUP]
    assert consumption.topics_of(GROUP) == [("orders", 4)]
    assert consumption.offsets_of(GROUP, "orders") == {}


def test_a_group_that_broadcasts_keeps_its_offsets_itself(place: Place, tmp_path: Path) -> None:
    consumption = opened(place, tmp_path)
    place.join("c1", group=GROUP, topics={"orders": "*"}, model=MessageModel.BROADCASTING)

    assert consumption.topics_of(GROUP) == []
