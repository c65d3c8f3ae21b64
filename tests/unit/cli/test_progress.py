import io

from cometmq.cli.progress import QUIET_SECONDS, ProgressLine, progress_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_short_run_shows_nothing() -> None:
    terminal, clock = Terminal(), Clock()
    line = ProgressLine("checking", terminal, clock)

    clock.now += QUIET_SECONDS / 2
    line(50, 100)
    line.close()

    assert terminal.getvalue() == ""


def test_a_long_run_shows_one_line_that_goes_away() -> None:
    terminal, clock = Terminal(), Clock()
    line = ProgressLine("checking", terminal, clock)

    clock.now += QUIET_SECONDS
    line(2**20, 2**22)
    line(2**21, 2**22)  # too soon to be worth writing
    clock.now += 1
    line(2**22, 2**22)
    line.close()

    clear = "\r\x1b[K"
    assert terminal.getvalue() == (
        f"{clear}checking: 25% of 4 MiB{clear}checking: 100% of 4 MiB{clear}"
    )


def test_nothing_is_written_to_what_is_no_terminal() -> None:
    stream, clock = io.StringIO(), Clock()
    line = ProgressLine("checking", stream, clock)

    clock.now += 10
    line(1, 2)
    line.close()

    assert stream.getvalue() == ""


def test_without_standard_error_there_is_no_line() -> None:
    line = ProgressLine("checking", None)

    line(1, 2)
    line.close()

    with progress_line("checking") as other:
        other(0, 0)
    assert isinstance(other, ProgressLine)
