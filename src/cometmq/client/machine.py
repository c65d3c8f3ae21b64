"""What a client finds out about the machine it runs on: the addresses of its interfaces.

Nothing here sends a packet. On Linux the kernel lists the interfaces; elsewhere a socket that is
connected to an address far away, but never used, tells which one would be used. A host's name is
looked up only when neither helps, which may take as long as its resolver wants: call ``own_ip`` on
a thread.
"""

import contextlib
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cometmq.client.core.identity import choose_ip

LOOPBACK = "127.0.0.1"

_NETWORK_FOLDER = Path("/sys/class/net")
_V6_ADDRESSES = Path("/proc/net/if_inet6")
_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_IS_UP = 1  # IFF_UP
_FAR_AWAY = (("192.0.2.1", socket.AF_INET), ("2001:db8::1", socket.AF_INET6))
"""Addresses for examples: nobody has them."""

Source = Callable[[], list[str]]


def own_ip(sources: tuple[Source, ...] | None = None) -> str:
    """The address that this machine's clients have in their ids; the loopback's if it has none."""
    for source in sources or (interface_addresses, routed_addresses, named_addresses):
        if found := choose_ip(source()):
            return found
    return LOOPBACK


def interface_addresses(folder: Path = _NETWORK_FOLDER) -> list[str]:
    """The addresses of interfaces that are up and no bridges, IPv4 first.

    Empty where nobody lists them.
    """
    if sys.platform != "linux":
        return []
    names = [name for _, name in _interfaces() if _is_usable(folder / name)]
    return [*_v4_addresses(names), *_v6_addresses(names)]


def routed_addresses() -> list[str]:
    """The addresses from which the rest of the world would be talked to."""
    found = []
    for host, family in _FAR_AWAY:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            found.append(str(probe.getsockname()[0]))
    return found


def named_addresses(host: str | None = None) -> list[str]:
    """The addresses that a name stands for, this machine's own if none is given."""
    try:
        found = socket.getaddrinfo(host or socket.gethostname(), None)
    except (OSError, UnicodeError):
        return []
    return [str(address[0]) for *_, address in found]


def _interfaces() -> list[tuple[int, str]]:
    try:
        return socket.if_nameindex()
    except OSError:
        return []


def _is_usable(interface: Path) -> bool:
    """Bridges have the same address on many machines, and one that is down is of no use."""
    if (interface / "bridge").exists():
        return False
    try:
        return bool(int((interface / "flags").read_text(), 16) & _IS_UP)
    except (OSError, ValueError):
        return True


def _v4_addresses(names: list[str]) -> Iterator[str]:
    if sys.platform != "linux":
        return
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for name in names:
            question = struct.pack("256s", name.encode()[:15])
            # An interface without an address answers with an error.
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(asked.fileno(), _GET_ADDRESS, question)
                yield socket.inet_ntoa(answer[20:24])


def _v6_addresses(names: list[str], listing: Path = _V6_ADDRESSES) -> Iterator[str]:
    try:
        lines = listing.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        digits, *_, name = line.split()
        if name in names:
            yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
