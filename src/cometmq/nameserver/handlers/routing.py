"""The question every client asks every thirty seconds: where are the queues of a topic?"""

from collections.abc import Callable, Sequence

from cometmq.clock import Clock
from cometmq.codec import core
from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.command import Command
from cometmq.codec.headers.nameserver import GetRouteInfoByTopic
from cometmq.errors import RemoteProtocolError
from cometmq.nameserver.config import NameServerSettings
from cometmq.nameserver.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from cometmq.nameserver.route_cache import dialect_of
from cometmq.nameserver.route_table import RouteTable
from cometmq.remoting.channel import Channel
from cometmq.remoting.metrics import Registry
from cometmq.remoting.routes import Answer, Routes, failure


class RouteHandlers:
    """Route queries, all those of one read at once."""

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
        self._started_at = clock.monotonic()
        self._asked = numbers.counter(
            "cometmq_nameserver_route_queries_total", "Route queries answered."
        ).child()
        self._missed = numbers.counter(
            "cometmq_nameserver_route_misses_total", "Route queries without a route."
        ).child()

    def add_to(self, routes: Routes) -> None:
        routes.add_batch(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.get_routes)

    def get_routes(self, channel: Channel, commands: Sequence[Command]) -> None:
        settings = self._settings()
        self._asked.add(len(commands))
        if settings.need_wait_for_service and not self._is_settled(settings):
            for command in commands:
                refusal = Answer(ResponseCode.SYSTEM_ERROR, remark="name server not ready")
                channel.reply(command, refusal)
            return
        for command in commands:
            try:
                asked = core.read(command, GetRouteInfoByTopic)
            except RemoteProtocolError as error:
                channel.reply(command, failure(command, error))
                continue
            self._answer(channel, command, asked, settings)

    def _answer(
        self,
        channel: Channel,
        command: Command,
        asked: GetRouteInfoByTopic,
        settings: NameServerSettings,
    ) -> None:
        topic = asked.topic
        order = None
        if settings.order_message_enable:
            order = self._kv.get(ORDER_TOPIC_NAMESPACE, topic)
        dialect = dialect_of(command.version, standard_only=asked.accept_standard_json_only)
        body = self._table.encoded_route(topic, dialect, order)
        if body is None:
            self._missed.add()
            channel.reply(command, Answer(ResponseCode.TOPIC_NOT_EXIST, remark=self._miss(topic)))
        else:
            channel.reply_parts(command, ResponseCode.SUCCESS, None, None, (body,))

    def _miss(self, topic: str) -> str:
        """The words clients look for, then what may help whoever reads them."""
        brokers = self._table.broker_count
        known = f"{brokers} broker{'' if brokers == 1 else 's'} registered here"
        advice = (
            "create the topic, or let a broker with autoCreateTopicEnable do it on the first send"
            if brokers
            else "start a broker and check its namesrvAddr"
        )
        return f"No topic route info in name server for the topic: {topic} ({known}; {advice})"

    def _is_settled(self, settings: NameServerSettings) -> bool:
        waited = self._clock.monotonic() - self._started_at
        return waited >= settings.wait_seconds_for_service
