"""Puts the parts of a store together when a directory is opened; no logic of its own."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from cometmq.store.allocator import (
    POPULATE_AHEAD_BYTES,
    POPULATE_AHEAD_SYNC_BYTES,
    Allocator,
)
from cometmq.store.checkpoint import CheckpointFile
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import FlushMode
from cometmq.store.consume_queues import ConsumeQueues
from cometmq.store.directory import Layout
from cometmq.store.dispatcher import Dispatcher
from cometmq.store.flusher import Flusher
from cometmq.store.foreign import refuse_foreign
from cometmq.store.key_index import KeyIndex
from cometmq.store.mapped_file import TransientPool
from cometmq.store.queue_mending import Mender
from cometmq.store.reader import Reader
from cometmq.store.recovery import recover_log
from cometmq.store.watermarks import Watermarks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cometmq.clock import Clock
    from cometmq.store.config import StoreSettings
    from cometmq.store.files import Files
    from cometmq.store.recovery import RecoveredLog


@dataclass(frozen=True, slots=True)
class Parts:
    """A recovered store, ready to be used by its owner thread."""

    layout: Layout
    marks: Watermarks
    log: CommitLog
    queues: ConsumeQueues
    index: KeyIndex | None
    dispatcher: Dispatcher
    reader: Reader
    flusher: Flusher


def open_parts(
    root: Path,
    settings: StoreSettings,
    *,
    files: Files,
    clock: Clock,
    has_threads: bool,
    on_progress: Callable[[], None],
) -> Parts:
    """Recover the directory, dispatch what is missing, and leave ``abort`` for the case of a crash.

    The caller holds the lock.
    """
    layout = Layout.survey(root, settings, files)
    refuse_foreign(root, files)
    is_clean = files.read(layout.abort) is None
    checkpoint = CheckpointFile(files, layout.checkpoint)
    with contextlib.ExitStack() as on_failure:
        queues = ConsumeQueues(layout, settings, files)
        on_failure.callback(queues.close)
        recovered = recover_log(layout, files, settings, queues, checkpoint, is_clean=is_clean)
        on_failure.callback(recovered.files.close)
        queues.correct_min(recovered.begin)
        # From here on the directory changes: whoever opens it after a crash must know.
        files.replace(layout.abort, str(os.getpid()).encode())
        index = _open_index(
            layout, settings, files, clock, checkpoint, recovered, is_clean=is_clean
        )
        if index is not None:
            _lower_checkpoint(checkpoint, index)
        marks = Watermarks(recovered.end)
        log = _open_log(layout, settings, files, clock, marks, recovered, has_threads=has_threads)
        dispatcher = Dispatcher(log, queues, index, marks, settings)
        if index is not None and not index.is_complete:
            begin = max(recovered.begin, index.resume_offset)
            dispatcher.feed_index(begin, recovered.dispatch_begin)
        if checkpoint.position is not None and recovered.dispatch_begin < checkpoint.position:
            # Entries come back that are not on disk yet.
            checkpoint.save(checkpoint.last, recovered.dispatch_begin)
        _mend_queues(recovered, queues, dispatcher, is_clean=is_clean)
        marks.dispatched = recovered.dispatch_begin
        dispatcher.catch_up()
        log.resume()
        on_failure.pop_all()
    flusher = Flusher(
        log,
        queues,
        index,
        dispatcher,
        marks,
        checkpoint=checkpoint,
        settings=settings,
        clock=clock,
        on_progress=on_progress,
        vouched=marks.dispatched if is_clean else recovered.dispatch_begin,
    )
    reader = Reader(log, marks, settings)
    return Parts(layout, marks, log, queues, index, dispatcher, reader, flusher)


def _mend_queues(
    recovered: RecoveredLog, queues: ConsumeQueues, dispatcher: Dispatcher, *, is_clean: bool
) -> None:
    if not recovered.suspects:
        return
    mender = Mender(recovered.files, queues, dispatcher, recovered.dispatch_begin)
    mender.mend(recovered.suspects)
    if not is_clean:
        queues.drop_empty()
    queues.correct_min(recovered.begin)


def _open_log(
    layout: Layout,
    settings: StoreSettings,
    files: Files,
    clock: Clock,
    marks: Watermarks,
    recovered: RecoveredLog,
    *,
    has_threads: bool,
) -> CommitLog:
    is_sync = settings.flush_mode is FlushMode.SYNC_FLUSH
    allocator = Allocator(
        files,
        layout.log_file_bytes,
        layout.log_path,
        has_thread=has_threads,
        ahead_bytes=POPULATE_AHEAD_SYNC_BYTES if is_sync else POPULATE_AHEAD_BYTES,
    )
    recovered.files.remover = allocator.remove
    pool = None
    if settings.has_transient_pool:
        pool = TransientPool(settings.transient_pool_size, layout.log_file_bytes)
    log = CommitLog(recovered.files, marks, settings, allocator=allocator, clock=clock, pool=pool)
    log.last_timestamp = log.flushed_timestamp = recovered.last_timestamp
    return log


def _open_index(
    layout: Layout,
    settings: StoreSettings,
    files: Files,
    clock: Clock,
    checkpoint: CheckpointFile,
    recovered: RecoveredLog,
    *,
    is_clean: bool,
) -> KeyIndex | None:
    if not settings.has_index:
        return None
    return KeyIndex.open(
        layout.index_folder,
        replace(settings, index_slots=layout.index_slots, index_entries=layout.index_entries),
        files=files,
        clock=clock,
        is_clean=is_clean,
        log_begin=recovered.begin,
        log_end=recovered.end,
        index_timestamp=checkpoint.last.index_timestamp,
    )


def _lower_checkpoint(checkpoint: CheckpointFile, index: KeyIndex) -> None:
    """Take back what the checkpoint says of index files that were cut, before they grow again."""
    if index.synced_timestamp < checkpoint.last.index_timestamp:
        lowered = msgspec.structs.replace(checkpoint.last, index_timestamp=index.synced_timestamp)
        checkpoint.save(lowered, checkpoint.position)
