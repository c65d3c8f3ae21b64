"""The public test kit: fakes we own and builders with good defaults. Only tests import it."""

from cometmq.testing.clock import FakeClock
from cometmq.testing.crashing_disk import CrashingDisk, DiskEvent, PowerCut
from cometmq.testing.history import History, Problem, ProblemKind, Queue, Received, Rules, Sent
from cometmq.testing.local_cluster import ClusterError, LocalCluster
from cometmq.testing.proxy import FaultyProxy

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
