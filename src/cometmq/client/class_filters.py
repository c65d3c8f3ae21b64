"""Subscriptions by a Java class, which filter servers beside brokers run (RocketMQ 4.2 and older).

The consumer brings the source of its class to every filter server, again and again, because those
may be new; then it pulls from one of them instead of from the broker.
"""

import asyncio
import random
from collections.abc import Iterator

import msgspec

from cometmq import logs
from cometmq.client.instance import Instance
from cometmq.codec.codes import RequestCode
from cometmq.codec.headers.registration import RegisterMessageFilterClass
from cometmq.codec.java import masked_crc32
from cometmq.errors import CometError, InvalidArgument, Unreachable

_log = logs.get_logger("cometmq.client")


class FilterClass(msgspec.Struct, frozen=True):
    """A class and its source."""

    name: str
    source: bytes


def filter_class(name: str | None, source: str | None) -> FilterClass | None:
    """What was given of a class, if anything. Raises InvalidArgument for half of it."""
    if name is None and source is None:
        return None
    if name is None:
        fact = "the name of the class is not given"
        raise InvalidArgument("filter_class", fact, "pass its full name, with its package")
    if not source or not source.strip():
        fact = f"the source of filter class {name!r} is not given"
        raise InvalidArgument("filter_source", fact, "pass the text of its Java file")
    return FilterClass(name, source.encode())


class ClassFilters:
    """The classes of one consumer, by topic; topics and group are as on the wire."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._classes: dict[str, FilterClass] = {}

    def set(self, topic: str, wanted: FilterClass | None) -> None:
        """Filter a topic by a class from now on, or no longer."""
        if wanted is None:
            self._classes.pop(topic, None)
        else:
            self._classes[topic] = wanted

    def server(self, topic: str, broker: str) -> str:
        """A filter server of the broker at this address. Raises Unreachable when it has none."""
        found = self._instance.routes.known(topic)
        servers = [] if found is None else found.route.filter_server_table.get(broker, [])
        if not servers:
            problem = f"it has no filter server, which a class filter of topic '{topic}' needs"
            raise Unreachable(broker, problem, "subscribe by tags or with sql=")
        return random.choice(servers)

    async def upload(self) -> None:
        """Bring all classes to all filter servers of their topics; what goes wrong is logged."""
        await asyncio.gather(
            *(
                self._bring(address, topic, wanted)
                for topic, wanted in tuple(self._classes.items())
                for address in self._servers(topic)
            )
        )

    def _servers(self, topic: str) -> Iterator[str]:
        found = self._instance.routes.known(topic)
        if found is not None:
            for servers in found.route.filter_server_table.values():
                yield from servers

    async def _bring(self, address: str, topic: str, wanted: FilterClass) -> None:
        crc = masked_crc32(wanted.source)
        header = RegisterMessageFilterClass(self._group, topic, wanted.name, crc)
        code = RequestCode.REGISTER_MESSAGE_FILTER_CLASS
        try:
            await self._instance.ask(address, code, header, wanted.source)
        except CometError as error:
            _log.warning("class=%s topic=%s not brought: %s", wanted.name, topic, error)
