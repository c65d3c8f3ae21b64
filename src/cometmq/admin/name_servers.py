"""Name servers: their settings, the key-value store, and which brokers may be written to.

Name servers do not talk to each other: a change is made on all of them.
"""

from collections.abc import Mapping

import msgspec

from cometmq.admin.servers import Servers
from cometmq.codec import bodies, core, java_properties
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.nameserver import (
    AddWritePermOfBroker,
    AddWritePermOfBrokerResponse,
    DeleteKVConfig,
    GetKVConfig,
    GetKVConfigResponse,
    GetKVListByNamespace,
    PutKVConfig,
    WipeWritePermOfBroker,
    WipeWritePermOfBrokerResponse,
)
from cometmq.errors import NotFound

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Where name servers keep how many queues ordered topics have on each broker."""

_FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


class ServerConfig(msgspec.Struct, frozen=True):
    """The settings of one server, by RocketMQ's keys."""

    address: str
    values: dict[str, str]


class WritePermission(msgspec.Struct, frozen=True):
    """On how many topics one name server changed the permission of a broker."""

    name_server: str
    broker_name: str
    topic_count: int


class NameServers:
    """``admin.name_servers``."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._servers.name_servers

    # --- settings

    async def config(self, address: str | None = None) -> tuple[ServerConfig, ...]:
        """The settings of every name server, or of one."""
        answers = await self._servers.ask_name_servers(
            "reading settings", RequestCode.GET_NAMESRV_CONFIG, only=address
        )
        return tuple(
            ServerConfig(server, dict(sorted(java_properties.loads(answer.body).items())))
            for server, answer in answers
        )

    async def set_config(self, changes: Mapping[str, str], address: str | None = None) -> None:
        """Change settings on every name server, or on one. Raises Refused for forbidden keys."""
        body = java_properties.dumps(changes)
        code = RequestCode.UPDATE_NAMESRV_CONFIG
        what = f"changing {', '.join(changes)}"
        await self._servers.ask_name_servers(what, code, body=body, only=address)

    # --- keys and values

    async def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace; none when nobody has written there."""
        answer = await self._servers.ask_name_server(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            GetKVListByNamespace(namespace),
            accept=_FOUND_OR_NOT,
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND or not answer.body:
            return {}
        return dict(sorted(bodies.decode(KVTable, answer.body).table.items()))

    async def find_value(self, namespace: str, key: str) -> str | None:
        """A value, or None when there is none."""
        header = GetKVConfig(namespace, key)
        answer = await self._servers.ask_name_server(
            RequestCode.GET_KV_CONFIG, header, accept=_FOUND_OR_NOT
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return core.read(answer, GetKVConfigResponse).value

    async def value(self, namespace: str, key: str) -> str:
        """A value. Raises NotFound."""
        value = await self.find_value(namespace, key)
        if value is None:
            raise NotFound("value", f"{namespace}/{key}")
        return value

    async def set_value(self, namespace: str, key: str, value: str) -> None:
        """Write a value on every name server."""
        header = PutKVConfig(namespace, key, value)
        await self._tell(f"writing {namespace}/{key}", RequestCode.PUT_KV_CONFIG, header)

    async def delete_value(self, namespace: str, key: str) -> None:
        """Delete a value on every name server; no error when there is none."""
        header = DeleteKVConfig(namespace, key)
        await self._tell(f"deleting {namespace}/{key}", RequestCode.DELETE_KV_CONFIG, header)

    async def order_config(self, topic: str) -> str | None:
        """How many queues an ordered topic has, such as ``broker-a:4;broker-b:4``."""
        return await self.find_value(ORDER_NAMESPACE, topic)

    # --- permission to write

    async def wipe_write_permission(self, broker_name: str) -> tuple[WritePermission, ...]:
        """Let clients stop sending to a broker, in good time before it is stopped."""
        header = WipeWritePermOfBroker(broker_name)
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        answers = await self._servers.ask_name_servers("wiping", code, header)
        return tuple(
            WritePermission(
                server,
                broker_name,
                core.read(answer, WipeWritePermOfBrokerResponse).wipe_topic_count,
            )
            for server, answer in answers
        )

    async def add_write_permission(self, broker_name: str) -> tuple[WritePermission, ...]:
        """Let clients send to a broker again. Raises Unsupported before 4.9."""
        header = AddWritePermOfBroker(broker_name)
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        answers = await self._servers.ask_name_servers("adding", code, header)
        return tuple(
            WritePermission(
                server,
                broker_name,
                core.read(answer, AddWritePermOfBrokerResponse).add_topic_count,
            )
            for server, answer in answers
        )

    async def _tell(self, what: str, code: RequestCode, header: Header) -> None:
        await self._servers.ask_name_servers(what, code, header)
