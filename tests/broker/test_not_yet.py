"""What later versions will do is refused in clear words until then."""

import json

import pytest

from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import SettingsError
from cometmq.testing.local_cluster import BlockingCluster, LocalCluster
from tests.broker.kit import Peer, connected

NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
POP_CODES = (200050, 200051, 200052, 200053, 200054, 200055, 200151)
END = {
    "producerGroup": "producers",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "msgId": "0" * 32,
}


@pytest.mark.parametrize("code", POP_CODES)
def test_pop_requests_are_not_supported(peer: Peer, code: int) -> None:
    answer = peer.ask(code, {})

    assert answer.code == NOT_SUPPORTED
    assert (answer.remark or "").startswith(f" request type {code} not supported: pop consumption")


@pytest.mark.parametrize("ending", ["8", "12"])
def test_a_transaction_cannot_be_ended(peer: Peer, ending: str) -> None:
    answer = peer.ask(RequestCode.END_TRANSACTION, {**END, "commitOrRollback": ending})

    assert answer.code == NOT_SUPPORTED
    assert "transactions are not supported yet" in (answer.remark or "")


def test_a_transaction_whose_end_is_unknown_is_not_answered(peer: Peer) -> None:
    peer.tell(RequestCode.END_TRANSACTION, {**END, "commitOrRollback": "0"}, flag=0)

    assert peer.is_served()


def test_assignments_are_asked_for_and_tell_to_pull(
    cluster: BlockingCluster, peer: Peer, topic: str
) -> None:
    consumer = {
        "groupName": "assigned",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    members = ("one", "two")
    shares = {}
    with connected(cluster.broker.address) as other:
        for member, connection in zip(members, (peer, other), strict=True):
            beat = {"clientID": member, "consumerDataSet": [consumer]}
            assert connection.ask(34, {}, json.dumps(beat).encode()).code == ResponseCode.SUCCESS
        for member in members:
            asked = {
                "topic": topic,
                "consumerGroup": "assigned",
                "clientId": member,
                "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }
            answer = peer.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(asked).encode())
            assert answer.code == ResponseCode.SUCCESS
            shares[member] = json.loads(answer.body)["messageQueueAssignments"]

    assert {share["mode"] for found in shares.values() for share in found} == {"PULL"}
    queues = {name: [s["messageQueue"]["queueId"] for s in found] for name, found in shares.items()}
    assert queues == {"one": [0, 1], "two": [2, 3]}


@pytest.mark.parametrize(
    ("mode", "topic_name", "group", "code"),
    [
        ("PULL", "", "asker", ResponseCode.SUCCESS),
        ("POP", "", "asker", ResponseCode.SYSTEM_ERROR),
        ("PULL", "nobody-made-this", "asker", ResponseCode.TOPIC_NOT_EXIST),
        ("PULL", "%RETRY%asker", "asker", ResponseCode.NO_PERMISSION),
        ("PULL", "", "no blanks", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_consumers_may_be_told_to_pull_but_not_to_pop(
    peer: Peer, topic: str, mode: str, topic_name: str, group: str, code: int
) -> None:
    asked = {"topic": topic_name or topic, "consumerGroup": group, "mode": mode}

    answer = peer.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(asked).encode())

    assert answer.code == code
    assert bool(answer.remark) == (code != ResponseCode.SUCCESS)


@pytest.mark.parametrize("role", ["SLAVE", "SYNC_MASTER"])
def test_a_broker_that_would_replicate_refuses_to_start(role: str) -> None:
    with pytest.raises(SettingsError, match=f"brokerRole.*'{role}' is not possible"):
        with LocalCluster(settings={"brokerRole": role}):
            pass
