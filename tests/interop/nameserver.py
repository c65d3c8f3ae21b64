"""Our own name server as a process of its own, where a test can use Apache's instead."""

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.interop.ports import LOOPBACK, free_port
from tests.interop.processes import Process, Stoppable

READY = "name server listens on"


class OurNameServer(Stoppable):
    """A running name server of ours, in ``folder``; ``settings`` come on top of a test's usual.

    A second one in the same folder with the same ``listenPort`` is the first one come back.
    """

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.kv_config_path = folder / "kvConfig.json"
        self.settings = {
            "listenPort": str(free_port()),
            "bindAddress": LOOPBACK,
            "kvConfigPath": str(self.kv_config_path),
            **(settings or {}),
        }
        self.port = int(self.settings["listenPort"])
        self.address = f"{LOOPBACK}:{self.port}"
        self.process = start(folder, self.settings)
        try:
            self.process.wait_until_printed(READY)
        except BaseException:
            self.process.stop()
            raise

    def stop(self) -> int:
        """Ask it to end, make it end, and give its exit code."""
        return self.process.stop()


def start(folder: Path, settings: Mapping[str, str]) -> Process:
    """Start a name server with a file of ``settings``, and wait for nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}={value}\n" for key, value in settings.items()]
    (folder / "server.conf").write_text("".join(lines))
    return restart(folder)


def restart(folder: Path) -> Process:
    """Start a name server with the file it has in ``folder``, and wait for nothing."""
    argv = [sys.executable, "-m", "cometmq", "nameserver", "-c", str(folder / "server.conf")]
    return Process("our-namesrv", argv, folder=folder, env={"HOME": str(folder)})
