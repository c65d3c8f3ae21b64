"""Class filters of the Python client, run by Apache's last filter server."""

import asyncio
from collections.abc import Iterator

import pytest

from cometmq import MessageQueue, aio
from cometmq.client.core.message import Message
from tests.interop import apache, asking
from tests.interop.apache import ApacheCluster, ApacheFilterServer
from tests.interop.cache import Cache

VERSION = "4.2.0"
QUEUES = 2
COUNT = 10
WAIT_SECONDS = 60
EVEN = """
package cometmq;

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

public class Even implements MessageFilter {
    public boolean match(MessageExt message, FilterContext context) {
        return Integer.parseInt(message.getUserProperty("number")) % 2 == 0;
    }
}
"""

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster(cache: Cache, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    folder = tmp_path_factory.mktemp("filters")
    with (
        apache.cluster(cache, VERSION, folder) as started,
        ApacheFilterServer(cache, started.broker, folder / "filtersrv"),
    ):
        yield started


def create_topic(cluster: ApacheCluster, topic: str) -> None:
    """Return once clients learn of the filter server with the topic's route.

    The broker tells name servers of it every 30 s, and whenever a topic is made.
    """

    def is_known() -> bool:
        asking.create_topic(cluster.broker.address, topic, queues=QUEUES)
        route = asking.route(cluster.namesrv.address, topic)
        return route is not None and bool(route.filter_server_table)

    asking.wait_until(is_known, "the route names the filter server")


def test_only_what_the_class_lets_pass_is_consumed(cluster: ApacheCluster) -> None:
    create_topic(cluster, "orders")

    got = asyncio.run(consume_even_numbers(cluster.namesrv.address, "orders"))

    assert got == {b"0", b"2", b"4", b"6", b"8"}


async def consume_even_numbers(namesrv: str, topic: str) -> set[bytes]:
    """Bodies that came before the last message of each queue."""
    got: set[bytes] = set()
    last = {b"last of queue %d" % queue for queue in range(QUEUES)}
    is_done = asyncio.Event()

    async def handle(message: Message[bytes]) -> None:
        got.add(message.body)
        if last <= got:
            is_done.set()

    async with aio.Client(namesrv) as mq:
        producer = mq.producer()
        for number in range(COUNT):
            await producer.send(topic, b"%d" % number, properties={"number": str(number)})
        for queue, body in enumerate(sorted(last)):
            place = MessageQueue(topic, "broker-a", queue)
            await producer.send(topic, body, properties={"number": "0"}, queue=place)
        consumer = mq.consumer("billing", start="first")
        consumer.subscribe(topic, filter_class="cometmq.Even", filter_source=EVEN)
        await consumer.start(handle)
        async with asyncio.timeout(WAIT_SECONDS):
            await is_done.wait()
    return got - last
