"""CometMQ: Apache RocketMQ's messaging system in Python.

Same wire protocol, same store format. Here are the names of the client whose calls wait for their
results::

    from cometmq import Client

    with Client("host:9876") as mq:
        mq.producer().send("orders", b"one")

``cometmq.aio`` has the same for asyncio, ``cometmq.admin`` asks and changes clusters,
``cometmq.testing`` is for tests. Names are imported when they are used, so that ``import cometmq``
costs next to nothing.
"""

from cometmq._version import __version__

TYPE_CHECKING = False  # as in ``typing``, which takes longer to import than all of this
if TYPE_CHECKING:
    from cometmq.blocking.client import Client
    from cometmq.blocking.consumer import Consumer
    from cometmq.blocking.futures import SendFuture
    from cometmq.blocking.lite_consumer import LiteConsumer
    from cometmq.blocking.producer import Producer
    from cometmq.blocking.pull_consumer import PullConsumer
    from cometmq.blocking.transactions import TransactionProducer
    from cometmq.client.batching import Item
    from cometmq.client.core.message import Message
    from cometmq.client.core.message_batch import Batch
    from cometmq.client.core.results import (
        LocalState,
        SendResult,
        SendStatus,
        TransactionResult,
    )
    from cometmq.client.core.strategies import (
        Average,
        AverageByCircle,
        Configured,
        ConsistentHash,
        MachineRoom,
        MachineRoomNearby,
    )
    from cometmq.client.core.value_codecs import ValueCodec
    from cometmq.client.hooks import ConsumeContext, SendContext, TransactionContext
    from cometmq.client.metrics import ClientMetrics
    from cometmq.client.pull_consumer import PullResult
    from cometmq.client.pulling import PullStatus
    from cometmq.client.telemetry import Telemetry
    from cometmq.errors import (
        AlreadyExists,
        BrokerError,
        CodecError,
        CometError,
        ConnectionLost,
        DecisionError,
        DecodeError,
        EncodeError,
        InvalidArgument,
        MissingDependency,
        NoReply,
        NoRoute,
        NotFound,
        NotRunning,
        Refused,
        RequestTimeout,
        SendFailed,
        SettingsError,
        TooManyRequests,
        Unreachable,
        Unsupported,
    )
    from cometmq.model.offsets import MessageQueue
    from cometmq.remoting.config import TlsClientSettings

__all__ = [
    "AlreadyExists",
    "Average",
    "AverageByCircle",
    "Batch",
    "BrokerError",
    "Client",
    "ClientMetrics",
    "CodecError",
    "CometError",
    "Configured",
    "ConnectionLost",
    "ConsistentHash",
    "ConsumeContext",
    "Consumer",
    "DecisionError",
    "DecodeError",
    "EncodeError",
    "InvalidArgument",
    "Item",
    "LiteConsumer",
    "LocalState",
    "MachineRoom",
    "MachineRoomNearby",
    "Message",
    "MessageQueue",
    "MissingDependency",
    "NoReply",
    "NoRoute",
    "NotFound",
    "NotRunning",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "Refused",
    "RequestTimeout",
    "SendContext",
    "SendFailed",
    "SendFuture",
    "SendResult",
    "SendStatus",
    "SettingsError",
    "Telemetry",
    "TlsClientSettings",
    "TooManyRequests",
    "TransactionContext",
    "TransactionProducer",
    "TransactionResult",
    "Unreachable",
    "Unsupported",
    "ValueCodec",
    "__version__",
]

_MODULES = {
    "blocking.client": ("Client",),
    "blocking.consumer": ("Consumer",),
    "blocking.futures": ("SendFuture",),
    "blocking.lite_consumer": ("LiteConsumer",),
    "blocking.producer": ("Producer",),
    "blocking.pull_consumer": ("PullConsumer",),
    "blocking.transactions": ("TransactionProducer",),
    "client.batching": ("Item",),
    "client.core.message": ("Message",),
    "client.core.message_batch": ("Batch",),
    "client.core.results": (
        "LocalState",
        "SendResult",
        "SendStatus",
        "TransactionResult",
    ),
    "client.core.strategies": (
        "Average",
        "AverageByCircle",
        "Configured",
        "ConsistentHash",
        "MachineRoom",
        "MachineRoomNearby",
    ),
    "client.core.value_codecs": ("ValueCodec",),
    "client.hooks": (
        "ConsumeContext",
        "SendContext",
        "TransactionContext",
    ),
    "client.metrics": ("ClientMetrics",),
    "client.pull_consumer": ("PullResult",),
    "client.pulling": ("PullStatus",),
    "client.telemetry": ("Telemetry",),
    "model.offsets": ("MessageQueue",),
    "remoting.config": ("TlsClientSettings",),
}
"""Which names live where; all others are errors."""


if not TYPE_CHECKING:  # checkers would believe in any name

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        import importlib

        place = next((place for place, names in _MODULES.items() if name in names), "errors")
        found = getattr(importlib.import_module(f"cometmq.{place}"), name)
        globals()[name] = found  # the next time nobody asks here
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
