"""Commands end within their bound, and a failure tells what was said."""

import time

import pytest

from tests.interop.commands import CommandError, run, tail


def test_the_output_of_a_command_is_returned() -> None:
    assert run(["sh", "-c", "echo out; echo err >&2"], timeout_s=10) == "out\n"


def test_an_exit_code_raises_with_the_last_lines() -> None:
    with pytest.raises(CommandError, match="exit code 3; its last lines:\nout\nerr"):
        run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10)


@pytest.mark.slow
def test_a_command_and_its_children_are_killed_at_the_bound() -> None:
    begin = time.monotonic()

    # The child keeps standard output open: only killing the whole group ends the wait.
    with pytest.raises(CommandError, match=r"killed after 0\.1 s; its last lines:\nstarted"):
        run(["sh", "-c", "echo started; sleep 30 & sleep 30"], timeout_s=0.1)

    assert time.monotonic() - begin < 5


def test_additions_to_the_environment_do_not_replace_it() -> None:
    assert run(["sh", "-c", "echo $ADDED"], timeout_s=10, env={"ADDED": "yes"}) == "yes\n"


def test_a_command_has_no_standard_input() -> None:
    assert run(["cat"], timeout_s=10) == ""


def test_a_tail_says_how_much_is_missing() -> None:
    assert tail("a\nb\nc\nd", lines=2) == "… 2 lines before …\nc\nd"
    assert tail("a\nb", lines=2) == "a\nb"
