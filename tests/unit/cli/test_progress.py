import io

from cometmq.cli.progress import QUIET_SECONDS, CountLine, ProgressLine, progress_line


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


def count_line(
    whole: int | None, terminal: io.StringIO, clock: Clock, *, is_alone: bool = True
) -> CountLine:
    return CountLine("sending", whole, is_alone=is_alone, stream=terminal, clock=clock)


def test_a_count_has_a_bar_where_the_whole_is_known() -> None:
    terminal, clock = Terminal(), Clock()

    with count_line(200, terminal, clock) as line:
        clock.now += QUIET_SECONDS
        line.add(50)

    bar = "######" + "." * 18
    assert terminal.getvalue() == f"\r\x1b[Ksending: [{bar}] 50 of 200, 50/s\r\x1b[K"


def test_a_count_without_a_known_end_says_how_many_and_how_fast() -> None:
    terminal, clock = Terminal(), Clock()

    with count_line(None, terminal, clock) as line:
        line.add(10)
        clock.now += 2
        line.add(10)

    assert terminal.getvalue() == "\r\x1b[Ksending: 20, 10/s\r\x1b[K"


def test_a_count_is_for_terminals_only() -> None:
    text, clock = io.StringIO(), Clock()

    with count_line(None, text, clock) as line:
        clock.now += 5
        line.add(10)

    assert text.getvalue() == ""
