"""Who a broker says it is: the address clients are told, and the one that goes into messages.

Clients take the address from a route and connect to it, so it may be a host name. Message ids and
stored records have room for a numeric address only: there the name is replaced by what it resolves
to when the broker starts.
"""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from cometmq.broker.config import BrokerNetworkSettings, BrokerSettings
from cometmq.codec.record import pack_host
from cometmq.errors import SettingsError
from cometmq.model.route import MASTER_ID

# Only the way there matters, nothing is sent: an address for documentation, which nobody has.
_FAR_AWAY = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
_LOOPBACK = "127.0.0.1"
_HIGHEST_PORT = 65535

Resolve = Callable[[str], str]
"""From a host name to a numeric address; SettingsError when it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a running broker is known by."""

    broker_name: str
    cluster_name: str
    broker_id: int
    address: str
    """``host:port`` that clients are told; the host may be a name."""
    ha_address: str
    """``host:port`` that slaves are told."""
    store_ip: str
    """The numeric address that messages carry."""
    store_host: bytes
    """Address and port as a record has them, 8 bytes or 20."""
    message_id_prefix: str
    """How the ids of messages stored here begin; the physical offset follows as 16 digits."""

    def __str__(self) -> str:
        """The line that says at the start what clients will be told."""
        told = f"broker={self.broker_name} cluster={self.cluster_name} id={self.broker_id}"
        told += f" clients are told {self.address}"
        if not self.address.startswith((f"{self.store_ip}:", f"[{self.store_ip}]:")):
            told += f", message ids carry {self.store_ip}"
        if ipaddress.ip_address(self.store_ip).is_loopback:
            told += " (reached from this machine only; brokerIP1 sets another)"
        return told


def resolve_identity(
    settings: BrokerSettings,
    network: BrokerNetworkSettings,
    port: int,
    *,
    resolve: Resolve | None = None,
    own_address: Callable[[], str] | None = None,
) -> Identity:
    """Find out who we are; looks names up, so call it before the loop serves.

    ``port`` is where the broker really listens. Raises SettingsError for an address that no client
    could use.
    """
    resolve = resolve or numeric_address
    own_address = own_address or address_of_this_host
    host = _bare(settings.broker_ip1) or _host_of(network.bind_address, own_address)
    ip = _usable(host, resolve(host))
    host = host if _parsed(host) is None else ip  # IPv4 in IPv6 clothes confuses clients
    store_host = pack_host(ip, port)
    return Identity(
        broker_name=settings.broker_name,
        cluster_name=settings.cluster_name,
        broker_id=MASTER_ID,  # the only role there is
        address=join(host, port),
        ha_address=join(_bare(settings.broker_ip2) or host, _ha_port(settings, port)),
        store_ip=ip,
        store_host=store_host,
        message_id_prefix=store_host.hex().upper(),
    )


def require_usable(host: str, resolve: Resolve | None = None) -> None:
    """Raise SettingsError when a broker could not start as ``host``; may block, to look it up."""
    if bare := _bare(host):
        _usable(bare, (resolve or numeric_address)(bare))


def numeric_address(host: str) -> str:
    """What ``host`` resolves to, IPv4 first; an address is its own. Raises SettingsError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else str(error)
        raise SettingsError(
            "brokerIP1",
            f"host name '{host}' has no address: {reason}",
            "use a name that this machine can look up, or an address",
        ) from error
    by_family = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(by_family[0][4][0])


def address_of_this_host() -> str:
    """The address this host sends from, 127.0.0.1 when it has no network."""
    for target, family in _FAR_AWAY:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue  # no way there: no such network here
    return _LOOPBACK


def join(host: str, port: int) -> str:
    """``host:port``; IPv6 addresses stand in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host_of(bind_address: str, own_address: Callable[[], str]) -> str:
    bound = _bare(bind_address)
    if bound == "localhost":
        return _LOOPBACK
    address = _parsed(bound)
    is_everywhere = not bound or (address is not None and address.is_unspecified)
    return own_address() if is_everywhere else bound


def _usable(host: str, ip: str) -> str:
    address = _parsed(ip.partition("%")[0])
    assert address is not None, ip
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified or address.is_multicast:
        raise SettingsError(
            "brokerIP1",
            f"'{host}' is no address that clients can connect to",
            "use one of this host",
        )
    return str(address)


def _ha_port(settings: BrokerSettings, port: int) -> int:
    return settings.ha_listen_port or min(port + 1, _HIGHEST_PORT)


def _bare(host: str) -> str:
    return host.strip().removeprefix("[").removesuffix("]")


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
