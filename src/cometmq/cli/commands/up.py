"""``cometmq up``: a name server and a broker on this machine, with one command."""

import shlex
from pathlib import Path

import click

from cometmq.cli.command import Command, Example
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.local_service import LocalOptions, LocalService
from cometmq.cli.output import Format
from cometmq.remoting.running import run


@click.command(
    "up", cls=Command, examples=(Example("All there is to it", "cometmq up", stays_up=True),)
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
    help="Port of the broker; 0 takes any that is free.  [default: 10911]",
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
    frame: Frame, /, data: Path | None, listen: str, port: int | None, namesrv_port: int
) -> None:
    """Run a name server and a broker in one process.

    Both listen on this machine only, unless --listen says otherwise; SIGTERM and SIGINT stop them.
    The store is kept between runs; its files are smaller than those of 'cometmq broker'. The
    broker.conf beside it may hold further settings, and Apache's broker opens the store with it.
    """
    options = LocalOptions(
        data=data or Path.home() / ".local" / "share" / "cometmq",
        listen=listen,
        port=port,
        namesrv_port=namesrv_port,
    )
    run(lambda: LocalService(options, frame.environment, lambda service: _tell(frame, service)))


def _tell(frame: Frame, service: LocalService) -> None:
    """Say where it is and what can be done with it."""
    store, file = shlex.quote(str(service.store_root)), shlex.quote(str(service.broker_file))
    commands = {
        f"cometmq store stat {store}": "what is in the store",
        f"cometmq store dump {store}": "the messages in it",
        f"cometmq broker -c {file} -p": "all settings of the broker",
    }
    if frame.output in (None, Format.TABLE):
        lines = [
            f"name server listens on {service.name_server_address}",
            f"broker listens on {service.broker_address}",
            f"data is kept in {service.options.data}",
            "",
            "Ctrl-C stops it. Next, in another terminal:",
            *(f"  {line}  # {purpose}" for line, purpose in commands.items()),
        ]
        frame.write("\n".join(lines) + "\n")
    else:
        frame.show_record(
            {
                "name_server": service.name_server_address,
                "broker": service.broker_address,
                "data": str(service.options.data),
                "next": list(commands),
            }
        )
