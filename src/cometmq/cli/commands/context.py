"""``cometmq context``: clusters by name."""

from pathlib import Path
from typing import Any

import click

from cometmq.cli.command import Command, Example, Group
from cometmq.cli.completion import complete_contexts
from cometmq.cli.confirm import confirm, destroying
from cometmq.cli.connection import cluster_options, target_of
from cometmq.cli.contexts import (
    ContextEntry,
    Contexts,
    contexts_path,
    read_contexts,
    write_contexts,
)
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.output import Record
from cometmq.cli.problems import Misuse
from cometmq.remoting.addresses import name_servers_in

_COLUMNS = ("name", "is_current", "namesrv", "access_key", "secret_key_file", "tls")


@click.group(
    "context",
    cls=Group,
    examples=(
        Example("A cluster to work with", "cometmq context set local --namesrv 127.0.0.1:9876"),
        Example("Where would a command go?", "cometmq context show"),
    ),
)
def command() -> None:
    """Clusters by name, so that nobody types an address twice.

    They are kept in ~/.config/cometmq/contexts.toml. A command uses the cluster of --namesrv, else
    of --context or COMETMQ_CONTEXT, else of NAMESRV_ADDR, else the current context, else the one at
    127.0.0.1:9876.
    """


@command.command(
    "ls", cls=Command, examples=(Example("Which ones are there?", "cometmq context ls -o json"),)
)
@pass_frame
def ls_command(frame: Frame) -> None:
    """List contexts."""
    contexts = _read(frame)
    rows = [_record(contexts, name) for name in contexts.entries]
    if rows or frame.is_for_programs:
        shown = [{**row, "is_current": row["is_current"] or None} for row in rows]
        frame.show_rows(rows if frame.is_for_programs else shown, columns=_COLUMNS)
    else:
        frame.note("there is no context; 'cometmq context set NAME --namesrv host:9876' makes one")


@command.command(
    "set",
    cls=Command,
    examples=(
        Example("A cluster to work with", "cometmq context set local --namesrv 127.0.0.1:9876"),
    ),
)
@click.argument("name", shell_complete=complete_contexts)
@click.option("--use", "is_used", is_flag=True, help="Make it the current one.")
@cluster_options
@pass_frame
def set_command(frame: Frame, /, name: str, is_used: bool) -> None:
    """Make or change the context NAME.

    What is given here holds from then on, what is not stays as it is. The first context becomes the
    current one. Of a secret only the file's name is kept.
    """
    given = {key: value for key, value in frame.cluster_flags.items() if key != "context"}
    if not name.strip():
        raise Misuse("the name of the context is blank", "name it, such as dev")
    if not given:
        raise Misuse(f"nothing is given for context '{name}'", "give --namesrv, see --help")
    if "namesrv" in given:
        name_servers_in(given["namesrv"], "write host:port;host2:port")  # only to refuse others
    for key in ("secret_key_file", "tls_ca", "tls_cert", "tls_key"):
        if key in given:
            given[key] = str(Path(given[key]).expanduser().absolute())
    contexts = _read(frame)
    before = contexts.entries.get(name, ContextEntry())
    contexts = contexts.with_entry(name, ContextEntry(**{**before.said(), **given}))
    if is_used or len(contexts.entries) == 1:
        contexts = contexts.using(name)
    write_contexts(contexts_path(frame.environment), contexts)
    _show(frame, _record(contexts, name))


@command.command(
    "use",
    cls=Command,
    examples=(
        Example(
            "From now on",
            "cometmq context set local --namesrv 127.0.0.1:9876 && cometmq context use local",
        ),
    ),
)
@click.argument("name", shell_complete=complete_contexts)
@pass_frame
def use_command(frame: Frame, /, name: str) -> None:
    """Make NAME the context of every command that names no other."""
    contexts = _read(frame).using(name)
    write_contexts(contexts_path(frame.environment), contexts)
    _show(frame, _record(contexts, name))


@command.command(
    "show",
    cls=Command,
    examples=(Example("Where would a command go?", "cometmq context show"),),
)
@cluster_options
@pass_frame
def show_command(frame: Frame) -> None:
    """Which cluster a command would use now, and why."""
    target = target_of(frame)
    frame.show_record(
        {
            "namesrv": target.namesrv,
            "source": target.source,
            "access_key": target.access_key,
            "has_secret_key": target.secret_key is not None,
            "tls": target.tls is not None,
            "timeout_ms": target.timeout_ms,
            "file": str(contexts_path(frame.environment)),
        }
    )


@command.command(
    "delete",
    cls=Command,
    examples=(
        Example(
            "Forget it",
            "cometmq context set old --namesrv 127.0.0.1:9876 && cometmq context delete old --yes",
        ),
    ),
)
@click.argument("name", shell_complete=complete_contexts)
@destroying
@pass_frame
def delete_command(frame: Frame, /, name: str, is_dry_run: bool, is_sure: bool) -> None:
    """Forget the context NAME; the cluster is not touched."""
    contexts = _read(frame)
    record = _record(contexts, name)
    if not is_dry_run:
        place = f" of '{record['namesrv']}'" if record["namesrv"] else ""
        confirm(frame, f"forget context '{name}'{place}", is_sure=is_sure)
        write_contexts(contexts_path(frame.environment), contexts.without(name))
    _show(frame, {**record, "is_deleted": not is_dry_run})


def _read(frame: Frame) -> Contexts:
    return read_contexts(contexts_path(frame.environment))


def _record(contexts: Contexts, name: str) -> dict[str, Any]:
    entry = contexts.entry(name)
    record: Record = {
        "name": name,
        "is_current": name == contexts.current,
        "namesrv": entry.namesrv,
        "access_key": entry.access_key,
        "secret_key_file": entry.secret_key_file,
        "tls": entry.tls,
        "tls_ca": entry.tls_ca,
        "tls_cert": entry.tls_cert,
        "tls_key": entry.tls_key,
        "timeout_ms": entry.timeout_ms,
    }
    return dict(record)


def _show(frame: Frame, record: dict[str, Any]) -> None:
    said = {name: value for name, value in record.items() if value is not None}
    frame.show_record(record if frame.is_for_programs else said)
