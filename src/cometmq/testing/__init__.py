"""The public test kit: fakes we own and builders with good defaults. Only tests import it."""

from typing import TYPE_CHECKING, Any

from cometmq.testing.clock import FakeClock
from cometmq.testing.crashing_disk import CrashingDisk, DiskEvent, PowerCut
from cometmq.testing.history import History, Problem, ProblemKind, Queue, Received, Rules, Sent
from cometmq.testing.proxy import FaultyProxy

if TYPE_CHECKING:
    from cometmq.testing.local_cluster import ClusterError, LocalCluster

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    # A cluster needs all of the servers; who wants a clock only does not wait for them.
    if name in ("ClusterError", "LocalCluster"):
        from cometmq.testing import local_cluster

        return getattr(local_cluster, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
