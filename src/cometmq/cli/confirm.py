"""Asking before something is destroyed: ``--yes`` answers, ``--dry-run`` only shows.

A command that destroys takes both with ``@destroying`` and calls ``confirm`` when it knows what is
at stake.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from cometmq.cli.frame import Frame
from cometmq.cli.problems import Misuse

F = TypeVar("F", bound=Callable[..., Any])


def dry_run_option(function: F) -> F:
    """Give a command ``--dry-run`` as ``is_dry_run``."""
    decorate = click.option(
        "--dry-run", "is_dry_run", is_flag=True, help="Show what would be done and do nothing."
    )
    return decorate(function)


def destroying(function: F) -> F:
    """Give a command ``--dry-run`` and ``--yes`` as ``is_dry_run`` and ``is_sure``."""
    decorate = click.option("--yes", "is_sure", is_flag=True, help="Do not ask, do it.")
    return dry_run_option(decorate(function))


def confirm(frame: Frame, what: str, *, is_sure: bool) -> None:
    """Go on only when ``what`` is wanted: "delete topic 'orders' with 12 messages".

    Asks on standard error, so that output stays what was asked for. Raises Misuse when nobody can
    be asked, and ClickException when the answer is no.
    """
    if is_sure:
        return
    if not _is_somebody_there():
        raise Misuse(f"not sure whether to {what}: nobody is here to ask", "add --yes to do it")
    mark = click.style("?", fg="yellow") if frame.has_colour_errors else "?"
    if not click.confirm(f"{mark} {what}", err=True):
        raise click.ClickException("nothing was changed")


def _is_somebody_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
