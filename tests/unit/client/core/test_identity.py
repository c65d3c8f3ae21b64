import pytest

from cometmq.client.core.identity import (
    choose_ip,
    client_id,
    fresh_instance_name,
    make_unique_ids,
)
from cometmq.codec.message_id import parse_unique_id


def test_a_client_id_is_address_instance_and_unit() -> None:
    assert client_id("10.0.0.1", "billing") == "10.0.0.1@billing"
    assert client_id("10.0.0.1", "billing", "unit-1") == "10.0.0.1@billing@unit-1"
    assert client_id("10.0.0.1", "billing", " ") == "10.0.0.1@billing"


def test_an_instance_without_a_name_gets_process_and_time() -> None:
    assert fresh_instance_name(17, 123_456) == "17#123456"


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (["127.0.0.1", "10.0.0.1", "172.17.0.1"], "10.0.0.1"),
        (["192.168.1.5", "10.0.0.1"], "10.0.0.1"),
        (["192.168.1.5", "192.168.1.6"], "192.168.1.6"),
        (["2001:db8::1", "192.168.1.5"], "192.168.1.5"),
        (["fe80::1%eth0", "2001:db8::1"], "2001:db8::1"),
        (["::1", "fe80::1%eth0"], "fe80::1%eth0"),
        (["127.0.0.1", "::1", "0.0.0.0", "::", "nonsense", ""], None),
        ([], None),
    ],
)
def test_the_own_address_is_the_first_one_that_others_could_use(
    addresses: list[str], chosen: str | None
) -> None:
    assert choose_ip(addresses) == chosen


def test_message_ids_tell_address_process_and_salt() -> None:
    ids = make_unique_ids("10.0.0.1", 70_000, 0xCAFEBABE)

    found = parse_unique_id(ids.next(1_700_000_000_000))

    assert found is not None
    assert found.ip == bytes([10, 0, 0, 1])
    assert found.pid == 70_000 & 0xFFFF
    assert found.loader_hash == 0xCAFEBABE


def test_message_ids_of_an_ipv6_client_are_longer() -> None:
    assert len(make_unique_ids("fe80::1%eth0", 1, 2).next(1_700_000_000_000)) == 56


def test_a_client_that_calls_itself_by_name_makes_ids_all_the_same() -> None:
    assert make_unique_ids("my-host", 1, 2).next(1_700_000_000_000).startswith("00000000")
