"""The detector: asks brokers that are kept away from whether they can be reached again."""

import asyncio

from cometmq import logs
from cometmq.client.background import Repeater
from cometmq.client.core.latency import PROBE_ROUND_MS, PROBE_TIMEOUT_MS, BrokerFaults
from cometmq.client.instance import Instance
from cometmq.client.sending import Sending
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.offsets import GetMaxOffset
from cometmq.errors import CometError
from cometmq.remoting.running import Background

_log = logs.get_logger("cometmq.client")


class Probing:
    """Probes the brokers in a producer's table of faults, in rounds."""

    def __init__(self, instance: Instance, sending: Sending, faults: BrokerFaults) -> None:
        self._instance = instance
        self._sending = sending
        self._faults = faults
        self._rounds = Repeater("probing brokers", self.probe, interval_ms=PROBE_ROUND_MS)
        self._background = Background()

    def start(self) -> None:
        self._rounds.start(self._background)

    async def stop(self) -> None:
        await self._background.stop()

    async def probe(self) -> None:
        """One round: all brokers that are due, at the same time."""
        now_ms = round(self._instance.clock.monotonic() * 1000)
        due = self._faults.due_probes(now_ms)
        await asyncio.gather(*(self._probe(broker) for broker in due))

    async def _probe(self, broker: str) -> None:
        address = self._instance.routes.table.master(broker)
        if address is None:
            self._faults.forget(broker)
            return
        topic = self._topic_of(broker)
        if topic is None:
            return
        header = GetMaxOffset(topic, 0)
        try:
            await self._instance.ask(
                self._instance.vip(address),
                RequestCode.GET_MAX_OFFSET,
                header,
                timeout_ms=PROBE_TIMEOUT_MS,
            )
        except CometError as error:
            _log.debug("broker=%s still out of reach: %s", broker, error)
            return
        self._faults.probed(broker)

    def _topic_of(self, broker: str) -> str | None:
        """A topic of ours that the broker has."""
        table = self._instance.routes.table
        for topic in self._sending.topics():
            view = table.get(topic)
            if view is not None and any(q.broker_name == broker for q in view.write_queues):
                return topic
        return None
