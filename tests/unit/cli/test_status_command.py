from typing import Any

import pytest

from cometmq.admin.brokers import BrokerState, Cluster, NameServerState
from cometmq.cli.commands.status import judge

WELL = NameServerState("ns:9876", 1)


def broker(**facts: Any) -> BrokerState:
    defaults = {"broker_id": 0, "is_master": True, "is_active": True, "disk_ratio": 0.5}
    return BrokerState("c", "broker-a", address="b:10911", **{**defaults, **facts})


def test_a_cluster_of_which_everything_answers_is_ok() -> None:
    assert judge(Cluster((WELL,), (broker(),), ("c",))) == ("ok", [])


@pytest.mark.parametrize(
    ("cluster", "status", "finding"),
    [
        (Cluster((WELL,), (), ()), "fail", "no broker is registered"),
        (
            Cluster((WELL, NameServerState("ns2:1", None, "refused")), (broker(),), ("c",)),
            "fail",
            "name server ns2:1: refused",
        ),
        (
            Cluster((WELL,), (broker(problem="no answer"),), ("c",)),
            "fail",
            "broker broker-a at b:10911: no answer",
        ),
        (
            Cluster((WELL,), (broker(broker_id=1, is_master=False),), ("c",)),
            "fail",
            "broker broker-a has no master",
        ),
        (
            Cluster((WELL, NameServerState("ns2:1", 2)), (broker(),), ("c",)),
            "warn",
            "name servers know different numbers of brokers: [1, 2]",
        ),
        (Cluster((WELL,), (broker(is_active=False),), ("c",)), "warn", "is not active"),
        (Cluster((WELL,), (broker(disk_ratio=0.92),), ("c",)), "warn", "its disk is 92% full"),
        (
            Cluster((WELL,), (broker(dispatch_behind_bytes=2**30),), ("c",)),
            "warn",
            "bytes are not in queues yet",
        ),
    ],
)
def test_each_fault_is_found_and_named(cluster: Cluster, status: str, finding: str) -> None:
    found, findings = judge(cluster)

    assert found == status
    assert len(findings) == 1
    assert finding in findings[0]
