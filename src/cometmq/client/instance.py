"""One client id: its connections to brokers, its heartbeats, and what brokers ask of it.

A broker knows a member of a group by its client id and its connection. So two consumers of one
group need two instances, while everything else of a client shares one.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence

from cometmq import logs
from cometmq.client import answering
from cometmq.client.background import Repeater
from cometmq.client.core.advice import advice
from cometmq.client.core.settings import ClientSettings
from cometmq.client.members import ConsumerMember, ProducerMember
from cometmq.client.replies import Replies
from cometmq.client.routes import Routes
from cometmq.clock import Clock
from cometmq.codec import bodies
from cometmq.codec.bodies.clients import HeartbeatData, ProducerData
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.base import Header
from cometmq.codec.headers.clients import UnregisterClient
from cometmq.errors import AlreadyExists, CometError, ConnectionLost, Refused, Unreachable
from cometmq.model.route import MASTER_ID
from cometmq.remoting.client import split_address
from cometmq.remoting.config import ChannelSettings, TlsClientSettings
from cometmq.remoting.connections import Connections, Pauses
from cometmq.remoting.running import Background
from cometmq.remoting.signing import Credentials

_log = logs.get_logger("cometmq.client")

SUCCESS = (ResponseCode.SUCCESS,)
BROKERS_MAX = 4_096
"""Connections of one instance."""
REQUESTS_MAX = 65_535
"""Requests of one instance under way, pulls that are held by their brokers included."""
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""The group in whose name messages are sent back; Apache's clients say it in each heartbeat."""
_VIP_PORT_DISTANCE = 2


