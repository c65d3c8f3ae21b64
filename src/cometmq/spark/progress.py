"""How far a stream is, published as the offsets of a group, which tools know how to show."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from cometmq import logs
from cometmq.errors import CometError
from cometmq.model.offsets import MessageQueue
from cometmq.spark.offsets import StreamOffset

_log = logs.get_logger("cometmq.spark")

REST_SECONDS: Final = 5.0
"""How long a broker is left alone that could not be told; twice as long after each failure."""
REST_SECONDS_MAX: Final = 60.0


class Publishing(Protocol):
    """Where the progress of a group is kept."""

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]: ...

    def introduce(self, group: str, broker_name: str) -> None: ...

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None: ...

    def locate(self, broker_names: set[str], topics: set[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Rest:
    """After a failure: how long it is waited, and until when."""

    seconds: float
    until: float


class Progress:
    """Publishes progress only forward, and never in the way of the stream.

    Each broker is told by itself: one that is away, or was taken out of the cluster, does not keep
    the others from being told. What fails is a warning, once until it works again.
    """

    def __init__(
        self, group: str, broker: Publishing, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._group = group
        self._broker = broker
        self._now = now
        self._published: dict[MessageQueue, int] = {}
        self._introduced: set[str] = set()  # brokers on which tools find the group
        self._rests: dict[str, _Rest] = {}  # brokers that could not be told

    def publish(self, done: StreamOffset) -> None:
        """Everything before ``done`` was handled."""
        if done.is_beginning:
            return
        by_broker: dict[str, dict[MessageQueue, int]] = {}
        for queue, offset in done.queues.items():
            by_broker.setdefault(queue.broker_name, {})[queue] = offset
        for name, offsets in by_broker.items():
            rest = self._rests.get(name)
            if rest is not None and self._now() < rest.until:
                continue
            try:
                self._publish_on(name, offsets)
            except CometError as error:
                self._let_rest(name, error)
            else:
                if self._rests.pop(name, None) is not None:
                    _log.info("group=%s broker=%s progress is published again", self._group, name)

    def _publish_on(self, name: str, offsets: Mapping[MessageQueue, int]) -> None:
        strangers = [queue for queue in offsets if queue not in self._published]
        if strangers:
            self._broker.locate({name}, {queue.topic for queue in strangers})
            known = self._broker.committed(self._group, strangers)
            self._published |= {queue: known.get(queue, -1) for queue in strangers}
        moved = {queue: n for queue, n in offsets.items() if n > self._published[queue]}
        if moved:
            self._introduce(name)
            self._broker.commit(self._group, moved)
            self._published |= moved

    def _introduce(self, name: str) -> None:
        """Let tools find the group on a broker; offsets are worth something without it, too."""
        if name in self._introduced:
            return
        self._introduced.add(name)
        try:
            self._broker.introduce(self._group, name)
        except CometError as error:
            _log.warning(
                "group=%s broker=%s mqadmin may not find the group: %s", self._group, name, error
            )

    def _let_rest(self, name: str, error: CometError) -> None:
        rest = self._rests.get(name)
        seconds = REST_SECONDS if rest is None else min(2 * rest.seconds, REST_SECONDS_MAX)
        self._rests[name] = _Rest(seconds, self._now() + seconds)
        if rest is None:
            text = "group=%s broker=%s progress is not published there for now: %s"
            _log.warning(text, self._group, name, error)
