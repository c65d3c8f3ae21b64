"""One pull: with which code it is asked for."""

from cometmq.client.core.subscriptions import subscription
from cometmq.client.pulling import Pulled, Puller, PullFlag
from cometmq.codec.codes import RequestCode
from tests.unit.client.consumer_kit import QueueCluster, queue
from tests.unit.client.kit import V4_9_7, connected

LITE, PLAIN = RequestCode.LITE_PULL_MESSAGE, RequestCode.PULL_MESSAGE


async def lite_pull(puller: Puller) -> Pulled:
    wanted = subscription("orders", version_ms=0)
    return await puller.pull(
        queue(), 0, wanted, count=1, flags=PullFlag.SUBSCRIPTION | PullFlag.LITE, timeout_ms=3_000
    )


async def test_a_broker_that_does_not_know_lite_pulls_is_asked_as_by_others() -> None:
    """What it says of its release may be that of somebody in front of it."""
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.broker.put(1)
        instance = client._require().main
        await instance.routes.find("orders")
        await instance.version(cluster.a.address, timeout_ms=3_000)
        puller = Puller(instance, "group")

        pulls = [await lite_pull(puller) for _ in range(2)]

        assert [len(pulled.records) for pulled in pulls] == [1, 1]
        codes = [asked.code for asked in cluster.a.asked if asked.code in (LITE, PLAIN)]
        assert codes == [LITE, PLAIN, PLAIN]  # once is enough


async def test_a_broker_of_an_older_release_is_not_asked_for_lite_pulls() -> None:
    async with QueueCluster() as cluster, connected(cluster) as client:
        cluster.create("orders", queues=1)
        cluster.broker.put(1)
        cluster.a.version = V4_9_7
        instance = client._require().main
        await instance.routes.find("orders")
        await instance.version(cluster.a.address, timeout_ms=3_000)

        pulled = await lite_pull(Puller(instance, "group"))

        assert len(pulled.records) == 1
        assert cluster.a.questions(LITE) == []
