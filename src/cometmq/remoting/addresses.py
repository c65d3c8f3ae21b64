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
    """The addresses in ``host:port;host2:port`` or a list, each once; SettingsError for none."""
    texts = namesrv.split(";") if isinstance(namesrv, str) else namesrv
    addresses = list(dict.fromkeys(text.strip() for text in texts if text.strip()))
    if not addresses:
        raise SettingsError("namesrv", "no name server is given", advice)
    return addresses
