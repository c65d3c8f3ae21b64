"""Every public name is public on purpose: ``__all__`` says so, and this list says so again.

A name added to a package's ``__all__`` must be added here too; that is the moment to ask whether
users should have it.
"""

import importlib
import pkgutil
from types import ModuleType

import pytest

import cometmq

PUBLIC = {
    "cometmq": {
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
    },
    "cometmq.admin": {"Admin", "Earliest", "Latest", "Offset", "Position", "Shift", "Time"},
    "cometmq.aio": {
        "Client",
        "Consumer",
        "LiteConsumer",
        "Producer",
        "PullConsumer",
        "TransactionProducer",
    },
    "cometmq.testing": {
        "ClusterError",
        "CrashingDisk",
        "DiskEvent",
        "FakeClock",
        "FaultyProxy",
        "History",
        "LocalCluster",
        "PowerCut",
        "Problem",
        "ProblemKind",
        "Queue",
        "Received",
        "Rules",
        "Sent",
    },
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_package_exports_exactly_what_is_listed(name: str) -> None:
    package = importlib.import_module(name)

    assert set(package.__all__) == PUBLIC[name]
    assert all(hasattr(package, exported) for exported in package.__all__)


def test_every_name_in_an_all_list_exists() -> None:
    missing = [
        f"{module.__name__}.{name}"
        for module in all_modules()
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ]

    assert missing == []


def test_every_package_says_what_belongs_in_it() -> None:
    silent = [module.__name__ for module in all_modules() if not (module.__doc__ or "").strip()]

    assert silent == []


def all_modules() -> list[ModuleType]:
    walked = pkgutil.walk_packages(cometmq.__path__, "cometmq.")
    names = [found.name for found in walked if not found.name.endswith("__main__")]
    return [cometmq, *(importlib.import_module(name) for name in names)]
