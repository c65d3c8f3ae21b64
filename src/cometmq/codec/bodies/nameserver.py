"""Bodies between name servers, brokers and those who ask for routes.

Route data itself is ``cometmq.model.route.TopicRoute``; ``codec.route_json`` writes it.
"""

import msgspec

from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.model.java_types import Int64
from cometmq.model.route import BrokerData


class KVTable(msgspec.Struct, frozen=True, rename="camel"):
    """Text by name: configuration of a namespace, or figures about a broker."""

    table: dict[str, str] = {}


class TopicList(msgspec.Struct, frozen=True, rename="camel"):
    """Topic names; ``broker_addr`` is any broker that knows the system topics (code 304)."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


class ClusterInfo(msgspec.Struct, frozen=True, rename="camel"):
    """All broker groups by name, and the names of the groups of each cluster."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, tuple[str, ...]] = {}


class BrokerMemberGroup(msgspec.Struct, frozen=True, rename="camel"):
    """The members of one broker group by broker id."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = {}


class BrokerMemberGroupAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None


class RegisterBrokerBody(msgspec.Struct, frozen=True, rename="camel"):
    """What a broker tells when it registers; ``codec.registration`` has the compressed form."""

    filter_server_list: tuple[str, ...] = ()
    topic_config_serialize_wrapper: TopicConfigTable = msgspec.field(
        default_factory=TopicConfigTable
    )