class Instance:
    """Speaks with brokers in the name of one client id."""

    def __init__(
        self,
        client_id: str,
        *,
        settings: ClientSettings,
        routes: Routes,
        clock: Clock,
        tls: TlsClientSettings | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.client_id = client_id
        self.settings = settings
        self.routes = routes
        self.clock = clock
        self.replies = Replies()
        self.producers: dict[str, ProducerMember] = {}  # by group
        self.consumers: dict[str, ConsumerMember] = {}  # by group
        self.claimed_groups: set[str] = set()  # of consumers that will be or are here
        self.browsed: Counter[str] = Counter()  # topics that are read without a group
        self.background = Background()
        self.connections = Connections(
            owner="client",
            tls=tls,
            credentials=credentials,
            connect_timeout_ms=settings.connect_timeout_ms,
            connections_max=BROKERS_MAX,
            requests_max=REQUESTS_MAX,
            routes=answering.routes_for(self),
            settings=ChannelSettings(idle_seconds_max=settings.idle_seconds_max),
            on_opened=self._opened,
            pauses=Pauses(),
        )
        self._versions: dict[str, int] = {}  # release of brokers, by address
        # Addresses to which a heartbeat is under way; True if they were connected to meanwhile.
        self._greeting: dict[str, bool] = {}
        self._complaints: dict[str, str] = {}  # by address: why heartbeats fail, said once
        self._beating = asyncio.Lock()
        self._heartbeat = Repeater(
            f"heartbeats of {client_id}",
            self.heartbeat,
            interval_ms=settings.heartbeat_interval_ms,
            first_ms=min(1_000, settings.heartbeat_interval_ms),
        )
        self._persisting = Repeater(
            f"saving offsets of {client_id}",
            self._persist,
            interval_ms=settings.persist_interval_ms,
        )

    def start(self) -> None:
        self._heartbeat.start(self.background)
        self._persisting.start(self.background)

    async def stop(self) -> None:
        """End connections and tasks; members have left before."""
        await self.background.stop()
        self.replies.close()
        self.connections.close()
        await asyncio.sleep(0)

    # --- asking brokers

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
        accept: Sequence[int] = SUCCESS,
        is_repeatable: bool = True,
    ) -> Command:
        """The answer of a broker, with a code in ``accept``.

        Raises Refused for any other, and Unreachable, RequestTimeout, ConnectionLost.
        """
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        answer = await self.connections.ask(
            address, code, header, body, timeout_ms=limit_ms, is_repeatable=is_repeatable
        )
        if answer.code not in accept:
            raise refusal(address, code, answer)
        return answer

    async def tell(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
    ) -> None:
        """Tell a broker something that needs no answer. Raises Unreachable."""
        channel = self.connections.find(address) or await self.connections.channel(address)
        credentials = self.connections.credentials
        if credentials is not None:
            header = credentials.signed(header, body)
        channel.oneway(code, header, body, remark=remark)

    def vip(self, address: str) -> str:
        """Where to send: the port two below, if the client was told to use it."""
        if not self.settings.is_vip_channel:
            return address
        host, port = split_address(address)
        return f"{address.rpartition(':')[0]}:{port - _VIP_PORT_DISTANCE}" if host else address

    def forget(self, address: str, reason: str) -> None:
        """Let go of a broker that has gone."""
        self._versions.pop(address, None)
        self._complaints.pop(address, None)
        for used in {address, self.vip(address)}:
            self.connections.forget(used, reason)

    def version_of(self, address: str) -> int | None:
        """The release ordinal of a broker, as its last heartbeat answer said."""
        return self._versions.get(address)

    async def version(self, address: str, *, timeout_ms: int) -> int:
        """The release ordinal of a broker, which is greeted if it never was. Raises as ``ask``."""
        known = self._versions.get(address)
        if known is not None:
            return known
        return await self._say_hello(address, timeout_ms=timeout_ms)

    # --- members

    def add_producer(self, member: ProducerMember) -> None:
        """Speak for a producer from now on. Raises AlreadyExists for its group.

        Brokers that are known already are told soon; nobody waits for them, because one that is
        down must not hold up a send to another.
        """
        if member.group in self.producers:
            raise AlreadyExists("producer of group", member.group, "use that one")
        self.producers[member.group] = member
        self.heartbeat_soon()

    async def add_consumer(self, member: ConsumerMember) -> None:
        """Speak for a consumer from now on; its topics' routes are known already."""
        if member.group in self.consumers:
            raise AlreadyExists("consumer of group", member.group)
        self.consumers[member.group] = member
        await self.heartbeat()

    async def remove_producer(self, member: ProducerMember, seconds: float) -> None:
        """Speak for it no more, and say so; nobody waits longer than ``seconds`` for that."""
        if self.producers.get(member.group) is member:
            del self.producers[member.group]
            header = UnregisterClient(self.client_id, producer_group=member.group)
            await self._say_within(seconds, f"producer {member.group} leaves", header)

    async def remove_consumer(self, member: ConsumerMember, seconds: float) -> None:
        """Speak for it no more, and say so; nobody waits longer than ``seconds`` for that."""
        if self.consumers.get(member.group) is member:
            del self.consumers[member.group]
            header = UnregisterClient(self.client_id, consumer_group=member.group)
            await self._say_within(seconds, f"consumer {member.group} leaves", header)

    def topics(self) -> set[str]:
        """Whose routes are kept up to date."""
        members: list[ProducerMember | ConsumerMember] = [
            *self.producers.values(),
            *self.consumers.values(),
        ]
        return {topic for member in members for topic in member.topics()} | set(self.browsed)

    def wake_rebalance(self) -> None:
        """Members or queues may have changed: every consumer looks soon."""
        for consumer in self.consumers.values():
            consumer.wake_rebalance()

    # --- heartbeats

    def heartbeat_soon(self) -> None:
        self._heartbeat.wake()

    async def heartbeat(self) -> bool:
        """Tell the brokers who we are; says whether at least one has heard it.

        Several who call at a time wait for each other, so that each has said what it wanted.
        """
        async with self._beating:
            return await self._beat()

    async def _beat(self) -> bool:
        if not self.producers and not self.consumers:
            return False
        addresses = [
            address
            for address, number in self.routes.table.addresses().items()
            if self.consumers or number == MASTER_ID
        ]
        body = bodies.encode(self._heartbeat_data())
        heard = await asyncio.gather(*(self._greet(address, body) for address in addresses))
        return any(heard)

    async def _greet(self, address: str, body: bytes | None = None) -> bool:
        """One heartbeat; a broker that does not hear it is told of once, not each time."""
        try:
            await self._say_hello(address, body)
        except CometError as error:
            if self._complaints.get(address) != error.fact:
                self._complaints[address] = error.fact
                _log.warning(
                    "client=%s broker=%s heartbeat failed: %s", self.client_id, address, error
                )
            return False
        if self._complaints.pop(address, None) is not None:
            _log.info("client=%s broker=%s hears heartbeats again", self.client_id, address)
        return True

    async def _say_hello(
        self, address: str, body: bytes | None = None, *, timeout_ms: int | None = None
    ) -> int:
        body = bodies.encode(self._heartbeat_data()) if body is None else body
        self._greeting.setdefault(address, False)
        try:
            code = RequestCode.HEART_BEAT
            answer = await self.ask(address, code, None, body, timeout_ms=timeout_ms)
        except (ConnectionLost, Unreachable):
            if self._greeting.pop(address, False) and self.connections.find(address):
                self._opened(address)  # there is a connection, on which it was not said
            raise
        finally:
            self._greeting.pop(address, None)
        self._versions[address] = answer.version
        return answer.version

    def _heartbeat_data(self) -> HeartbeatData:
        groups = (INNER_PRODUCER, *sorted(self.producers))
        consumers = (self.consumers[group] for group in sorted(self.consumers))
        return HeartbeatData(
            self.client_id,
            tuple(ProducerData(group) for group in groups),
            tuple(consumer.consumer_data() for consumer in consumers),
        )

    async def _say_within(self, seconds: float, name: str, header: UnregisterClient) -> None:
        """Brokers that take longer are told as long as this instance lives."""
        task = self.background.spawn(name, self._unregister(header))
        await asyncio.wait((task,), timeout=seconds)

    async def _unregister(self, header: UnregisterClient) -> None:
        code = RequestCode.UNREGISTER_CLIENT
        async with self._beating:
            pass  # a heartbeat that still names it must not come after its leave

        async def leave(address: str) -> None:
            try:
                await self.ask(address, code, header)
            except CometError as error:
                _log.warning(
                    "client=%s broker=%s not told of leaving: %s", self.client_id, address, error
                )

        # Only who has heard of us: a broker that cannot be reached forgets us by itself.
        connected = [a for a in self.connections.addresses if self.connections.find(a)]
        await asyncio.gather(*(leave(address) for address in connected))

    # --- the inside

    def _opened(self, used: str) -> None:
        """A broker that was restarted has forgotten us: greet it, then look at the queues.

        Only this one, however many others there are: one whose connections break all the time is
        not their business.
        """
        if not self.producers and not self.consumers:
            return
        for address, number in self.routes.table.addresses().items():
            if used not in (address, self.vip(address)):
                continue
            if address in self._greeting:
                self._greeting[address] = True
            elif self.consumers or number == MASTER_ID:
                self.background.spawn(f"greeting {address}", self._welcome(address))

    async def _welcome(self, address: str) -> None:
        if await self._greet(address):
            self.wake_rebalance()

    async def _persist(self) -> None:
        for consumer in tuple(self.consumers.values()):
            await consumer.persist()


def refusal(address: str, code: RequestCode, answer: Command) -> Refused:
    """The error that an answer stands for."""
    remark = (answer.remark or "").strip() or "no remark"
    return Refused(address, code.name, answer.code, remark, advice(answer.code))
