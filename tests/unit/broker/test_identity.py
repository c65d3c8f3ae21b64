"""Who a broker says it is: names go into routes, addresses into messages."""

import pytest

from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.broker.identity import (
    Identity,
    address_of_this_host,
    numeric_address,
    resolve_identity,
)
from cometmq.codec.message_id import decode_offset_id
from cometmq.codec.record import unpack_host
from cometmq.errors import SettingsError

NAMES = {"broker.example": "10.1.2.3", "six.example": "fd00::7", "here.example": "127.0.0.1"}


def identity_of(
    broker_ip1: str = "",
    bind_address: str = "0.0.0.0",
    port: int = 10911,
    **settings: object,
) -> Identity:
    """An identity on a host that sends from 10.0.0.5, with the names above."""
    return resolve_identity(
        BrokerSettings(broker_name="broker-a", broker_ip1=broker_ip1, **settings),  # type: ignore[arg-type]
        BrokerNetworkSettings(bind_address=bind_address),
        port,
        resolve=lambda host: NAMES.get(host, host),
        own_address=lambda: "10.0.0.5",
    )


def test_without_an_address_clients_are_told_the_one_this_host_sends_from() -> None:
    identity = identity_of()

    assert identity.address == "10.0.0.5:10911"
    assert identity.ha_address == "10.0.0.5:10912"
    assert unpack_host(identity.store_host) == ("10.0.0.5", 10911)


@pytest.mark.parametrize(
    ("bound", "told"),
    [
        ("127.0.0.1", "127.0.0.1:10911"),
        ("localhost", "127.0.0.1:10911"),
        ("10.0.0.9", "10.0.0.9:10911"),
        ("", "10.0.0.5:10911"),
        ("::", "10.0.0.5:10911"),
        ("::1", "[::1]:10911"),
    ],
)
def test_a_broker_bound_to_one_address_is_reached_there(bound: str, told: str) -> None:
    assert identity_of(bind_address=bound).address == told


def test_a_host_name_goes_into_routes_and_its_address_into_messages() -> None:
    identity = identity_of("broker.example")

    assert identity.address == "broker.example:10911"
    assert identity.ha_address == "broker.example:10912"
    assert unpack_host(identity.store_host) == ("10.1.2.3", 10911)
    found = decode_offset_id(identity.message_id_prefix + "000000000000002A")
    assert (found.ip, found.port, found.physical_offset) == ("10.1.2.3", 10911, 42)


def test_an_address_of_version_six_stands_in_brackets() -> None:
    identity = identity_of("[fd00::7]")

    assert identity.address == "[fd00::7]:10911"
    assert len(identity.store_host) == 20


def test_an_address_of_version_four_in_other_clothes_is_undressed() -> None:
    identity = identity_of("::ffff:10.0.0.7")

    assert identity.address == "10.0.0.7:10911"
    assert len(identity.store_host) == 8


def test_slaves_may_be_told_another_address_and_port() -> None:
    identity = identity_of("10.0.0.7", broker_ip2="10.9.0.7", ha_listen_port=20912)

    assert identity.ha_address == "10.9.0.7:20912"


def test_the_port_is_the_one_that_is_listened_on() -> None:
    identity = identity_of(port=65535)

    assert identity.address == "10.0.0.5:65535"
    assert identity.ha_address == "10.0.0.5:65535"


def test_a_master_has_the_id_of_masters() -> None:
    assert identity_of(broker_id=3).broker_id == 0


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1"])
def test_an_address_nobody_can_connect_to_is_refused(address: str) -> None:
    with pytest.raises(SettingsError, match="no address that clients can connect to") as caught:
        identity_of(address)

    assert caught.value.key == "brokerIP1"


def test_one_line_says_what_clients_are_told() -> None:
    assert str(identity_of()) == (
        "broker=broker-a cluster=DefaultCluster id=0 clients are told 10.0.0.5:10911"
    )
    assert str(identity_of("broker.example")).endswith(
        "clients are told broker.example:10911, message ids carry 10.1.2.3"
    )
    assert str(identity_of("here.example")).endswith(
        "message ids carry 127.0.0.1 (reached from this machine only; brokerIP1 sets another)"
    )


def test_names_are_looked_up_and_addresses_are_their_own() -> None:
    assert numeric_address("localhost") == "127.0.0.1"
    assert numeric_address("10.0.0.1") == "10.0.0.1"
    assert numeric_address("::1") == "::1"


@pytest.mark.parametrize("name", ["no such host", "." * 70])
def test_a_name_without_an_address_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"brokerIP1.*has no address"):
        numeric_address(name)


def test_this_host_has_an_address() -> None:
    assert numeric_address(address_of_this_host()) == address_of_this_host()
