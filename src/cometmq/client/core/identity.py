"""Who a client is to its brokers: its id, its address, the ids of its messages.

A client id is ``<address>@<instance>[@<unit>]``. Members of a group are told apart by it, so two of
them must never have the same: an instance that was not named gets process id and start time. A
broadcasting consumer keeps its name, because its progress is found by it.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from cometmq.codec.message_id import UniqueIds

DEFAULT_INSTANCE: Final = "DEFAULT"
"""The name of an instance that was not given one; it is replaced by a fresh one."""


def fresh_instance_name(pid: int, now_ns: int) -> str:
    """A name that no other instance has."""
    return f"{pid}#{now_ns}"


def client_id(ip: str, instance: str, unit: str | None = None) -> str:
    """The client id; the unit is part of it where there is one."""
    return f"{ip}@{instance}@{unit}" if unit and unit.strip() else f"{ip}@{instance}"


def choose_ip(addresses: Sequence[str]) -> str | None:
    """The address a client calls its own, of those of its machine; None when there is none.

    The first public or private IPv4 address counts, those that begin with 192.168 only when there
    is no other, and IPv6 after all of them. Loopback addresses never count, nor does text that is
    no address.
    """
    found = [(text, ip) for text in addresses if (ip := _parsed(text)) is not None]
    usable = [(text, ip) for text, ip in found if not ip.is_loopback and not ip.is_unspecified]
    v4 = [text for text, ip in usable if ip.version == 4]
    for text in v4:
        if not text.startswith("192.168"):
            return text
    if v4:
        return v4[-1]
    v6 = [(text, ip) for text, ip in usable if ip.version == 6]
    # A link-local address is the same on every machine of a kind, and useless elsewhere.
    routed = [text for text, ip in v6 if not ip.is_link_local]
    return next(iter(routed or [text for text, _ in v6]), None)


def make_unique_ids(ip: str, pid: int, salt: int) -> UniqueIds:
    """The maker of message ids of a client; ``salt`` is 32 random bits.

    Java has the hash of a class loader in place of the salt. It is what tells apart two processes
    that have the same number behind the same address, as in containers. An ``ip`` that is a host
    name gives ids that begin with zeros.
    """
    address = _parsed(ip)
    return UniqueIds(address.packed if address else bytes(4), pid, salt)


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
