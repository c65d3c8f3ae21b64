"""What is made once on a machine and kept in the user's cache: small scripts, class archives.

``COMETMQ_CACHE`` names another folder. Everything in it can be deleted at any time.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path


def folder(environment: Mapping[str, str]) -> Path:
    """Where things are kept; it need not exist yet. Raises OSError when there is no home either."""
    named = environment.get("COMETMQ_CACHE")
    if named:
        return Path(named)
    try:
        return Path.home() / ".cache" / "cometmq"
    except RuntimeError as error:  # containers run users whom no file knows
        raise FileNotFoundError(f"no home folder, and COMETMQ_CACHE names none: {error}") from error


def name_of(path: Path) -> str:
    """A name for what belongs to ``path``: ``usr-lib-jvm-17`` for ``/usr/lib/jvm/17``."""
    return re.sub(r"[^A-Za-z0-9]+", "-", str(path)).strip("-")


def keep_script(script: Path, text: str) -> None:
    """Have an executable file with this text; others may run it right now."""
    if script.is_file() and script.read_text() == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    unfinished = script.with_name(f".{script.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.chmod(unfinished.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    unfinished.rename(script)
