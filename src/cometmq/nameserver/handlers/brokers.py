"""Brokers coming, going and saying that they are alive."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from cometmq import logs
from cometmq.clock import Clock
from cometmq.codec import bodies, core, registration
from cometmq.codec.bodies.nameserver import (
    BrokerMemberGroupAnswer,
    KVTable,
    RegisterBrokerBody,
)
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import GetBrokerMemberGroup
from cometmq.codec.headers.registration import (
    BrokerHeartbeat,
    NotifyMinBrokerIdChange,
    QueryDataVersion,
    QueryDataVersionResponse,
    RegisterBroker,
    RegisterBrokerResponse,
    UnregisterBroker,
)
from cometmq.errors import BrokerError
from cometmq.model.topic import DataVersion
from cometmq.nameserver.config import NameServerSettings
from cometmq.nameserver.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from cometmq.nameserver.registration import (
    DroppedBroker,
    MinBrokerIdChange,
    Registration,
    RegistrationResult,
    Verdict,
)
from cometmq.nameserver.route_table import RouteTable
from cometmq.remoting.channel import Channel
from cometmq.remoting.metrics import Registry
from cometmq.remoting.routes import Answer, Routes

_log = logs.get_logger("cometmq.nameserver")

_QUICK_BODY_BYTES = 32 * 1024
"""What is read at once, even when it is not standard JSON: some 50 ms at the very worst.

