from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cometmq.admin.servers import Outage
from cometmq.cli.consuming import Place, Wanted, browsed, place_of, silent_brokers
from cometmq.errors import InvalidArgument, Unreachable
from cometmq.model.offsets import MessageQueue

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.aio import Client

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", Place(end="first")),
        ("First", Place(end="first")),
        ("latest", Place(end="last")),
        ("0", Place(offset=0)),
        ("12345678", Place(offset=12_345_678)),
        ("1700000000000", Place(time_ms=1_700_000_000_000)),
        ("10m ago", Place(time_ms=NOW_MS - 600_000)),
        ("-1h", Place(time_ms=NOW_MS - 3_600_000)),
        ("2026-11-17T10:00:00Z", Place(time_ms=1_794_909_600_000)),
        ("now", Place(time_ms=NOW_MS)),
    ],
)
def test_a_place_is_an_end_an_offset_or_a_time(text: str, place: Place) -> None:
    assert place_of("from", text, NOW_MS) == place


@pytest.mark.parametrize("text", ["", "soon", "5x", "2026-13-01"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        place_of("from", text, NOW_MS)

    assert caught.value.fact == f"'{text}' is no place in a topic"
    assert "earliest, latest, an offset" in caught.value.next_step


# --- one queue

FAR = 1_000_000
QUEUES = [MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b")]


class FakeAdmin:
    """Knows a topic with a queue on each of two brokers, and where every group is in them."""

    def __init__(self, *outages: Outage) -> None:
        self.outages = outages
        self.topics = self.offsets = self

    async def route(self, topic: str) -> Any:
        brokers = [
            SimpleNamespace(broker_name=queue.broker_name, read_queues=1, write_queues=1)
            for queue in QUEUES
        ]
        return SimpleNamespace(brokers=brokers)

    async def stats(self, topic: str) -> Any:
        return SimpleNamespace(outages=self.outages)

    async def get(self, group: str, topic: str, broker: str, queue_id: int) -> int:
        return FAR


class FakeClient:
    """Keeps what a browse was given, and finds nothing."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.messages: tuple[Any, ...] = ()

    async def browse(self, topic: str, **given: Any) -> AsyncGenerator[Any, None]:
        self.given = given
        for message in self.messages:
            yield message


def one_queue(*, is_following: bool) -> Wanted:
    place = Place(end="first")
    return Wanted(topic="orders", begin=place, queue="broker-a/0", is_following=is_following)


async def given_to_browse(wanted: Wanted, group: str) -> dict[str, Any]:
    mq = FakeClient()
    async for _ in browsed(cast("Client", mq), cast("Admin", FakeAdmin()), wanted, group):
        pass
    return mq.given


async def test_a_queue_that_is_read_to_its_end_is_read_alone() -> None:
    given = await given_to_browse(one_queue(is_following=False), "billing")

    assert given["since"] == {QUEUES[0]: FAR}
    assert given["until"] == {QUEUES[1]: 0}


async def test_beside_a_queue_that_is_followed_others_begin_where_the_group_is() -> None:
    """They are read, too, and from their first message it could take hours."""
    given = await given_to_browse(one_queue(is_following=True), "billing")

    assert (given["follow"], given["until"]) == (True, None)
    assert given["since"] == dict.fromkeys(QUEUES, FAR)


async def test_following_one_queue_begins_when_all_brokers_are_there() -> None:
    admin = cast("Admin", FakeAdmin(Outage("broker-b", "10.0.0.2:10911", "it is silent")))

    assert await silent_brokers(admin, one_queue(is_following=False)) == ()
    with pytest.raises(Unreachable) as caught:
        await silent_brokers(admin, one_queue(is_following=True))

    assert caught.value.next_step == "without --follow what the others hold is printed"
