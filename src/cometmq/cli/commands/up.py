"""``cometmq up``: a name server and brokers on this machine, with one command."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.connection import NAMESRV_DEFAULT
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.local_service import BROKERS_MAX, LocalOptions, LocalService
from cometmq.cli.output import Format
from cometmq.cli.sizes import brief_path
from cometmq.remoting.running import run


@click.command(
    "up",
    cls=Command,
    examples=(
        Example("All there is to it", "cometmq up", stays_up=True),
        Example("To see how clients use several brokers", "cometmq up --brokers 2", stays_up=True),
    ),
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="How many brokers; more than one run in processes of their own.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where everything is kept.  [default: ~/.local/share/cometmq]",
)
@click.option(
    "--listen",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 lets other machines in.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the broker, the next one's is higher by ten; 0 takes any that is free.  "
    "[default: 10911]",
)
@click.option(
    "--namesrv-port",
    type=click.IntRange(0, 65535),
    default=9876,
    show_default=True,
    metavar="N",
    envvar="COMETMQ_NAMESRV_PORT",
    help="Port of the name server; 0 takes any that is free.",
)
@pass_frame
def command(
    frame: Frame,
    /,
    data: Path | None,
    brokers: int,
    listen: str,
    port: int | None,
    namesrv_port: int,
) -> None:
    """Run a name server and a broker in one process.

    Both listen on this machine only, unless --listen says otherwise; SIGTERM and SIGINT stop them.
    The store is kept between runs; its files are smaller than those of 'cometmq broker'. The
    broker.conf beside it may hold further settings, and Apache's broker opens the store with it.

    With --brokers the name server is in this process and each broker in one of its own, with a
    folder of its own below the directory. They stop with this one; when one of them dies the others
    are stopped, and the exit code is 1.
    """
    options = LocalOptions(
        data=data or Path.home() / ".local" / "share" / "cometmq",
        listen=listen,
        port=port,
        namesrv_port=namesrv_port,
        brokers=brokers,
        log_flags=frame.log_flags,
    )
    run(lambda: LocalService(options, frame.environment, lambda service: tell(frame, service)))
    frame.end_line()


def tell(frame: Frame, service: LocalService) -> None:
    """Say where it is and what can be done with it."""
    commands = _next_commands(service.name_server_address)
    if frame.output in (None, Format.TABLE):
        frame.write("\n".join(_lines(service, commands)) + "\n")
        _note_left_out(frame, service.left_out)
        return
    brokers = [{"name": broker.name, "address": broker.address} for broker in service.brokers]
    frame.show_record(
        {
            "name_server": service.name_server_address,
            "broker": service.brokers[0].address,
            "brokers": brokers,
            "data": str(service.options.data),
            "next": list(commands),
        }
    )


def _lines(service: LocalService, commands: Mapping[str, str]) -> list[str]:
    is_alone = len(service.brokers) == 1
    width = max(map(len, commands))
    return [
        f"name server listens on {service.name_server_address}",
        *(
            f"{'broker' if is_alone else broker.name} listens on {broker.address}"
            for broker in service.brokers
        ),
        f"data is kept in {brief_path(service.options.data)}",
        "",
        "Ctrl-C stops it. Next, in another terminal:",
        *(f"  {line:<{width}}  # {purpose}" for line, purpose in commands.items()),
    ]


def _note_left_out(frame: Frame, names: Sequence[str]) -> None:
    if names:
        needed = ascii_lowercase.index(names[-1][-1]) + 1
        frame.note(
            f"not started, with the messages of an earlier run: {', '.join(names)};"
            f" 'cometmq up --brokers {needed}' does"
        )


def _next_commands(namesrv: str) -> dict[str, str]:
    where = "" if namesrv == NAMESRV_DEFAULT else f" --namesrv {namesrv}"
    return {
        f"cometmq produce greetings hello{where}": "send a message",
        f"cometmq consume greetings{where}": "read what is there",
        f"cometmq top{where}": "watch it",
    }
