"""Key-value configuration by namespace: kept for whoever wants a small shared table."""

import asyncio

from cometmq import logs
from cometmq.codec import bodies, core
from cometmq.codec.bodies.nameserver import KVTable
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import (
    DeleteKVConfig,
    GetKVConfig,
    GetKVConfigResponse,
    GetKVListByNamespace,
    PutKVConfig,
)
from cometmq.errors import BrokerError
from cometmq.nameserver.kv_config import KvConfig, KvConfigFile
from cometmq.remoting.channel import Channel
from cometmq.remoting.routes import Answer, Routes

_log = logs.get_logger("cometmq.nameserver")


class KvHandlers:
    """Every change is on disk before it is answered."""

    def __init__(self, kv: KvConfig, file: KvConfigFile) -> None:
        self._kv = kv
        self._file = file
        self._saving = asyncio.Lock()  # two changes at once must not overtake each other on disk

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.PUT_KV_CONFIG, self.put)
        routes.add(RequestCode.GET_KV_CONFIG, self.get)
        routes.add(RequestCode.DELETE_KV_CONFIG, self.delete)
        routes.add(RequestCode.GET_KVLIST_BY_NAMESPACE, self.list_namespace)

    async def put(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, PutKVConfig)
        if not said.namespace or not said.key:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv.put(said.namespace, said.key, said.value)
        _log.info("kv=%s/%s set by %s", said.namespace, said.key, channel.peer)
        await self._save()
        return Answer()

    def get(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetKVConfig)
        value = self._kv.get(said.namespace, said.key)
        if value is None:
            remark = f"No config item, Namespace: {said.namespace} Key: {said.key}"
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, remark)
        return Answer(header=GetKVConfigResponse(value))

    async def delete(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, DeleteKVConfig)
        if self._kv.delete(said.namespace, said.key) is not None:
            _log.info("kv=%s/%s deleted by %s", said.namespace, said.key, channel.peer)
            await self._save()
        return Answer()

    def list_namespace(self, channel: Channel, command: Command) -> Answer:
        name = core.read(command, GetKVListByNamespace).namespace
        table = self._kv.namespace(name)
        if table is None:
            raise BrokerError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {name}")
        return Answer(body=bodies.encode(KVTable(dict(table))))

    async def _save(self) -> None:
        async with self._saving:
            await asyncio.to_thread(self._file.save, self._kv.encoded())
