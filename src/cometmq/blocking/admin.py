"""``Admin``: questions and commands to a cluster, by subject, each of which waits for its answer.

Methods are those of ``cometmq.admin``, one by one; what they take and return is said there.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from cometmq import admin
from cometmq.admin import brokers, clients, groups, messages, name_servers, offsets, topics
from cometmq.blocking.member import Member, Threads
from cometmq.blocking.streams import Stream

P = ParamSpec("P")
R = TypeVar("R")

CALL_MS_MAX = 300_000
"""For a command to all brokers, each of which has a limit of its own."""


class Subject(Member):
    """What can be asked about one thing; ``inner`` asks."""

    def __init__(self, owner: object, threads: Threads, inner: Any) -> None:
        super().__init__(owner, threads)
        self._inner = inner


class _Method(Generic[P, R]):
    """A method that waits for what a coroutine of the inner object returns."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, R]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, subject: None, kind: type) -> "_Method[P, R]": ...
    @overload
    def __get__(self, subject: Subject, kind: type) -> Callable[P, R]: ...
    def __get__(self, subject: Subject | None, kind: type) -> "_Method[P, R] | Callable[P, R]":
        if subject is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> R:
            return subject._call(self._function(subject._inner, *args, **kwargs), CALL_MS_MAX)

        return method


class _Browsing(Generic[P, R]):
    """A method that returns what an async generator of the inner object yields."""

    def __init__(self, function: Callable[..., AsyncIterator[R]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, subject: None, kind: type) -> "_Browsing[P, R]": ...
    @overload
    def __get__(self, subject: Subject, kind: type) -> Callable[P, Stream[R]]: ...
    def __get__(
        self, subject: Subject | None, kind: type
    ) -> "_Browsing[P, R] | Callable[P, Stream[R]]":
        if subject is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> Stream[R]:
            return Stream(
                subject, subject._threads, self._function(subject._inner, *args, **kwargs)
            )

        return method


def _waits(function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> _Method[P, R]:
    return _Method(function)


def _yields(function: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> _Browsing[P, R]:
    return _Browsing(function)


class NameServers(Subject):
    """``admin.name_servers``."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._inner.addresses)

    config = _waits(name_servers.NameServers.config)
    set_config = _waits(name_servers.NameServers.set_config)
    values = _waits(name_servers.NameServers.values)
    find_value = _waits(name_servers.NameServers.find_value)
    value = _waits(name_servers.NameServers.value)
    set_value = _waits(name_servers.NameServers.set_value)
    delete_value = _waits(name_servers.NameServers.delete_value)
    order_config = _waits(name_servers.NameServers.order_config)
    wipe_write_permission = _waits(name_servers.NameServers.wipe_write_permission)
    add_write_permission = _waits(name_servers.NameServers.add_write_permission)


class Brokers(Subject):
    """``admin.brokers``; a broker is given by its name (meaning its master) or its address."""

    list = _waits(brokers.Brokers.list)
    states = _waits(brokers.Brokers.states)
    state = _waits(brokers.Brokers.state)
    cluster = _waits(brokers.Brokers.cluster)
    statistic = _waits(brokers.Brokers.statistic)
    statistics = _waits(brokers.Brokers.statistics)
    backlog = _waits(brokers.Brokers.backlog)
    replication = _waits(brokers.Brokers.replication)
    pending_timers = _waits(brokers.Brokers.pending_timers)
    config = _waits(brokers.Brokers.config)
    set_config = _waits(brokers.Brokers.set_config)
    clean_expired_queues = _waits(brokers.Brokers.clean_expired_queues)
    clean_unused_topics = _waits(brokers.Brokers.clean_unused_topics)
    delete_expired_log = _waits(brokers.Brokers.delete_expired_log)


class Topics(Subject):
    """``admin.topics``."""

    list = _waits(topics.Topics.list)
    describe = _waits(topics.Topics.describe)
    route = _waits(topics.Topics.route)
    stats = _waits(topics.Topics.stats)
    groups = _waits(topics.Topics.groups)
    groups_on = _waits(topics.Topics.groups_on)
    configs = _waits(topics.Topics.configs)
    create = _waits(topics.Topics.create)
    update = _waits(topics.Topics.update)
    delete = _waits(topics.Topics.delete)
    remove = _waits(topics.Topics.remove)


class Clients(Subject):
    """``admin.clients``."""

    consumers = _waits(clients.Clients.consumers)
    consumers_on = _waits(clients.Clients.consumers_on)
    producers = _waits(clients.Clients.producers)
    all_producers = _waits(clients.Clients.all_producers)
    running_info = _waits(clients.Clients.running_info)
    offsets = _waits(clients.Clients.offsets)
    consume_directly = _waits(clients.Clients.consume_directly)
    inconsistencies = _waits(clients.Clients.inconsistencies)


class Groups(Subject):
    """``admin.groups``."""

    list = _waits(groups.Groups.list)
    describe = _waits(groups.Groups.describe)
    lag = _waits(groups.Groups.lag)
    lag_on = _waits(groups.Groups.lag_on)
    members = _waits(groups.Groups.members)
    inconsistencies = _waits(groups.Groups.inconsistencies)
    delay = _waits(groups.Groups.delay)
    configs = _waits(groups.Groups.configs)
    create = _waits(groups.Groups.create)
    update = _waits(groups.Groups.update)
    delete = _waits(groups.Groups.delete)


class Offsets(Subject):
    """``admin.offsets``."""

    get = _waits(offsets.Offsets.get)
    commit = _waits(offsets.Offsets.commit)
    plan = _waits(offsets.Offsets.plan)
    reset = _waits(offsets.Offsets.reset)
    clone = _waits(offsets.Offsets.clone)


class Messages(Subject):
    """``admin.messages``."""

    get = _waits(messages.Messages.get)
    by_offset_id = _waits(messages.Messages.by_offset_id)
    at_physical = _waits(messages.Messages.at_physical)
    at = _waits(messages.Messages.at)
    by_unique_key = _waits(messages.Messages.by_unique_key)
    by_key = _waits(messages.Messages.by_key)
    trace = _waits(messages.Messages.trace)
    page = _waits(messages.Messages.page)
    browse = _yields(messages.Messages.browse)
    entries = _waits(messages.Messages.entries)
    consumption = _waits(messages.Messages.consumption)
    consume_directly = _waits(messages.Messages.consume_directly)


class Admin(Subject):
    """Questions and commands to a cluster, by subject, on the connections of a client::

    for topic in mq.admin().topics.list():
        print(topic.name, topic.kind)
    """

    def __init__(self, owner: object, threads: Threads, inner: admin.Admin) -> None:
        super().__init__(owner, threads, inner)
        self.name_servers = NameServers(owner, threads, inner.name_servers)
        self.brokers = Brokers(owner, threads, inner.brokers)
        self.topics = Topics(owner, threads, inner.topics)
        self.clients = Clients(owner, threads, inner.clients)
        self.groups = Groups(owner, threads, inner.groups)
        self.offsets = Offsets(owner, threads, inner.offsets)
        self.messages = Messages(owner, threads, inner.messages)

    cluster = _waits(admin.Admin.cluster)
