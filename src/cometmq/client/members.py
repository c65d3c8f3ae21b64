"""What an instance knows of the producers and consumers it speaks for."""

from collections.abc import Collection, Mapping
from typing import Protocol

from cometmq.codec.bodies.clients import ConsumeDirectlyResult, ConsumerData, ConsumerRunningInfo
from cometmq.codec.headers.transaction import CheckTransactionState
from cometmq.codec.record import Record
from cometmq.model.offsets import MessageQueue


class ProducerMember(Protocol):
    """A producer; ``group`` and topics carry the namespace, as on the wire."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Collection[str]:
        """To which it sends: their routes are kept up to date."""
        ...

    def check_transaction(self, address: str, request: CheckTransactionState, half: Record) -> None:
        """The broker at ``address`` asks what became of a half message (39)."""
        ...


class ConsumerMember(Protocol):
    """A consumer; ``group`` and topics carry the namespace, as on the wire."""

    @property
    def group(self) -> str: ...

    def topics(self) -> Collection[str]:
        """From which it reads: their routes are kept up to date."""
        ...

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of it."""
        ...

    def wake_rebalance(self) -> None:
        """Members or queues may have changed (40): look soon."""
        ...

    async def persist(self) -> None:
        """Save offsets."""
        ...

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere (220)."""
        ...

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Offsets in memory (221); of all topics when ``topic`` is empty."""
        ...

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """What it is doing (307)."""
        ...

    async def consume_directly(self, message: Record, broker_name: str) -> ConsumeDirectlyResult:
        """Hand one message to the handler now, outside of everything else (309)."""
        ...
