"""Finding topics: what is known already, what must be asked, and keeping it up to date.

Several callers that want the same unknown topic share one question. A route that was found stays
until another one is found: a name server that does not know a topic any more, or does not answer,
changes nothing.
"""

import asyncio
from collections.abc import Callable

from cometmq import logs
from cometmq.client.core.routes import RouteTable, TopicView, default_view, view
from cometmq.client.name_servers import NameServers, RouteAnswer
from cometmq.errors import CometError, NoRoute, RequestTimeout, Unreachable

_log = logs.get_logger("cometmq.client")

QUESTIONS_MAX = 64
"""Topics that are looked at together when all of them are."""

_NO_NAME_SERVER = "are these name servers that serve this client? brokers listen at other ports"
_CREATE = "create the topic, or let brokers create it (autoCreateTopicEnable)"


class Routes:
    """The topics of one client."""

    def __init__(self, name_servers: NameServers, *, timeout_ms: int) -> None:
        self.table = RouteTable()
        self._name_servers = name_servers
        self._timeout_ms = timeout_ms
        self._questions: dict[str, asyncio.Task[RouteAnswer]] = {}  # under way, by topic
        self._listeners: list[Callable[[TopicView], None]] = []
        self._new: set[str] = set()  # topics found since all were looked at
        # Topics that do not exist yet: the default topic, and how many queues they will have.
        self._defaults: dict[str, tuple[str, int]] = {}

    def on_change(self, listener: Callable[[TopicView], None]) -> None:
        """Be told of each topic whose route is new or has changed."""
        self._listeners.append(listener)

    def known(self, topic: str) -> TopicView | None:
        """What is known of a topic without asking: for what happens per message."""
        return self.table.get(topic)

    async def find(self, topic: str, *, timeout_ms: int | None = None) -> TopicView:
        """A topic, from memory or by asking. Raises NoRoute, Unreachable, RequestTimeout."""
        found = self.table.get(topic)
        if found is not None and not found.is_default:
            return found
        answer = await self._ask(topic, timeout_ms)
        if answer.route is None:
            raise NoRoute(topic, answer.asked, _CREATE if answer.is_missing else _NO_NAME_SERVER)
        return self._take(view(topic, answer.route))

    async def find_to_send(
        self, topic: str, *, default_topic: str, queue_count: int, timeout_ms: int | None = None
    ) -> TopicView:
        """A topic to which something can be sent, or the default for one that does not exist.

        Raises NoRoute (with both answers), Unreachable, RequestTimeout.
        """
        found = self.table.get(topic)
        if found is not None and found.write_queues:
            return found
        loop = asyncio.get_running_loop()
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = loop.time() + limit_ms / 1000
        answer = await self._ask(topic, limit_ms)
        if answer.route is not None:
            found = self._take(view(topic, answer.route))
            if found.write_queues:
                return found
            raise NoRoute(topic, answer.asked, "none of its queues can be written to now")
        if not answer.is_missing:  # it may well exist
            raise NoRoute(topic, answer.asked, _NO_NAME_SERVER)
        left_ms = max(1, round((deadline - loop.time()) * 1000))
        fallback = await self._ask(default_topic, left_ms)
        if fallback.route is None:
            # What a server adds in brackets it has said already.
            asked = tuple(
                (address, f"default topic {default_topic}: {text.partition(' (')[0]}")
                for address, text in fallback.asked
            )
            raise NoRoute(topic, (*answer.asked, *asked), _CREATE)
        self._defaults[topic] = (default_topic, queue_count)
        return self._take(default_view(topic, fallback.route, queue_count))

    async def refresh(self, topic: str, *, timeout_ms: int | None = None) -> TopicView | None:
        """Ask anew; the old answer stays when there is no new one. Never raises a CometError."""
        try:
            await self._refresh(topic, timeout_ms)
        except CometError as error:
            # At each send, it may be. That name servers do not answer is told by ``refresh_all``.
            _log.debug("topic=%s route not refreshed: %s", topic, error)
        return self.table.get(topic)

    async def refresh_all(self, topics: "set[str] | frozenset[str]") -> None:
        """Refresh these topics, and forget the others. Raises what keeps all of some from it.

        One that was just found is not forgotten yet: whoever has asked for it may be about to say
        that it is in use. Some are asked for at a time: when nobody answers for any of them, the
        others need not be.
        """
        new, self._new = self._new, set()
        for topic in self.table:
            if topic not in topics and topic not in new:
                self.table.remove(topic)
                self._defaults.pop(topic, None)
        ordered = sorted(topics)
        for begin in range(0, len(ordered), QUESTIONS_MAX):
            part = ordered[begin : begin + QUESTIONS_MAX]
            work = (self._refresh(topic, None) for topic in part)
            results = await asyncio.gather(*work, return_exceptions=True)
            errors = [result for result in results if isinstance(result, BaseException)]
            if errors and (len(errors) == len(part) or not isinstance(errors[0], CometError)):
                raise errors[0]
            if errors:
                _log.warning("routes of %d topics not refreshed: %s", len(errors), errors[0])

    async def _refresh(self, topic: str, timeout_ms: int | None) -> None:
        answer = await self._ask(topic, timeout_ms)
        if answer.route is not None:
            self._defaults.pop(topic, None)
            self._take(view(topic, answer.route))
            return
        known = self.table.get(topic)
        if known is None or not known.is_default or topic not in self._defaults:
            return
        # Still not made: brokers of the default topic may have come, gone or moved meanwhile.
        default_topic, queue_count = self._defaults[topic]
        answer = await self._ask(default_topic, timeout_ms)
        if answer.route is not None:
            self._take(default_view(topic, answer.route, queue_count))

    async def stop(self) -> None:
        """Ask nothing more; whoever waits for an answer is told that there is none."""
        questions = tuple(self._questions.values())
        for question in questions:
            question.cancel()
        await asyncio.gather(*questions, return_exceptions=True)

    def _take(self, new: TopicView) -> TopicView:
        if self.table.get(new.topic) is None:
            self._new.add(new.topic)
        if self.table.put(new):
            for listener in self._listeners:
                listener(new)
        known = self.table.get(new.topic)
        return known if known is not None else new

    async def _ask(self, topic: str, timeout_ms: int | None) -> RouteAnswer:
        question = self._questions.get(topic)
        if question is None:
            # A task of its own: whoever gives up must not take the answer from the others.
            is_thorough = self.table.get(topic) is None
            work = self._name_servers.route(
                topic, is_thorough=is_thorough, timeout_ms=self._timeout_ms
            )
            question = asyncio.get_running_loop().create_task(work, name=f"route of {topic}")
            self._questions[topic] = question
            question.add_done_callback(lambda _: self._questions.pop(topic, None))
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await asyncio.shield(question)
        except TimeoutError as error:
            # Its exception, should it still come, has been told already.
            question.add_done_callback(lambda task: task.cancelled() or task.exception())
            late = RequestTimeout(";".join(self._name_servers.addresses), limit_ms)
            late.next_step = f"it was asked where topic '{topic}' is; nothing was sent"
            raise late from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if question.cancelled() and not (task is not None and task.cancelling()):
                problem = "this client is closed"
                raise Unreachable(";".join(self._name_servers.addresses), problem) from error
            raise
