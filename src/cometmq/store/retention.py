"""What goes and when: how full the disk is, and which files of the log may be deleted.

Nothing here touches a file: the store measures, asks and deletes. Used share of the disk decides::

    up to 75 %    expired files go in the hours set for it
    above 75 %    expired files go at any hour
    above 85 %    the oldest files go whatever their age
    above 90 %    messages are refused as well, until the share has fallen to 85 %

A disk with enough free bytes is never too full, whatever its share: ten percent of a large disk is
a lot of room. Queue and index files follow the log and so are not asked about.
"""

import enum
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cometmq import logs
from cometmq.errors import SettingsError
from cometmq.store.config import StoreSettings
from cometmq.store.files import DiskUsage

_log = logs.get_logger("cometmq.store")

_HOUR_MS: Final = 3_600_000
_GIB: Final = 1 << 30


KEPT_MS_MAX: Final = 10 * 60 * 1000
"""How long an expired file may be kept for an archive before somebody is told."""


class DiskState(enum.IntEnum):
    """How full the disk is; each state does what those before it do, and more."""

    NORMAL = 0
    CLEANING = 1
    """Expired files are deleted at any hour."""
    FORCING = 2
    """The oldest files are deleted whatever their age."""
    REFUSING = 3
    """No message is taken."""


class Place(NamedTuple):
    """A folder and how full its disk is."""

    path: Path
    usage: DiskUsage


