"""Shares of queues: what Java's own classes compute is what counts."""

from typing import Any

import pytest

from cometmq.client.core.strategies import (
    Average,
    AverageByCircle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
)
from cometmq.errors import CometError, LocalProtocolError, SettingsError
from cometmq.model.offsets import MessageQueue
from tests.interop import vectors

TOPIC = "orders"


def queue(shown: str) -> MessageQueue:
    broker_name, _, number = shown.rpartition(":")
    return MessageQueue(TOPIC, broker_name, int(number))


def shown(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name}:{queue.queue_id}" for queue in queues]


def nearby(inner: Strategy) -> MachineRoomNearby:
    return MachineRoomNearby(
        inner,
        room_of_queue=lambda queue: queue.broker_name.split("@")[0],
        room_of_client=lambda client_id: client_id.partition("-")[0] * ("-" in client_id),
    )


STRATEGIES: dict[str, Strategy] = {
    "average": Average(),
    "circle": AverageByCircle(),
    "config": Configured(map(queue, ["broker-z:0", "broker-z:1"])),
    "room": MachineRoom(["r1", "r2"]),
    "nearby average": nearby(Average()),
    "nearby circle": nearby(AverageByCircle()),
    "hash": ConsistentHash(),
    "hash of 3": ConsistentHash(3),
}


def computed(strategy: Strategy, client_id: str, vector: dict[str, Any]) -> list[str] | str:
    queues = [queue(text) for text in vector["queues"]]
    try:
        return shown(strategy.allocate("group", client_id, queues, vector["ids"]))
    except CometError:
        return "refused"


@pytest.mark.parametrize("name", STRATEGIES)
def test_shares_are_those_that_java_computes(name: str) -> None:
    strategy = STRATEGIES[name]
    found = [one for one in vectors.read("client-strategies") if one["strategy"] == name]

    assert len(found) > 10
    for vector in found:
        assert strategy.name == vector["name"]
        for client_id, share in vector["shares"].items():
            expected = "refused" if isinstance(share, str) else share
            assert computed(strategy, client_id, vector) == expected, (client_id, vector)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="group g: there is no member to compute"):
        Average().allocate("g", "a", [queue("b:0")], [])


def test_a_queue_without_a_room_is_named() -> None:
    strategy = MachineRoomNearby(
        Average(), room_of_queue=lambda _: "", room_of_client=lambda _: "r1"
    )

    with pytest.raises(SettingsError, match=r"there is no room for MessageQueue.*broker-a"):
        strategy.allocate("g", "a", [queue("broker-a:0")], ["a"])


def test_a_ring_without_places_is_refused() -> None:
    with pytest.raises(SettingsError, match="give 1 or more"):
        ConsistentHash(0)


def test_a_ring_moves_only_queues_of_the_member_that_left() -> None:
    queues = [queue(f"broker-a:{number}") for number in range(64)]
    before = {c: ConsistentHash().allocate("g", c, queues, ["a", "b", "c"]) for c in "abc"}

    after = {c: ConsistentHash().allocate("g", c, queues, ["a", "b"]) for c in "ab"}

    assert set(before["a"]) <= set(after["a"])
    assert set(before["b"]) <= set(after["b"])
    assert sorted(after["a"] + after["b"]) == queues
