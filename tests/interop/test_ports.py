"""Ports that are given out are free, and are not given out twice."""

import socket

from tests.interop import ports


def test_a_free_port_can_be_bound() -> None:
    port = ports.free_port()

    with socket.create_server((ports.LOOPBACK, port)) as server:
        assert server.getsockname()[1] == port


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        assert not ports.is_free(server.getsockname()[1])


def test_a_brokers_three_ports_can_all_be_bound() -> None:
    listen = ports.free_port_triple()

    for port in (listen - 2, listen, listen + 1):
        with socket.create_server((ports.LOOPBACK, port)):
            pass


def test_no_port_is_given_out_twice() -> None:
    singles = [ports.free_port() for _ in range(20)]
    triples = [ports.free_port_triple() for _ in range(20)]

    given = singles + [listen + place for listen in triples for place in (-2, 0, 1)]
    assert len(given) == len(set(given))


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    assert ports.FIRST <= ports.free_port() < ports.LAST < 32_768
