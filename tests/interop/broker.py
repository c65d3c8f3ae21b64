"""Our own broker as a process of its own, where a test can use Apache's instead."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.interop import apache, asking
from tests.interop.commands import tail
from tests.interop.ports import LOOPBACK, free_port_triple
from tests.interop.processes import Process, ProcessDiedError, Stoppable


class OurBroker(Stoppable):
    """A running broker of ours, in ``folder``, known to the name server(s).

    ``settings`` come on top of those Apache's broker gets in tests. One that was stopped or killed
    comes back with ``start``, on the same port and with the same store.
    """

    def __init__(
        self, folder: Path, *, namesrv: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._namesrv = namesrv
        self.store_path = folder / "store"
        self.settings = {
            "listenPort": str(free_port_triple()),
            "bindAddress": LOOPBACK,
            "namesrvAddr": namesrv,
            "storePathRootDir": str(self.store_path),
            "storePathCommitLog": str(self.store_path / "commitlog"),
            **apache.BROKER_SETTINGS,
            **(settings or {}),
        }
        self.name = self.settings["brokerName"]
        self.port = int(self.settings["listenPort"])
        self.address = f"{LOOPBACK}:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "broker.conf"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        self.process = self.start()

    def start(self) -> Process:
        """Start it and return once the name servers know it."""
        argv = [sys.executable, "-m", "cometmq", "broker", "-c", str(self._file)]
        env = {"HOME": str(self._folder)}
        self.process = Process(f"our-{self.name}", argv, folder=self._folder, env=env)
        try:
            for namesrv in self._namesrv.split(";"):
                is_known = functools.partial(self._is_known_to, namesrv)
                asking.wait_until(is_known, f"{namesrv} knows {self.address}")
        except BaseException:
            self.process.stop()
            raise
        return self.process

    def stop(self) -> int:
        """Ask it to end, make it end, and give its exit code."""
        return self.process.stop()

    def kill(self) -> int:
        """End it as a power cut would, leaving the store as it is."""
        return self.process.kill()

    def _is_known_to(self, namesrv: str) -> bool:
        if not self.process.is_alive():
            raise ProcessDiedError(self.process.name, self.process.stop(), tail(self.process.log()))
        return self.address.encode() in apache.cluster_info(namesrv)
