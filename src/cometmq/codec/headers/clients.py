"""Clients of a broker: heartbeats, who is connected, and questions passed on to a client."""

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, Header, request, response


@response(RequestCode.HEART_BEAT)
class HeartbeatResponse(Header):
    """Since 5.1.3: whether heartbeats may leave subscriptions out, and whether they changed."""

    is_support_heart_beat_v2: bool | None = msgspec.field(
        name="IS_SUPPORT_HEART_BEAT_V2", default=None
    )
    is_sub_change: bool | None = msgspec.field(name="IS_SUB_CHANGE", default=None)


@request(RequestCode.UNREGISTER_CLIENT)
class UnregisterClient(Header):
    """A client leaves a group. C++ sends both groups; the one that is not meant is empty."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
class GetConsumerListByGroup(Header):
    """The client ids of a group, from which each member computes its share of the queues."""

    consumer_group: str


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
class NotifyConsumerIdsChanged(Header):
    """A broker tells a consumer that the members of its group have changed; one-way."""

    consumer_group: str


@request(RequestCode.GET_CONSUMER_CONNECTION_LIST)
class GetConsumerConnectionList(Header):
    """Connections and subscriptions of a consumer group."""

    consumer_group: str


@request(RequestCode.GET_PRODUCER_CONNECTION_LIST)
class GetProducerConnectionList(Header):
    """Connections of a producer group."""

    producer_group: str


@request(
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
)
class GetConsumerStatus(Header):
    """Offsets as the consumers of a group see them; from ``mqadmin`` and on to the consumers."""

    topic: str
    group: str
    client_addr: str | None = None


@request(RequestCode.GET_CONSUMER_RUNNING_INFO)
class GetConsumerRunningInfo(Header):
    """What a consumer is doing; passed on to it by the broker."""

    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


@request(RequestCode.CONSUME_MESSAGE_DIRECTLY)
class ConsumeMessageDirectly(Header):
    """Let one consumer handle one message now; the broker fills in what follows ``msg_id``."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: I32 | None = None
    group_sys_flag: I32 | None = None
