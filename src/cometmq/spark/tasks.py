"""What runs on executors: one task reads its ranges, from files where it may, else from brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cometmq import logs
from cometmq.codec.headers.extensions import LogStatusResponse
from cometmq.errors import NotFound, Unreachable, Unsupported
from cometmq.spark.broker_reader import OUTAGES, BrokerReader, PullLimits, Wanted
from cometmq.spark.decode import RecordDecoder
from cometmq.spark.joining import joined
from cometmq.spark.log_reader import LogReader
from cometmq.spark.losses import Losses
from cometmq.spark.options import SourceOptions
from cometmq.spark.planning import Range, Ranges
from cometmq.spark.store_files import StoreFiles
from cometmq.spark.topology import log_status, store_name
from cometmq.spark.visible import not_visible, store_alone, store_of_broker, unseen_file
from cometmq.spark.wire import Wire, wire_of

_log = logs.get_logger("cometmq.spark")

CONFIRMED_SECONDS_MAX: Final = 30.0
"""How long ``source=log`` waits for messages to be on disk; brokers sync every 10 s at least."""
CONFIRMED_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads: ranges, and where the brokers of their queues are."""

    ranges: Ranges
    addresses: tuple[tuple[str, str], ...] = ()

    def address(self, broker_name: str) -> str:
        return dict(self.addresses)[broker_name]


class TaskReader:
    """Reads tasks by the options of a query, in the process of an executor."""

    def __init__(
        self,
        options: SourceOptions,
        schema: Any,
        *,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._pause = pause
        self._now = now
        self._losses = Losses(is_fatal=options.is_loss_fatal)
        self._decoder = RecordDecoder(schema, tags=options.tags)
        self._log_decoder = RecordDecoder(schema, tags=options.tags, verify=options.verify)
        self._logs: dict[str, LogReader | None] = {}  # by broker; None: not from files

    def read(self, task: Task) -> Iterator[Any]:
        """The messages of a task, as Arrow batches of the schema."""
        options = self._options
        try:
            batches = (batch for one in task.ranges for batch in self._read(one, task))
            yield from joined(batches, options.batch_rows, options.batch_bytes)
        finally:
            for reader in self._logs.values():
                if reader is not None:
                    reader.close()
            self._logs.clear()

    def _read(self, wanted: Range, task: Task) -> Iterator[Any]:
        log = self._log_of(wanted.queue.broker_name, task)
        if log is None:
            yield from self._from_broker(wanted, task)
            return
        reached = log.reach(wanted)
        if reached < wanted.end and self._options.source == "log":
            self._wait_for(wanted, log, task)
            reached = wanted.end
        if reached > wanted.begin:
            yield from log.read(Range(wanted.queue, wanted.begin, reached))
        if reached < wanted.end:
            yield from self._from_broker(Range(wanted.queue, reached, wanted.end), task)

    # --- brokers

    def _from_broker(self, wanted: Range, task: Task) -> Iterator[Any]:
        options = self._options
        limits = PullLimits(
            options.pull_count, options.pull_bytes, options.batch_rows, options.batch_bytes
        )
        what = Wanted(options.tags, options.sql)
        reader = BrokerReader(
            self._wire(), self._decoder, limits, what, self._losses, pause=self._pause
        )
        yield from reader.read(wanted, task.address(wanted.queue.broker_name))

    def _wire(self) -> Wire:
        return wire_of(self._options.connecting)

    # --- files

    def _log_of(self, broker_name: str, task: Task) -> LogReader | None:
        """The reader of a broker's files, or None when they are not to be read from here."""
        if broker_name not in self._logs:
            self._logs[broker_name] = self._found_log(broker_name, task)
        return self._logs[broker_name]

    def _found_log(self, broker_name: str, task: Task) -> LogReader | None:
        options = self._options
        if options.source == "broker" or options.sql is not None:
            return None
        if options.is_files_only:
            return self._only_files(broker_name)
        address = task.address(broker_name)
        try:
            status = self._status(address)
        except OUTAGES:
            if options.source == "auto":
                return None  # who reads from brokers waits for one that is being restarted
            raise
        if status is None:
            if options.source == "auto":
                return None
            advice = "read with source=broker, or the files alone: without a name server"
            raise Unsupported("telling how far its log may be read", address, "it", advice)
        store = store_of_broker(status, options.store_paths)
        unseen = None if store is None else self._unseen_file(store, status, address)
        if store is None or unseen is not None:
            if options.source == "auto":
                return None
            file = unseen or status.newest_file
            raise not_visible(broker_name, status, options.store_paths, file)
        store.log.settled_end = status.confirmed_offset
        return self._log_reader(store, status.confirmed_offset)

    def _status(self, address: str) -> LogStatusResponse | None:
        """How far a broker's log may be read; None from one that does not tell what is in it."""
        status = log_status(self._wire(), address)
        return None if status is None or status.sample_digest is None else status

    def _unseen_file(
        self, store: StoreFiles, status: LogStatusResponse, address: str
    ) -> str | None:
        """A file of a broker's log that is not in the directory; None when all of them are."""
        unseen = unseen_file(store, status)
        if unseen is None:
            return None
        again = self._status(address)  # retention may have deleted it meanwhile
        return unseen_file(store, again or status)

    def _only_files(self, broker_name: str) -> LogReader:
        for root in self._options.store_paths:
            if store_name(root) == broker_name:
                store = store_alone(root)
                store.log.settled_end = store.settled_end
                return self._log_reader(store, store.log.end)
        raise NotFound("store directory", broker_name, "look at option 'storePath'")

    def _log_reader(self, store: StoreFiles, end: int) -> LogReader:
        options = self._options
        return LogReader(
            store,
            end,
            self._log_decoder,
            self._losses,
            batch_rows=options.batch_rows,
            batch_bytes=options.batch_bytes,
            tags=options.tags,
        )

    def _wait_for(self, wanted: Range, log: LogReader, task: Task) -> None:
        """Wait until all of a range is on disk; what files alone do not have is gone."""
        if self._options.is_files_only:
            return
        address = task.address(wanted.queue.broker_name)
        deadline = self._now() + CONFIRMED_SECONDS_MAX
        while log.reach(wanted) < wanted.end:
            if self._now() > deadline:
                fact = f"its log is on disk up to {log.end} only"
                raise Unreachable(address, fact, "read with source=auto")
            self._pause(CONFIRMED_LOOK_SECONDS)
            status = self._status(address)
            if status is None:
                continue
            # What has come meanwhile may be in another folder than all that was there before.
            unseen = self._unseen_file(log.store, status, address)
            if unseen is not None:
                name = wanted.queue.broker_name
                raise not_visible(name, status, self._options.store_paths, unseen)
            log.end = status.confirmed_offset
