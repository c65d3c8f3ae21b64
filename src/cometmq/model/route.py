"""Routes: which brokers hold a topic, where they listen and how many queues each has."""

from typing import Any

import msgspec

from cometmq.model.java_types import Int32, Int64
from cometmq.model.topic import Permission

MASTER_ID = 0
"""Broker id of the master in its group; every other id is a slave."""


class BrokerData(msgspec.Struct, frozen=True, rename="camel"):
    """One broker group: the addresses of its members by broker id.

    ``enable_acting_master`` is None when the answer came from a 4.x name server.
    """

    broker_name: str
    broker_addrs: dict[Int64, str] = {}
    cluster: str | None = None
    enable_acting_master: bool | None = None
    zone_name: str | None = None

    @property
    def master_address(self) -> str | None:
        """Where to write, or None while the group has no master."""
        return self.broker_addrs.get(MASTER_ID)


class QueueData(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The queues one broker group has of a topic."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & Permission.READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & Permission.WRITE)


class TopicRoute(msgspec.Struct, frozen=True, rename="camel"):
    """Answer to "where is this topic"; the order of the lists means nothing.

    ``order_topic_conf`` (``broker-a:4;broker-b:4``) replaces the list of write queues when it is
    not empty. ``topic_queue_mapping_by_broker`` belongs to static topics and is carried as it came.
    """

    broker_datas: tuple[BrokerData, ...] = ()
    queue_datas: tuple[QueueData, ...] = ()
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, Any] | None = None
