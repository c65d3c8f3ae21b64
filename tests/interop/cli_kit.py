"""The ``cometmq`` program as a subprocess, against a cluster."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> Any:
        """What a command that was run with ``-o json`` says went wrong."""
        return json.loads(self.stderr)["error"]


@dataclass(frozen=True, slots=True)
class Cli:
    """Runs the program for one cluster, in a home of its own."""

    namesrv: str
    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, stdin: str | None = None) -> Ran:
        """One command line, whatever comes of it; without ``stdin`` there is none."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.variables,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of a command that succeeds and has nothing to complain of."""
        ran = self.run(*arguments, stdin=stdin)
        assert (ran.exit_code, ran.stderr) == (0, ""), (arguments, ran)
        return ran.stdout

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        """What a command that succeeds says with ``-o json``."""
        return json.loads(self.ok(*arguments, "-o", "json", stdin=stdin))

    def lines(self, *arguments: str, stdin: str | None = None) -> list[str]:
        """The lines of a command's table, the last blanks of each cut off."""
        return self.ok(*arguments, stdin=stdin).splitlines()

    def table(self, *arguments: str, stdin: str | None = None) -> tuple[str, list[list[str]]]:
        """The headings of a table, and its cells as far as they have no blanks in them."""
        heading, *rows = self.lines(*arguments, stdin=stdin)
        return heading, [row.split() for row in rows]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "cometmq", *arguments]

    @property
    def variables(self) -> dict[str, str]:
        """The environment: this cluster, this home, and none of the caller's settings."""
        own = {"HOME": str(self.home), "NAMESRV_ADDR": self.namesrv, **self.environment}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COMETMQ_")}
        kept = {k: v for k, v in os.environ.items() if k in ("COMETMQ_PURE", "COMETMQ_CACHE")}
        inherited.pop("XDG_CONFIG_HOME", None)
        return {**inherited, **kept, **own}
