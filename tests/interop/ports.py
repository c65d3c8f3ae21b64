"""Free ports on loopback for servers that must be told their port before they start."""

import random
import socket
from collections.abc import Sequence

# Below the range from which the system picks ports for outgoing connections: a port found free
# here cannot be taken by some client's connection before the server binds it.
FIRST = 15_000
LAST = 32_000
TRIES = 1_000
LOOPBACK = "127.0.0.1"

_given: set[int] = set()


class NoFreePortError(Exception):
    """Hardly possible: so many ports in a row were all taken."""


def free_port() -> int:
    """A port that nobody listens on and that this process was not given before."""
    return _free_block((0,))


def free_port_triple() -> int:
    """A port for a broker: it, the one two below and the one above are free.

    A RocketMQ broker that listens on ``n`` also takes ``n - 2`` for its fast port and ``n + 1``
    for replication.
    """
    return _free_block((-2, 0, 1))


def _free_block(places: Sequence[int]) -> int:
    for _ in range(TRIES):
        base = random.randrange(FIRST + 2, LAST)
        ports = {base + place for place in places}
        if ports.isdisjoint(_given) and all(map(is_free, ports)):
            _given.update(ports)
            return base
    raise NoFreePortError(f"no {len(places)} free ports in {FIRST}..{LAST} after {TRIES} tries")


def is_free(port: int) -> bool:
    """Whether a server could bind ``port`` on every address of this machine now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
