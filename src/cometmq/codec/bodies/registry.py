"""Which body belongs to which request code, and in which form each is written."""

import enum
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from cometmq.codec import fastjson
from cometmq.codec.bodies import (
    clients,
    groups,
    nameserver,
    offsets,
    pop,
    queues,
    stats,
    topics,
    users,
)
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.route import TopicRoute
from cometmq.model.topic import DataVersion

T = TypeVar("T")


class Form(enum.Enum):
    """What a body needs of fastjson's dialect."""

    STANDARD = "standard"
    """Every key is text: any JSON reader will do."""
    INTEGER_KEYS = "form 1"
    """Keys that are integers are bare."""
    OBJECT_KEYS = "form 2"
    """Keys that are queues are objects."""


FORMS: Mapping[type, Form] = MappingProxyType(
    {
        TopicRoute: Form.INTEGER_KEYS,
        nameserver.ClusterInfo: Form.INTEGER_KEYS,
        nameserver.BrokerMemberGroupAnswer: Form.INTEGER_KEYS,
        offsets.ConsumerOffsetTable: Form.INTEGER_KEYS,
        offsets.DelayOffsetTable: Form.INTEGER_KEYS,
        offsets.CorrectionOffsets: Form.INTEGER_KEYS,
        # Integer keys occur in these only when there are static topics.
        nameserver.RegisterBrokerBody: Form.INTEGER_KEYS,
        topics.TopicConfigTable: Form.INTEGER_KEYS,
        topics.TopicConfigAndMapping: Form.INTEGER_KEYS,
        topics.TopicStatsTable: Form.OBJECT_KEYS,
        offsets.ConsumeStats: Form.OBJECT_KEYS,
        offsets.ConsumeStatsList: Form.OBJECT_KEYS,
        offsets.ResetOffsetBody: Form.OBJECT_KEYS,
        offsets.ConsumerStatusBody: Form.OBJECT_KEYS,
        clients.ConsumerRunningInfo: Form.OBJECT_KEYS,
    }
)
"""Bodies that are not standard JSON; all others are."""

REQUEST_BODIES: Mapping[int, Any] = MappingProxyType(
    {
        18: topics.TopicConfigList,
        34: clients.HeartbeatData,
        41: queues.LockBatchBody,
        42: queues.LockBatchBody,
        46: clients.CheckClientBody,
        103: nameserver.RegisterBrokerBody,
        200: SubscriptionGroupConfig,
        217: TopicRoute,
        220: offsets.ResetOffsetBody,
        225: groups.SubscriptionGroupList,
        322: DataVersion,
        400: queues.QueryAssignmentBody,
        401: queues.MessageRequestModeBody,
        3001: users.UserInfo,
        3002: users.UserInfo,
        3006: users.AclInfo,
        3007: users.AclInfo,
        200151: pop.BatchAckBody,
    }
)
"""Type of a request's JSON body by request code, in both directions of a connection."""

RESPONSE_BODIES: Mapping[int, Any] = MappingProxyType(
    {
        21: topics.TopicConfigTable,
        28: nameserver.KVTable,
        38: clients.ConsumerIdList,
        41: queues.LockBatchAnswer,
        43: offsets.ConsumerOffsetTable,
        45: offsets.DelayOffsetTable,
        61: stats.TimerMetrics,
        103: nameserver.KVTable,
        105: TopicRoute,
        106: nameserver.ClusterInfo,
        201: groups.SubscriptionGroupTable,
        202: topics.TopicStatsTable,
        203: clients.ConsumerConnection,
        204: clients.ProducerConnection,
        206: nameserver.TopicList,
        208: offsets.ConsumeStats,
        219: nameserver.KVTable,
        221: offsets.ConsumerStatusBody,
        222: offsets.ResetOffsetBody,
        223: offsets.ConsumerStatusBody,
        224: nameserver.TopicList,
        300: groups.GroupList,
        303: offsets.ConsumeTimeSpans,
        304: nameserver.TopicList,
        305: nameserver.TopicList,
        307: clients.ConsumerRunningInfo,
        308: offsets.CorrectionOffsets,
        309: clients.ConsumeDirectlyResult,
        311: nameserver.TopicList,
        312: nameserver.TopicList,
        313: nameserver.TopicList,
        315: stats.BrokerStatsData,
        317: offsets.ConsumeStatsList,
        321: stats.QueryConsumeQueueAnswer,
        322: DataVersion,
        328: clients.ProducerTable,
        343: nameserver.TopicList,
        345: groups.QuerySubscriptionAnswer,
        351: topics.TopicConfigAndMapping,
        352: SubscriptionGroupConfig,
        353: groups.GroupForbidden,
        400: queues.QueryAssignmentAnswer,
        402: queues.MessageRequestModeTable,
        901: nameserver.BrokerMemberGroupAnswer,
        907: stats.HARuntimeInfo,
        3004: users.UserInfo,
        3005: list[users.UserInfo],
        3009: users.AclInfo,
        3010: list[users.AclInfo],
    }
)
"""Type of an answer's JSON body by the code of the request."""

_READERS: Mapping[Any, Callable[[bytes], Any]] = MappingProxyType(
    {
        offsets.ResetOffsetBody: offsets.decode_reset_offsets,
        pop.BatchAckBody: pop.decode_batch_ack,
    }
)


def encode(body: msgspec.Struct | Sequence[msgspec.Struct]) -> bytes:
    """Write a body in its form; route data for clients is ``route_json.encode``'s business.

    ``LocalProtocolError`` if the body has keys that its form cannot carry.
    """
    is_standard = FORMS.get(type(body), Form.STANDARD) is Form.STANDARD
    return fastjson.dumps(body, only_standard_keys=is_standard)


def decode(kind: type[T], data: bytes) -> T:
    """Read a body in any form that a known client or server writes."""
    reader = _READERS.get(kind)
    if reader is not None:
        body: T = reader(data)
        return body
    return fastjson.decode(data, kind)
