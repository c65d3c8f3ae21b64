"""The public test kit: fakes we own and builders with good defaults. Only tests import it."""

from cometmq.testing.clock import FakeClock
from cometmq.testing.crashing_disk import CrashingDisk, DiskEvent, PowerCut
from cometmq.testing.proxy import FaultyProxy

__all__ = ["CrashingDisk", "DiskEvent", "FakeClock", "FaultyProxy", "PowerCut"]
