"""Route answers as bytes, put together from parts that many of them share.

A hundred brokers have a hundred distinct descriptions and a few shapes of queues, but a million
routes: each part is written once by ``codec.route_json`` and remembered, so that a route nobody has
asked for yet costs little. The bytes are those of ``route_json.encode`` on the whole route.
"""

import functools

from cometmq.codec import route_json
from cometmq.model.route import BrokerData, QueueData, TopicRoute
from cometmq.nameserver.route_cache import RouteDialect

PARTS_MAX = 8192
"""Parts of each kind that are remembered; the least recently used one goes."""

_HEAD = b'{"brokerDatas":['
_TAIL = b"]}"


def encode(route: TopicRoute, dialect: RouteDialect) -> bytes:
    """Write a route in a dialect; one of a static topic, with its mapping, is not for here."""
    assert route.topic_queue_mapping_by_broker is None
    brokers = [_broker_part(data, dialect) for data in route.broker_datas]
    queues = [_queue_part(data, dialect) for data in route.queue_datas]
    if route.filter_server_table:
        rest = _whole(
            TopicRoute((), (), route.filter_server_table, route.order_topic_conf), dialect
        )
    else:
        rest = _plain_rest(route.order_topic_conf, dialect)
    middle = rest[len(_HEAD) : -len(_TAIL)]
    return b"".join((_HEAD, b",".join(brokers), middle, b",".join(queues), _TAIL))


def _whole(route: TopicRoute, dialect: RouteDialect) -> bytes:
    return route_json.encode(route, 0, standard_only=dialect is RouteDialect.STANDARD)


def _broker_part(data: BrokerData, dialect: RouteDialect) -> bytes:
    addresses = tuple(data.broker_addrs.items())
    flags = data.enable_acting_master, data.zone_name
    return _remembered_broker_part(data.broker_name, addresses, data.cluster, *flags, dialect)


@functools.lru_cache(maxsize=PARTS_MAX)
def _remembered_broker_part(
    name: str,
    addresses: tuple[tuple[int, str], ...],
    cluster: str | None,
    enable_acting_master: bool | None,
    zone_name: str | None,
    dialect: RouteDialect,
) -> bytes:
    data = BrokerData(name, dict(addresses), cluster, enable_acting_master, zone_name)
    body = _whole(TopicRoute(broker_datas=(data,)), dialect)
    return body[len(_HEAD) : len(body) - len(_plain_rest(None, dialect)) + len(_HEAD)]


@functools.lru_cache(maxsize=PARTS_MAX)
def _queue_part(data: QueueData, dialect: RouteDialect) -> bytes:
    body = _whole(TopicRoute(queue_datas=(data,)), dialect)
    return body[len(_plain_rest(None, dialect)) - len(_TAIL) : -len(_TAIL)]


@functools.lru_cache(maxsize=PARTS_MAX)
def _plain_rest(order_topic_conf: str | None, dialect: RouteDialect) -> bytes:
    """The route without brokers and queues: what stands around and between them."""
    return _whole(TopicRoute(order_topic_conf=order_topic_conf), dialect)
