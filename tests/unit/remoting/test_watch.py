"""How long a peer may take; no clock runs here."""

import pytest

from cometmq.remoting.config import ChannelSettings
from cometmq.remoting.watch import Verdict, Watch

SETTINGS = ChannelSettings(idle_seconds_max=120, frame_seconds_max=60, stalled_seconds_max=30)
START = 1000.0


@pytest.fixture
def watch() -> Watch:
    return Watch(SETTINGS, START)


def test_silence_in_both_directions_ends_a_connection_without_a_fault(watch: Watch) -> None:
    watch.note_read(START + 50, is_partial=False, is_progress=True)

    assert watch.verdict(START + 170, 0) is None
    assert watch.verdict(START + 171, 0) == Verdict("idle for 120 s", is_fault=False)


def test_what_we_send_is_no_silence(watch: Watch) -> None:
    assert watch.verdict(START + 100, 10) is None

    assert watch.verdict(START + 220, 10) is None
    assert watch.verdict(START + 221, 10) == Verdict("idle for 120 s", is_fault=False)


def test_a_frame_that_takes_too_long_is_a_fault_however_busy_its_sender(watch: Watch) -> None:
    for second in range(61):
        watch.note_read(START + second, is_partial=True, is_progress=False)
        assert watch.verdict(START + second, 0) is None

    assert watch.verdict(START + 61, 0) == Verdict("took more than 60 s for one frame", True)


def test_each_frame_has_its_own_time(watch: Watch) -> None:
    """Under load nearly every read ends in the middle of some frame, each time another one."""
    for second in range(0, 600, 50):
        watch.note_read(START + second, is_partial=True, is_progress=True)
        assert watch.verdict(START + second + 50, 0) is None


def test_a_frame_that_was_completed_has_no_time_any_more(watch: Watch) -> None:
    watch.note_read(START, is_partial=True, is_progress=False)
    watch.note_read(START + 59, is_partial=False, is_progress=True)

    assert watch.verdict(START + 100, 0) is None


def test_a_peer_that_stops_reading_is_a_fault_after_its_time(watch: Watch) -> None:
    watch.note_stall(START, sent_bytes=500)

    assert watch.verdict(START + 30, 500) is None
    assert watch.verdict(START + 31, 500) == Verdict("left answers unread for 30 s", True)


def test_a_peer_that_reads_slowly_is_none(watch: Watch) -> None:
    """Four megabytes over a thin line take longer than any limit; nobody is idle meanwhile."""
    watch.note_stall(START, sent_bytes=0)

    for second in range(20, 400, 20):
        assert watch.verdict(START + second, second * 1000) is None
    watch.note_flow(START + 400)

    assert watch.verdict(START + 420, 400_000) is None


def test_a_peer_that_reads_again_is_forgiven(watch: Watch) -> None:
    watch.note_stall(START, sent_bytes=0)
    watch.note_flow(START + 29)

    assert watch.verdict(START + 60, 0) is None


def test_nobody_is_late_with_a_frame_while_we_do_not_read(watch: Watch) -> None:
    watch.note_read(START, is_partial=True, is_progress=False)
    watch.note_stall(START, sent_bytes=0)
    for second in range(10, 110, 10):
        assert watch.verdict(START + second, second) is None
    watch.note_flow(START + 100)

    assert watch.verdict(START + 160, 100) is None
    assert watch.verdict(START + 161, 100) == Verdict("took more than 60 s for one frame", True)


def test_a_look_is_taken_often_enough_for_the_shortest_limit() -> None:
    settings = ChannelSettings(idle_seconds_max=8, frame_seconds_max=2, stalled_seconds_max=4)

    assert Watch(settings, START).interval == 0.5
