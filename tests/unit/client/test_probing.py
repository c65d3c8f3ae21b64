"""The detector of brokers that can be reached again."""

from cometmq.client.core.latency import RULES_5_1_4, BrokerFaults, Failure
from cometmq.client.core.settings import ProducerSettings
from cometmq.client.probing import Probing
from cometmq.client.sending import Sending
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.offsets import GetMaxOffset, OffsetResponse
from cometmq.remoting.routes import Answer
from cometmq.testing import FakeClock
from tests.unit.client.kit import FakeCluster, connected, refused

PROBE = RequestCode.GET_MAX_OFFSET


class Bench:
    """A prober of a cluster whose ``broker-a`` is out of reach."""

    def __init__(self, client: object, clock: FakeClock) -> None:
        instance = client._require().main  # type: ignore[attr-defined]
        self.clock = clock
        self.sending = Sending(instance, "g", ProducerSettings())
        self.faults = BrokerFaults(RULES_5_1_4, is_probing=True)
        self.probing = Probing(instance, self.sending, self.faults)
        self.faults.failed("broker-a", 1, self.now_ms, Failure.REMOTING)

    @property
    def now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)


async def test_a_broker_that_answers_can_be_reached_again() -> None:
    clock = FakeClock()
    async with FakeCluster() as cluster, connected(cluster, clock=clock) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(PROBE, Answer(header=OffsetResponse(5)))
        bench = Bench(client, clock)
        await bench.sending.find("orders", 1_000)
        assert not bench.faults.is_reachable("broker-a")

        await bench.probing.probe()

        (asked,) = cluster.a.questions(PROBE)
        header = GetMaxOffset.from_ext(asked.command.ext_fields)
        assert (header.topic, header.queue_id) == ("orders", 0)
        assert bench.faults.is_reachable("broker-a")


async def test_a_broker_that_refuses_stays_out_of_reach_and_is_asked_again_later() -> None:
    clock = FakeClock()
    async with FakeCluster() as cluster, connected(cluster, clock=clock) as client:
        cluster.create("orders", queues=1)
        cluster.a.on(PROBE, refused(ResponseCode.SYSTEM_ERROR))
        bench = Bench(client, clock)
        await bench.sending.find("orders", 1_000)

        await bench.probing.probe()
        await bench.probing.probe()
        clock.advance(3)
        await bench.probing.probe()

        assert not bench.faults.is_reachable("broker-a")
        assert len(cluster.a.questions(PROBE)) == 2


async def test_a_broker_without_an_address_is_forgotten() -> None:
    clock = FakeClock()
    async with FakeCluster() as cluster, connected(cluster, clock=clock) as client:
        bench = Bench(client, clock)

        await bench.probing.probe()

        assert bench.faults.is_reachable("broker-a")
        assert bench.faults.due_probes(bench.now_ms + 60_000) == []


async def test_a_producer_probes_when_it_was_asked_to() -> None:
    async with FakeCluster() as cluster, connected(cluster) as client:
        producer = client.producer(fault_table="5.1.4", is_probing=True)
        assert producer._probing is not None

        await producer.close()

        assert not producer._probing._background._tasks
