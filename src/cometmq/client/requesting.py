"""Requests that other clients reply to: the asker's side, and the words of a reply.

A reply reaches the asker through a broker, on the asker's own connection: it must have said who it
is to every broker through which one may come. So the brokers of the clusters' reply topics are
looked up and greeted before the first request to a topic.
"""

import asyncio
from typing import Any

from cometmq import logs
from cometmq.client.core import names
from cometmq.client.core.message import Message
from cometmq.client.core.outgoing import Outgoing, reply
from cometmq.client.core.results import SendResult
from cometmq.client.core.routes import TopicView
from cometmq.client.instance import Instance
from cometmq.client.sending import Place, Sending
from cometmq.client.watched import Watched
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.errors import CometError, InvalidArgument, NoReply
from cometmq.model.system_names import REPLY_SUFFIX

_log = logs.get_logger("cometmq.client")

TOPICS_MAX = 16_384
"""Topics whose brokers are remembered to know us; when there are more it begins anew."""


class Requesting:
    """Asks for one producer."""

    def __init__(
        self, instance: Instance, sending: Sending, watched: Watched, namespace: str = ""
    ) -> None:
        self._namespace = namespace
        self._instance = instance
        self._sending = sending
        self._watched = watched
        self._ready: set[str] = set()  # topics whose brokers know us
        self._preparing = asyncio.Lock()  # one greeting is enough for all who wait for it
        self.reply_topics: set[str] = set()  # of their clusters

    async def ask(
        self, message: Outgoing, correlation_id: str, timeout_ms: int, place: Place | None
    ) -> Record:
        """Send a request and wait for its reply.

        Raises NoReply when it was sent and nobody replied, and as a send does when it was not.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        replied = self._instance.replies.expect(correlation_id)
        try:
            if message.topic not in self._ready:
                await self._prepare(message.topic, timeout_ms, deadline)
            left_ms = max(1, round((deadline - loop.time()) * 1000))
            # A task, because a reply may come before the broker has said that it has the request.
            sending = loop.create_task(self._watched.send(message, left_ms, place))
            return await self._reply(sending, replied, deadline)
        except TimeoutError as error:
            topic = names.unwrap_topic(self._namespace, message.topic)
            raise NoReply(topic, message.unique_id, timeout_ms) from error
        finally:
            self._instance.replies.forget(correlation_id)

    async def _reply(
        self,
        sending: "asyncio.Task[SendResult]",
        replied: "asyncio.Future[Record]",
        deadline: float,
    ) -> Record:
        try:
            # Not longer than ``deadline``, but in its own words: only it knows what went wrong.
            await asyncio.wait((sending, replied), return_when=asyncio.FIRST_COMPLETED)
            if not replied.done():
                await sending
            async with asyncio.timeout_at(deadline):
                return await replied
        finally:
            if not sending.done():
                sending.cancel()
            elif not sending.cancelled():
                sending.exception()  # told already, or of no more interest

    async def _prepare(self, topic: str, timeout_ms: int, deadline: float) -> None:
        """Let every broker know us through which a reply may come, in half of the time left."""
        view = await self._sending.find(topic, timeout_ms)
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(now + (deadline - now) / 2), self._preparing:
                if topic not in self._ready:
                    await self._greet(view)
        except TimeoutError:
            _log.warning("topic=%s not all brokers know yet that we wait for replies", topic)
        if len(self._ready) >= TOPICS_MAX:
            self._ready.clear()
        self._ready.add(topic)

    async def _greet(self, view: TopicView) -> None:
        clusters = {broker.cluster for broker in view.route.broker_datas}
        topics = {f"{cluster}{REPLY_SUFFIX}" for cluster in clusters}
        self.reply_topics |= topics
        await asyncio.gather(*(self._look_up(name) for name in topics))
        await self._instance.heartbeat()
        self._ready.add(view.topic)

    async def _look_up(self, topic: str) -> None:
        try:
            await self._instance.routes.find(topic)
        except CometError as error:
            _log.info(
                "topic=%s replies may come from brokers that do not know us: %s", topic, error
            )


def reply_topic(request: Message[Any]) -> str:
    """Where the reply to a request goes. Raises InvalidArgument when it is none."""
    return f"{_required(request, Property.CLUSTER)}{REPLY_SUFFIX}"


def reply_properties(request: Message[Any]) -> dict[str, str]:
    """What makes a message the reply to a request. Raises InvalidArgument when it is none."""
    return reply(
        _required(request, Property.CORRELATION_ID),
        _required(request, Property.REPLY_TO_CLIENT),
        request.properties.get(Property.TTL, ""),
    )


def _required(request: Message[Any], name: str) -> str:
    value = request.properties.get(name)
    if not value:
        raise InvalidArgument(
            "message",
            f"message {request.message_id} has no property {name}: nobody waits for a reply to it",
            "reply to messages that were sent with request()",
        )
    return value
