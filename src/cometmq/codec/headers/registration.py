"""How brokers make themselves known to name servers, and filter servers to brokers."""

import msgspec

from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.base import I32, I64, Header, request, response


@request(RequestCode.REGISTER_BROKER)
class RegisterBroker(Header):
    """A broker with its topics in the body; no ``enable_acting_master`` means a 4.x broker.

    ``body_crc32`` of 0 is not checked. A 5.x broker may compress the body and still say false.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: I64
    compressed: bool | None = None
    body_crc32: I32 | None = None
    enable_acting_master: bool | None = None
    heartbeat_timeout_millis: I64 | None = None
    zone_name: str | None = msgspec.field(name="__ZONE_NAME", default=None)


@response(RequestCode.REGISTER_BROKER)
class RegisterBrokerResponse(Header):
    """For a slave: where its master is."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@request(RequestCode.UNREGISTER_BROKER)
class UnregisterBroker(Header):
    """A broker leaves."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@request(RequestCode.QUERY_DATA_VERSION)
class QueryDataVersion(Header):
    """Whether the topics need registering again; their version is in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: I64


@response(RequestCode.QUERY_DATA_VERSION)
class QueryDataVersionResponse(Header):
    """True: register again."""

    changed: bool


@request(RequestCode.BROKER_HEARTBEAT)
class BrokerHeartbeat(Header):
    """A broker is alive; what follows the addresses is for controllers and acting masters."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: I64 | None = None
    heartbeat_timeout_mills: I64 | None = None
    epoch: I32 | None = None
    max_offset: I64 | None = None
    confirm_offset: I64 | None = None
    election_priority: I32 | None = None


@request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)
class NotifyMinBrokerIdChange(Header):
    """A name server tells the brokers of a group which of them has the lowest id; one-way."""

    min_broker_id: I64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@request(RequestCode.REGISTER_FILTER_SERVER)
class RegisterFilterServer(Header):
    """A filter server offers itself to a broker."""

    filter_server_addr: str


@response(RequestCode.REGISTER_FILTER_SERVER)
class RegisterFilterServerResponse(Header):
    """The broker it now belongs to."""

    broker_name: str
    broker_id: I64


@request(RequestCode.REGISTER_MESSAGE_FILTER_CLASS)
class RegisterMessageFilterClass(Header):
    """A consumer uploads the filter class whose source is in the body."""

    consumer_group: str
    topic: str
    class_name: str
    class_crc: I32 = msgspec.field(name="classCRC")
