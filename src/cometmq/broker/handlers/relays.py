"""Questions of administrators to a consumer, passed on to it with its answer passed back."""

from typing import Final

import msgspec

from cometmq.broker.client_groups import Member
from cometmq.broker.clients import Clients
from cometmq.broker.topics import TopicTable, shown
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.clients import ConsumeMessageDirectly, GetConsumerRunningInfo
from cometmq.codec.message_id import decode_offset_id
from cometmq.errors import BrokerError, ConnectionLost, RequestTimeout, TooManyRequests
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes
from cometmq.store import MessageStore

TIMEOUT_MS: Final = 10_000
"""How long a consumer may take; whoever asked waits somewhat longer."""

RELAYS_MAX: Final = 64
"""Questions under way at a time: each may hold a message, or the whole state of a consumer."""

VERSION_MIN: Final = 62
"""3.1.8, the first release that can answer."""


class RelayHandlers:
    """Requests 307 and 309."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        clients: Clients,
        *,
        broker_name: str,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._store = store
        self._topics = topics
        self._clients = clients
        self._broker_name = broker_name
        self._timeout_ms = timeout_ms
        # Questions under way.
        self._count = 0

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info)
        routes.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)

    async def running_info(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetConsumerRunningInfo)
        member = self._member(said.consumer_group, said.client_id)
        return await self._ask(member, said.consumer_group, command, said)

    async def consume_directly(self, channel: Channel, command: Command) -> Answer:
        """Let one consumer handle one message now, whether or not its group has it behind it."""
        said = core.read(command, ConsumeMessageDirectly)
        member = self._member(said.consumer_group, said.client_id or "")
        message = self._message(said.msg_id or "")
        topic = self._topics.get(said.topic or "")
        group = self._clients.groups.get(said.consumer_group)
        passed_on = msgspec.structs.replace(
            said,
            broker_name=self._broker_name,
            topic_sys_flag=None if topic is None else topic.config.topic_sys_flag,
            group_sys_flag=None if group is None else group.config.group_sys_flag or 0,
        )
        return await self._ask(member, said.consumer_group, command, passed_on, message)

    async def _ask(
        self,
        member: Member,
        group: str,
        command: Command,
        header: Header,
        body: bytes = b"",
    ) -> Answer:
        if self._count >= RELAYS_MAX:
            remark = f"[REJECTREQUEST]{RELAYS_MAX} consumers are being asked at the moment"
            raise BrokerError(ResponseCode.SYSTEM_BUSY, remark)
        self._count += 1
        try:
            answer = await member.channel.request(
                command.code, header, body, timeout_ms=self._timeout_ms
            )
        except RequestTimeout as error:
            remark = f"consumer <{group}> <{member.client_id}> Timeout: {error}"
            raise BrokerError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from error
        except (ConnectionLost, TooManyRequests) as error:
            remark = f"invoke consumer <{group}> <{member.client_id}> Exception: {error}"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark) from error
        finally:
            self._count -= 1
        return Answer(answer.code, body=answer.body, remark=answer.remark)

    def _member(self, group: str, client_id: str) -> Member:
        online = self._clients.consumer_groups.get(group)
        member = None if online is None else online.find(client_id)
        if member is None:
            remark = f"The Consumer <{shown(group)}> <{shown(client_id)}> not online"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        if member.version < VERSION_MIN:
            remark = (
                f"The Consumer <{client_id}> Version <{member.version}> too low to finish,"
                " please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        return member

    def _message(self, message_id: str) -> bytes:
        offset = decode_offset_id(message_id).physical_offset
        record = self._store.record_at(offset)
        if record is None:
            remark = f"can not find message by the offset, {offset}"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        with record:
            return bytes(record)
