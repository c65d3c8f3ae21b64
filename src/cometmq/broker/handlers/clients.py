"""Clients coming, going, saying that they are alive and asking for each other."""

from collections.abc import Awaitable

from cometmq.broker.assignment import AVERAGE, allocate
from cometmq.broker.clients import Clients
from cometmq.broker.handlers.reading import with_body
from cometmq.broker.topics import TopicTable, shown
from cometmq.codec import bodies, core
from cometmq.codec.bodies.clients import CheckClientBody, ConsumerIdList, HeartbeatData
from cometmq.codec.bodies.queues import (
    MessageRequestMode,
    MessageRequestModeBody,
    QueryAssignmentAnswer,
    QueryAssignmentBody,
    QueueAssignment,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.clients import (
    GetConsumerListByGroup,
    HeartbeatResponse,
    UnregisterClient,
)
from cometmq.errors import BrokerError
from cometmq.model.group import TAG_EXPRESSION, MessageModel
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import RETRY_PREFIX
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes


class ClientHandlers:
    """Requests 34, 35, 38, 46, 400 and 401."""

    def __init__(self, clients: Clients, topics: TopicTable, broker_name: str) -> None:
        self._clients = clients
        self._topics = topics
        self._broker_name = broker_name

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.HEART_BEAT, self.heartbeat)
        routes.add(RequestCode.UNREGISTER_CLIENT, self.unregister)
        routes.add(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self.consumer_list)
        routes.add(RequestCode.CHECK_CLIENT_CONFIG, self.check_client_config)
        routes.add(RequestCode.QUERY_ASSIGNMENT, self.query_assignment)
        routes.add(RequestCode.SET_MESSAGE_REQUEST_MODE, self.set_message_request_mode)

    def heartbeat(self, channel: Channel, command: Command) -> Answer | Awaitable[Answer]:
        def note(data: HeartbeatData) -> Answer:
            is_wanted = self._clients.heartbeat(
                channel, data, language=command.language, version=command.version
            )
            return Answer(
                header=HeartbeatResponse(is_support_heart_beat_v2=True, is_sub_change=is_wanted)
            )

        return with_body(channel, command, HeartbeatData, note)

    def unregister(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, UnregisterClient)
        self._clients.unregister(
            channel,
            producer_group=said.producer_group or "",
            consumer_group=said.consumer_group or "",
        )
        return Answer()

    def consumer_list(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, GetConsumerListByGroup).consumer_group
        group = self._clients.consumer_groups.get(name)
        if group is None:
            remark = f"no consumer for this group, {shown(name)}"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return Answer(body=bodies.encode(ConsumerIdList(tuple(group.client_ids))))

    def check_client_config(self, channel: Channel, command: Command) -> Answer | Awaitable[Answer]:
        return with_body(channel, command, CheckClientBody, _check_client_config)

    def query_assignment(self, channel: Channel, command: Command) -> Answer | Awaitable[Answer]:
        return with_body(channel, command, QueryAssignmentBody, self._query_assignment)

    def set_message_request_mode(
        self, channel: Channel, command: Command
    ) -> Answer | Awaitable[Answer]:
        return with_body(channel, command, MessageRequestModeBody, self._set_message_request_mode)

    def _query_assignment(self, asked: QueryAssignmentBody) -> Answer:
        """The caller's share of the queues here; of those of other brokers nothing is known."""
        topic = self._topics.get(asked.topic or "")
        group = self._clients.consumer_groups.get(asked.consumer_group or "")
        count = 0 if topic is None or not topic.is_readable else topic.read_queue_count
        mine = [MessageQueue(asked.topic or "", self._broker_name, i) for i in range(count)]
        if asked.message_model is not MessageModel.BROADCASTING:
            client_ids = [] if group is None else group.client_ids
            strategy = asked.strategy_name or AVERAGE
            mine = allocate(mine, client_ids, asked.client_id or "", strategy)
        return Answer(
            body=bodies.encode(QueryAssignmentAnswer(tuple(QueueAssignment(q) for q in mine)))
        )

    def _set_message_request_mode(self, asked: MessageRequestModeBody) -> Answer:
        """Pulling is what everybody does anyway, so there is nothing to remember."""
        topic, group = asked.topic or "", asked.consumer_group or ""
        if topic.startswith(RETRY_PREFIX):
            remark = f"topic[{shown(topic)}] holds retries: its mode cannot be set"
            raise BrokerError(ResponseCode.NO_PERMISSION, remark)
        if self._topics.get(topic) is None:
            raise BrokerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{shown(topic)}] not exist")
        if self._clients.groups.obtain(group) is None:
            remark = f"subscription group [{shown(group)}] does not exist"
            raise BrokerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if asked.mode is MessageRequestMode.POP:
            remark = "this broker cannot serve pop consumers: set mode PULL"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return Answer()


def _check_client_config(said: CheckClientBody) -> Answer:
    wanted = said.subscription_data
    kind = TAG_EXPRESSION if wanted is None else wanted.expression_type or TAG_EXPRESSION
    if kind != TAG_EXPRESSION:
        remark = f"The broker does not support consumer to filter message by {shown(kind)}"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
    return Answer()
