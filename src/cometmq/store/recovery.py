"""What is left of a store when it is opened: where the log ends, and queues and index in line.

After a clean stop everything is on disk and the queues say where the log ends; only records behind
the newest entry are read. Otherwise (the file ``abort`` is there) the log is read from the last
file that the checkpoint vouches for, checksums included, up to the first byte that is no record.
What lies behind is cleared, on disk too: an old record there could otherwise join a later chain.

Every step may be cut short by another crash and simply runs again.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from cometmq.codec import core, record
from cometmq.codec.checkpoint import Checkpoint
from cometmq.codec.digest import Ending, store_timestamp
from cometmq.codec.record import MAGIC_V1, MAGIC_V2
from cometmq.logs import get_logger
from cometmq.store.mapped_file import MappedFile
from cometmq.store.mapped_file_queue import MappedFileQueue
from cometmq.store.queue_mending import find_suspects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cometmq.store.checkpoint import CheckpointFile
    from cometmq.store.config import StoreSettings
    from cometmq.store.consume_queues import ConsumeQueues
    from cometmq.store.directory import Layout
    from cometmq.store.files import Files
    from cometmq.store.queue_mending import Suspect

_RECORDS_AT_ONCE: Final = 4096
_log = get_logger(__name__)


class RecoveredLog(NamedTuple):
    """The log's files, where it ends, and from where its records must be dispatched again."""

    files: MappedFileQueue
    begin: int
    end: int
    dispatch_begin: int
    last_timestamp: int
    suspects: Sequence[Suspect] = ()
    """Queues that are to be mended, up to where dispatching begins."""


def recover_log(
    layout: Layout,
    files: Files,
    settings: StoreSettings,
    queues: ConsumeQueues,
    checkpoint: CheckpointFile,
    *,
    is_clean: bool,
) -> RecoveredLog:
    """Map the log, load the queues, find where both end, and clear what lies behind."""
    for path in layout.removable:
        files.remove(path)
    size = layout.log_file_bytes
    log = MappedFileQueue(files, size, [MappedFile(files, path, size) for path in layout.log_files])
    first = log.first
    vouched = None if first is None else _vouched_begin(log, checkpoint)
    queues.load(vouched=None if is_clean else vouched)
    if first is None or vouched is None:
        queues.truncate(0)
        return RecoveredLog(log, 0, 0, 0, 0)
    suspects = find_suspects(log, queues, vouched=None if is_clean else vouched)
    newest = max(
        [queues.newest_record() or (-1, -1), *(suspect.newest for suspect in suspects)],
        key=itemgetter(1),
    )
    if not layout.has_queue_folder or (is_clean and not all(layout.queue_files.values())):
        # A clean stop leaves no queue without its last file: somebody took it away since.
        checkpoint.save(Checkpoint(), first.begin)
        begin = first.begin
    elif is_clean and newest[1] >= 0:
        begin, is_clean = _clean_begin(log, *newest)
    elif is_clean:
        # No topic has a message. Another program may have cut the log since the position was saved.
        at_position = None if checkpoint.position is None else log.find(vouched)
        begin = (at_position or first).begin
    else:
        begin = vouched
    check_crc = settings.is_crc_checked_on_recovery and not is_clean
    end, last_timestamp = _find_end(log, begin, check_crc=check_crc)
    _cut(log, end)
    queues.truncate(end)
    dispatch_begin = begin
    if is_clean and checkpoint.position is not None:
        # What has no entry before it belongs to topics that were deleted, and stays so.
        dispatch_begin = max(begin, checkpoint.position)
    if not is_clean:
        queues.drop_empty()
        # A process that was killed left pages that no disk has seen.
        for file in log.between(begin, end):
            file.sync()
        _log.info("recovered the log to %d, read from %d", end, begin)
    dispatch_begin = min(dispatch_begin, end)
    return RecoveredLog(log, first.begin, end, dispatch_begin, last_timestamp, suspects)


def _vouched_begin(log: MappedFileQueue, checkpoint: CheckpointFile) -> int:
    """The log position up to which the checkpoint says that everything is on disk.

    Only our own say it by position. Others give a time: then it is the begin of the newest file
    whose first record is old enough.
    """
    position, begin_ms = checkpoint.position, checkpoint.begin_ms
    assert log.first is not None
    assert log.last is not None
    if position is not None and log.first.begin <= position <= log.last.end:
        return position
    for file in reversed(tuple(log)):
        size, magic = record.peek(file.view, 0)
        if magic in (MAGIC_V1, MAGIC_V2) and size > 0:
            timestamp = store_timestamp(file.view, 0)
            if 0 < timestamp <= begin_ms:
                return file.begin
    return log.first.begin


def _clean_begin(log: MappedFileQueue, begin: int, end: int) -> tuple[int, bool]:
    """Where the newest record in a queue, ``[begin, end)``, ends.

    If it is not whole this was no clean stop after all, and its file is to be read.
    """
    assert log.first is not None
    if end <= log.first.begin:
        return log.first.begin, True
    file = log.find(begin)
    if file is not None and end <= file.end:
        position = begin - file.begin
        walk = core.walk_records(file.view, position, end - file.begin, file.begin, 2, True)
        if walk.ending == Ending.END and len(walk.digests) == 1:
            return end, True
    _log.warning("queues know a record at %d that the log does not have: reading the log", begin)
    file = file or log.last
    assert file is not None
    return file.begin, False


def _find_end(log: MappedFileQueue, begin: int, *, check_crc: bool) -> tuple[int, int]:
    """Walk the records from ``begin``; return where they end and the last one's store time."""
    offset, last_timestamp = begin, 0
    while (file := log.find(offset)) is not None:
        digests, position, ending = core.walk_records(
            file.view, offset - file.begin, file.size, file.begin, _RECORDS_AT_ONCE, check_crc
        )
        if digests:
            last_timestamp = digests[-1][6]
        offset = file.begin + position
        if ending == Ending.BLANK:
            size, _ = record.peek(file.view, position)
            if size != file.size - position:
                break  # a blank always reaches to the end of its file
            offset = file.end
        elif ending != Ending.END:
            break
    return offset, last_timestamp


def _cut(log: MappedFileQueue, end: int) -> None:
    """Remove the files behind ``end`` and clear the rest of the one it lies in."""
    assert log.first is not None
    # An empty log keeps its first file: its name says where the log goes on.
    dropped = log.drop_after(max(end, log.first.begin + 1))
    if dropped:
        _log.info("removed %d log files behind the end at %d", len(dropped), end)
    file = log.find(end)
    if file is not None and file.clear_from(end - file.begin):
        _log.warning("file=%s cleared from %d on: it held no whole record", file.path, end)
