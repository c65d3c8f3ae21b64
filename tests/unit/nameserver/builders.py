"""Registrations with good defaults, and short questions to a table."""

from collections.abc import Iterable, Mapping

from cometmq.model.route import QueueData
from cometmq.model.topic import DataVersion, TopicConfig
from cometmq.nameserver.registration import Registration
from cometmq.nameserver.route_table import RouteTable

NOW = 1000.0
"""Some moment, in monotonic seconds."""


def topics(
    names: Iterable[str], *, read: int = 8, write: int = 8, perm: int = 6, flag: int = 0
) -> dict[str, TopicConfig]:
    """Topics with the same numbers; ``topics("TU")`` are two of them."""
    return {name: TopicConfig(name, read, write, perm=perm, topic_sys_flag=flag) for name in names}


TWO_TOPICS = topics("TU")


def broker(
    name: str = "broker-a",
    broker_id: int = 0,
    *,
    topics: Mapping[str, TopicConfig] | None = None,
    version: int = 1,
    state: int | None = 0,
    cluster: str = "c",
    address: str | None = None,
    connection: object = None,
    acting: bool | None = False,
    timeout_ms: int | None = None,
    filter_servers: tuple[str, ...] = (),
    zone: str | None = None,
    has_static_topics: bool = False,
) -> Registration:
    """A 5.x broker (``acting=None`` makes it 4.x) at ``name-id:1`` with the topics T and U."""
    address = address or f"{name}-{broker_id}:1"
    return Registration(
        cluster=cluster,
        broker_name=name,
        broker_id=broker_id,
        address=address,
        ha_server_address=f"ha.{address}",
        connection=connection or address,
        zone_name=zone,
        timeout_ms=timeout_ms,
        enable_acting_master=acting,
        topics=TWO_TOPICS if topics is None else topics,
        data_version=DataVersion(version, state, 0),
        filter_servers=filter_servers,
        has_static_topics=has_static_topics,
    )


def queues_of(table: RouteTable, topic: str) -> dict[str, QueueData]:
    route = table.route(topic)
    return {} if route is None else {data.broker_name: data for data in route.queue_datas}


def perm_of(table: RouteTable, topic: str, name: str = "broker-a") -> int:
    return queues_of(table, topic)[name].perm


def addresses_of(table: RouteTable, name: str = "broker-a") -> dict[int, str]:
    return dict(table.member_group("c", name).broker_addrs)
