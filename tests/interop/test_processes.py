"""Processes are waited for and stopped within bounds, and an early death is told at once."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.interop import processes
from tests.interop.processes import Process, ProcessDiedError, ProcessNotReadyError


def is_gone_soon(group: int) -> bool:
    """Whether nobody is left in the process group, the dead ones reaped, within five seconds."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def shell(script: str, folder: Path) -> Process:
    return Process("server", ["sh", "-c", script], folder=folder)


@pytest.mark.slow
def test_waiting_ends_when_the_pattern_is_printed(tmp_path: Path) -> None:
    with shell("echo starting; echo boot success; sleep 30", tmp_path) as process:
        process.wait_until_printed("boot success", timeout_s=10)

        assert process.is_alive()
    assert not process.is_alive()


@pytest.mark.slow
def test_an_early_death_raises_at_once_with_the_last_lines(tmp_path: Path) -> None:
    begin = time.monotonic()

    with (
        shell("echo port in use >&2; exit 4", tmp_path) as process,
        pytest.raises(
            ProcessDiedError, match=r"server ended by itself with code 4; .*\nport in use"
        ),
    ):
        process.wait_until_printed("boot success", timeout_s=30)

    assert time.monotonic() - begin < 5


@pytest.mark.slow
def test_a_process_that_prints_and_ends_was_ready(tmp_path: Path) -> None:
    with shell("echo boot success", tmp_path) as process:
        process.wait_until_printed("boot success", timeout_s=10)


@pytest.mark.slow
def test_waiting_has_a_bound(tmp_path: Path) -> None:
    with (
        shell("echo still loading; sleep 30", tmp_path) as process,
        pytest.raises(
            ProcessNotReadyError, match=r"did not print 'boot' within 0\.2 s; .*\nstill load"
        ),
    ):
        process.wait_until_printed("boot", timeout_s=0.2)


@pytest.mark.slow
def test_stopping_is_polite_first(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done"
    process = shell(script, tmp_path)
    process.wait_until_printed("ready")

    assert process.stop() == 0
    assert process.log().endswith("bye\n")


@pytest.mark.slow
def test_who_ignores_the_polite_word_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; (trap '' TERM; echo child; sleep 30) & echo ready; wait"
    process = shell(script, tmp_path)
    process.wait_until_printed("(?s)child.*ready|ready.*child")

    assert process.stop(timeout_s=0.1) == -signal.SIGKILL
    assert is_gone_soon(process.pid)


@pytest.mark.slow
def test_a_running_process_is_known_until_it_is_stopped(tmp_path: Path) -> None:
    process = shell("sleep 30", tmp_path)

    assert process in processes.running
    process.kill()
    assert process not in processes.running


@pytest.mark.slow
def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    process = shell("exit 0", tmp_path)

    assert process.stop() == process.stop()


def test_a_process_has_a_group_of_its_own_and_no_input(tmp_path: Path) -> None:
    with shell("read line || echo no input", tmp_path) as process:
        group = os.getpgid(process.pid) if process.is_alive() else process.pid
        process.wait_until_printed("no input")

    assert group == process.pid
