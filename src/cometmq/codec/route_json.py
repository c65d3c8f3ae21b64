"""Route data in the dialect the asking client understands.

Clients before 4.9.4 get bare broker ids: older Go clients take a quoted id for 0, so that a slave
would overwrite its master. They also get no ``enableActingMaster``, because one Python client
reads routes as Python literals and stumbles over ``false``. Newer ones get standard JSON.
"""

import msgspec

from cometmq.codec import fastjson
from cometmq.model.route import TopicRoute

STANDARD_VERSION_MIN = 401
"""Ordinal of 4.9.4, the first release whose name server knows the difference."""


def encode(route: TopicRoute, client_version: int, *, standard_only: bool = False) -> bytes:
    """Write a route for a client of that version (the ``version`` of its request).

    ``standard_only`` is the ext field ``acceptStandardJsonOnly``. Never any blank: Go clients keep
    one as part of an address.
    """
    if standard_only or client_version >= STANDARD_VERSION_MIN:
        return fastjson.dumps_standard(route)
    return fastjson.dumps(_without_booleans(route))


def _without_booleans(route: TopicRoute) -> TopicRoute:
    brokers = tuple(
        msgspec.structs.replace(broker, enable_acting_master=None) for broker in route.broker_datas
    )
    return msgspec.structs.replace(route, broker_datas=brokers)
