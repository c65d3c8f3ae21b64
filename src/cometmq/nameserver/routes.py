"""Putting a route together: what is shown of the broker groups that have queues of a topic."""

from collections.abc import Mapping

import msgspec

from cometmq.model.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from cometmq.nameserver.brokers import BrokerGroup

MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which the members of a group find each other: they never see an acting master."""


def assemble(
    queues: Mapping[str, QueueData],
    groups: Mapping[str, BrokerGroup],
    *,
    order_topic_conf: str | None,
    shows_acting_master: bool,
) -> TopicRoute:
    """The route over ``queues`` by broker name; every name must be one of ``groups``."""
    brokers: list[BrokerData] = []
    filter_servers: dict[str, list[str]] = {}
    names = sorted(queues)
    for name in names:
        group = groups[name]
        acts = shows_acting_master and needs_acting_master(group, queues[name])
        brokers.append(with_acting_master(group) if acts else group.data)
        filter_servers |= group.filter_servers()
    return TopicRoute(
        tuple(brokers), tuple(queues[name] for name in names), filter_servers, order_topic_conf
    )


def needs_acting_master(group: BrokerGroup, queues: QueueData) -> bool:
    """Whether clients are to be served by a slave: only reading, and only if the group agreed."""
    return group.is_without_master and group.enable_acting_master and not queues.is_writable


def with_acting_master(group: BrokerGroup) -> BrokerData:
    """The group with its lowest id shown as the master's."""
    addresses = dict(group.data.broker_addrs)
    acting = addresses.pop(group.lowest_id)
    return msgspec.structs.replace(group.data, broker_addrs={MASTER_ID: acting, **addresses})