Larger registrations are read on a thread, where the interpreter shares its time with the loop.
"""


class BrokerHandlers:
    """Registration and liveness; also the one who tells what happened to brokers."""

    def __init__(
        self,
        table: RouteTable,
        kv: KvConfig,
        settings: Callable[[], NameServerSettings],
        clock: Clock,
        numbers: Registry,
    ) -> None:
        self._table = table
        self._kv = kv
        self._settings = settings
        self._clock = clock
        self._channels: dict[str, Channel] = {}  # of live brokers, by address
        self._registrations = numbers.counter(
            "cometmq_nameserver_registrations_total", "Registrations of brokers."
        ).child()

    def add_to(self, routes: Routes) -> None:
        routes.add(RequestCode.REGISTER_BROKER, self.register)
        routes.add(RequestCode.UNREGISTER_BROKER, self.unregister)
        routes.add(RequestCode.QUERY_DATA_VERSION, self.query_data_version)
        routes.add(RequestCode.BROKER_HEARTBEAT, self.heartbeat)
        routes.add(RequestCode.GET_BROKER_CLUSTER_INFO, self.cluster_info)
        routes.add(RequestCode.GET_BROKER_MEMBER_GROUP, self.member_group)

    async def register(self, channel: Channel, command: Command) -> Answer:
        """Take a broker in; its topics in slices, so that route queries are served meanwhile.

        Registrations of one connection are taken in one after the other, in the order they came.
        """
        said = core.read(command, RegisterBroker)
        if said.body_crc32 and said.body_crc32 != registration.body_crc32(command.body):
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        async with channel.attributes.setdefault("registering", asyncio.Lock()):
            if len(command.body) <= _QUICK_BODY_BYTES:
                body = registration.decode(command.body, command.version)
            else:
                body = await asyncio.to_thread(registration.decode, command.body, command.version)
            if not channel.is_open:
                raise BrokerError(ResponseCode.SYSTEM_ERROR, "the connection ended")
            return await self._register(channel, _registration(said, body, channel))

    async def _register(self, channel: Channel, wanted: Registration) -> Answer:
        progress = self._table.begin_registration(wanted, self._clock.monotonic())
        self._registrations.add()
        self._note(progress.result, wanted, channel)
        while progress.step():  # noqa: ASYNC110 - not waiting: giving way between two slices
            await asyncio.sleep(0)
        if progress.result.verdict is Verdict.REFUSED:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        header = RegisterBrokerResponse(
            progress.result.ha_server_address, progress.result.master_address
        )
        return Answer(header=header, body=self._order_configuration())

    def unregister(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, UnregisterBroker)
        gone = self._table.unregister(said.cluster_name, said.broker_addr, said.broker_name)
        if gone is not None:
            self.tell_dropped([gone], "it unregistered", level=logging.INFO)
        return Answer()

    def query_data_version(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, QueryDataVersion)
        version = bodies.decode(DataVersion, small_body(command)) if command.body else None
        answer = self._table.query_data_version(
            said.cluster_name, said.broker_addr, version, self._clock.monotonic()
        )
        body = b"" if answer.known is None else bodies.encode(answer.known)
        return Answer(header=QueryDataVersionResponse(answer.is_changed), body=body)

    def heartbeat(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, BrokerHeartbeat)
        self._table.touch(said.cluster_name, said.broker_addr, self._clock.monotonic())
        return Answer()

    def cluster_info(self, channel: Channel, command: Command) -> Answer:
        return Answer(body=bodies.encode(self._table.cluster_info()))

    def member_group(self, channel: Channel, command: Command) -> Answer:
        said = core.read(command, GetBrokerMemberGroup)
        group = self._table.member_group(said.cluster_name, said.broker_name)
        return Answer(body=bodies.encode(BrokerMemberGroupAnswer(group)))

    def scan(self) -> None:
        """Drop the brokers that were silent too long and close their connections."""
        for gone in self._table.scan(self._clock.monotonic()):
            self.tell_dropped([gone], f"silent for more than {gone.timeout_ms} ms")
            if isinstance(gone.connection, Channel):
                gone.connection.close("the broker was silent too long")

    def on_closed(self, channel: Channel) -> None:
        """A connection ended; if brokers were registered over it, their routes go."""
        self.tell_dropped(self._table.on_connection_closed(channel), "its connection ended")

    def tell_dropped(
        self, gone: Iterable[DroppedBroker], reason: str, *, level: int = logging.WARNING
    ) -> None:
        for broker in gone:
            _log.log(
                level,
                "broker=%s address=%s id=%d cluster=%s is gone: %s",
                broker.broker_name, broker.address, broker.broker_id, broker.cluster, reason,
            )  # fmt: skip
            self._channels.pop(broker.address, None)
            self._notify(broker.min_broker_id_change)

    def _note(self, result: RegistrationResult, said: Registration, channel: Channel) -> None:
        self.tell_dropped(result.displaced, f"{said.address} took its place")
        if result.is_accepted:
            self._channels[said.address] = channel
        else:
            _log.warning(
                "broker=%s address=%s id=%d registration %s: %s",
                said.broker_name, said.address, said.broker_id, result.verdict.value, result.reason,
            )  # fmt: skip
        if result.is_new_broker:
            _log.info(
                "broker=%s address=%s id=%d cluster=%s registered with %d topics",
                said.broker_name, said.address, said.broker_id, said.cluster, len(said.topics),
            )  # fmt: skip
        self._notify(result.min_broker_id_change)

    def _notify(self, change: MinBrokerIdChange | None) -> None:
        if change is None or not self._settings().notify_min_broker_id_changed:
            return
        header = NotifyMinBrokerIdChange(
            change.min_broker_id,
            change.broker_name,
            change.min_broker_address,
            change.offline_address,
            change.ha_address,
        )
        for address in change.notify:
            if (channel := self._channels.get(address)) is not None:
                channel.oneway(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header)

    def _order_configuration(self) -> bytes:
        if not self._settings().return_order_topic_config_to_broker:
            return b""
        table = self._kv.namespace(ORDER_TOPIC_NAMESPACE)
        return b"" if table is None else bodies.encode(KVTable(dict(table)))


def small_body(command: Command) -> bytes:
    """The body of a request that has no reason to be large; reading one would take too long."""
    if len(command.body) > _QUICK_BODY_BYTES:
        remark = f"body of {len(command.body)} bytes: more than {_QUICK_BODY_BYTES} make no sense"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
    return command.body


def _registration(said: RegisterBroker, body: RegisterBrokerBody, channel: Channel) -> Registration:
    table = body.topic_config_serialize_wrapper
    return Registration(
        cluster=said.cluster_name,
        broker_name=said.broker_name,
        broker_id=said.broker_id,
        address=said.broker_addr,
        ha_server_address=said.ha_server_addr,
        connection=channel,
        zone_name=said.zone_name,
        timeout_ms=said.heartbeat_timeout_millis,
        enable_acting_master=said.enable_acting_master,
        topics=table.topic_config_table,
        data_version=table.data_version or DataVersion(),
        filter_servers=body.filter_server_list,
        has_static_topics=bool(table.topic_queue_mapping_info_map),
    )
