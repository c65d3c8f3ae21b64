"""A name server and brokers of ours as processes: killed, started again, asked what they hold."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from cometmq import Client, Message
from cometmq.admin import Admin
from cometmq.admin.groups import GroupLag
from tests.interop import asking
from tests.interop.broker import OurBroker
from tests.interop.nameserver import OurNameServer
from tests.interop.processes import Stoppable

READ_SECONDS_MAX = 60


class Servers(Stoppable):
    """One name server and its brokers, called ``broker-a``, ``broker-b``, …"""

    def __init__(self, nameserver: OurNameServer) -> None:
        self.nameserver = nameserver
        self.brokers: list[OurBroker] = []

    @property
    def namesrv(self) -> str:
        """What clients are given: the name server's address."""
        return self.nameserver.address

    @property
    def broker(self) -> OurBroker:
        return self.brokers[0]

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Make the topic on all brokers, or change it; clients find it when this returns."""
        for broker in self.brokers:
            asking.create_topic(broker.address, topic, queues=queues)
        wanted = {broker.name: queues for broker in self.brokers}
        asking.wait_until(lambda: self._queues(topic) == wanted, f"a route of {topic}")

    def restart_broker(self, number: int = 0) -> None:
        """Kill a broker as a power cut would, and start it again on its store."""
        self.brokers[number].kill()
        self.brokers[number].start()

    def read_all(self, topic: str) -> list[Message[bytes]]:
        """Every message of the topic, queue by queue, in the order of the queues."""
        return list(messages_of(self.namesrv, topic))

    def stop(self) -> None:
        for broker in self.brokers:
            broker.kill()
        self.nameserver.stop()

    def _queues(self, topic: str) -> dict[str, int]:
        route = asking.route(self.namesrv, topic)
        return {q.broker_name: q.write_queue_nums for q in route.queue_datas} if route else {}


def start_servers(
    folder: Path,
    *,
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    namesrv_settings: Mapping[str, str] | None = None,
) -> Servers:
    """Start them; all brokers are known when this returns."""
    servers = Servers(OurNameServer(folder / "namesrv", settings=namesrv_settings))
    try:
        for letter in "abcdefgh"[:brokers]:
            own = {**(settings or {}), "brokerName": f"broker-{letter}"}
            place = folder / f"broker-{letter}"
            servers.brokers.append(OurBroker(place, namesrv=servers.namesrv, settings=own))
    except BaseException:
        servers.stop()
        raise
    return servers


def messages_of(namesrv: str, topic: str) -> Iterator[Message[bytes]]:
    """Every message that the topic has now, of ours or Apache's brokers, queue by queue."""
    with Client(namesrv) as client, client.pull_consumer("tests-spark-reader") as consumer:
        for queue in sorted(consumer.queues(topic), key=lambda q: (q.broker_name, q.queue_id)):
            offset = consumer.min_offset(queue)
            end = consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                yield from result.messages
                offset = result.next_offset


def lag_of(namesrv: str, group: str, topic: str) -> GroupLag:
    """How far a group is with a topic, as tools show it."""

    async def ask() -> GroupLag:
        async with Admin(namesrv) as admin:
            return await admin.groups.lag(group, topic)

    return asyncio.run(ask())
