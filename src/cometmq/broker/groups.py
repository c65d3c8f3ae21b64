"""The consumer groups of a broker: their settings, and the topics each is forbidden to read.

Whether a group has members, and what these subscribe to, is known elsewhere; a group that is here
may have none for years.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from cometmq import logs
from cometmq.broker.config import BrokerSettings
from cometmq.broker.topics import shown
from cometmq.clock import Clock
from cometmq.codec.bodies.groups import SubscriptionGroupTable
from cometmq.codec.codes import ResponseCode
from cometmq.errors import BrokerError
from cometmq.model.group import SubscriptionGroupConfig
from cometmq.model.limits import GROUP_CHARACTERS_MAX
from cometmq.model.system_names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, is_legal_name
from cometmq.model.topic import DataVersion
from cometmq.store.documents import ConfigDocument

GROUPS_MAX: Final = 16_384
"""Groups at which no more are made; each brings two topics with it."""

READ_FORBIDDEN: Final = 1
"""Bit of the forbidden table: the group may not read the topic."""

FORBIDDEN_MAX: Final = 65_536
"""Pairs of group and topic that may be forbidden; neither has to exist."""

_log = logs.get_logger("cometmq.broker")

Listener = Callable[[Sequence["Group"]], None]


def problem_of(name: str) -> str:
    """Why no group may have this name, in Apache's words; empty when one may."""
    if not name.strip():
        return "The specified group is blank."
    if not is_legal_name(name):
        allowed = "allowing only ^[%|a-zA-Z0-9_-]+$"
        return f"The specified group: {shown(name)}, contains illegal characters, {allowed}"
    if len(name) > GROUP_CHARACTERS_MAX:
        limit = GROUP_CHARACTERS_MAX
        return f"The specified group: {shown(name)}, is longer than group max length: {limit}"
    return ""


class Group:
    """One group. Only the table changes it, except for the counter."""

    __slots__ = ("config", "forbidden", "get_count", "name")

    def __init__(self, config: SubscriptionGroupConfig, forbidden: frozenset[str]) -> None:
        self.name = config.group_name
        self.config = config
        # Topics that the group may not read.
        self.forbidden = forbidden
        # Messages handed out since the start; counted by whoever does so.
        self.get_count = 0

    def __repr__(self) -> str:
        return f"<Group {self.name}>"


