"""The topics of a broker: made at start, by senders, by groups and by administrators.

A ``Topic`` lives as long as its name is in the table, whatever changes about it, so whoever handles
messages may keep it. Nothing is saved or registered here: those who do that are told of changes.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from cometmq import logs
from cometmq.broker.config import BrokerSettings
from cometmq.clock import Clock
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.model.limits import TOPIC_BYTES_MAX, TOPIC_RETRY_BYTES_MAX
from cometmq.model.system_names import (
    DEFAULT_TOPIC,
    HALF_TOPIC,
    NOT_SENDABLE,
    OP_HALF_TOPIC,
    REPLY_SUFFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    is_legal_name,
    is_system_topic,
)
from cometmq.model.topic import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    DataVersion,
    Permission,
    TopicConfig,
)
from cometmq.store.documents import ConfigDocument

UNIT: Final = 1
"""Bit of ``topic_sys_flag``: the topic was made by a client in unit mode."""
UNIT_SUBSCRIPTION: Final = 2
"""Bit of ``topic_sys_flag``: consumers in unit mode subscribe to the topic."""

TOPICS_MAX: Final = 32_768
"""Topics at which no more are made for senders and administrators: a registration names them all,
and has to fit into a frame of 16 MiB with the topics that groups need in addition."""

QUEUES_MAX: Final = 16_384
"""Queues of one topic; each that is written to has files."""

_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)
_SHOWN_CHARACTERS_MAX: Final = 512

_log = logs.get_logger("cometmq.broker")

Listener = Callable[[Sequence["Topic"]], None]


def problem_of(name: str) -> str:
    """Why no topic may have this name, in Apache's words; empty when one may."""
    if not name.strip():
        return "The specified topic is blank."
    if not is_legal_name(name):
        allowed = "allowing only ^[%|a-zA-Z0-9_-]+$"
        return f"The specified topic: {shown(name)}, contains illegal characters, {allowed}"
    # Dead letters have no longer names than others in the log, though Apache's check lets them.
    length_max = TOPIC_RETRY_BYTES_MAX if name.startswith(RETRY_PREFIX) else TOPIC_BYTES_MAX
    if len(name) > length_max:
        return f"The specified topic: {shown(name)}, is longer than topic max length: {length_max}"
    return ""


def shown(name: str) -> str:
    """A name for a remark; what nobody would want to read on is cut off."""
    return name if len(name) <= _SHOWN_CHARACTERS_MAX else name[:_SHOWN_CHARACTERS_MAX] + "…"


class Topic:
    """One topic. Only the table changes it, except for the counters."""

    __slots__ = (
        "can_send",
        "config",
        "is_order",
        "is_readable",
        "is_system",
        "name",
        "put_bytes",
        "put_count",
        "queue_count",
        "read_queue_count",
        "write_queue_count",
    )

    def __init__(self, config: TopicConfig, *, is_system: bool) -> None:
        self.name = config.topic_name
        # False: what lies here is the broker's business, and clients must not send to it.
        self.can_send = config.topic_name not in NOT_SENDABLE
        # RocketMQ's own, or named like the cluster or the broker.
        self.is_system = is_system
        # Messages and bytes taken since the start; counted by whoever takes them.
        self.put_count = 0
        self.put_bytes = 0
        self.replace(config)

    def replace(self, config: TopicConfig) -> None:
        """Be what ``config`` says from now on; the table's own business."""
        assert config.topic_name == self.name, (config.topic_name, self.name)
        self.config = config
        self.read_queue_count = config.read_queue_nums
        self.write_queue_count = config.write_queue_nums
        # Queue ids below it may be sent to: while a topic shrinks the two counts differ.
        self.queue_count = max(config.read_queue_nums, config.write_queue_nums)
        self.is_order = config.order
        self.is_readable = config.is_readable

    def __repr__(self) -> str:
        return f"<Topic {self.name} read={self.read_queue_count} write={self.write_queue_count}>"


