import ipaddress
import socket
import sys
from pathlib import Path

import pytest

from cometmq.client import machine


def test_the_first_source_that_knows_an_address_is_believed() -> None:
    asked: list[str] = []

    def source(name: str, *addresses: str) -> machine.Source:
        def ask() -> list[str]:
            asked.append(name)
            return list(addresses)

        return ask

    sources = (source("a", "127.0.0.1"), source("b", "10.0.0.1"), source("c", "10.0.0.2"))

    assert machine.own_ip(sources) == "10.0.0.1"
    assert asked == ["a", "b"]


def test_a_machine_without_network_is_its_own_loopback() -> None:
    assert machine.own_ip((list, list)) == "127.0.0.1"


def test_the_address_found_here_can_be_bound_to() -> None:
    ip = machine.own_ip()

    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as bound:
        bound.bind((ip, 0))
        assert bound.getsockname()[0] == ip


def test_routed_addresses_are_addresses() -> None:
    for text in machine.routed_addresses():
        assert ipaddress.ip_address(text).version in (4, 6)


def test_named_addresses_are_addresses() -> None:
    for text in machine.named_addresses():
        assert ipaddress.ip_address(text.partition("%")[0]).version in (4, 6)


@pytest.mark.parametrize("host", ["\udc80", "x" * 300])
def test_a_name_that_no_host_can_have_stands_for_no_address(host: str) -> None:
    assert machine.named_addresses(host) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists its interfaces")
class TestInterfaces:
    def test_the_loopback_is_among_them(self, tmp_path: Path) -> None:
        assert "127.0.0.1" in machine.interface_addresses(tmp_path)

    def test_bridges_are_left_out(self, tmp_path: Path) -> None:
        for _, name in socket.if_nameindex():
            (tmp_path / name / "bridge").mkdir(parents=True)

        assert machine.interface_addresses(tmp_path) == []

    @pytest.mark.parametrize(("flags", "count"), [("0x1002", 0), ("0x1003", 1), ("what", 1)])
    def test_those_that_are_down_are_left_out(self, tmp_path: Path, flags: str, count: int) -> None:
        for _, name in socket.if_nameindex():
            (tmp_path / name).mkdir()
            (tmp_path / name / "flags").write_text(f"{flags}\n")

        assert machine.interface_addresses(tmp_path).count("127.0.0.1") == count

    def test_ipv6_addresses_come_from_the_kernels_list(self, tmp_path: Path) -> None:
        listing = tmp_path / "if_inet6"
        listing.write_text(
            "20010db8000000000000000000000001 02 40 00 80     eth0\n"
            "fe800000000000000000000000000001 03 40 20 80     br0\n"
        )

        assert list(machine._v6_addresses(["eth0"], listing)) == ["2001:db8::1"]
        assert list(machine._v6_addresses(["eth0"], tmp_path / "missing")) == []
