"""Tables that clients fill have an end; what they hold already goes on being served."""

import json

import pytest

from cometmq.broker.clients import CLIENT_GROUPS_MAX, GROUP_TOPICS_MAX
from cometmq.broker.groups import GROUPS_MAX
from cometmq.codec.codes import ResponseCode
from cometmq.testing import LocalCluster
from tests.broker.kit import Peer, complaints, connected


def consumer(group: str, *topics: str) -> dict[str, object]:
    wanted = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
    kinds = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    return {"groupName": group, "subscriptionDataSet": wanted, **kinds}


def beat(client_id: str, *consumers: dict[str, object], producers: int = 0) -> bytes:
    named = [{"groupName": f"p-{number}"} for number in range(producers)]
    data = {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": named}
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    "body",
    [
        beat("many-groups", *(consumer(f"g-{n}") for n in range(CLIENT_GROUPS_MAX + 1))),
        beat("many-producers", producers=CLIENT_GROUPS_MAX + 1),
        beat("many-topics", consumer("g", *(f"t{n}" for n in range(GROUP_TOPICS_MAX + 1)))),
        beat("x" * 2_000),
        beat("long-group", consumer("g" * 300)),
        beat("long-topic", consumer("g", "t" * 3_000)),
        b'{"clientID":""}',
        b"{}",
    ],
    ids=["groups", "producers", "topics", "client-id", "group", "topic", "empty-id", "no-id"],
)
def test_a_heartbeat_that_says_too_much_or_too_little_is_refused(
    peer: Peer, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = peer.ask(34, {}, body)

    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert 0 < len(answer.remark or "") < 2_000
    assert peer.is_served()
    assert complaints(caplog) == []


def test_a_lock_without_an_owner_or_of_very_many_queues_is_refused_or_kept(
    peer: Peer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    queues = [{"topic": topic, "brokerName": "broker-0", "queueId": n} for n in range(1_500)]
    asked = {"clientId": "locker", "consumerGroup": "lockers", "mqSet": queues}

    nobody = peer.ask(41, {}, json.dumps({**asked, "clientId": ""}).encode())
    many = peer.ask(41, {}, json.dumps(asked).encode())

    assert nobody.code == ResponseCode.INVALID_PARAMETER
    assert many.code in (ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER)
    assert complaints(caplog) == []


def test_leaving_what_one_never_joined_is_no_fault(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    for groups in ({}, {"producerGroup": "", "consumerGroup": ""}, {"consumerGroup": "never"}):
        answer = peer.ask(35, {"clientID": "nobody", **groups})
        assert answer.code == ResponseCode.SUCCESS

    assert complaints(caplog) == []


def test_topics_and_groups_with_absurd_settings_are_refused(peer: Peer) -> None:
    right = {"topic": "absurd", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
    right |= {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}

    for change in (
        {"readQueueNums": "-1"},
        {"writeQueueNums": "2147483647"},
        {"perm": "8"},
        {"perm": "-1"},
        {"topicFilterType": "NO_TAG"},
        {"attributes": "queue.type"},
        {"attributes": "+no.such=1"},
        {"topic": "TBW102"},
        {"topic": "x" * 128},
    ):
        answer = peer.ask(17, {**right, **change})
        assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR), change
        assert 0 < len(answer.remark or "") < 2_000
    for group in ({"groupName": ""}, {"groupName": "no blanks"}, {"groupName": "x" * 300}, {}):
        answer = peer.ask(200, {}, json.dumps(group).encode())
        assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR), group

    assert peer.pull("absurd").code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.slow
def test_groups_named_in_passing_stop_being_made_at_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with LocalCluster() as cluster, connected(cluster.broker.address) as peer:
        cluster.create_topic("orders")
        codes = [
            peer.pull("orders", consumerGroup=f"passing-{number}").code
            for number in range(GROUPS_MAX + 100)
        ]

        refused = codes.index(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        assert set(codes[:refused]) == {ResponseCode.PULL_NOT_FOUND}
        assert set(codes[refused:]) == {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST}
        assert peer.pull("orders", consumerGroup="passing-0").code == ResponseCode.PULL_NOT_FOUND
        assert len(complaints(caplog)) <= 1
