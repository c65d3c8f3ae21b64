"""Routes."""

from cometmq.model.route import BrokerData, QueueData


def test_the_master_is_the_broker_with_id_0() -> None:
    assert BrokerData("b", {1: "slave:1", 0: "master:1"}).master_address == "master:1"
    assert BrokerData("b", {1: "slave:1"}).master_address is None


def test_queues_are_readable_and_writable_by_permission() -> None:
    assert QueueData("b", perm=4).is_readable
    assert not QueueData("b", perm=4).is_writable
    assert QueueData("b", perm=2).is_writable
    assert not QueueData("b", perm=2).is_readable
