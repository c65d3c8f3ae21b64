"""Questions to a name server: routes, topics, write permission, key-value settings."""

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, Header, request, response


@request(RequestCode.PUT_KV_CONFIG)
class PutKVConfig(Header):
    """Set a value."""

    namespace: str
    key: str
    value: str


@request(RequestCode.GET_KV_CONFIG)
class GetKVConfig(Header):
    """Ask for a value."""

    namespace: str
    key: str


@response(RequestCode.GET_KV_CONFIG)
class GetKVConfigResponse(Header):
    """The value, absent when there is none."""

    value: str | None = None


@request(RequestCode.DELETE_KV_CONFIG)
class DeleteKVConfig(Header):
    """Forget a value; no error when there is none."""

    namespace: str
    key: str


@request(RequestCode.GET_KVLIST_BY_NAMESPACE)
class GetKVListByNamespace(Header):
    """All keys and values of a namespace."""

    namespace: str


@request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
class GetRouteInfoByTopic(Header):
    """Where a topic's queues are; clients that need standard JSON in the body can say so."""

    topic: str
    accept_standard_json_only: bool | None = None


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
class WipeWritePermOfBroker(Header):
    """Let clients stop writing to a broker."""

    broker_name: str


@response(RequestCode.WIPE_WRITE_PERM_OF_BROKER)
class WipeWritePermOfBrokerResponse(Header):
    """How many topics were touched."""

    wipe_topic_count: I32


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER)
class AddWritePermOfBroker(Header):
    """Let clients write to a broker again."""

    broker_name: str


@response(RequestCode.ADD_WRITE_PERM_OF_BROKER)
class AddWritePermOfBrokerResponse(Header):
    """How many topics were touched."""

    add_topic_count: I32


@request(RequestCode.DELETE_TOPIC_IN_NAMESRV)
class DeleteTopicInNamesrv(Header):
    """Forget a topic's routes, everywhere or in one cluster."""

    topic: str
    cluster_name: str | None = None


@request(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
class RegisterTopicInNamesrv(Header):
    """Add routes of a topic by hand; they are in the body."""

    topic: str


@request(RequestCode.GET_TOPICS_BY_CLUSTER)
class GetTopicsByCluster(Header):
    """The topics of a cluster."""

    cluster: str


@request(RequestCode.GET_BROKER_MEMBER_GROUP)
class GetBrokerMemberGroup(Header):
    """The addresses of a master and its slaves."""

    cluster_name: str
    broker_name: str
