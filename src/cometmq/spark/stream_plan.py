"""What the driver decides for a stream: where it begins, and how far each batch goes.

Spark keeps one of these in a process beside the driver for as long as a query runs. Everything that
must survive a restart is in the positions it hands out (``offsets``); the rest is a cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from cometmq import logs
from cometmq.errors import CometError, ConnectionLost, NotFound, RequestTimeout, Unreachable
from cometmq.model.limits import BODY_BYTES_MAX
from cometmq.model.offsets import MessageQueue
from cometmq.spark.batch_plan import ROWS_PER_TASK_MAX, task_of, topic_row_bytes
from cometmq.spark.losses import Losses
from cometmq.spark.offsets import StreamOffset, queue_key, tasks_between
from cometmq.spark.options import LATEST, SourceOptions
from cometmq.spark.planning import Range, admit, rows_of_bytes, task_count
from cometmq.spark.positions import starting_offsets, wanted_queues
from cometmq.spark.tasks import Task
from cometmq.spark.topology import Bounds, Topology

_log = logs.get_logger("cometmq.spark")

SIZES_KEPT_SECONDS: Final = 10.0
"""How long sizes of messages are remembered. What has come since they were found is looked at in
any case; but places that were looked at say less and less of what is left between them."""
MISSING_SECONDS_MAX: Final = 120.0
"""How long a stream waits for a topic that was there before: then it is taken for deleted."""
_OUTAGES: Final = (Unreachable, ConnectionLost, RequestTimeout)


class StreamPlan:
    """Plans the batches of one stream."""

    def __init__(
        self,
        options: SourceOptions,
        topology: Topology,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._topology = topology
        self._now = now
        self._initial: StreamOffset | None = None
        self._ends: dict[MessageQueue, int] | None = None  # of a query that ends by itself
        self._heads: dict[MessageQueue, int] | None = None  # as they were last seen
        self._batch_at = now()  # when the last batch was planned
        self._missing_since: float | None = None  # when a topic was first not found
        self._sizes: dict[str, int] = {}
        self._weighed: dict[MessageQueue, int] = {}  # up to where sizes were looked for
        self._sizes_at = float("-inf")
        self._losses = Losses(is_fatal=options.is_loss_fatal)

    def initial(self) -> dict[str, Any]:
        """Where the stream begins; Spark asks more than once and must hear the same."""
        if self._initial is None:
            bounds = wanted_queues(self._options, self._topology)
            begins = starting_offsets(self._options, self._topology, bounds, default=LATEST)
            self._initial = StreamOffset(begins, dict(begins))
            self._note(bounds)
        return self._initial.to_json()

    def end_with_what_is_there(self) -> None:
        """The query is to read what is there now, and then to end."""
        bounds = wanted_queues(self._options, self._topology)
        self._note(bounds)
        self._ends = {queue: one.end for queue, one in bounds.items()}

    def next(self, start_json: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        """The end of the next batch; ``start_json`` itself when there is none yet."""
        start = StreamOffset.from_json(start_json)
        bounds = self._bounds()
        if bounds is None:
            return start_json
        rewound = self._rewound(start, bounds)
        if rewound is not None:
            return rewound.to_json()
        begins, backlogs = self._backlogs(start, bounds)
        if not self._is_enough(sum(backlogs.values())):
            return start_json
        if is_limited:
            backlogs = admit(backlogs, self._limit(begins, backlogs))
        self._batch_at = self._now()
        initial = dict(start.initial)
        for queue in begins:
            if queue not in start.queues:
                initial[queue] = begins[queue]
        ends = {**start.queues, **{q: begins[q] + backlogs.get(q, 0) for q in begins}}
        count, is_cut = self._division(sum(backlogs.values()))
        return StreamOffset(ends, initial, count, is_cut).to_json()

    def tasks(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[Task]:
        """The tasks of a batch."""
        parts = tasks_between(StreamOffset.from_json(start_json), StreamOffset.from_json(end_json))
        names = {one.queue.broker_name for part in parts for one in part}
        topics = {one.queue.topic for part in parts for one in part}
        self._topology.locate(names, topics)
        return [task_of(part, self._topology) for part in parts]

    def heads(self) -> dict[str, Any] | None:
        """Where queues ended when they were last looked at, for Spark's progress reports."""
        if self._heads is None:
            return None
        return {"v": 1, "q": {queue_key(q): self._heads[q] for q in sorted(self._heads)}}

    def _bounds(self) -> dict[MessageQueue, Bounds] | None:
        """What there is now; None while nobody can be asked, which a running stream outlives."""
        try:
            bounds = wanted_queues(self._options, self._topology, is_patient=self._ends is None)
        except (*_OUTAGES, NotFound) as error:
            if not self._is_to_wait(error):
                raise
            _log.warning("no new messages while servers are away: %s", error)
            return None
        self._missing_since = None
        self._note(bounds)
        return bounds

    def _is_to_wait(self, error: CometError) -> bool:
        """Whether a stream that runs waits for what it cannot find now."""
        if self._heads is None or self._ends is not None:
            return False
        if not isinstance(error, NotFound):
            return True
        # Name servers forget a topic while its only broker is being restarted.
        if self._missing_since is None:
            self._missing_since = self._now()
        return self._now() - self._missing_since < MISSING_SECONDS_MAX

    def _rewound(
        self, start: StreamOffset, bounds: dict[MessageQueue, Bounds]
    ) -> StreamOffset | None:
        """A position that fits again, when queues end before where the stream is; else None.

        What comes there next would be passed over. It is a batch without rows, because one that
        goes back and forward in the same queue could not be told by its two ends.
        """
        ends: dict[MessageQueue, int] = {}
        for queue, offset in start.queues.items():
            one = bounds.get(queue)
            if one is None or one.end >= offset or not one.is_certain:
                continue
            reason = f"the queue ends at {one.end}: was the topic made anew?"
            self._losses.report(queue, one.end, offset, reason)
            ends[queue] = one.end
        return StreamOffset({**start.queues, **ends}, start.initial) if ends else None

    def _note(self, bounds: dict[MessageQueue, Bounds]) -> None:
        self._heads = {queue: one.end for queue, one in bounds.items()}

    def _backlogs(
        self, start: StreamOffset, bounds: dict[MessageQueue, Bounds]
    ) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
        """Where each queue goes on, and how many messages wait there; new ones from the first."""
        begins: dict[MessageQueue, int] = {}
        backlogs: dict[MessageQueue, int] = {}
        for queue, one in bounds.items():
            end = one.end
            if self._ends is not None:
                if queue not in self._ends:
                    continue
                end = min(end, self._ends[queue])
            begins[queue] = start.queues.get(queue, min(one.begin, end))
            if end > begins[queue]:
                backlogs[queue] = end - begins[queue]
        return begins, backlogs

    def _is_enough(self, rows: int) -> bool:
        """Whether a batch is due: there are rows, and not too few of them."""
        least = self._options.rows_per_trigger_min
        if rows == 0 or least is None or rows >= least or self._ends is not None:
            return rows > 0
        return (self._now() - self._batch_at) * 1000 >= self._options.trigger_delay_max_ms

    def _limit(self, begins: dict[MessageQueue, int], backlogs: dict[MessageQueue, int]) -> int:
        """How many rows the next batch may have, by rows and by bytes."""
        rows = sum(backlogs.values())
        if self._options.rows_per_trigger_max is not None:
            rows = min(rows, self._options.rows_per_trigger_max)
        limit = self._options.bytes_per_trigger_max
        if limit is not None and rows * BODY_BYTES_MAX > limit:
            self._weigh(begins, backlogs)
            rows = min(rows, rows_of_bytes(backlogs, self._sizes, limit))
        return max(rows, 1)

    def _weigh(self, begins: dict[MessageQueue, int], backlogs: dict[MessageQueue, int]) -> None:
        """Find out how large messages are of topics that have got some, and of all now and then."""
        if self._now() - self._sizes_at >= SIZES_KEPT_SECONDS:
            self._weighed.clear()
            self._sizes_at = self._now()
        ranges = [Range(queue, begins[queue], begins[queue] + n) for queue, n in backlogs.items()]
        topics = {one.queue.topic for one in ranges if one.end > self._weighed.get(one.queue, -1)}
        ranges = [one for one in ranges if one.queue.topic in topics]
        if not ranges:
            return
        try:
            self._sizes |= topic_row_bytes(self._topology, ranges, rows_min=1)
            self._weighed |= {one.queue: one.end for one in ranges}
        except CometError as error:
            _log.warning("the size of messages is not known, so it does not limit: %s", error)

    def _division(self, rows: int) -> tuple[int, bool]:
        """Into how many tasks, and whether queues are cut: only if that was asked for."""
        options = self._options
        is_cut = options.task_count_min is not None or options.rows_per_task_max is not None
        count = task_count(
            rows,
            row_bytes=0,
            cores=options.cores,
            least=options.task_count_min,
            rows_max=options.rows_per_task_max or max(rows, ROWS_PER_TASK_MAX),
            bytes_max=options.bytes_per_task_max,
        )
        return count, is_cut
