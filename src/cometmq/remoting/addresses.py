"""``host:port`` as text."""

import re
from collections.abc import Sequence

from cometmq.errors import SettingsError, Unreachable


def split_address(address: str) -> tuple[str, int]:
    """``host:port`` in parts; IPv6 addresses stand in brackets. Raises Unreachable."""
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise Unreachable(address, "not an address", "write it as host:port")
    return host.strip("[]"), int(port)


def name_servers_in(namesrv: str | Sequence[str], advice: str) -> list[str]:
    """The addresses in ``host:port;host2:port`` or a list, each once.

    Raises SettingsError when there is none, and for one that cannot be an address.
    """
    texts = namesrv.split(";") if isinstance(namesrv, str) else namesrv
    addresses = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not addresses:
        raise SettingsError("namesrv", "no name server is given", advice)
    for address in addresses:
        _require_address(address)
    return addresses


def _require_address(address: str) -> None:
    try:
        host, _ = split_address(address)
    except Unreachable as error:
        raise SettingsError("namesrv", f"'{address}' is no address", error.next_step) from error
    if "," in address:
        problem = f"'{address}' has a comma in it"
        raise SettingsError("namesrv", problem, "put a semicolon between two addresses")
    if "/" in address:
        problem = f"'{address}' is no address but a URL"
        raise SettingsError("namesrv", problem, "write it as host:port")
    if ":" in host and not address.startswith("["):
        problem = f"'{address}' has more than one colon"
        advice = "write it as host:port, an IPv6 address in brackets"
        raise SettingsError("namesrv", problem, advice)
