"""Which log files go and when, and how full a disk may be."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import SettingsError
from cometmq.store.config import StoreSettings
from cometmq.store.files import DiskUsage
from cometmq.store.retention import (
    DiskState,
    DiskWatch,
    Hold,
    LogFileFacts,
    MayDelete,
    Place,
    Retention,
    local_hour,
)

GIB = 1 << 30
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
NORMAL, CLEANING, FORCING, REFUSING = DiskState


def settings(**changes: Any) -> StoreSettings:
    """Defaults, but for a free-space rule that would hide the used shares of small disks."""
    return StoreSettings(**{"disk_free_bytes_enough": 0, **changes})


def used(percent: float, *, whole: int = 1000 * GIB) -> DiskUsage:
    bytes_used = round(whole * percent / 100)
    return DiskUsage(bytes_used, whole - bytes_used)


LOG, QUEUES = Path("/log"), Path("/queues")


def watch_at(*percents: float, watch: DiskWatch | None = None) -> list[DiskState]:
    """The states as the one log disk gets that full, one after the other."""
    watch = watch or DiskWatch(settings())
    return [watch.observe([Place(LOG, used(p))], Place(QUEUES, used(1))) for p in percents]


class TestDiskState:
    @pytest.mark.parametrize(
        ("percent", "state"),
        [
            (0, NORMAL),
            (75, NORMAL),
            (75.01, CLEANING),  # shares are rounded up
            (76, CLEANING),
            (85, CLEANING),
            (85.01, FORCING),
            (90, FORCING),
            (90.01, REFUSING),
            (100, REFUSING),
        ],
    )
    def test_the_used_share_decides(self, percent: float, state: DiskState) -> None:
        assert watch_at(percent) == [state]

    def test_refusing_ends_at_the_lower_limit(self) -> None:
        states = watch_at(89, 91, 89, 86, 85, 86, 90, 91, 50)

        assert states == [
            FORCING, REFUSING, REFUSING, REFUSING, CLEANING, FORCING, FORCING, REFUSING, NORMAL
        ]  # fmt: skip

    def test_the_limits_are_settings(self) -> None:
        watch = DiskWatch(
            settings(disk_clean_percent=20, disk_force_percent=30, disk_refuse_percent=40)
        )

        states = watch_at(20, 21, 31, 41, 31, 30, watch=watch)

        assert states == [NORMAL, CLEANING, FORCING, REFUSING, REFUSING, CLEANING]

    def test_limits_in_the_wrong_order_refuse_and_recover_too(self) -> None:
        watch = DiskWatch(
            settings(disk_clean_percent=95, disk_force_percent=80, disk_refuse_percent=40)
        )

        assert watch_at(40, 41, 81, 40, watch=watch) == [NORMAL, REFUSING, REFUSING, NORMAL]

    @pytest.mark.parametrize(
        ("queues", "state"), [(70, NORMAL), (76, CLEANING), (86, FORCING), (91, REFUSING)]
    )
    def test_the_disk_of_the_queues_counts_as_well(self, queues: float, state: DiskState) -> None:
        watch = DiskWatch(settings())

        assert watch.observe([Place(LOG, used(1))], Place(QUEUES, used(queues))) is state
        assert watch.reason.startswith("/queues: ") or state is NORMAL

    def test_of_several_log_paths_the_roomiest_counts(self) -> None:
        watch = DiskWatch(settings())
        log = [
            Place(Path("/a"), used(99)),
            Place(Path("/b"), used(80)),
            Place(Path("/c"), used(86)),
        ]

        state = watch.observe(log, Place(QUEUES, used(1)))

        assert state is CLEANING
        assert watch.reason.startswith("/b: disk is 80 % used")
        assert watch.full_paths == {Path("/a"), Path("/c")}

    def test_a_path_with_room_again_is_no_longer_full(self) -> None:
        watch = DiskWatch(settings())
        watch_at(86, watch=watch)

        watch_at(85, watch=watch)

        assert watch.full_paths == set()

    def test_the_reason_says_what_is_the_case_and_what_helps(self) -> None:
        watch = DiskWatch(StoreSettings())

        watch.observe([Place(LOG, used(92, whole=100 * GIB))], Place(QUEUES, used(1)))

        assert watch.reason == (
            "/log: disk is 92 % used, 8.0 GiB free; messages are refused until at most 85 % are"
            " used or 20.0 GiB are free: make room"
        )

    def test_the_reason_follows_the_numbers(self) -> None:
        watch = DiskWatch(settings())

        watch_at(91, 89, watch=watch)
        while_refusing = watch.reason
        watch_at(50, watch=watch)

        assert while_refusing.startswith("/log: disk is 89 % used, 110.0 GiB free; messages are")
        assert watch.reason == ""


class TestFreeSpace:
    def test_a_large_disk_with_90_gb_free_does_not_refuse(self) -> None:
        watch = DiskWatch(StoreSettings())
        place = Place(LOG, DiskUsage(used=1910 * 10**9, free=90 * 10**9))

        assert place.usage.percent == 96
        assert watch.observe([place], place) is NORMAL
        assert watch.full_paths == set()

    @pytest.mark.parametrize(("free", "state"), [(20 * GIB, NORMAL), (20 * GIB - 1, REFUSING)])
    def test_enough_is_a_limit_like_any_other(self, free: int, state: DiskState) -> None:
        place = Place(LOG, DiskUsage(1000 * GIB, free))

        assert DiskWatch(StoreSettings()).observe([place], place) is state

    def test_it_ends_refusing_at_once(self) -> None:
        watch = DiskWatch(StoreSettings())
        full, relieved = (Place(LOG, DiskUsage(1000 * GIB, free * GIB)) for free in (1, 21))

        states = [watch.observe([place], place) for place in (full, relieved)]

        assert states == [REFUSING, NORMAL]

    def test_a_small_disk_goes_by_its_share(self) -> None:
        """Ten GiB can never have twenty free: that is no reason to refuse."""
        place = Place(LOG, used(50, whole=10 * GIB))

        assert DiskWatch(StoreSettings()).observe([place], place) is NORMAL

    def test_zero_leaves_it_to_the_shares(self) -> None:
        place = Place(LOG, DiskUsage(10_000 * GIB, 900 * GIB))

        assert DiskWatch(settings()).observe([place], place) is REFUSING


def at(percent: int, *, free: int) -> str:
    return f"/log: disk is {percent} % used, {free}.0 GiB free"


class TestDiskLog:
    @pytest.fixture(autouse=True)
    def _everything_is_heard(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "cometmq.store")

    def test_each_crossing_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        watch_at(70, 76, 77, 84, 86, 88, 91, 95, 89, 86, 84, 84, 60, 60)

        said = [(record.levelname, *record.getMessage().split("; ")) for record in caplog.records]
        assert said == [
            ("WARNING", at(76, free=240), "expired files are deleted at any hour"),
            ("WARNING", at(86, free=140), "the oldest files are deleted whatever their age"),
            (
                "ERROR",
                at(91, free=90),
                "messages are refused until at most 85 % are used: make room",
            ),
            ("INFO", at(84, free=160), "expired files are deleted at any hour"),
            ("INFO", at(60, free=400), "expired files are deleted in the hours set for it"),
        ]

    def test_crossing_again_is_said_again(self, caplog: pytest.LogCaptureFixture) -> None:
        watch_at(*[91, 50] * 3)

        assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"] * 3

    def test_a_leap_over_several_limits_is_one_crossing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        watch_at(99)

        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_a_disk_with_room_says_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        watch_at(10, 20, 75)

        assert caplog.messages == []

    def test_forcing_that_is_not_allowed_is_not_announced(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        watch_at(86, watch=DiskWatch(settings(is_forced_cleaning_allowed=False)))

        assert caplog.messages == [f"{at(86, free=140)}; expired files are deleted at any hour"]


def log_files(*ages_hours: float) -> list[LogFileFacts]:
    """Files of that age, oldest position first; the last is the one that is written."""
    return [
        LogFileFacts(
            path=Path(f"{number * 100:020}"),
            begin=number * 100,
            end=number * 100 + 100,
            modified_ms=NOW_MS - round(age * HOUR_MS),
            is_last=number == len(ages_hours) - 1,
        )
        for number, age in enumerate(ages_hours)
    ]


def begins(files: Iterable[LogFileFacts]) -> list[int]:
    return [file.begin for file in files]


def deleted(
    files: list[LogFileFacts],
    state: DiskState = NORMAL,
    *,
    hour: int = 4,
    at_any_hour: bool = False,
    may_delete: MayDelete | None = None,
    **changes: Any,
) -> list[int]:
    """Where the files begin that go."""
    retention = Retention(settings(**changes), may_delete=may_delete, hour_of=lambda _: hour)
    return begins(retention.expired(files, now_ms=NOW_MS, state=state, at_any_hour=at_any_hour))


class TestExpired:
    def test_age_counts_from_the_last_change(self) -> None:
        files = log_files(100, 72, 71.999, 1, 0)

        assert deleted(files) == [0, 100]
        assert deleted(files, retention_hours=1) == [0, 100, 200, 300]

    @pytest.mark.parametrize(
        ("state", "hour", "at_any_hour", "goes"),
        [
            (NORMAL, 4, False, "expired"),
            (NORMAL, 5, False, "nothing"),
            (NORMAL, 5, True, "expired"),
            (CLEANING, 4, False, "expired"),
            (CLEANING, 5, False, "expired"),
            (CLEANING, 5, True, "expired"),
            (FORCING, 4, False, "any"),
            (FORCING, 5, False, "any"),
            (REFUSING, 5, False, "any"),
        ],
    )
    def test_the_state_of_the_disk_and_the_hour_decide(
        self, state: DiskState, hour: int, at_any_hour: bool, goes: str
    ) -> None:
        files = log_files(100, 80, 5, 4, 0)

        gone = deleted(files, state, hour=hour, at_any_hour=at_any_hour)

        assert gone == {"nothing": [], "expired": [0, 100], "any": [0, 100, 200, 300]}[goes]

    @pytest.mark.parametrize("state", [FORCING, REFUSING])
    def test_without_permission_to_force_only_expired_files_go(self, state: DiskState) -> None:
        files = log_files(100, 5, 0)

        assert deleted(files, state, hour=5, is_forced_cleaning_allowed=False) == [0]

    @pytest.mark.parametrize("state", DiskState)
    def test_the_file_that_is_written_never_goes(self, state: DiskState) -> None:
        assert deleted(log_files(1000), state) == []
        assert deleted(log_files(1000, 1000), state) == [0]

    def test_files_allocated_ahead_of_the_last_stay(self) -> None:
        files = [*log_files(100, 100), LogFileFacts(Path("ahead"), 200, 300, 0, is_last=False)]

        assert deleted(files, REFUSING) == [0]

    @pytest.mark.parametrize("state", [NORMAL, FORCING])
    def test_one_round_takes_so_many_files(self, state: DiskState) -> None:
        files = log_files(*[100] * 25, 0)

        assert deleted(files, state) == list(range(0, 1000, 100))
        assert deleted(files, state, clean_files_max=3) == [0, 100, 200]

    def test_a_young_file_keeps_the_older_ones_behind_it(self) -> None:
        """The log has no gaps, whatever touched its first file."""
        assert deleted(log_files(1, 100, 100, 0)) == []

    def test_a_clock_that_was_turned_back_deletes_nothing(self) -> None:
        assert deleted(log_files(-5, -4, -3), CLEANING) == []

    def test_without_files_nothing_goes(self) -> None:
        assert deleted([], REFUSING) == []

    def test_retention_of_no_hours_keeps_only_the_last(self) -> None:
        assert deleted(log_files(0, 0, 0), retention_hours=0) == [0, 100]


class TestHours:
    @pytest.mark.parametrize(
        ("hours", "matching"),
        [
            (("04",), {4}),
            (("4",), {4}),
            (("00", "23"), {0, 23}),
            (("04", " 16 "), {4, 16}),
            ((), set()),
        ],
    )
    def test_expired_files_go_in_these_hours(
        self, hours: tuple[str, ...], matching: set[int]
    ) -> None:
        files = log_files(100, 0)

        when = {hour for hour in range(24) if deleted(files, hour=hour, deletion_hours=hours)}

        assert when == matching

    @pytest.mark.parametrize("text", ["24", "-1", "4.5", "four", ""])
    def test_what_is_no_hour_is_refused(self, text: str) -> None:
        with pytest.raises(SettingsError, match=r"deleteWhen.*is no hour.*04;16"):
            Retention(settings(deletion_hours=("04", text)))

    @pytest.mark.parametrize(("zone", "hour"), [(0, 22), (8, 6), (-5, 17), (5.5, 3)])
    def test_the_hour_is_that_of_the_place(self, zone: float, hour: int) -> None:
        here = timezone(timedelta(hours=zone))
        retention = Retention(
            settings(deletion_hours=(f"{hour:02}",)),
            hour_of=lambda now_ms: datetime.fromtimestamp(now_ms / 1000, here).hour,
        )
        files = log_files(100, 0)

        rounds = [
            begins(retention.expired(files, now_ms=NOW_MS + later * HOUR_MS, state=NORMAL))
            for later in (0, 1, 23, 24)
        ]

        assert rounds == [[0], [], [], [0]]

    def test_the_machine_tells_its_own_hour(self) -> None:
        there = datetime.fromtimestamp(NOW_MS / 1000).astimezone()

        assert local_hour(NOW_MS) == there.hour


class TestHook:
    def test_it_is_asked_about_each_file_that_should_go_and_no_other(self) -> None:
        asked = []

        def may_delete(path: Path, begin: int, end: int) -> bool:
            asked.append((path.name, begin, end))
            return True

        gone = deleted(log_files(100, 90, 5, 0), may_delete=may_delete)

        assert gone == [0, 100]
        assert asked == [("00000000000000000000", 0, 100), ("00000000000000000100", 100, 200)]

    @pytest.mark.parametrize("state", DiskState)
    def test_it_has_the_last_word_even_on_a_full_disk(self, state: DiskState) -> None:
        files = log_files(100, 100, 100, 0)

        assert deleted(files, state, may_delete=lambda _, begin, __: begin != 100) == [0]

    def test_what_it_holds_back_can_be_seen(self) -> None:
        answers = iter([True, False, True, True])
        retention = Retention(settings(), may_delete=lambda *_: next(answers))
        files = log_files(100, 100, 0)

        first = begins(retention.expired(files, now_ms=NOW_MS, state=CLEANING))
        held_back = retention.held_back
        second = begins(retention.expired(files, now_ms=NOW_MS, state=CLEANING))

        assert (first, held_back) == ([0], files[1])
        assert (second, retention.held_back) == ([0, 100], None)

    def test_its_failure_counts_as_no_and_is_said_once_a_file(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        failing = {0}

        def may_delete(path: Path, begin: int, end: int) -> bool:
            if begin in failing:
                raise ConnectionError("the archive is away")
            return True

        retention = Retention(settings(), may_delete=may_delete)
        files = log_files(100, 100, 0)
        rounds = []
        for broken_at in (0, 0, 0, 100, 100):
            failing = {broken_at}
            rounds.append(begins(retention.expired(files, now_ms=NOW_MS, state=CLEANING)))

        assert rounds == [[], [], [], [0], [0]]
        assert retention.held_back == files[1]
        assert caplog.messages == [
            f"{file.path}: not deleted, asking whether it may go failed" for file in files[:2]
        ]
        assert all("the archive is away" in (record.exc_text or "") for record in caplog.records)


class TestHold:
    """Files that an archive still needs."""

    @staticmethod
    def held_at(offset: int, **changes: Any) -> Retention:
        retention = Retention(settings(**changes))
        retention.hold = lambda: Hold("lake", offset)
        return retention

    @pytest.mark.parametrize(
        ("offset", "gone"), [(0, []), (99, []), (100, [0]), (250, [0, 100]), (999, [0, 100, 200])]
    )
    def test_only_files_that_lie_before_it_go(self, offset: int, gone: list[int]) -> None:
        retention = self.held_at(offset)

        found = retention.expired(log_files(100, 100, 100, 0), now_ms=NOW_MS, state=CLEANING)

        assert begins(found) == gone
        assert (retention.held_back is None) == (offset == 999)

    def test_that_a_file_is_kept_for_long_is_said_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        retention = self.held_at(50)

        for minutes in (0, 9):
            now_ms = NOW_MS + minutes * 60_000
            retention.expired(log_files(100, 0), now_ms=now_ms, state=CLEANING)
        early = list(caplog.messages)
        for minutes in (10, 11, 12):
            now_ms = NOW_MS + minutes * 60_000
            retention.expired(log_files(100, 0), now_ms=now_ms, state=CLEANING)

        assert early == []
        (line,) = caplog.messages
        assert "is expired and kept: archive=lake has only got to 50" in line

    @pytest.mark.parametrize("state", [FORCING, REFUSING])
    def test_a_full_disk_counts_for_more_and_it_is_said(
        self, state: DiskState, caplog: pytest.LogCaptureFixture
    ) -> None:
        retention = self.held_at(100)

        retention.expired(log_files(5, 5, 0), now_ms=NOW_MS, state=state)
        found = retention.expired(log_files(5, 5, 0), now_ms=NOW_MS, state=state)

        assert begins(found) == [0, 100]
        assert retention.overridden_count == 1
        (line,) = caplog.messages
        assert "goes before it was archived, the disk is too full: archive=lake" in line

    def test_unless_nothing_may_be_deleted_by_force(self) -> None:
        retention = self.held_at(100, is_forced_cleaning_allowed=False)

        found = retention.expired(log_files(100, 100, 0), now_ms=NOW_MS, state=REFUSING)

        assert begins(found) == [0]
        assert retention.overridden_count == 0

    def test_what_may_not_go_for_other_reasons_is_not_said_to_go(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        retention = Retention(settings(), may_delete=lambda *_: False)
        retention.hold = lambda: Hold("lake", 0)

        assert retention.expired(log_files(100, 0), now_ms=NOW_MS, state=FORCING) == []
        assert caplog.messages == []
