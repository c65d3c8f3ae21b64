"""Topic lists, topic deletion, and write permission of brokers."""

from collections.abc import Callable

from cometmq import logs
from cometmq.codec import bodies, core, fastjson
from cometmq.codec.bodies.nameserver import TopicList
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import (
    AddWritePermOfBroker,
    AddWritePermOfBrokerResponse,
    DeleteTopicInNamesrv,
    GetTopicsByCluster,
    RegisterTopicInNamesrv,
    WipeWritePermOfBroker,
    WipeWritePermOfBrokerResponse,
)
from cometmq.errors import BrokerError
from cometmq.model.route import TopicRoute
from cometmq.nameserver.config import NameServerSettings
from cometmq.nameserver.handlers.brokers import small_body
from cometmq.nameserver.route_table import RouteTable
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Handler, Routes

_log = logs.get_logger("cometmq.nameserver")


class TopicHandlers:
    """What administrators ask and change about topics."""

    def __init__(self, table: RouteTable, settings: Callable[[], NameServerSettings]) -> None:
        self._table = table
        self._settings = settings

    def add_to(self, routes: Routes) -> None:
        table = self._table
        routes.add(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.all_topics)
        routes.add(RequestCode.GET_TOPICS_BY_CLUSTER, self.topics_of_cluster)
        routes.add(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self._listing(table.system_topics))
        routes.add(RequestCode.GET_UNIT_TOPIC_LIST, self._listing(table.unit_topics))
        routes.add(
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self._listing(table.unit_subscription_topics)
        )
        routes.add(
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            self._listing(table.unit_subscription_only_topics),
        )
        routes.add(RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete)
        routes.add(RequestCode.REGISTER_TOPIC_IN_NAMESRV, self.register)
        routes.add(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_permission)
        routes.add(RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_write_permission)

    def all_topics(self, channel: Channel, command: Command) -> Answer:
        if not self._settings().enable_all_topic_list:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
        return Answer(body=bodies.encode(self._table.topics()))

    def topics_of_cluster(self, channel: Channel, command: Command) -> Answer:
        if not self._settings().enable_topic_list:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
        cluster = core.read(command, GetTopicsByCluster).cluster
        return Answer(body=bodies.encode(self._table.topics_of_cluster(cluster)))

    def delete(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, DeleteTopicInNamesrv)
        count = self._table.delete_topic(said.topic, said.cluster_name or None)
        _log.info("topic=%s deleted by %s: it was at %d brokers", said.topic, channel.peer, count)
        return Answer()

    def register(self, channel: Channel, command: Command) -> Answer:
        topic = core.read(command, RegisterTopicInNamesrv).topic
        body = small_body(command)
        queues = fastjson.decode(body, TopicRoute).queue_datas if body else ()
        if queues and not self._table.register_topic(topic, queues):
            _log.warning("topic=%s not registered: one of its brokers is unknown here", topic)
        return Answer()

    def wipe_write_permission(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, WipeWritePermOfBroker).broker_name
        count = self._table.wipe_write_permission(name)
        _log.info("broker=%s made unwritable by %s: %d topics", name, channel.peer, count)
        return Answer(header=WipeWritePermOfBrokerResponse(count))

    def add_write_permission(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, AddWritePermOfBroker).broker_name
        count = self._table.add_write_permission(name)
        _log.info("broker=%s made writable by %s: %d topics", name, channel.peer, count)
        return Answer(header=AddWritePermOfBrokerResponse(count))

    def _listing(self, read: Callable[[], TopicList]) -> Handler:
        def answer(channel: Channel, command: Command) -> Answer:
            if not self._settings().enable_topic_list:
                raise BrokerError(ResponseCode.SYSTEM_ERROR, "disable")
            return Answer(body=bodies.encode(read()))

        return answer
