"""What all parts of one push consumer know of it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from cometmq.client.core.message import Mode, Source
from cometmq.client.core.settings import ConsumerSettings
from cometmq.client.core.value_codecs import ValueCodec
from cometmq.client.instance import Instance
from cometmq.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumerSetup(Generic[T]):
    """``group`` is as servers know it, ``shown_group`` as users do; no namespace is empty text."""

    instance: Instance
    settings: ConsumerSettings
    group: str
    shown_group: str
    namespace: str
    codec: ValueCodec[T]
    is_batch: bool
    """Handlers get batches."""

    @property
    def clock(self) -> Clock:
        return self.instance.clock

    @property
    def is_cluster(self) -> bool:
        return self.settings.mode == "cluster"

    @property
    def has_locks(self) -> bool:
        """Whether brokers must say that a queue is ours before it is handled."""
        return self.is_cluster and self.settings.is_orderly

    @property
    def mode(self) -> Mode:
        if not self.is_cluster:
            return Mode.BROADCAST
        return Mode.ORDERLY if self.settings.is_orderly else Mode.CONCURRENT

    @property
    def batch_size(self) -> int | None:
        """How many messages a handler gets; None for one that gets single messages."""
        return self.settings.batch_size if self.is_batch else None

    def source(self, broker_name: str) -> Source[T]:
        """For the messages of one broker."""
        return Source(broker_name, self.codec, self.shown_group, self.namespace, self.mode)
