"""``cometmq doctor``: what on this machine would get in the way, and what to do about it."""

from collections.abc import Sequence
from pathlib import Path

import click

from cometmq.cli.check import Check, Status
from cometmq.cli.cluster_checks import ClusterFacts, check_cluster, cluster_facts
from cometmq.cli.command import Command, Example
from cometmq.cli.connection import cluster_options, run, target_of
from cometmq.cli.frame import Frame, pass_frame
from cometmq.cli.local_checks import (
    PortUse,
    check_disk,
    check_java,
    check_port,
    disk_space,
    port_use,
)
from cometmq.cli.machine import Machine, Package, this_machine
from cometmq.cli.problems import ExitCode
from cometmq.clock import SystemClock
from cometmq.java import bundled_home, look

PYTHON_MIN = (3, 11)
FILES_MIN = 256
"""Below this a broker cannot open its own store files, never mind connections."""
FILES_COMFORTABLE = 8192
"""A few thousand connections and queues; each takes a descriptor."""

_USES = {
    "uvloop": ("", "network traffic costs more CPU without it"),
    "lz4": ("compress", "messages compressed with LZ4 cannot be read"),
    "zstandard": ("compress", "messages compressed with Zstandard cannot be read"),
}


def examine(machine: Machine) -> list[Check]:
    """Every check of the installation, in the order a person would go through them."""
    packages = [_package(name, package) for name, package in machine.packages.items()]
    return [_python(machine), _core(machine), *packages, _files(machine)]


def verdict(checks: Sequence[Check]) -> ExitCode:
    """Warnings are no reason to stop a start script; failures are."""
    has_failed = any(check.status is Status.FAIL for check in checks)
    return ExitCode.FAILED if has_failed else ExitCode.DONE


def _python(machine: Machine) -> Check:
    found = ".".join(map(str, machine.python))
    if machine.python < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        advice = f"install Python {wanted} or later and make a new environment with it"
        return Check("python", Status.FAIL, f"{found} is too old", advice)
    return Check("python", Status.OK, f"{found} {machine.implementation}")


def _core(machine: Machine) -> Check:
    if machine.core == "compiled":
        return Check("core", Status.OK, "compiled")
    if machine.is_core_forced:
        advice = "unset COMETMQ_PURE to use the compiled core"
        return Check("core", Status.WARN, "plain, because COMETMQ_PURE=1", advice)
    advice = "install a C compiler, then: pip install --force-reinstall cometmq"
    return Check("core", Status.WARN, "plain: works, but several times slower", advice)


def _package(name: str, package: Package) -> Check:
    extra, loss = _USES[name]
    wanted = f"cometmq[{extra}]" if extra else name
    if package.fault:
        advice = f"pip install --force-reinstall {name}"
        detail = f"{package.version} is installed but cannot be imported: {package.fault}"
        return Check(name, Status.FAIL, detail, advice)
    if package.version is None:
        return Check(name, Status.WARN, f"not installed: {loss}", f"pip install '{wanted}'")
    return Check(name, Status.OK, package.version)


def _files(machine: Machine) -> Check:
    if machine.file_limit is None:
        return Check("open files", Status.OK, "no limit on this platform")
    soft, hard = machine.file_limit
    if soft < 0 or soft >= FILES_COMFORTABLE:
        return Check("open files", Status.OK, "no limit" if soft < 0 else f"up to {soft}")
    status = Status.FAIL if soft < FILES_MIN else Status.WARN
    detail = f"up to {soft}: each connection and each store file takes one"
    if 0 <= hard < FILES_COMFORTABLE:
        advice = "raise the hard limit (limits.conf, or LimitNOFILE= in the systemd unit)"
    else:
        advice = f"ulimit -n {FILES_COMFORTABLE if hard < 0 else hard}"
    return Check("open files", status, detail, advice)


@click.command(
    "doctor",
    cls=Command,
    examples=(
        Example("What should I fix?", "cometmq doctor"),
        Example("In a start script", "cometmq doctor -o plain || echo 'this machine is not fit'"),
    ),
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where the store is or will be.  [default: ~/.local/share/cometmq]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=10911,
    show_default=True,
    metavar="N",
    help="Where a broker is to listen here.",
)
@click.option(
    "--namesrv-port",
    type=click.IntRange(1, 65535),
    default=9876,
    show_default=True,
    metavar="N",
    help="Where a name server is to listen here.",
)
@cluster_options
@click.pass_context
@pass_frame
def command(
    frame: Frame, context: click.Context, /, data: Path | None, port: int, namesrv_port: int
) -> None:
    """Check this machine and its cluster for what gets in the way.

    Each check ends as ok, warn (it works, but worse than it could), fail or skip (there is nothing
    to look at). The exit code is 1 when a check failed. A cluster is looked at from here when one
    is there: do its name servers agree, can its brokers be reached at the addresses that clients
    are told, what do their clocks and disks say?
    """
    directory = data or Path.home() / ".local" / "share" / "cometmq"
    around, facts = run(_look(frame, port, namesrv_port))
    checks = [
        *examine(this_machine()),
        check_disk(disk_space(directory)),
        check_java(look(frame.environment, bundled=bundled_home())),
        *map(check_port, around),
        *check_cluster(facts),
    ]
    frame.show_rows(
        [check.as_record() for check in checks],
        columns=("check", "status", "detail", "next_step"),
        colours={"status": {"ok": "green", "warn": "yellow", "fail": "red"}},
    )
    context.exit(verdict(checks))


async def _look(
    frame: Frame, port: int, namesrv_port: int
) -> tuple[tuple[PortUse, PortUse], ClusterFacts]:
    ports = await port_use("name server", namesrv_port), await port_use("broker", port)
    return ports, await cluster_facts(target_of(frame), SystemClock().now_ms)
