"""A broker's settings and statistics."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import Header, request, response


@response(RequestCode.GET_BROKER_CONFIG)
class GetBrokerConfigResponse(Header):
    """The data version of the settings, as JSON text."""

    version: str


@request(RequestCode.VIEW_BROKER_STATS_DATA)
class ViewBrokerStatsData(Header):
    """One statistic: ``TOPIC_PUT_NUMS`` of ``orders``, ``GROUP_GET_NUMS`` of ``orders@billing``."""

    stats_name: str
    stats_key: str
