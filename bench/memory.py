"""How much memory a process has, as its system says."""

from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """In megabytes: what only the process has, and with what it shares or could read again."""

    anonymous: float
    resident: float


def memory_mb(pid: int | str = "self") -> Memory:
    """Raises ProcessLookupError, or another OSError, when the process has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    if "RssAnon" not in fields:  # it is only waited for
        raise ProcessLookupError(f"process {pid} has ended")
    return Memory(*(int(fields[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS")))
