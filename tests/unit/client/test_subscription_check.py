"""Having a broker judge a subscription."""

import pytest

from cometmq.client.core.subscriptions import subscription
from cometmq.client.subscription_check import check_subscription
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import CheckClientBody
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.errors import Refused
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.remoting.routes import Answer
from tests.unit.client.kit import CLUSTER, FakeCluster, connected, refused

CONDITION = subscription("orders", sql="a > 1", version_ms=1)


async def test_a_condition_is_judged_by_one_broker_of_the_topic() -> None:
    async with FakeCluster("ab") as cluster, connected(cluster) as client:
        cluster.create("orders", brokers="b")
        cluster.b.on(RequestCode.CHECK_CLIENT_CONFIG, Answer())
        instance = client._require().main
        await instance.routes.find("orders")

        await check_subscription(instance, "group", CONDITION)

        (question,) = cluster.b.questions(RequestCode.CHECK_CLIENT_CONFIG)
        asked = bodies.decode(CheckClientBody, question.body)
        assert asked == CheckClientBody(instance.client_id, "group", CONDITION)


async def test_a_slave_is_asked_when_there_is_no_master() -> None:
    async with FakeCluster("a") as cluster, connected(cluster) as client:
        data = BrokerData("broker-a", {1: cluster.a.address}, CLUSTER)
        cluster.topics["orders"] = TopicRoute((data,), (QueueData("broker-a", 1, 1, 6),))
        no = refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "bad condition")
        cluster.a.on(RequestCode.CHECK_CLIENT_CONFIG, no)
        instance = client._require().main
        await instance.routes.find("orders")

        with pytest.raises(Refused, match="bad condition"):
            await check_subscription(instance, "group", CONDITION)


async def test_nobody_is_asked_about_tags_or_about_a_topic_that_nobody_has() -> None:
    async with FakeCluster("a") as cluster, connected(cluster) as client:
        cluster.create("orders")
        instance = client._require().main

        await check_subscription(instance, "group", CONDITION)  # its route is not known
        await instance.routes.find("orders")
        await check_subscription(instance, "group", subscription("orders", tags="x", version_ms=1))

        assert not cluster.a.questions(RequestCode.CHECK_CLIENT_CONFIG)
