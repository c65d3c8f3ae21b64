"""The whole check: files, then the log together with the queues, then the index."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cometmq.codec import checkpoint, fastjson, index_entry
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.checkpoint import Checkpoint
from cometmq.errors import DamagedStore, RemoteProtocolError
from cometmq.store.check.context import Context
from cometmq.store.check.index import IndexCheck
from cometmq.store.check.log import LogWalk
from cometmq.store.check.queues import QueueCheck
from cometmq.store.check.reading import Mappings, ReadOnlyFiles, Segments
from cometmq.store.check.report import Kind, Report, Severity
from cometmq.store.config import StoreSettings
from cometmq.store.directory import Damage, Layout, file_offset
from cometmq.store.foreign import refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.store.files import Files

    Progress = Callable[[int, int], None]

KNOWN_NAMES: Final = frozenset(
    (
        *("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "config"),
        *("checkpoint", "abort", "abort.bak", "lock", "timerwheel", "timerlog", "compaction"),
        *("rocksdbstore", "consumequeue_rocksdb", "kvStore", "transaction"),
        *("epochFileCheckpoint", "epochFileCheckpoint.bak", "brokerIdentity"),
    )
)
KNOWN_PREFIXES: Final = ("dledger-", "timerwheel.")
"""What CometMQ or a broker of Apache's puts into a store directory."""

_KINDS: Final = {
    Damage.SIZE: Kind.FILE_SIZE,
    Damage.NAME: Kind.FILE_NAME,
    Damage.GAP: Kind.FILE_MISSING,
}
_CHECKPOINT_BYTES_MIN: Final = 40
_CLOCK_TOLERANCE_MS: Final = 3000
_PROGRESS_BYTES: Final = 1024 * 1024


def check(
    root: Path,
    settings: StoreSettings | None = None,
    *,
    files: Files | None = None,
    progress: Progress | None = None,
) -> Report:
    """Tell whether the store below ``root`` is consistent; it must not be written to meanwhile.

    Nothing is written, created or locked, and memory grows with the number of queues, not with
    that of messages. ``settings`` tell where the log lies, if elsewhere, and the delay levels:
    without them any delivery time of a delayed message is believed. ``progress`` is told now and
    then how many bytes of how many are done. Raises ForeignStore when another engine wrote the
    store, and OSError when a file cannot be read.
    """
    return _Check(root, settings, files or ReadOnlyFiles(), progress or (lambda *_: None)).run()


class _Check:
    def __init__(
        self, root: Path, settings: StoreSettings | None, files: Files, progress: Progress
    ) -> None:
        refuse_foreign(root, files)
        self._files = files
        self._progress = progress
        self._delays_ms = None if settings is None else settings.delays_ms()
        self._report = Report(root)
        self._layout = Layout.survey(
            root, settings or StoreSettings(), files, on_damage=self._add_damage
        )
        self._mappings = Mappings(files)
        self._log = Segments(self._layout.log_files, self._layout.log_file_bytes, self._mappings)
        self._context = Context(self._report, self._layout, files, self._mappings, self._log)
        self._report.is_killed = files.read(self._layout.abort) is not None
        # What was vouched for by position, and by time.
        self._position: int | None = None
        self._checkpoint = self._read_checkpoint()
        if self._report.is_killed:
            self._context.mended_from = self._recovery_begin()
        self._log_bytes = len(self._log.paths) * self._log.file_bytes
        slots, entries = self._layout.index_slots, self._layout.index_entries
        self._index_file_bytes = index_entry.file_bytes(slots, entries)
        self._told_bytes = 0

    def run(self) -> Report:
        try:
            self._check_names()
            self._check_log()
            self._check_index()
        finally:
            self._mappings.close()
        return self._report

    def _check_names(self) -> None:
        layout = self._layout
        for path in layout.removable:
            text = "file is empty: its creation was cut short"
            self._report.add(Kind.FILE_SIZE, Severity.RECOVERABLE, path, None, text)
        strays = list(layout.strays)
        strays += [
            layout.root / entry.name
            for entry in self._files.entries(layout.root)
            if entry.name not in KNOWN_NAMES and not entry.name.startswith(KNOWN_PREFIXES)
        ]
        for path in strays:
            text = "this is not part of a store"
            self._report.add(Kind.ORPHAN, Severity.NOTE, path, None, text)

    def _check_log(self) -> None:
        report = self._report
        queues = QueueCheck(self._context, delays_ms=self._delays_ms)
        walk = LogWalk(self._context, queues)
        report.log_begin = self._log.begin
        for record in walk.records():
            report.records += 1
            queues.record(record)
            self._tell(walk.end - self._log.begin)
        report.log_end = walk.end
        queues.finish(walk.end, self._topics())

    def _check_index(self) -> None:
        index = IndexCheck(self._context)
        safe_until_ms = self._checkpoint.index_timestamp if self._report.is_killed else None
        done = self._log_bytes
        for path in self._layout.index_files:
            index.file(path, safe_until_ms=safe_until_ms, progress=partial(self._tell_more, done))
            done += self._index_file_bytes
        self._progress(done, done)

    def _tell_more(self, before: int, done: int) -> None:
        self._tell(before + done)

    def _tell(self, done: int) -> None:
        if done >= self._told_bytes + _PROGRESS_BYTES:
            self._told_bytes = done
            index_bytes = len(self._layout.index_files) * self._index_file_bytes
            self._progress(done, self._log_bytes + index_bytes)

    def _recovery_begin(self) -> int:
        """What the checkpoint does not vouch for begins here, and opening the store mends it.

        By position, or without one it is the newest file whose first message is old enough.
        """
        if not self._layout.has_queue_folder:
            return self._log.begin
        if self._position is not None and self._log.begin <= self._position <= self._log.end:
            return self._position
        stamps = (self._checkpoint.log_timestamp, self._checkpoint.queue_timestamp)
        safe_until_ms = max(0, min(stamps) - _CLOCK_TOLERANCE_MS)
        for path in reversed(self._log.paths):
            first = self._log.record_at(file_offset(path))
            if first is not None and 0 < first.store_timestamp <= safe_until_ms:
                return file_offset(path)
        return self._log.begin

    def _read_checkpoint(self) -> Checkpoint:
        page = self._files.read(self._layout.checkpoint)
        if page is None:
            return Checkpoint()
        if len(page) < _CHECKPOINT_BYTES_MIN:
            text = f"file has {len(page)} bytes, a checkpoint has {checkpoint.PAGE_BYTES}"
            severity = Severity.RECOVERABLE if self._report.is_killed else Severity.ERROR
            self._report.add(Kind.FILE_SIZE, severity, self._layout.checkpoint, None, text)
            return Checkpoint()
        self._position = checkpoint.unpack_position(page)
        return checkpoint.unpack(page)

    def _topics(self) -> frozenset[str]:
        content = self._files.read(self._layout.config_folder / "topics.json")
        if not content:
            return frozenset()
        try:
            return frozenset(fastjson.decode(content, TopicConfigTable).topic_config_table)
        except RemoteProtocolError:
            return frozenset()

    def _add_damage(self, damage: Damage, error: DamagedStore) -> None:
        self._report.add(_KINDS[damage], Severity.ERROR, Path(error.path), None, error.problem)