class TopicTable:
    """All topics by name, with the stamp that tells name servers whether something changed.

    Callbacks in ``on_change`` get the topics made or changed, after the fact; those in
    ``on_delete`` the name of one that is gone.
    """

    def __init__(
        self,
        document: ConfigDocument[TopicConfigTable],
        settings: BrokerSettings,
        clock: Clock,
        *,
        topics_max: int = TOPICS_MAX,
    ) -> None:
        """Load what was saved and add the system topics it lacks; blocks for the disk."""
        self.by_name: dict[str, Topic] = {}
        self.on_change: list[Listener] = []
        self.on_delete: list[Callable[[str], None]] = []
        self.settings = settings
        self._clock = clock
        self._topics_max = topics_max
        # Names under which no topic is made for the moment.
        self._reserved: set[str] = set()
        # A table that is full is told of once, until there is room again.
        self._is_full_told = False
        saved = document.load()
        self.data_version = saved.data_version or DataVersion(0, 0, clock.now_ms())
        self._fill(saved)

    def use(self, settings: BrokerSettings) -> None:
        """Settings have changed: what was made under the former ones stays, what lacks is made."""
        self.settings = settings
        for config in _system_topics(settings):
            if config.topic_name not in self.by_name:
                self._add(config)

    def get(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def create_for_send(
        self, name: str, *, default_topic: str, queue_nums: int, is_unit: bool
    ) -> Topic | None:
        """The topic a message is sent to, made after ``default_topic`` if it has to be.

        None when there is none and none may be made. Retry topics may always be made.
        """
        if (known := self.by_name.get(name)) is not None:
            return known
        if name in NOT_SENDABLE or name in self._reserved:
            return None
        if problem_of(name) or not self._has_room(name):
            return None
        is_retry = name.startswith(RETRY_PREFIX)
        pattern = self._pattern(default_topic)
        if pattern is None and not is_retry:
            return None
        config = TopicConfig(
            name,
            perm=_READ_WRITE,
            topic_sys_flag=_unit_flag(is_retry) if is_unit else 0,
            attributes={},
        )
        if pattern is None:
            return self._add(_with_queues(config, 1))
        count = min(queue_nums, pattern.write_queue_nums)
        inherited = msgspec.structs.replace(
            config,
            perm=pattern.perm & ~Permission.INHERIT,
            topic_filter_type=pattern.topic_filter_type,
        )
        return self._add(_with_queues(inherited, count))

    def create_retry(
        self, group: str, queue_nums: int, *, is_unit: bool, is_order: bool | None = None
    ) -> Topic:
        """The topic of messages that ``group`` gets again; ``is_order`` None leaves it as it is.

        Not limited: there is one for each group, and their number is.
        """
        name = RETRY_PREFIX + group
        known = self.by_name.get(name)
        if known is None:
            flag = UNIT_SUBSCRIPTION if is_unit else 0
            config = TopicConfig(name, topic_sys_flag=flag, order=bool(is_order), attributes={})
            return self._add(_with_queues(config, queue_nums))
        if is_order is not None and is_order != known.is_order:
            self.put(msgspec.structs.replace(known.config, order=is_order))
        return known

    def create_dead_letter(self, group: str) -> Topic:
        """The topic of messages that ``group`` failed to consume; not limited either."""
        return self.create_internal(DLQ_PREFIX + group)

    def create_internal(self, name: str) -> Topic:
        """A topic of the broker's own (one queue, readable and writable) that may exist already."""
        known = self.by_name.get(name)
        if known is not None:
            return known
        return self._add(_with_queues(TopicConfig(name, attributes={}), 1))

    def put(self, config: TopicConfig) -> Topic:
        """Make a topic or change it to ``config``, as an administrator wants it.

        Its name must be legal (``problem_of``). Raises BrokerError when there are too many, or
        when the former topic of this name is just being taken away.
        """
        topic = self.by_name.get(config.topic_name)
        if topic is None:
            if config.topic_name in self._reserved:
                remark = f"the topic[{config.topic_name}] is being deleted: try again"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
            if not self._has_room(config.topic_name):
                remark = f"the broker has {len(self.by_name)} topics: no more are made"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
            return self._add(config)
        topic.replace(config)
        self._changed([topic])
        return topic

    def delete(self, name: str) -> bool:
        """Forget a topic; whether there was one. What it holds is not touched."""
        if self.by_name.pop(name, None) is None:
            return False
        self._advance()
        self._is_full_told = False
        for listener in self.on_delete:
            listener(name)
        return True

    @contextlib.contextmanager
    def reserved(self, name: str) -> Iterator[None]:
        """Have no topic of this name made for senders and administrators meanwhile.

        Topics that groups need are made all the same: nobody could do without them.
        """
        self._reserved.add(name)
        try:
            yield
        finally:
            self._reserved.discard(name)

    def apply_order(self, names: Collection[str]) -> None:
        """Mark as ordered what the name servers say is; the others stay what they are.

        Apache's 4.9 would take the mark off again, and so from topics that an administrator made
        ordered here; 5.x does not.
        """
        changed = [
            topic
            for name in names
            if (topic := self.by_name.get(name)) is not None and not topic.is_order
        ]
        for topic in changed:
            topic.replace(msgspec.structs.replace(topic.config, order=True))
        if changed:
            self._changed(changed)

    def adopt(self, queues: Iterable[tuple[str, int]]) -> list[Topic]:
        """Make topics for ``queues`` (topic and id) that have none; what was made.

        A broker that was killed may have stored a message before it saved the topic made for it.
        """
        counts: dict[str, int] = {}
        for name, queue_id in queues:
            if name not in self.by_name and not problem_of(name):
                counts[name] = max(counts.get(name, 0), queue_id + 1)
        return [
            self._add(_with_queues(TopicConfig(name, attributes={}), count))
            for name, count in counts.items()
        ]

    def table(self) -> TopicConfigTable:
        """All topics as they are now, for saving and registering; the caller's own copy."""
        return TopicConfigTable(
            self.data_version, {name: topic.config for name, topic in self.by_name.items()}
        )

    def is_system(self, name: str) -> bool:
        """Whether administrators must leave a topic of this name alone."""
        return is_system_topic(name) or name in _local_names(self.settings)

    def system_names(self) -> frozenset[str]:
        """Names of RocketMQ's own topics on this broker, whether they are in the table or not."""
        made = (config.topic_name for config in _system_topics(self.settings))
        return SYSTEM_TOPICS.union(_local_names(self.settings), made)

    def _fill(self, saved: TopicConfigTable) -> None:
        table = {name: _named(config, name) for name, config in saved.topic_config_table.items()}
        for config in _system_topics(self.settings):
            table.setdefault(config.topic_name, config)
        if len(table) > len(saved.topic_config_table):
            self._advance()  # more than the name servers may know under the saved stamp
        for name, config in table.items():
            self.by_name[name] = Topic(config, is_system=self.is_system(name))

    def _pattern(self, default_topic: str) -> TopicConfig | None:
        """The topic that new ones are made after; None when they must not be."""
        topic = self.by_name.get(default_topic)
        if topic is None or not topic.config.is_inheritable:
            return None
        if default_topic == DEFAULT_TOPIC and not self.settings.auto_create_topic_enable:
            return None  # it is in the file from a time when it was allowed
        return topic.config

    def _has_room(self, name: str) -> bool:
        if len(self.by_name) < self._topics_max:
            return True
        if not self._is_full_told:
            self._is_full_told = True
            _log.warning(
                "topic=%s not made: there are %d topics; delete some that nobody needs",
                name, len(self.by_name),
            )  # fmt: skip
        return False

    def _add(self, config: TopicConfig) -> Topic:
        name = config.topic_name
        topic = self.by_name[name] = Topic(config, is_system=self.is_system(name))
        _log.info(
            "topic=%s made: read_queues=%d write_queues=%d perm=%d",
            name, config.read_queue_nums, config.write_queue_nums, config.perm,
        )  # fmt: skip
        self._changed([topic])
        return topic

    def _changed(self, topics: Sequence[Topic]) -> None:
        self._advance()
        for listener in self.on_change:
            listener(topics)

    def _advance(self) -> None:
        self.data_version = self.data_version.advanced(self._clock.now_ms())


def _local_names(settings: BrokerSettings) -> tuple[str, ...]:
    """System topics whose names depend on where the broker is."""
    cluster, broker = settings.cluster_name, settings.broker_name
    names = cluster, broker, f"{cluster}{REPLY_SUFFIX}"
    return (*names, settings.trace_topic_name) if settings.trace_topic_enable else names


def _system_topics(settings: BrokerSettings) -> Iterator[TopicConfig]:
    """What 4.9 and 5.x brokers make at start; see what is said of each in their documentation."""
    cluster, broker = settings.cluster_name, settings.broker_name
    inherit = int(Permission.INHERIT)
    yield _system("SELF_TEST_TOPIC", 1)
    if settings.auto_create_topic_enable:
        yield _system(DEFAULT_TOPIC, settings.default_topic_queue_nums, _READ_WRITE | inherit)
    yield _system("BenchmarkTest", 1024)
    yield _system(cluster, 16, inherit | (_READ_WRITE if settings.cluster_topic_enable else 0))
    yield _system(broker, 1, inherit | (_READ_WRITE if settings.broker_topic_enable else 0))
    yield _system("OFFSET_MOVED_EVENT", 1)
    yield _system(SCHEDULE_TOPIC, 18)
    if settings.trace_topic_enable:
        yield _system(settings.trace_topic_name, 1)
    yield _system(f"{cluster}{REPLY_SUFFIX}", 1)
    yield _system(f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{cluster}", 8)
    yield _system(f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, inherit)
    yield _system(HALF_TOPIC, 1)
    yield _system(OP_HALF_TOPIC, 1)
    yield _system(TIMER_TOPIC, 1)


def _system(name: str, queue_count: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_count, queue_count, perm, attributes={})


def _with_queues(config: TopicConfig, count: int) -> TopicConfig:
    count = min(max(count, 1), QUEUES_MAX)
    return msgspec.structs.replace(config, read_queue_nums=count, write_queue_nums=count)


def _named(config: TopicConfig, name: str) -> TopicConfig:
    """The topic under the name it is listed by, which is the one that counts."""
    if config.topic_name == name:
        return config
    return msgspec.structs.replace(config, topic_name=name)


def _unit_flag(is_retry: bool) -> int:
    return UNIT_SUBSCRIPTION if is_retry else UNIT