class DiskWatch:
    """How full the disk is, as last measured. Says in the log when that changes, once each time."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self.state = DiskState.NORMAL
        # Why the state is not NORMAL, for people; follows the numbers without being logged again.
        self.reason = ""
        # Log paths that should get no new files while there are others.
        self.full_paths: frozenset[Path] = frozenset()

    def use(self, settings: StoreSettings) -> None:
        """Judge by other limits from the next measurement on."""
        self._settings = settings

    def observe(self, log: Sequence[Place], queues: Place) -> DiskState:
        """Take new measurements: of every path that takes log files, and of the queues' path.

        Of several log paths the roomiest counts, since new files can go there.
        """
        assert log
        decisive = max(min(log, key=self._rank), queues, key=self._rank)
        before, self.state = self.state, self._next_state(decisive.usage)
        self.full_paths = frozenset(
            place.path for place in log if self._level(place.usage) >= DiskState.FORCING
        )
        said = self._sentence(decisive)
        self.reason = said if self.state else ""
        if self.state < before:
            _log.info("%s", said)
        elif self.state > before:
            level = logging.ERROR if self.state is DiskState.REFUSING else logging.WARNING
            _log.log(level, "%s", said)
        return self.state

    def _rank(self, place: Place) -> tuple[DiskState, int]:
        return self._level(place.usage), place.usage.percent

    def _level(self, usage: DiskUsage) -> DiskState:
        """What the numbers alone say."""
        settings = self._settings
        if 0 < settings.disk_free_bytes_enough <= usage.free:
            return DiskState.NORMAL
        if usage.percent > settings.disk_refuse_percent:
            return DiskState.REFUSING
        if usage.percent > settings.disk_force_percent:
            return DiskState.FORCING
        if usage.percent > settings.disk_clean_percent:
            return DiskState.CLEANING
        return DiskState.NORMAL

    def _next_state(self, usage: DiskUsage) -> DiskState:
        level = self._level(usage)
        # Between the two limits it stays as it was: taking and refusing would alternate otherwise.
        if level is DiskState.FORCING and self.state is DiskState.REFUSING:
            return DiskState.REFUSING
        return level

    def _sentence(self, place: Place) -> str:
        usage, settings = place.usage, self._settings
        facts = f"{place.path}: disk is {usage.percent} % used, {usage.free / _GIB:.1f} GiB free"
        if self.state is DiskState.REFUSING:
            limit = f"at most {settings.disk_force_percent} % are used"
            if settings.disk_free_bytes_enough:
                limit += f" or {settings.disk_free_bytes_enough / _GIB:.1f} GiB are free"
            return f"{facts}; messages are refused until {limit}: make room"
        if self.state is DiskState.FORCING and settings.is_forced_cleaning_allowed:
            return f"{facts}; the oldest files are deleted whatever their age"
        if self.state is DiskState.NORMAL:
            return f"{facts}; expired files are deleted in the hours set for it"
        return f"{facts}; expired files are deleted at any hour"


class Hold(NamedTuple):
    """``name`` still needs the log from ``offset`` on."""

    name: str
    offset: int


class LogFileFacts(NamedTuple):
    """A file of the log with positions ``[begin, end)``; ``is_last``: messages go there now."""

    path: Path
    begin: int
    end: int
    modified_ms: int
    is_last: bool


MayDelete = Callable[[Path, int, int], bool]
"""Whether a log file, with positions ``[begin, end)``, may go yet."""


def local_hour(now_ms: int) -> int:
    """The hour of the day, 0 to 23, where this machine is."""
    return time.localtime(now_ms // 1000).tm_hour


class Retention:
    """Which log files go now.

    ``hold`` tells who still needs the log and from where on; only files before that go. It does not
    count when the disk is so full that files go whatever their age: then messages that are in no
    archive are lost, and the log says so. ``may_delete`` has the last word on each, also then; when
    it raises, that counts as no.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        may_delete: MayDelete | None = None,
        hour_of: Callable[[int], int] = local_hour,
    ) -> None:
        self._settings = settings
        self._hours = _hours(settings)
        self._may_delete = may_delete
        self._hour_of = hour_of
        self.hold: Callable[[], Hold | None] = _nobody
        # Files that went although somebody needed them.
        self.overridden_count = 0
        # The file that should have gone in the last round and was not allowed to.
        self.held_back: LogFileFacts | None = None
        # The file about which a failing hook was reported; once each is enough.
        self._reported: Path | None = None
        # The same for files that are kept for somebody, and for those that could not be.
        # The file that is kept for an archive, since when, and whether that was told.
        self._kept: Path | None = None
        self._kept_since_ms = 0
        self._is_kept_told = False
        self._told_overridden: Path | None = None

    def use(self, settings: StoreSettings) -> None:
        """Go by other settings from the next round on; SettingsError when they make no sense."""
        self._hours = _hours(settings)
        self._settings = settings

    def expired(
        self,
        files: Sequence[LogFileFacts],
        *,
        now_ms: int,
        state: DiskState,
        at_any_hour: bool = False,
    ) -> list[LogFileFacts]:
        """The files to delete in this round, oldest first; ``files`` are in order of position.

        ``at_any_hour`` is for a person who asks for it: expired files go at once. The answer is
        always a beginning of ``files``, so that the log stays without gaps; whoever cannot delete
        one of them (still read by somebody) stops there and asks again in the next round.
        """
        self.held_back = None
        is_forced = state >= DiskState.FORCING and self._settings.is_forced_cleaning_allowed
        is_time = at_any_hour or state >= DiskState.CLEANING or self._is_hour(now_ms)
        modified_ms_max = now_ms - self._settings.retention_hours * _HOUR_MS
        going: list[LogFileFacts] = []
        if not is_time:
            return going
        hold = self.hold()
        for file in files[: self._settings.clean_files_max]:
            is_old = file.modified_ms <= modified_ms_max
            if file.is_last or not (is_old or is_forced):
                break
            if not self._may_go(file):
                break
            if not self._is_released(file, hold, now_ms, is_forced=is_forced):
                break
            going.append(file)
        return going

    def _is_hour(self, now_ms: int) -> bool:
        return self._hour_of(now_ms) in self._hours

    def _is_released(
        self, file: LogFileFacts, hold: Hold | None, now_ms: int, *, is_forced: bool
    ) -> bool:
        if hold is None or file.end <= hold.offset:
            return True
        if not is_forced:
            self.held_back = file
            if self._kept != file.path:
                self._kept, self._kept_since_ms, self._is_kept_told = file.path, now_ms, False
            # An archive is always a little behind; only one that stands still is worth a line.
            if now_ms - self._kept_since_ms >= KEPT_MS_MAX and not self._is_kept_told:
                self._is_kept_told = True
                _log.warning(
                    "file=%s is expired and kept: archive=%s has only got to %d; let it go on, or"
                    " remove it; when the disk is more than %d %% full the file goes",
                    file.path,
                    hold.name,
                    hold.offset,
                    self._settings.disk_force_percent,
                )
            return False
        if self._told_overridden != file.path:
            self._told_overridden = file.path
            self.overridden_count += 1
            _log.error(
                "file=%s goes before it was archived, the disk is too full: archive=%s has only got"
                " to %d",
                file.path,
                hold.name,
                hold.offset,
            )
        return True

    def _may_go(self, file: LogFileFacts) -> bool:
        if self._may_delete is None:
            return True
        try:
            may_go = self._may_delete(file.path, file.begin, file.end)
        except Exception:
            may_go = False
            if self._reported != file.path:
                self._reported = file.path
                _log.exception("%s: not deleted, asking whether it may go failed", file.path)
        if not may_go:
            self.held_back = file
        return may_go


def _nobody() -> Hold | None:
    return None


def _hours(settings: StoreSettings) -> frozenset[int]:
    for text in settings.deletion_hours:
        if not text.strip().isdecimal() or int(text) > 23:
            raise SettingsError("deleteWhen", f"'{text}' is no hour", "write 00 to 23, as 04;16")
    return frozenset(map(int, settings.deletion_hours))
