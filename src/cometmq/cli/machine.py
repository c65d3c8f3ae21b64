"""Facts about the machine and the installation that ``version`` and ``doctor`` report."""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, metadata

PACKAGES = ("uvloop", "lz4", "zstandard")
"""Packages that CometMQ uses where they are there."""


@dataclass(frozen=True, slots=True)
class Package:
    """An optional package: its version (None: not installed) and why it cannot be imported."""

    version: str | None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What matters about where we run."""

    python: tuple[int, int, int]
    implementation: str
    platform: str
    core: str
    is_core_forced: bool
    packages: Mapping[str, Package]
    file_limit: tuple[int, int] | None
    """Open files allowed now and at most, -1 for "no limit"; None where there is no such thing."""


def this_machine() -> Machine:
    """Look around. Imports the optional packages, since only that shows whether they work."""
    return Machine(
        python=sys.version_info[:3],
        implementation=platform.python_implementation(),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        core=active_core(),
        is_core_forced=os.environ.get("COMETMQ_PURE") == "1",
        packages={name: find_package(name) for name in PACKAGES},
        file_limit=_file_limit(),
    )


def active_core() -> str:
    """``compiled`` or ``plain``: which twin of the hot functions is in use."""
    from cometmq.codec import core

    return core.active()


def find_package(name: str) -> Package:
    """Look for a package and try it out."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(None)
    try:
        import_module(name)
    except ImportError as error:
        return Package(version, fault=str(error))
    return Package(version)


def _file_limit() -> tuple[int, int] | None:
    try:
        import resource
    except ImportError:  # only POSIX has it
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)
