"""``cometmq top``: a cluster's rates, lags, clients, disks and flushes, again and again."""

import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.connection import Target, cluster_options, explained, run, target_of
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Format
from cometmq.cli.times import DURATION, brief_duration
from cometmq.clock import SystemClock
from cometmq.errors import CometError

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.cli.cluster_view import ClusterView
    from cometmq.cli.table import Paint

_COLOURS = {"down": "red", "full": "red", "high": "yellow"}


@click.command(
    "top",
    cls=Command,
    examples=(
        Example("Once, for a script", "cometmq top -o json", needs_cluster=True),
        Example("Once, for a person", "cometmq top --once", needs_cluster=True),
    ),
)
@click.option("--once", "is_once", is_flag=True, help="Print it once and end.")
@click.option(
    "--every",
    "interval_ms",
    type=DURATION,
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Look again after so long.",
)
@click.option("--system", "has_system", is_flag=True, help="Also RocketMQ's own groups.")
@cluster_options
@pass_frame
def command(frame: Frame, /, is_once: bool, interval_ms: int, has_system: bool) -> None:
    """Watch rates, lag, connections and disks.

    Press q to quit, the space bar to look now. IN/S and OUT/S are messages per second, since the
    last look or, the first time and with --once, over the last ten seconds. P99 MS: 99 % of sends
    took at most this long, as the broker tells it; Apache's count waiting for the disk, ours do
    not. FLUSH MS: the same of flushes to disk in the last minute, for which senders wait with
    SYNC_FLUSH; Apache's do not tell. UNFLUSHED is written but not on disk yet, BEHIND not in the
    queues yet. CHANGE/S is by how much the lag grows.

    With -o json, yaml or plain, and where standard output is no terminal, it prints once.
    """
    target = target_of(frame)
    is_live = not is_once and frame.output in (None, Format.TABLE) and sys.stdout.isatty()
    with explained(target):
        if is_live:
            with contextlib.suppress(KeyboardInterrupt):  # which quits it, as q does
                run(_live(frame, target, interval_ms / 1000, has_system))
        else:
            run(_once(frame, target, has_system))


async def _once(frame: Frame, target: Target, has_system: bool) -> None:
    from cometmq.cli.cluster_screen import fields_of, lines_of
    from cometmq.cli.cluster_view import look

    async with target.admin() as admin:
        view = await look(admin, SystemClock().now_ms(), has_system=has_system)
    if frame.output not in (None, Format.TABLE):
        frame.show_record(fields_of(view))
        return
    width = frame.printer.screen.width
    frame.write("\n".join(lines_of(view, width=width, paint=_paint(frame))) + "\n")


async def _live(frame: Frame, target: Target, interval: float, has_system: bool) -> None:
    from cometmq.cli.live_view import LiveView, run_on_terminal

    async with target.admin() as admin:
        watch = _Watch(admin, target.namesrv, interval, _paint(frame), has_system=has_system)
        await watch.refresh()  # before the terminal is taken: what is wrong is said on it
        view = LiveView(watch.refresh, watch.lines, interval=interval, output=sys.stdout)
        await run_on_terminal(view)


def _paint(frame: Frame) -> "Paint":
    from cometmq.cli.table import unpainted

    if not frame.printer.screen.has_colour:
        return unpainted

    def paint(kind: str, text: str) -> str:
        return click.style(text, fg=_COLOURS[kind]) if kind else click.style(text, bold=True)

    return paint


class _Watch:
    """What was seen last, and before that."""

    def __init__(
        self,
        admin: "Admin",
        where: str,
        interval: float,
        paint: "Callable[[str, str], str]",
        *,
        has_system: bool,
    ) -> None:
        self._admin = admin
        self._where = where
        self._interval = interval
        self._paint = paint
        self._has_system = has_system
        self._seen: ClusterView | None = None  # as brokers told it
        self._shown: ClusterView | None = None  # with rates since the time before
        self._problem = ""

    async def refresh(self) -> None:
        """Look again; a cluster that does not answer is shown as it was."""
        from cometmq.cli.cluster_view import look, since

        now_ms = SystemClock().now_ms()
        try:
            view = await look(self._admin, now_ms, has_system=self._has_system)
        except CometError as error:
            if self._seen is None:
                raise
            self._problem = error.fact
            return
        self._problem = ""
        self._shown = view if self._seen is None else since(self._seen, view)
        self._seen = view

    def lines(self, width: int) -> list[str]:
        from cometmq.cli.cluster_screen import cut, lines_of
        from cometmq.cli.times import local_time

        assert self._shown is not None
        time = (local_time(self._shown.time_ms) or "")[11:]
        every = brief_duration(self._interval * 1000).replace(".0s", "s")
        head = cut(f"cometmq top  {self._where}  {time}  every {every}  q quits", width)
        lines = [head, *lines_of(self._shown, width=width, paint=self._paint)]
        if self._problem:
            lines.insert(1, self._paint("down", cut(self._problem, width)))
        return lines