class GroupTable:
    """All groups by name. Callbacks in ``on_change`` get those made or changed, after the fact.

    A ``Group`` lives as long as its name is in the table, whatever changes about it.
    """

    def __init__(
        self,
        document: ConfigDocument[SubscriptionGroupTable],
        settings: BrokerSettings,
        clock: Clock,
        *,
        groups_max: int = GROUPS_MAX,
        forbidden_max: int = FORBIDDEN_MAX,
    ) -> None:
        """Load what was saved and add the system groups it lacks; blocks for the disk."""
        self.by_name: dict[str, Group] = {}
        self.on_change: list[Listener] = []
        self.on_delete: list[Callable[[str], None]] = []
        # May be replaced while running; what was made under the former ones stays.
        self.settings = settings
        self._clock = clock
        self._groups_max = groups_max
        self._forbidden_max = forbidden_max
        # A table that is full is told of once, until there is room again.
        self._is_full_told = False
        saved = document.load()
        self.data_version = saved.data_version or DataVersion(0, 0, clock.now_ms())
        # Bits by group and topic, also of groups that do not exist.
        self._forbidden_bits = {
            group: dict(bits) for group, bits in (saved.forbidden_table or {}).items()
        }
        # A file of 4.9 has no such table and gets none.
        self._has_forbidden_table = saved.forbidden_table is not None or not saved.data_version
        self._fill(saved.subscription_group_table)

    def get(self, name: str) -> Group | None:
        return self.by_name.get(name)

    def obtain(self, name: str) -> Group | None:
        """The group a client says it is of, made now if it has to be; None when it must not be."""
        known = self.by_name.get(name)
        if known is not None:
            return known
        is_system = name.startswith(SYSTEM_GROUP_PREFIX)
        is_allowed = is_system or self.settings.auto_create_subscription_group
        if not is_allowed or problem_of(name) or not self._has_room(name):
            return None
        return self._add(SubscriptionGroupConfig.with_defaults(name))

    def put(self, config: SubscriptionGroupConfig) -> Group:
        """Make a group or change it to ``config``, as an administrator wants it.

        Its name must be legal (``problem_of``). Raises BrokerError when there are too many.
        """
        group = self.by_name.get(config.group_name)
        if group is None:
            if not self._has_room(config.group_name):
                remark = f"the broker has {len(self.by_name)} groups: no more are made"
                raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
            return self._add(config)
        group.config = config
        self._changed(group)
        return group

    def delete(self, name: str) -> bool:
        """Forget a group and what it was forbidden; whether there was one.

        Its offsets and its topics are not touched.
        """
        bits = self._forbidden_bits.pop(name, None)
        is_known = self.by_name.pop(name, None) is not None
        if not is_known and not bits:
            return False
        self._advance()
        self._is_full_told = False
        for listener in self.on_delete:
            listener(name)
        return is_known

    def may_read(self, group: str, topic: str) -> bool:
        """Whether nobody has forbidden a group to read a topic; neither has to exist."""
        return topic not in _forbidden(self._forbidden_bits.get(group))

    def set_may_read(self, group: str, topic: str, may_read: bool) -> None:
        """Forbid a group to read a topic, or allow it again; names must be legal.

        Raises BrokerError when too much is forbidden already.
        """
        if may_read == self.may_read(group, topic):
            return
        bits = dict(self._forbidden_bits.get(group, ()))
        value = max(bits.get(topic, 0), 0) ^ READ_FORBIDDEN
        if value and topic not in bits and self._forbidden_count() >= self._forbidden_max:
            count = self._forbidden_max
            remark = f"{count} pairs of group and topic are forbidden: allow some again"
            raise BrokerError(ResponseCode.SYSTEM_ERROR, remark)
        bits[topic] = value
        kept = {name: bit for name, bit in bits.items() if bit > 0}
        if kept:
            self._forbidden_bits[group] = kept
        else:
            self._forbidden_bits.pop(group, None)
        self._has_forbidden_table = True
        known = self.by_name.get(group)
        if known is not None:
            known.forbidden = _forbidden(kept)
        self._changed(known)

    def table(self) -> SubscriptionGroupTable:
        """All groups as they are now, for saving; the caller's own copy."""
        bits = {name: dict(topics) for name, topics in self._forbidden_bits.items()}
        return SubscriptionGroupTable(
            self.data_version,
            {name: group.config for name, group in self.by_name.items()},
            bits if self._has_forbidden_table else None,
        )

    def _fill(self, saved: Mapping[str, SubscriptionGroupConfig]) -> None:
        for name, config in saved.items():
            self._enter(_named(config, name))
        for name in SYSTEM_GROUPS:
            if name not in saved:
                self._enter(SubscriptionGroupConfig.with_defaults(name))
        if len(self.by_name) > len(saved):
            self._advance()

    def _has_room(self, name: str) -> bool:
        if len(self.by_name) < self._groups_max:
            return True
        if not self._is_full_told:
            self._is_full_told = True
            _log.warning(
                "group=%s not made: there are %d groups; delete some that nobody needs",
                name, len(self.by_name),
            )  # fmt: skip
        return False

    def _add(self, config: SubscriptionGroupConfig) -> Group:
        group = self._enter(config)
        _log.info("group=%s made", group.name)
        self._changed(group)
        return group

    def _enter(self, config: SubscriptionGroupConfig) -> Group:
        name = config.group_name
        group = self.by_name[name] = Group(config, _forbidden(self._forbidden_bits.get(name)))
        return group

    def _forbidden_count(self) -> int:
        return sum(map(len, self._forbidden_bits.values()))

    def _changed(self, group: Group | None) -> None:
        self._advance()
        for listener in self.on_change:
            listener([] if group is None else [group])

    def _advance(self) -> None:
        self.data_version = self.data_version.advanced(self._clock.now_ms())


def _forbidden(bits: Mapping[str, int] | None) -> frozenset[str]:
    # A negative number means nothing, as in Apache's reading of the file.
    return frozenset(
        topic for topic, value in (bits or {}).items() if value > 0 and value & READ_FORBIDDEN
    )


def _named(config: SubscriptionGroupConfig, name: str) -> SubscriptionGroupConfig:
    """The group under the name it is listed by, which is the one that counts."""
    if config.group_name == name:
        return config
    return msgspec.structs.replace(config, group_name=name)
